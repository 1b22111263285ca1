"""Actions that a model file might make a compiler child attempt. Each role attempts some, and the tests check the
results.

Pass this file as `handlers` to `run_child`. It runs inside the sandbox, so it does not import anything from the tests.
"""

# The functions of `os` are used deliberately, because the tests are about system calls:
# ruff: noqa: PTH109, PTH115, PTH208, PTH211

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import resource
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from service.compiler.sandbox import Report
from service.core.builds.build import Stage

Request = Mapping[str, Any]
Result = Mapping[str, Any]

libc = ctypes.CDLL(None, use_errno=True)


def attempt(action: Callable[[], Any]) -> str:
    """Runs `action`. Returns the name of the errno that stopped it, or "done" if it succeeded."""
    try:
        action()
    except OSError as error:
        return errno.errorcode[error.errno or 0]
    return "done"


def call(function: str, *arguments: Any) -> Callable[[], None]:
    """Returns an action for `attempt` that calls a function of libc."""

    def action() -> None:
        if getattr(libc, function)(*arguments) < 0:
            raise OSError(ctypes.get_errno(), function)

    return action


# -- actions that are allowed


def echo(request: Request, report: Report) -> Result:
    report.stage(Stage.CODEGEN, 0.5)
    report.at(op="conv2d", tensor="x")
    report.log("hello")
    print("this goes to the log")
    return {
        "request": dict(request),
        "directory": os.getcwd(),
        "environment": dict(os.environ),
        "umask": os.umask(0),
        "group": os.getpgrp() == os.getpid(),
    }


def scheduling(request: Request, report: Report) -> Result:
    """Returns the niceness, the scheduling policy, the session and the processors of this process."""
    # the fields of proc(5), beginning with the third
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    return {
        "nice": int(fields[16]),
        "policy": os.sched_getscheduler(0),
        "session": int(fields[3]),
        "processors": sorted(os.sched_getaffinity(0)),
    }


def descriptors(request: Request, report: Report) -> Result:
    """Returns the target of each open descriptor, and the id of this process."""
    listed = {"process": str(os.getpid())}
    for name in os.listdir("/proc/self/fd"):
        try:
            listed[name] = os.readlink(f"/proc/self/fd/{name}")
        except FileNotFoundError:  # this is the descriptor that os.listdir used
            continue
    return listed


def work(request: Request, report: Report) -> Result:
    """Reads a file that it may read, and creates and removes files in a folder that it may write to."""
    text = Path(request["readable"]).read_text()
    made = Path("made")
    made.mkdir()
    (made / "a").write_text(text)
    (made / "a").rename(made / "b")
    (made / "b").rename("result")
    made.rmdir()
    return {"text": Path("result").read_text(), "mode": Path("result").stat().st_mode & 0o777}


def use_threads(request: Request, report: Report) -> Result:
    results: list[int] = []
    threads = [threading.Thread(target=results.append, args=(n,)) for n in range(request["threads"])]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return {"sum": sum(results)}


# -- access to files


def read_files(request: Request, report: Report) -> Result:
    def reopen() -> None:
        # O_PATH needs no permission. Opening the file through /proc afterwards does.
        path = os.open(request["secret"], os.O_PATH)
        os.close(os.open(f"/proc/self/fd/{path}", os.O_RDONLY))

    secret, parent = Path(request["secret"]), Path(f"/proc/{os.getppid()}")
    return {
        "open": attempt(secret.read_bytes),
        "through root": attempt(Path("/proc/self/root", *secret.parts[1:]).read_bytes),
        "through dots": attempt(Path(os.path.relpath(secret, os.getcwd())).read_bytes),
        "through O_PATH": attempt(reopen),
        "list": attempt(lambda: os.listdir(secret.parent)),
        "hard link": attempt(lambda: os.link(secret, "link")),
        "symbolic link": attempt(lambda: os.symlink(secret, "link")),
        "rename": attempt(lambda: secret.rename("stolen")),
        "settings": attempt(lambda: os.listdir("/etc")),
        "parent's environment": attempt((parent / "environ").read_bytes),
        "parent's command line": attempt((parent / "cmdline").read_bytes),
        "parent's memory": attempt((parent / "mem").read_bytes),
        "parent's files": attempt(lambda: os.listdir(parent / "fd")),
        "all processes": attempt(lambda: os.listdir("/proc")),
        "devices": attempt(lambda: os.listdir("/dev")),
    }


def write_files(request: Request, report: Report) -> Result:
    victim = Path(request["victim"])
    name = os.fsencode(victim)
    return {
        "create": attempt((victim.parent / "new").touch),
        "directory": attempt((victim.parent / "new").mkdir),
        "overwrite": attempt(lambda: victim.write_text("x")),
        "append": attempt(lambda: victim.open("a")),
        "truncate": attempt(lambda: os.truncate(victim, 0)),
        "open and truncate": attempt(lambda: os.close(os.open(victim, os.O_RDONLY | os.O_TRUNC))),
        "open for ioctl and truncate": attempt(lambda: os.close(os.open(victim, os.O_ACCMODE | os.O_TRUNC))),
        "delete": attempt(victim.unlink),
        "rename": attempt(lambda: victim.rename(victim.with_name("other"))),
        "replace": attempt(lambda: Path("result").replace(victim)),
        "chmod": attempt(lambda: victim.chmod(0o777)),
        "chown": attempt(lambda: os.chown(victim, 0, 0)),
        "times": attempt(lambda: os.utime(victim, (0, 0))),
        "attribute": attempt(call("setxattr", name, b"user.x", b"y", 1, 0)),
        "fchmod of what is readable": attempt(lambda: os.fchmod(os.open(sys.executable, os.O_RDONLY), 0o777)),
        "pipe by name": attempt(lambda: os.mkfifo("pipe")),
        "device": attempt(lambda: os.mknod("device", 0o600 | 0o020000, os.makedev(1, 1))),
        "own badness": attempt(lambda: Path("/proc/self/oom_score_adj").write_text("-1000")),
        "shared memory": attempt(Path("/dev/shm/new").touch),
    }


# -- access to the network and to other processes


def open_sockets(request: Request, report: Report) -> Result:
    families = {
        "unix": socket.AF_UNIX,
        "inet": socket.AF_INET,
        "inet6": socket.AF_INET6,
        "netlink": socket.AF_NETLINK,
        "packet": socket.AF_PACKET,
        "vsock": socket.AF_VSOCK,
        "alg": socket.AF_ALG,
    }
    results = {name: attempt(partial(socket.socket, family, socket.SOCK_RAW)) for name, family in families.items()}
    return {
        **results,
        "stream": attempt(lambda: socket.create_connection(("127.0.0.1", request["port"]))),
        "pair": attempt(socket.socketpair),
    }


def start_programs(request: Request, report: Report) -> Result:
    environment = dict(os.environ)
    return {
        "exec": attempt(lambda: os.execv("/bin/true", ["true"])),
        "exec a descriptor": attempt(lambda: os.execve(os.open(sys.executable, os.O_RDONLY), ["x"], environment)),
        "fork": attempt(os.fork),
        "vfork": attempt(call("vfork")),
        "spawn": attempt(lambda: os.posix_spawn("/bin/true", ["true"], environment)),
        "subprocess": attempt(lambda: subprocess.run(["/bin/true"], check=False)),
        "memory file": attempt(lambda: os.memfd_create("x")),
    }


def raw_calls(request: Request, report: Report) -> Result:
    """Makes each system call by its number, with zeros as arguments, and returns the names of the errnos."""
    results = {}
    for name, number in request["numbers"].items():
        ctypes.set_errno(0)
        result = libc.syscall(ctypes.c_long(number), *[ctypes.c_ulong(0)] * 6)
        results[name] = errno.errorcode[ctypes.get_errno()] if result < 0 else "done"
    return results


def harm_processes(request: Request, report: Report) -> Result:
    parent = os.getppid()
    return {
        "probe": attempt(lambda: os.kill(parent, 0)),
        "terminate": attempt(lambda: os.kill(parent, signal.SIGTERM)),
        "terminate all": attempt(lambda: os.kill(-1, signal.SIGTERM)),
        "terminate group": attempt(lambda: os.killpg(os.getpgrp(), signal.SIGTERM)),
        "queue": attempt(call("sigqueue", parent, signal.SIGTERM, None)),
        "descriptor": attempt(lambda: os.pidfd_open(parent)),
        "own the input": attempt(call("fcntl", 0, 8, parent)),
        "trace": attempt(call("ptrace", 16, parent, None, None)),
        "be traced": attempt(call("ptrace", 0, 0, None, None)),
        "read memory": attempt(call("process_vm_readv", parent, None, 0, None, 0, 0)),
        "limit": attempt(lambda: resource.prlimit(parent, resource.RLIMIT_NOFILE, (3, 3))),
        "priority": attempt(lambda: os.setpriority(os.PRIO_PROCESS, parent, 19)),
        "affinity": attempt(lambda: os.sched_setaffinity(parent, {0})),
        "outlive": attempt(call("prctl", 1, 0, 0, 0, 0)),
        "new session": attempt(os.setsid),
    }


def raise_limits(request: Request, report: Report) -> Result:
    def unlimit(what: int) -> Callable[[], None]:
        def action() -> None:
            try:
                resource.setrlimit(what, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
            except ValueError as error:  # Python raises this instead of EPERM
                raise PermissionError(errno.EPERM, str(error)) from error

        return action

    return {
        "memory": attempt(unlimit(resource.RLIMIT_AS)),
        "processor": attempt(unlimit(resource.RLIMIT_CPU)),
        "file": attempt(unlimit(resource.RLIMIT_FSIZE)),
        "files": attempt(unlimit(resource.RLIMIT_NOFILE)),
        "core": attempt(unlimit(resource.RLIMIT_CORE)),
    }


def privileges(request: Request, report: Report) -> Result:
    """Returns the capabilities and the seccomp state of this process from /proc/self/status."""
    lines = (line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    status = {name: value.strip() for name, value in lines}
    return {name: status[name] for name in ("CapInh", "CapPrm", "CapEff", "CapAmb", "NoNewPrivs", "Seccomp")}


def signal_oneself(request: Request, report: Report) -> Result:
    seen: list[int] = []
    signal.signal(signal.SIGUSR1, lambda number, frame: seen.append(number))
    os.kill(os.getpid(), signal.SIGUSR1)
    signal.raise_signal(signal.SIGUSR1)
    return {"seen": len(seen)}


def foreign_call(request: Request, report: Report) -> Result:
    """Calls getpid by machine code that uses another calling convention (hexadecimal, for x86-64)."""
    code = bytes.fromhex(request["code"])
    memory = mmap.mmap(-1, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    memory.write(code)
    function = ctypes.CFUNCTYPE(ctypes.c_long)(ctypes.addressof(ctypes.c_char.from_buffer(memory)))
    return {"pid": function()}

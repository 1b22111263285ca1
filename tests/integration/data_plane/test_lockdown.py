"""The sandbox of the data plane. An artifact's code that runs while it is loaded tries various attacks."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from service.core.digest import canonical_json
from service.native import __file__ as native
from service.workers.data_plane.frames import frame
from tests.support.plane_process import PlaneProcess
from tests.support.small_artifact import CONSTANTS, SIMPLE
from tests.support.waiting import eventually

_PLANE = Path(native).with_name("octet-plane")
_ATTEMPTS = (
    *("read", "write", "write beside", "unlink", "socket", "unix socket", "connect", "connect by a message"),
    *("send to a socket", "read what was left open", "read beneath what was left open", "truncate"),
    *("truncate without access", "signal", "let the kernel signal", "limit", "outlive", "open up"),
    *("fork", "exec", "read in a thread"),
)
# The code writes the result of each attempt to a file that only the parent reads.
_HOSTILE = """
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <arpa/inet.h>
#include <unistd.h>
#include <pthread.h>

static void say(const char* what, long result) {
  fprintf(stderr, "%s %s\\n", what, result < 0 ? "refused" : "done");
}
static void* elsewhere(void* unused) {
  say("read in a thread", open("SECRET", O_RDONLY));
  return unused;
}
__attribute__((constructor)) static void mischief(void) {
  say("read", open("SECRET", O_RDONLY));
  say("write", open("PLACE/new", O_WRONLY | O_CREAT, 0600));
  say("write beside", open("STORE/new", O_WRONLY | O_CREAT, 0600));
  say("unlink", unlink("SECRET"));
  say("socket", socket(AF_INET, SOCK_STREAM, 0));
  say("unix socket", socket(AF_UNIX, SOCK_STREAM, 0));
  // A socket that listened becomes one that connects, without a call for it.
  struct sockaddr_in other = {AF_INET, htons(OTHERS), {htonl(INADDR_LOOPBACK)}};
  shutdown(LISTENS, SHUT_RDWR);
  say("connect", sendto(LISTENS, "x", 1, MSG_FASTOPEN, (struct sockaddr*)&other, sizeof other));
  struct iovec part = {"x", 1};
  struct msghdr message = {&other, sizeof other, &part, 1};
  say("connect by a message", sendmsg(LISTENS, &message, MSG_FASTOPEN));
  // A datagram goes where it says, whomever its socket is connected to.
  int pair[2] = {-1, -1};
  struct sockaddr_un mailbox = {AF_UNIX, "MAILBOX"};
  socketpair(AF_UNIX, SOCK_DGRAM, 0, pair);
  say("send to a socket", sendto(pair[0], "x", 1, 0, (struct sockaddr*)&mailbox, sizeof mailbox));
  say("read what was left open", pread(LEFT_FILE, &part, 1, 0));
  say("read beneath what was left open", openat(LEFT_FOLDER, "secret", O_RDONLY));
  say("truncate", open("CONSTANTS", O_RDONLY | O_TRUNC));
  say("truncate without access", open("CONSTANTS", 3 | O_TRUNC));
  say("signal", syscall(SYS_tgkill, PARENT, PARENT, 0));
  say("let the kernel signal", fcntl(LISTENS, F_SETOWN, PARENT));
  say("limit", prlimit(PARENT, RLIMIT_NOFILE, 0, (void*)&other));
  say("outlive", prctl(PR_SET_PDEATHSIG, 0));
  say("open up", prctl(PR_SET_DUMPABLE, 1));
  say("fork", fork());
  char* arguments[] = {"/bin/true", 0};
  say("exec", execve("/bin/true", arguments, 0));
  pthread_t thread;
  if (pthread_create(&thread, 0, elsewhere, 0) == 0) pthread_join(thread, 0);
}
int add(void* const* operands) { return 7; }
int twice(void* const* operands) { return 7; }
"""


@pytest.fixture
def attempts(tmp_path: Path) -> list[str]:
    """Returns the output of the hostile code, one line for each attempt."""
    secret, position, store = tmp_path / "secret", tmp_path / "place", tmp_path / "store"
    secret.write_text("it")
    position.mkdir()
    store.mkdir()
    source, library = tmp_path / "hostile.c", store / "hostile.so"
    constants = store / "constants"
    constants.write_bytes(CONSTANTS.tobytes())
    listens, outside = (socket.create_server(("127.0.0.1", 0)) for _ in range(2))
    mailbox = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    mailbox.bind(str(tmp_path / "mailbox"))
    left = [os.open(secret, os.O_RDONLY), os.open(tmp_path, os.O_RDONLY)]
    words = {
        **{
            "SECRET": secret,
            "PLACE": position,
            "STORE": store,
            "CONSTANTS": constants,
            "MAILBOX": tmp_path / "mailbox",
        },
        **{"LISTENS": listens.fileno(), "OTHERS": outside.getsockname()[1], "PARENT": os.getpid()},
        **{"LEFT_FILE": left[0], "LEFT_FOLDER": left[1]},
    }
    text = _HOSTILE
    for word, meaning in words.items():
        text = text.replace(word, str(meaning))
    source.write_text(text)
    subprocess.run([sys.executable, "-m", "ziglang", "cc", "-shared", "-fPIC", "-w", source, "-o", library], check=True)
    part = {
        "batch": 1,
        "artifact": "",
        "config": canonical_json(SIMPLE).decode(),
        "library": str(library),
        "constants": str(constants),
    }
    orders = os.memfd_create("orders")
    os.write(orders, frame({"type": "load", "key": 1, "model": "m", "version": "1", "parts": [part]}))
    os.lseek(orders, 0, os.SEEK_SET)
    process = subprocess.Popen(
        [_PLANE, "--orders", str(orders), "--http", str(listens.fileno()), "--reads", store],
        pass_fds=[orders, listens.fileno(), *left],
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    lines = [process.stderr.readline().strip() for _ in _ATTEMPTS]
    process.kill()  # the process does not handle other signals any more
    process.communicate()
    for each in (listens, outside, mailbox):
        each.close()
    for descriptor in (orders, *left):
        os.close(descriptor)
    assert constants.read_bytes() == CONSTANTS.tobytes()
    return lines


def test_code_of_an_artifact_can_access_no_file_no_program_and_no_network(attempts: list[str]) -> None:
    assert attempts == [f"{attempt} refused" for attempt in _ATTEMPTS]


def test_the_files_of_proc_that_it_may_read_stay_open(served: PlaneProcess) -> None:
    """Otherwise the kernel may replace their inodes when memory is short, and no model can be loaded any more."""
    opened = {str(each.readlink()) for each in Path(f"/proc/{served.pid}/fd").iterdir()}
    assert {"/proc/cpuinfo", f"/proc/{served.pid}/cgroup"} <= opened


def test_the_process_has_no_capabilities_and_an_isolated_network(served: PlaneProcess) -> None:
    process = Path("/proc", str(served.pid))
    status = dict(line.split(":\t", 1) for line in (process / "status").read_text().splitlines() if ":\t" in line)
    assert {status[f"Cap{kind}"] for kind in ("Inh", "Prm", "Eff", "Amb")} == {"0" * 16}
    if os.geteuid() != 0 or subprocess.run(["unshare", "--user", "--net", "true"]).returncode:
        pytest.skip("only root may look, and only where there are user namespaces")
    assert (process / "ns/user").readlink() != Path("/proc/self/ns/user").readlink()
    assert (process / "ns/net").readlink() != Path("/proc/self/ns/net").readlink()
    assert (process / "uid_map").read_text().split() == [str(os.geteuid()), str(os.geteuid()), "1"]


# Starts the data plane like the supervisor, prints its pid, and is killed.
_PARENT = """
import ctypes, os, signal, sys
if (pid := os.fork()) == 0:
    ctypes.CDLL(None).prctl(1, signal.SIGTERM)
    os.execv(sys.argv[1], sys.argv[1:])
print(pid, flush=True)
signal.pause()
"""


def test_it_ends_with_its_parent_although_its_credentials_have_changed(tmp_path: Path) -> None:
    """When a process gains credentials, the kernel cancels its parent-death signal."""
    with socket.create_server(("127.0.0.1", 0)) as listens:
        arguments = [str(_PLANE), "--http", str(listens.fileno()), "--reads", str(tmp_path)]
        parent = subprocess.Popen(
            [sys.executable, "-c", _PARENT, *arguments], stdout=subprocess.PIPE, text=True, pass_fds=[listens.fileno()]
        )
        assert parent.stdout is not None
        process = Path("/proc", parent.stdout.readline().strip())
        eventually(lambda: "Seccomp:\t2" in (process / "status").read_text())
        parent.kill()
        parent.communicate()
        eventually(lambda: has_ended(process))


def has_ended(process: Path) -> bool:
    try:
        return "\nState:\tZ" in (process / "status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return True

"""An artifact whose code attacks the machine by system calls when it is called.

Its library passes every check: nothing runs when it is loaded, and it imports nothing.
"""

from __future__ import annotations

import io
import os
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from service.cache import OciLayout
from service.cache.oci import Manifest
from service.compiler.lowering.link import link
from service.core.artifacts.artifact import (
    ARTIFACT_TYPE,
    CONSTANTS_MEDIA_TYPE,
    FORMAT_ANNOTATION,
    LIBRARY_MEDIA_TYPE,
    NUMERICS_ANNOTATION,
    SOURCE_ANNOTATION,
    TARGET_ANNOTATION,
    Report,
)
from service.core.artifacts.compatibility import CONFIG_MEDIA_TYPE
from service.core.digest import Digest, canonical_json, digest_of
from service.core.target import detect_host
from tests.support.small_artifact import BYTES, LENGTH, config_of, tensor

# The attempts, in order. The output has one element for each: the kernel's result.
ATTEMPTS = (
    *("read a secret", "write a file", "write beside the artifact", "remove a file", "look into the parent"),
    *("make an internet socket", "make a Unix socket", "connect", "signal the parent", "reach the parent's limits"),
    *("make a file in memory", "fork a program", "become a program"),
)
_SOURCE = """
#if defined(__x86_64__)
enum { OPENAT = 257, UNLINKAT = 263, SOCKET = 41, CONNECT = 42, KILL = 62, PRLIMIT = 302, MEMFD = 319, CLONE = 56,
       EXECVE = 59, EXIT = 231, WAIT4 = 61, GETPPID = 110, WRITE = 1 };
static long call(long n, long a, long b, long c, long d) {
  long result;
  register long r10 __asm__("r10") = d;
  register long r8 __asm__("r8") = 0;
  __asm__ volatile("syscall" : "=a"(result) : "a"(n), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8)
                   : "rcx", "r11", "memory");
  return result;
}
#else
enum { OPENAT = 56, UNLINKAT = 35, SOCKET = 198, CONNECT = 203, KILL = 129, PRLIMIT = 261, MEMFD = 279, CLONE = 220,
       EXECVE = 221, EXIT = 94, WAIT4 = 260, GETPPID = 173, WRITE = 64 };
static long call(long n, long a, long b, long c, long d) {
  register long x8 __asm__("x8") = n;
  register long x0 __asm__("x0") = a;
  register long x1 __asm__("x1") = b;
  register long x2 __asm__("x2") = c;
  register long x3 __asm__("x3") = d;
  register long x4 __asm__("x4") = 0;
  __asm__ volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4) : "memory");
  return x0;
}
#endif
enum { HERE = -100, CREATE = 0101, SIGCHLD = 17, OPEN_FILES = 7 };

int octet_mischief(void* const* operands) {
  int* said = operands[1];
  for (int i = 0; i < LENGTH; ++i) said[i] = 0;
  long parent = call(GETPPID, 0, 0, 0, 0);
  char digits[] = "/proc/0000000000";
  char* number = digits + sizeof digits - 1;
  for (long left = parent; left > 0; left /= 10) *--number = (char)('0' + left % 10);
  for (int at = 5; at >= 0; --at) *--number = "/proc/"[at];
  said[0] = (int)call(OPENAT, HERE, (long)"SECRET", 0, 0);
  said[1] = (int)call(OPENAT, HERE, (long)"WRITTEN", CREATE, 0600);
  said[2] = (int)call(OPENAT, HERE, (long)"BESIDE", CREATE, 0600);
  said[3] = (int)call(UNLINKAT, HERE, (long)"VICTIM", 0, 0);
  said[4] = (int)call(OPENAT, HERE, (long)number, 0, 0);
  said[5] = (int)call(SOCKET, 2, 1, 0, 0);
  said[6] = (int)call(SOCKET, 1, 1, 0, 0);
  unsigned char address[16] = {2, 0, PORT >> 8, PORT & 255, 127, 0, 0, 1};
  said[7] = (int)call(CONNECT, said[5], (long)address, sizeof address, 0);
  said[8] = (int)call(KILL, parent, 0, 0, 0);
  said[9] = (int)call(PRLIMIT, parent, OPEN_FILES, 0, (long)digits);
  said[10] = (int)call(MEMFD, (long)"m", 0, 0, 0);
  const char* arguments[] = {"PROGRAM", "STARTED", 0};
  long child = said[11] = (int)call(CLONE, SIGCHLD, 0, 0, 0);
  if (child == 0) {
    call(EXECVE, (long)arguments[0], (long)arguments, 0, 0);
    call(EXIT, 1, 0, 0, 0);
  }
  if (child > 0) {
    call(WAIT4, child, 0, 0, 0);
  } else {
    said[12] = (int)call(EXECVE, (long)arguments[0], (long)arguments, 0, 0);
  }
  CRASH
  return 0;
}
"""


@dataclass(frozen=True)
class Trap:
    """The artifact, and the targets of its attacks.

    Attributes:
        traces: attempt -> the file that it would create.
        victim: the file that it would remove.
        listener: the socket to which it would connect.
    """

    folder: Path
    digest: Digest
    traces: Mapping[str, Path]
    victim: Path
    listener: socket.socket

    def reached(self) -> set[str]:
        """Returns the attempts that had a visible effect outside of the process."""
        found = {name for name, path in self.traces.items() if path.exists()}
        if not self.victim.exists():
            found.add("remove a file")
        try:
            self.listener.accept()[0].close()
            found.add("connect")
        except BlockingIOError:
            pass
        return found


@contextmanager
def trap(root: Path, crash: str = "") -> Iterator[Trap]:
    """Creates the artifact and its targets in an empty folder.

    Args:
        crash: a C statement that the code executes last.
    """
    store, secret, victim = root / "hostile.octet", root / "id_ed25519", root / "victim"
    secret.write_text("it")
    victim.write_text("it")
    listener = socket.create_server(("127.0.0.1", 0))
    listener.setblocking(False)
    traces = {
        "write a file": root / "written",
        "write beside the artifact": store / "beside",
        "fork a program": root / "started",
    }
    words = {
        "SECRET": str(secret),
        "WRITTEN": str(root / "written"),
        "BESIDE": str(store / "beside"),
        "VICTIM": str(victim),
        "PROGRAM": "/usr/bin/touch",
        "STARTED": str(root / "started"),
        "LENGTH": str(LENGTH),
        "PORT": str(listener.getsockname()[1]),
        "CRASH": crash,
    }
    source = _SOURCE
    for word, text in words.items():
        source = source.replace(word, text)
    with listener:
        yield Trap(store, _write_artifact(store, _linked(root, source)), traces, victim, listener)


def _linked(folder: Path, source: str) -> Path:
    """Compiles the source and links it with the linker and the checks of a build. Returns the path of the library."""
    host = detect_host()
    assert host.best is not None
    object_, library = folder / "code.o", folder / "code.so"
    compiler = [sys.executable, "-m", "ziglang", "cc", "-x", "c", "-", "-c", "-o", str(object_)]
    plain = ["-O1", "-fPIC", "-ffreestanding", "-fno-stack-protector", "-fno-asynchronous-unwind-tables", "-g0", "-w"]
    target = ["-target", f"{host.architecture}-linux-gnu", "-fno-sanitize=all", "-fno-addrsig"]
    environment = {**os.environ, "ZIG_GLOBAL_CACHE_DIR": str(folder), "ZIG_LOCAL_CACHE_DIR": str(folder)}
    subprocess.run([*compiler, *plain, *target], input=source.encode(), check=True, env=environment)
    link([object_], library, host.best, allow_unsandboxed=True)
    return library


def _write_artifact(store: Path, library: Path) -> Digest:
    layout, host = OciLayout(store), detect_host()
    assert host.best is not None
    config = {
        **config_of([("input", 0), ("output", 0)], [("octet_mischief", [0, 1])], arena_bytes=BYTES),
        "target": host.best.name,
    }
    layers = (
        layout.put_blob_descriptor(LIBRARY_MEDIA_TYPE, library.read_bytes()),
        layout.put_blob_descriptor(CONSTANTS_MEDIA_TYPE, bytes(64)),
    )
    annotations = {
        SOURCE_ANNOTATION: digest_of(b""),
        TARGET_ANNOTATION: host.best.name,
        NUMERICS_ANNOTATION: "xnnpack",
        FORMAT_ANNOTATION: "tflite",
    }
    described = layout.put_blob_descriptor(CONFIG_MEDIA_TYPE, canonical_json(config))
    digest = layout.put_manifest(Manifest(ARTIFACT_TYPE, described, layers, annotations)).digest
    answers, expected = io.BytesIO(), {"0.0": tensor(0)}
    np.savez(answers, allow_pickle=False, **expected)
    layout.attach(digest, Report.VECTORS, answers.getvalue())
    kernels = {"layers": [], "plain": [], "declined": {}, "reorders": 0}
    coverage = {"macs": 0, "integer_percent": 0.0, "kernels": kernels}
    layout.attach(digest, Report.COVERAGE, canonical_json(coverage))
    return digest

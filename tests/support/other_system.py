"""Pretends that this process runs on Windows: `pretend()` removes the modules and the names that only Unix has.

The modules of other packages are imported first, because they decide by `sys.platform` what to import.
"""

from __future__ import annotations

import importlib
import os
import signal
import socket
import sys
from importlib.machinery import ModuleSpec

_IMPORTED_FIRST = (
    *("asyncio", "ctypes", "email.message", "getpass", "multiprocessing", "shutil", "ssl", "subprocess", "tarfile"),
    *("tempfile", "httpx", "numpy", "PIL.Image", "pydantic_settings", "rich.console", "rich.live", "rich.progress"),
    *("rich.table", "typer"),
)
_MODULES = ("fcntl", "grp", "pty", "pwd", "resource", "syslog", "termios", "tty", "_posixshmem")
_NAMES: dict[object, tuple[str, ...]] = {
    os: (
        *(
            "O_CLOEXEC",
            "O_DIRECTORY",
            "O_NOFOLLOW",
            "O_PATH",
            "WNOHANG",
            "confstr",
            "fchmod",
            "fork",
            "getgid",
            "getuid",
        ),
        *("geteuid", "killpg", "memfd_create", "mkfifo", "nice", "pidfd_open", "register_at_fork", "sched_getaffinity"),
        *("sched_setaffinity", "sendfile", "setsid", "sysconf", "uname"),
    ),
    signal: (
        *("SIGALRM", "SIGBUS", "SIGCHLD", "SIGHUP", "SIGKILL", "SIGPIPE", "SIGQUIT", "SIGSYS", "SIGUSR1", "SIGUSR2"),
        *("SIGXCPU", "pthread_sigmask", "setitimer", "sigwait"),
    ),
    socket: ("AF_UNIX", "SOCK_CLOEXEC", "SO_REUSEPORT", "recv_fds", "send_fds"),
}
# Packages of the extras, which a client does not have.
_EXTRAS = ("alembic", "fastapi", "flatbuffers", "sqlalchemy", "tflite", "tvm", "tvm_ffi", "uvicorn", "ziglang")


class _Missing:
    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        if name in (*_MODULES, *_EXTRAS):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return None


def pretend() -> None:
    for module in _IMPORTED_FIRST:
        importlib.import_module(module)
    for module in _MODULES:
        sys.modules.pop(module, None)
    for owner, names in _NAMES.items():
        for name in names:
            if hasattr(owner, name):
                delattr(owner, name)
    sys.meta_path.insert(0, _Missing())
    sys.platform = "win32"

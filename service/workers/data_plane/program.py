"""The program of the data plane, and how a process becomes it."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NoReturn

from service.core.errors import Unsupported

SHARED_MEMORY = Path("/dev/shm")  # where shm_open's files are
_PATH = Path(__file__).parents[2] / "native" / "octet-plane"
_OPENSSL = "libssl.so.3"


def require_tls() -> None:
    """Raises `Unsupported`: the program cannot encrypt here."""
    try:
        ctypes.CDLL(_OPENSSL)
    except OSError as error:
        raise Unsupported(
            f"TLS needs OpenSSL 3, and {_OPENSSL} is not on this machine", hint="install libssl3, or openssl-libs"
        ) from error


def become(descriptors: Mapping[str, int], readable: Sequence[Path], writable: Sequence[Path] = ()) -> NoReturn:
    """Replaces this process by the data plane: see `service/native/plane/main.cc`.

    Args:
        descriptors: that it inherits.
        readable: where artifacts are; it may open no other files.
        writable: but those that are here, and change them.

    Raises:
        Unsupported: it was not built.
    """
    if not _PATH.is_file():
        raise Unsupported(f"{_PATH.name} was not built", hint="run make setup or pip install to build it")
    arguments = [str(_PATH)]
    for name, descriptor in descriptors.items():
        os.set_inheritable(descriptor, True)
        arguments += f"--{name}", str(descriptor)
    for path in readable:
        arguments += "--reads", str(path.resolve())
    for path in writable:
        arguments += "--writes", str(path)
    os.execv(_PATH, arguments)

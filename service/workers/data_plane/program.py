"""The program of the data plane, and how a process becomes it."""

from __future__ import annotations

import ctypes
import os
import resource
import signal
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

from service.core.cards import driver_folder
from service.core.errors import Unsupported
from service.core.settings import Settings
from service.workers.data_plane.frames import frame

PATH = Path(__file__).parents[2] / "native" / "octet-plane"
GIVE_UP = signal.SIGUSR1  # tells it to answer what is under way with 503, and to end
_SHARED_MEMORY = Path("/dev/shm")  # where shm_open's files are
_OPENSSL = "libssl.so.3"


def require_tls() -> None:
    """Raises `Unsupported`: the program cannot encrypt here."""
    try:
        ctypes.CDLL(_OPENSSL)
    except OSError as error:
        raise Unsupported(
            f"TLS needs OpenSSL 3, and {_OPENSSL} is not on this machine", hint="install libssl3, or openssl-libs"
        ) from error


def raise_descriptors() -> None:
    """Every idle connection is one, and the default is a thousand."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def writable(settings: Settings) -> Sequence[Path]:
    """What `settings` let it change."""
    return [_SHARED_MEMORY] if settings.shared_memory else []


def become(
    descriptors: Mapping[str, int],
    readable: Sequence[Path],
    writable: Sequence[Path],
    orders: Iterable[tuple[Mapping[str, Any], bytes]],
    *,
    uses_cards: bool = False,
) -> NoReturn:
    """Replaces this process by the data plane: see `service/native/plane/main.cc`.

    Args:
        descriptors: that it inherits.
        readable: where artifacts are; it may open no other files.
        writable: but those that are here, and change them.
        orders: that it obeys before it takes a connection.
        uses_cards: whether NVIDIA's driver is to be started there, and may use its devices.

    Raises:
        Unsupported: it was not built.
    """
    if not PATH.is_file():
        raise Unsupported(f"{PATH.name} was not built", hint="run make setup or pip install to build it")
    memory = os.memfd_create("octet-orders")
    with os.fdopen(os.dup(memory), "wb") as file:
        file.writelines(frame(*order) for order in orders)
    os.lseek(memory, 0, os.SEEK_SET)
    arguments = [str(PATH)]
    for name, descriptor in {"orders": memory, **descriptors}.items():
        os.set_inheritable(descriptor, True)
        arguments += f"--{name}", str(descriptor)
    for path in readable:
        arguments += "--reads", str(path.resolve())
    for path in writable:
        arguments += "--writes", str(path)
    if uses_cards and (driver := driver_folder()) is not None:
        arguments += "--cards", str(driver.resolve())
        os.environ["CUDA_CACHE_DISABLE"] = "1"  # it has no home to keep compiled code in, and nothing to compile
    os.execv(PATH, arguments)

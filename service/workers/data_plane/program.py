"""Finds the program of the data plane, and replaces this process by it."""

from __future__ import annotations

import ctypes
import os
import resource
import signal
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

from service.core.errors import Unsupported
from service.core.settings import Settings
from service.core.system.gpus import driver_folder
from service.workers.data_plane.frames import frame

PATH = Path(__file__).parents[2] / "native" / "octet-plane"
GIVE_UP = signal.SIGUSR1  # this signal makes the data plane answer all requests in progress with 503, and end
_SHARED_MEMORY = Path("/dev/shm")  # where shm_open keeps its files
_OPENSSL = "libssl.so.3"


def require_tls() -> None:
    """Checks that TLS works in the program on this machine. Raises `Unsupported` if it does not."""
    try:
        ctypes.CDLL(_OPENSSL)
    except OSError as error:
        raise Unsupported(
            f"TLS needs OpenSSL 3, but {_OPENSSL} is not on this machine", hint="install libssl3, or openssl-libs"
        ) from error


def raise_descriptors() -> None:
    """Raises the limit of open descriptors to its maximum: each idle connection needs one, and the default is 1000 or
    so.
    """
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def writable(settings: Settings) -> Sequence[Path]:
    """Returns the folders whose files the data plane may change with these `settings`."""
    return [_SHARED_MEMORY] if settings.shared_memory else []


def become(
    descriptors: Mapping[str, int],
    readable: Sequence[Path],
    writable: Sequence[Path],
    orders: Iterable[tuple[Mapping[str, Any], bytes]],
    *,
    uses_gpus: bool = False,
) -> NoReturn:
    """Replaces this process by the data plane: see `service/native/plane/main.cc`.

    Args:
        descriptors: the descriptors that the data plane inherits, by name.
        readable: the folders of artifacts, in which the data plane may only read files.
        writable: the folders in which the data plane may open and change existing files too.
        orders: the orders that the data plane executes before it accepts a connection.
        uses_gpus: true if the data plane uses NVIDIA GPUs: it then loads their driver, and may open their devices.

    Raises:
        Unsupported: the program was not built.
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
    if uses_gpus and (driver := driver_folder()) is not None:
        arguments += "--cards", str(driver.resolve())
        # the data plane has no home directory in which the driver could keep compiled code, and nothing to compile
        os.environ["CUDA_CACHE_DISABLE"] = "1"
    os.execv(PATH, arguments)

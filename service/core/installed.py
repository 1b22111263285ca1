"""What is installed around this package: with its dependencies alone it runs models, and compiles and manages none."""

from __future__ import annotations

import os
from collections.abc import Mapping
from importlib.util import find_spec

from service.core.errors import Unsupported

SERVER = "pip install 'octet-serve[server]'"
# What compiling takes beside this package: distributions, and the modules that they bring.
COMPILER = {"apache-tvm": "tvm", "apache-tvm-ffi": "tvm_ffi", "ziglang": "ziglang"}
# What compiling for cards takes besides: NVIDIA's run-time compiler.
CARDS = "pip install 'octet-serve[cuda]'"
CARDS_PACKAGE, CARDS_MODULE = "nvidia-cuda-nvrtc-cu12", "nvidia.cuda_nvrtc"
# What tells a server's installation from a lesser one.
_SERVING = {name: name for name in ("alembic", "fastapi", "sqlalchemy", "uvicorn")}


def is_installed(module: str) -> bool:
    """Whether a module is there, within packages that may not be."""
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:
        return False


def not_installed(error: ModuleNotFoundError) -> Unsupported:
    """For a command that needs a package which is not here."""
    return Unsupported(
        f"this needs {error.name or error}, which is not installed: this is the runtime only, which runs, verifies and "
        "serves what octet compile wrote",
        hint=SERVER,
    )


def require_compiler() -> None:
    """Raises `Unsupported`: this is the runtime only."""
    _require(COMPILER)


def require_server() -> None:
    """Raises `Unsupported`: this is the runtime only. Before processes are started, which would fail one by one."""
    _require(_SERVING)


def _require(modules: Mapping[str, str]) -> None:
    for name, module in modules.items():
        if find_spec(module) is None:
            raise not_installed(ModuleNotFoundError(name=name))


def require_glibc() -> None:
    """Raises `Unsupported`: the C library is another, for which there are no native libraries."""
    try:
        version = os.confstr("CS_GNU_LIBC_VERSION")
    except (ValueError, OSError):  # musl does not know what is asked
        version = None
    if not version:
        raise Unsupported(
            "Octet's native libraries need glibc, and this system's C library is another (as Alpine's, musl)",
            hint="use a system with glibc 2.28 or newer: Debian, Ubuntu, Raspberry Pi OS, Fedora",
        )

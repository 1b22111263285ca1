"""Checks which optional packages are installed.

With its required dependencies alone, Octet only runs models: it cannot compile them or manage them on a server.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from importlib.util import find_spec

from service.core.errors import Unsupported

SERVER = "pip install 'octet-serve[server]'"
# The distributions that compiling needs, and their modules.
COMPILER = {"apache-tvm": "tvm", "apache-tvm-ffi": "tvm_ffi", "ziglang": "ziglang"}
# The additional package that compiling for GPUs needs: NVIDIA's run-time compiler.
GPUS = "pip install 'octet-serve[cuda]'"
CARDS_PACKAGE, CARDS_MODULE = "nvidia-cuda-nvrtc-cu12", "nvidia.cuda_nvrtc"
# The distributions that a server needs, and their modules.
_SERVING = {name: name for name in ("alembic", "fastapi", "sqlalchemy", "uvicorn")}


def is_installed(module: str) -> bool:
    """Returns true if a module is installed. Returns false also if a parent package is missing."""
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:
        return False


def not_installed(error: ModuleNotFoundError) -> Unsupported:
    """Returns the error for a command that needs a package which is not installed."""
    return Unsupported(
        f"this needs {error.name or error}, which is not installed: this installation only runs, verifies and serves "
        "what octet compile wrote",
        hint=SERVER,
    )


def require_compiler() -> None:
    """Raises `Unsupported` if a package for compiling is not installed."""
    _require(COMPILER)


def require_server() -> None:
    """Raises `Unsupported` if a server's package is not installed.

    Call it before starting processes, which would otherwise fail one by one.
    """
    _require(_SERVING)


def _require(modules: Mapping[str, str]) -> None:
    for name, module in modules.items():
        if find_spec(module) is None:
            raise not_installed(ModuleNotFoundError(name=name))


def require_glibc() -> None:
    """Raises `Unsupported` if the C library is not glibc, because the native libraries are built for glibc only."""
    try:
        version = os.confstr("CS_GNU_LIBC_VERSION")
    except (ValueError, OSError):  # musl does not define this name
        version = None
    if not version:
        raise Unsupported(
            "Octet's native libraries need glibc, and this system's C library is another (as Alpine's, musl)",
            hint="use a system with glibc 2.28 or newer: Debian, Ubuntu, Raspberry Pi OS, Fedora",
        )

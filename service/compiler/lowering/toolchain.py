"""Everything besides the model that decides what a build gives. Loads no TVM."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from service import core
from service.compiler.lowering import pass_order
from service.core.build import BuildInputs
from service.core.digest import Digest, digest_of_file, digest_of_json
from service.core.target import Target

LLVM_VERSION = "22"  # inside the TVM wheel; a test asks it
_PACKAGES = {"tvm": "apache-tvm", "tvm_ffi": "apache-tvm-ffi", "linker": "ziglang", "numpy": "numpy"}
_NVRTC = "nvidia-cuda-nvrtc-cu12"


def digest_of_sources(folder: Path) -> Digest:
    """Of all code below `folder`."""
    sources = sorted(path for kind in ("*.py", "*.cuh") for path in folder.rglob(kind))
    return digest_of_json({str(path.relative_to(folder)): digest_of_file(path) for path in sources})


@cache
def core_digest() -> Digest:
    """Of the sources of the domain: what children answer is in its words, and to inputs that it makes."""
    return digest_of_sources(Path(core.__file__).parent)


@cache
def _fingerprint() -> tuple[tuple[str, str], ...]:
    versions = {name: version(package) for name, package in _PACKAGES.items()}
    return tuple(
        {
            **versions,
            "llvm": LLVM_VERSION,
            "octet_compiler": digest_of_sources(Path(__file__).parents[1]),
            "passes": pass_order.text(),
        }.items()
    )


def fingerprint() -> dict[str, str]:
    """Versions of the tools, the digest of our own compiler and kernels, and the text of the pipeline of passes."""
    return dict(_fingerprint())


def code_versions(target: Target) -> dict[str, str]:
    """Versions of what turns a kernel's program into an object file."""
    if target.device == "cuda":
        return card_versions(target)
    return {name: fingerprint()[name] for name in ("tvm", "tvm_ffi", "llvm")}


def card_versions(target: Target) -> dict[str, str]:
    """Versions of what makes a card's machine code; none for a CPU, or where it is not installed."""
    try:
        return {"nvrtc": version(_NVRTC)} if target.device == "cuda" else {}
    except PackageNotFoundError:
        return {}


def versions(target: Target) -> dict[str, str]:
    """All that decides what a build for `target` becomes, here, besides what is asked for."""
    return {**fingerprint(), **card_versions(target)}


def build_inputs(
    source: Digest, target: Target, numerics: str, options: Mapping[str, Any] | None = None
) -> BuildInputs:
    """The build that answers this question, here."""
    return BuildInputs(source, target.name, numerics, versions(target), dict(options or {}))

"""Everything besides the model that decides what a build gives. Loads no TVM."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

from service import core
from service.compiler import pass_order
from service.core.build import BuildInputs
from service.core.digest import Digest, digest_of_file, digest_of_json
from service.core.target import Target

LLVM_VERSION = "22"  # inside the TVM wheel; a test asks it
_PACKAGES = {"tvm": "apache-tvm", "tvm_ffi": "apache-tvm-ffi", "linker": "ziglang", "numpy": "numpy"}


def _digest_of_sources(folder: Path) -> Digest:
    sources = sorted(folder.rglob("*.py"))
    return digest_of_json({str(path.relative_to(folder)): digest_of_file(path) for path in sources})


@cache
def core_digest() -> Digest:
    """Of the sources of the domain: what children answer is in its words, and to inputs that it makes."""
    return _digest_of_sources(Path(core.__file__).parent)


@cache
def _fingerprint() -> tuple[tuple[str, str], ...]:
    versions = {name: version(package) for name, package in _PACKAGES.items()}
    return tuple(
        {
            **versions,
            "llvm": LLVM_VERSION,
            "octet_compiler": _digest_of_sources(Path(__file__).parent),
            "passes": pass_order.text(),
        }.items()
    )


def fingerprint() -> dict[str, str]:
    """Versions of the tools, the digest of our own compiler and kernels, and the text of the pipeline of passes."""
    return dict(_fingerprint())


def code_versions() -> dict[str, str]:
    """Versions of what turns a tensor program into an object file."""
    return {name: fingerprint()[name] for name in ("tvm", "tvm_ffi", "llvm")}


def build_inputs(
    source: Digest, target: Target, numerics: str, options: Mapping[str, Any] | None = None
) -> BuildInputs:
    """The build that answers this question, here."""
    return BuildInputs(source, target.name, numerics, fingerprint(), dict(options or {}))

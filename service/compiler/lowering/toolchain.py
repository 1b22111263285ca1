"""The versions and digests that determine the result of a build, in addition to the model. Does not load TVM."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from service import core
from service.compiler.lowering import pass_order
from service.core.builds import dialects
from service.core.builds.build import BuildInputs
from service.core.digest import Digest, digest_of_file, digest_of_json
from service.core.target import Target

LLVM_VERSION = "22"  # the version in the TVM wheel; a test checks it
_PACKAGES = {"tvm": "apache-tvm", "tvm_ffi": "apache-tvm-ffi", "linker": "ziglang", "numpy": "numpy"}
_NVRTC = "nvidia-cuda-nvrtc-cu12"


def digest_of_sources(folder: Path) -> Digest:
    """Returns the digest of all Python and CUDA sources in `folder` and its subfolders."""
    sources = sorted(path for kind in ("*.py", "*.cuh") for path in folder.rglob(kind))
    return digest_of_json({str(path.relative_to(folder)): digest_of_file(path) for path in sources})


@cache
def core_digest() -> Digest:
    """Returns the digest of `service/core`, which determines the generated inputs and the format of results."""
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
    """Returns the versions of the tools, the digest of Octet's compiler and kernels, the text of the passes, and the
    digests of the configured dialects.
    """
    return {**dict(_fingerprint()), **dialects.digests()}


def code_versions(target: Target) -> dict[str, str]:
    """Returns the versions of the tools that compile a kernel's program to an object file."""
    if target.device == "cuda":
        return card_versions(target)
    return {name: fingerprint()[name] for name in ("tvm", "tvm_ffi", "llvm")}


def card_versions(target: Target) -> dict[str, str]:
    """Returns the version of the GPU compiler; empty for a CPU, or if the compiler is not installed."""
    try:
        return {"nvrtc": version(_NVRTC)} if target.device == "cuda" else {}
    except PackageNotFoundError:
        return {}


def versions(target: Target) -> dict[str, str]:
    """Returns the versions and digests that determine a build for `target` on this machine."""
    return {**fingerprint(), **card_versions(target)}


def build_inputs(
    source: Digest, target: Target, numerics: str, options: Mapping[str, Any] | None = None
) -> BuildInputs:
    """Returns the inputs of a build on this machine. The digest of these inputs identifies the build."""
    return BuildInputs(source, target.name, numerics, versions(target), dict(options or {}))

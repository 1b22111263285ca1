"""Kernels to object files, each compiled once: the cache is shared by layers, builds and models."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path

import tvm

from service.compiler import toolchain
from service.compiler.kernels.kernel import Kernel
from service.compiler.targets import CodegenTarget
from service.core.digest import digest_of_json

# Storage rewrite would merge accumulators into one buffer, and LLVM then keeps that in memory.
_CONFIG = {"tirx.disable_storage_rewrite": True}


class ObjectCache:
    """Object files by the content of what they were compiled from."""

    def __init__(self, directory: Path) -> None:
        """`directory` exists; several processes may share it."""
        self._directory = directory
        self.hits = self.misses = 0

    def compile(self, kernels: Mapping[str, Kernel], target: CodegenTarget) -> list[Path]:
        """The object file of each kernel, in order of their symbols."""
        return [self._object(symbol, kernels[symbol], target) for symbol in sorted(kernels)]

    def _object(self, symbol: str, kernel: Kernel, target: CodegenTarget) -> Path:
        key = digest_of_json(
            {"symbol": symbol, "content": kernel.content, "llvm": dict(target.llvm), "tools": toolchain.code_versions()}
        )
        path = self._directory / f"{key.removeprefix('sha256:')}.o"
        if path.exists():
            self.hits += 1
            return path
        self.misses += 1
        with tempfile.TemporaryDirectory(dir=self._directory) as scratch:
            made = Path(scratch, "kernel.o")
            _compile(symbol, kernel, target, made)
            made.replace(path)
        return path


def _compile(symbol: str, kernel: Kernel, target: CodegenTarget, path: Path) -> None:
    module = tvm.IRModule({symbol: kernel.function.with_attr("global_symbol", symbol)})
    with tvm.transform.PassContext(opt_level=3, config=_CONFIG):
        library = tvm.tirx.build(module, target=tvm.target.Target(dict(target.llvm)))
    library.write_to_file(str(path), "o")

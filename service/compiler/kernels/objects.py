"""Kernels to object files, each compiled once: the cache is shared by layers, builds and models."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import tvm
from tvm.tirx import transform

from service.compiler import toolchain
from service.compiler.kernels.kernel import Kernel
from service.compiler.targets import CodegenTarget
from service.core.digest import digest_of_json

# A kernel is scheduled already and its buffers are flat. What is left to do is the calling convention, and words that
# LLVM does not have; the passes of TVM's own pipeline would find nothing, and take longer than LLVM.
_PASSES = (
    transform.AnnotateEntryFunc(),
    transform.MakePackedAPI(),
    transform.LowerTVMBuiltin(),
    transform.LowerIntrin(),
)


class ObjectCache:
    """Object files by the content of what they were compiled from."""

    def __init__(self, directory: Path) -> None:
        """`directory` exists; several processes may share it."""
        self._directory = directory
        self.hits = self.misses = 0

    def compile(self, kernels: Mapping[str, Kernel], target: CodegenTarget) -> list[Path]:
        """The object file of each kernel, in order of their symbols; as many at a time as there are processors."""
        with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
            objects = [pool.submit(self._object, symbol, kernels[symbol], target) for symbol in sorted(kernels)]
            return [made.result() for made in objects]

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
    llvm = tvm.target.Target(dict(target.llvm))
    module = tvm.IRModule({symbol: kernel.function.with_attr("global_symbol", symbol)})
    module = transform.BindTarget(llvm.with_host(llvm))(module)
    lowered = tvm.transform.Sequential(list(_PASSES))(module)
    tvm.get_global_func("target.build.llvm")(lowered, llvm).write_to_file(str(path), "o")

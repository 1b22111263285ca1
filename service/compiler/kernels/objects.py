"""Compiles kernels to object files.

The process that writes a kernel's program has read data derived from an upload. Another process compiles it, which can
access only the program (`service.compiler.build.object_cache`).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import tvm
from tvm import tirx
from tvm.tirx import transform
from tvm_ffi.serialization import from_json_graph_str, to_json_graph_str

from service.compiler.kernels.cuda import nvrtc
from service.compiler.kernels.entry_points import make_entry_points
from service.compiler.kernels.kernel import DeviceFunction, Kernel
from service.compiler.kernels.rounding import round_all_products
from service.compiler.targets import CodegenTarget
from service.core.elf import data_object
from service.core.errors import BuildFailed

# A kernel is already scheduled, and its buffers are flat. These passes convert its calling convention and the
# operations that LLVM lacks. The other passes of TVM's pipeline would change nothing, and would take longer than LLVM.
_PASSES = (
    round_all_products,
    make_entry_points,
    transform.LowerTVMBuiltin(),
    transform.LowerIntrin(),
)


def program_of(kernel: Kernel) -> str:
    """Returns the program as text for `compile_program`. Equal programs have equal texts in every process."""
    if isinstance(kernel.function, DeviceFunction):
        return kernel.function.source
    return str(to_json_graph_str(kernel.function))


def code_symbols(symbol: str, codes: Mapping[str, bytes]) -> dict[str, bytes]:
    """Returns GPU code by the name that the runtime looks up: `symbol`, or for several GPUs `symbol.sm_80` etc.

    Args:
        codes: maps each compute capability to its code.
    """
    if len(codes) == 1:
        return dict.fromkeys([symbol], *codes.values())
    return {f"{symbol}.{capability}": code for capability, code in codes.items()}


def compile_program(program: str, symbol: str, target: CodegenTarget, path: Path) -> None:
    """Writes the object file of one kernel.

    Args:
        symbol: the name by which the model calls the kernel.

    Raises:
        BuildFailed: `program` is not a program for this target.
    """
    if target.cards:
        codes = {each: nvrtc.cubin(program, each, symbol) for each in target.cards}
        path.write_bytes(data_object(symbol, code_symbols(symbol, codes), "x86_64"))
        return
    _code_of(program, symbol, target).write_to_file(str(path), "o")


def assembly_of(program: str, symbol: str, target: CodegenTarget) -> str:
    """Returns the machine code of one kernel for a CPU as LLVM prints it. Arguments as for `compile_program`."""
    return str(_code_of(program, symbol, target).inspect_source("asm"))


def _code_of(program: str, symbol: str, target: CodegenTarget) -> tvm.runtime.Module:
    function = from_json_graph_str(program)
    if not isinstance(function, tirx.PrimFunc):
        raise BuildFailed(f"the program of kernel {symbol} is a {type(function).__name__}, not a function")
    llvm = tvm.target.Target(dict(target.llvm))
    module = tvm.IRModule({symbol: function.with_attr("global_symbol", symbol)})
    module = transform.BindTarget(llvm.with_host(llvm))(module)
    lowered = tvm.transform.Sequential(list(_PASSES))(module)
    return tvm.get_global_func("target.build.llvm")(lowered, llvm)

"""The TVM passes that turn canonical Relax into scheduled programs, and that compile these to an object file."""

from __future__ import annotations

from pathlib import Path

import tvm
from tvm import tirx
from tvm.relax import transform

from service.compiler.kernels.entry_points import make_entry_points
from service.compiler.kernels.rounding import round_all_products
from service.compiler.lowering import arena
from service.compiler.lowering.call_plan import plain_symbol
from service.compiler.lowering.plain import lower_plain
from service.compiler.targets import CodegenTarget

_ANCHOR = "anchor"
# Passes of TVM's pipeline that are omitted, because they create TVM's own calling convention or depend on it.
_OF_PACKED_FUNCTIONS = (
    "tirx.AnnotateEntryFunc",
    "tirx.MakePackedAPI",
    "tirx.FP8StorageLegalize",
    "tirx.BF16StorageLegalize",
)

# Reshapes and other plain operators are lowered after fusion. A reshape that is fused into an epilogue would prevent
# the fusion of the epilogue with the preceding reduction.
FUSE = (
    transform.AnnotateTIROpPattern(),
    transform.FuseOps(),
    transform.FuseTIR(),
    lower_plain(),
    transform.RewriteDataflowReshape(),
    transform.DeadCodeElimination(),
)
PLAN = (
    transform.ToNonDataflow(),
    arena.write_in_place,
    transform.RemovePurityChecking(),
    transform.CallTIRRewrite(),
    transform.StaticPlanBlockMemory(),
    transform.LowerAllocTensor(),
)


def generate(module: tvm.IRModule, target: CodegenTarget, path: Path) -> None:
    """Writes the object file of the functions that no hand-written kernel computes, lowered by TVM's own pipeline.

    Hand-written kernels are compiled in `kernels.objects`. No code is generated for `main` (`call_plan`).
    """
    llvm = tvm.target.Target(dict(target.llvm))
    functions = {
        variable: function.with_attr("global_symbol", plain_symbol(variable.name_hint))
        for variable, function in module.functions.items()
        if isinstance(function, tirx.PrimFunc)
    }
    lower, finalize, _ = tirx.get_tir_pipeline("s_tir")
    with llvm, tvm.transform.PassContext(disabled_pass=list(_OF_PACKED_FUNCTIONS)):
        lowered = lower(tirx.transform.BindTarget(llvm.with_host(llvm))(tvm.IRModule(functions)))
        finished = finalize()(make_entry_points(round_all_products(lowered)))
    tvm.get_global_func("target.build.llvm")(finished, llvm).write_to_file(str(path), "o")


def anchored(module: tvm.IRModule) -> tvm.IRModule:
    """Adds a tensor program to `module` if it has none. TVM creates an object file only for a module with programs."""
    if any(isinstance(function, tirx.PrimFunc) for function in module.functions.values()):
        return module
    anchor = tirx.PrimFunc([], tirx.Evaluate(tirx.const(0, "int32"))).with_attr("global_symbol", _ANCHOR)
    module = tvm.IRModule(dict(module.functions.items()))
    module[_ANCHOR] = anchor
    return module

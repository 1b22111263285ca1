"""From scheduled programs to object files, and the passes of TVM's that make them of canonical Relax."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import tvm
from tvm import relax, tirx
from tvm.relax import transform

from service.compiler import arena
from service.compiler.targets import CodegenTarget

ENTRY = "main"
_ANCHOR = "octet_anchor"

# Reshapes and other plain operators are lowered after fusion: fused into an epilogue, one would keep it from joining
# the reduction before it.
FUSE = (
    transform.AnnotateTIROpPattern(),
    transform.FuseOps(),
    transform.FuseTIR(),
    transform.LegalizeOps(),
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
LOWER = (
    transform.LowerRuntimeBuiltin(),
    transform.ComputePrimValue(),
    transform.VMShapeLower(),
)


@relax.expr_functor.mutator
class _TrustParameters(relax.PyExprMutator):  # type: ignore[misc]
    """Drops the check of every parameter's shape and dtype on each call: 0.3 us for each of a hundred constants.

    The only caller is our runtime, which takes constants from the artifact and checks inputs by its signature.
    """

    def visit_call_(self, call: relax.Call) -> relax.Expr:
        if isinstance(call.op, relax.ExternFunc) and call.op.global_symbol == "vm.builtin.check_tensor_info":
            return relax.Tuple([])
        return super().visit_call_(call)


@tvm.transform.module_pass(opt_level=0, name="TrustParameters")  # type: ignore[untyped-decorator]
def trust_parameters(module: tvm.IRModule, _context: tvm.transform.PassContext) -> tvm.IRModule:
    """Runs `_TrustParameters` on every Relax function."""
    mutator = _TrustParameters(module)
    for variable, function in module.functions_items():
        if isinstance(function, relax.Function):
            mutator.builder_.update_func(variable, mutator.visit_expr(function))
    return mutator.builder_.get()


def generate(module: tvm.IRModule, target: CodegenTarget, scratch: Path) -> None:
    """Compiles what the pipeline of passes made. Kernels that it calls by name are compiled elsewhere, and found when
    it is loaded.

    Writes to `scratch` the objects that TVM hands to a linker: `devc.o`, the virtual machine's program, and `lib0.o`,
    the functions that no kernel computes.
    """
    llvm = tvm.target.Target(dict(target.llvm))
    with llvm:
        executable = relax.build(module, llvm, relax_pipeline=_lower())
    _write_objects(executable, scratch)


def anchored(module: tvm.IRModule) -> tvm.IRModule:
    """`module` with at least one tensor program: TVM writes C source, not an object, for a module without."""
    if any(isinstance(function, tirx.PrimFunc) for function in module.functions.values()):
        return module
    anchor = tirx.PrimFunc([], tirx.Evaluate(tirx.const(0, "int32"))).with_attr("global_symbol", _ANCHOR)
    module = tvm.IRModule(dict(module.functions.items()))
    module[_ANCHOR] = anchor
    return module


def _lower() -> tvm.transform.Pass:
    return tvm.transform.Sequential([*LOWER, trust_parameters, transform.AttachGlobalSymbol()])


def _write_objects(executable: Any, scratch: Path) -> None:
    """Keeps the objects that TVM would hand to a linker. `export_library` deletes its own when it returns."""

    def keep(output: str, objects: list[str], options: Any = None, **_ignored: Any) -> None:
        for path in objects:
            shutil.copyfile(path, scratch / Path(path).name)
        Path(output).touch()

    executable.export_library(str(scratch / "unlinked.so"), fcompile=keep)

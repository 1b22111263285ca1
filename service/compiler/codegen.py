"""From canonical Relax to object files."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import tvm
from numpy.typing import NDArray
from tvm import relax
from tvm.relax import transform

from service.compiler import constants
from service.compiler.schedule import schedule
from service.compiler.targets import CodegenTarget

ENTRY = "main"

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
LOWER = (
    transform.ToNonDataflow(),
    transform.RemovePurityChecking(),
    transform.CallTIRRewrite(),
    transform.StaticPlanBlockMemory(),
    transform.LowerAllocTensor(),
    transform.KillAfterLastUse(),
    transform.LowerRuntimeBuiltin(),
    transform.ComputePrimValue(),
    transform.VMShapeLower(),
    transform.AttachGlobalSymbol(),
)


def pipeline_text() -> str:
    """The passes in order, as the build key holds them."""
    return ",".join(str(step.info.name) for step in (*FUSE, *LOWER))


def generate(module: tvm.IRModule, target: CodegenTarget, scratch: Path) -> tuple[list[Path], list[NDArray[Any]]]:
    """Compiles canonical Relax.

    Returns:
        Object files in `scratch`, in link order, and the constants that the entry function takes after its inputs.
    """
    llvm = tvm.target.Target(dict(target.llvm))
    with llvm:
        module = schedule(tvm.transform.Sequential(list(FUSE))(module), target)
        module, values = constants.lift(module)
        executable = relax.build(module, llvm, relax_pipeline=tvm.transform.Sequential(list(LOWER)))
    return _objects(executable, scratch), values


def _objects(executable: Any, scratch: Path) -> list[Path]:
    """The object files that TVM would hand to a linker. `export_library` deletes its own when it returns."""
    kept: list[Path] = []

    def keep(output: str, objects: list[str], options: Any = None, **_ignored: Any) -> None:
        for path in objects:
            kept.append(scratch / Path(path).name)
            shutil.copyfile(path, kept[-1])
        Path(output).touch()

    executable.export_library(str(scratch / "unlinked.so"), fcompile=keep)
    return kept

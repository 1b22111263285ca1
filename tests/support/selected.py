"""Compiles a model of QNN operators as the build child does, in this process: select, legalize, canonicalize, link."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from service.compiler import codegen
from service.compiler.kernels.group import KernelLibrary
from service.compiler.kernels.kernel import Kernel
from service.compiler.kernels.libraries import library_for
from service.compiler.kernels.objects import compile_program, program_of
from service.compiler.link import link
from service.compiler.passes import PIPELINE, Context
from service.compiler.qnn.decompose import decompose
from service.compiler.qnn.numerics import Mode, get_mode
from service.compiler.qnn.passes import simplify
from service.compiler.select.select import Selection, select
from service.compiler.steps import BUILT_FILES
from service.compiler.targets import CodegenTarget, codegen_target
from service.core.buffers import aligned_empty
from service.core.target import Target
from service.runtime.model import views

import tvm  # isort: skip
from tvm import relax  # isort: skip

Array = NDArray[Any]


def selected(module: tvm.IRModule, target: Target, numerics: str) -> Selection:
    mode = get_mode(numerics)
    return select(simplify(decompose(module), mode).module, library_for(target, mode))


def compiled(kernels: Mapping[str, Kernel], target: CodegenTarget, directory: Path) -> list[Path]:
    """The object of each kernel, in order of their symbols."""
    objects = [directory / f"{symbol}.o" for symbol in sorted(kernels)]
    for path in objects:
        compile_program(program_of(kernels[path.stem]), path.stem, target, path)
    return objects


def run_selected(
    module: tvm.IRModule,
    target: Target,
    numerics: str,
    inputs: Sequence[Array],
    scratch: Path,
    library_of: Callable[[Mode], KernelLibrary] | None = None,
) -> tuple[Selection, list[Array]]:
    """What was selected, and the outputs for `inputs` on this machine; of other kernels than the target's if told."""
    mode, codegen_for = get_mode(numerics), codegen_target(target)
    kernel_library = library_for(target, mode) if library_of is None else library_of(mode)
    context = Context(mode, codegen_for, kernel_library)
    codegen.generate(PIPELINE.run(module, context), codegen_for, scratch)
    assert context.selection is not None
    kernels = compiled(context.selection.kernels, codegen_for, scratch)
    objects = [*(scratch / name for name in BUILT_FILES), *kernels]
    library = scratch / "library.so"
    link(objects, library, target, allow_unsandboxed=True)
    machine = relax.VirtualMachine(tvm.runtime.load_module(str(library)), tvm.cpu(), memory_cfg="pooled")
    memory = aligned_empty([max((slot.end_bytes for slot in context.activations), default=0)], np.uint8)
    arena = [tvm.runtime.from_dlpack(view) for view in views(memory, context.activations)]
    result = machine["main"](*(tvm.runtime.tensor(value) for value in (*inputs, *context.constants)), *arena)
    outputs = [result] if isinstance(result, tvm.runtime.Tensor) else list(result)
    return context.selection, [np.asarray(output.numpy()) for output in outputs]

"""Lowers a module of QNN operators to a library in this process, with the same steps as a build.

A build runs each step in a sandboxed process. This tool only handles trusted input, and one process is quicker.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import tvm

from service.compiler.kernels.group import KernelLibrary
from service.compiler.kernels.kernel import Kernel
from service.compiler.kernels.libraries import library_for
from service.compiler.kernels.objects import compile_program, program_of
from service.compiler.lowering import codegen, constants
from service.compiler.lowering.call_plan import call_plan
from service.compiler.lowering.link import link
from service.compiler.lowering.passes import PIPELINE, Context
from service.compiler.qnn import graph
from service.compiler.qnn.lengths.axes import Axes
from service.compiler.qnn.numerics import Mode, get_mode
from service.compiler.select.selection import Selection
from service.compiler.targets import CodegenTarget, codegen_target
from service.core.artifacts.artifact import ArtifactConfig
from service.core.artifacts.buffers import aligned_empty
from service.core.digest import canonical_json
from service.core.models.arrays import Array
from service.core.models.signature import ModelSignature, TensorSpec, datatype_of
from service.core.target import Target


@dataclass(frozen=True)
class Lowered:
    """A module as the runtime loads it.

    Attributes:
        selection: the kernels that the module calls.
        library, constants: the files that the runtime maps.
    """

    selection: Selection
    config: ArtifactConfig
    library: Path
    constants: Path

    def write_config(self) -> list[Path]:
        """Writes the configuration beside the library. Returns the paths of all three, for an emulated CPU."""
        path = self.library.with_name("config.json")
        path.write_bytes(canonical_json(self.config.to_json()))
        return [path, self.library, self.constants]


def lower(
    module: tvm.IRModule,
    target: Target,
    numerics: str,
    inputs: Sequence[Array],
    scratch: Path,
    library_of: Callable[[Mode], KernelLibrary] | None = None,
    extra: Sequence[Kernel] = (),
    varying: Sequence[Axes] = (),
) -> Lowered:
    """Compiles and links a module.

    Args:
        inputs: arrays with the shapes and types of the inputs.
        scratch: the folder that the files are written to.
        library_of: a function that returns the kernel library for a mode; by default that of the target.
        extra: kernels that the module does not call, with their symbols in `facts`.
        varying: for each input, the axes that have the length that the module's last parameter contains. Empty if the
            inputs have one length.
    """
    mode, codegen_for = get_mode(numerics), codegen_target(target)
    kernel_library = library_for(target, mode) if library_of is None else library_of(mode)
    context = Context(mode, codegen_for, kernel_library, varying=varying)
    module = PIPELINE.run(module, context)
    plain, library, layer = scratch / "plain.o", scratch / "library.so", scratch / "constants.bin"
    codegen.generate(module, codegen_for, plain)
    selection = context.selection
    assert selection is not None
    kernels = {**selection.kernels, **{kernel.facts["symbol"]: kernel for kernel in extra}}
    link([plain, *compiled(kernels, codegen_for, scratch)], library, target, trusted=True)
    slots = constants.write(context.constants, layer)
    launched = {symbol: each.launch for symbol, each in selection.kernels.items() if each.launch is not None}
    longest = next((value.shape[axis] for value, axes in zip(inputs, varying, strict=False) for axis in axes), 0)
    plan = call_plan(
        module, slots, context.activations, launches=launched if codegen_for.cards else None, longest=longest
    )
    results = [(result.ty, np.dtype(str(result.ty.dtype))) for result in graph.results_of(graph.main_of(module))]
    outputs = [aligned_empty([int(dim) for dim in tensor.shape.values], dtype) for tensor, dtype in results]
    signature = ModelSignature(_specs("x", inputs), _specs("y", outputs))
    return Lowered(selection, ArtifactConfig(signature, target.name, numerics, plan), library, layer)


def compiled(kernels: Mapping[str, Kernel], target: CodegenTarget, directory: Path) -> list[Path]:
    """Compiles each kernel, and returns the paths of the objects in the order of their symbols."""
    objects = [directory / f"{symbol}.o" for symbol in sorted(kernels)]
    for path in objects:
        compile_program(program_of(kernels[path.stem]), path.stem, target, path)
    return objects


def _specs(name: str, values: Sequence[Array]) -> tuple[TensorSpec, ...]:
    return tuple(
        TensorSpec(f"{name}{index}", datatype_of(str(value.dtype)), value.shape) for index, value in enumerate(values)
    )

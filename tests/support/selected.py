"""Compiles a model of QNN operators in this process like the build child: select, legalize, canonicalize, link."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np

from service.compiler.kernels.group import KernelLibrary
from service.compiler.kernels.kernel import Kernel
from service.compiler.kernels.libraries import library_for
from service.compiler.kernels.objects import compile_program, program_of
from service.compiler.lowering import codegen, constants
from service.compiler.lowering.call_plan import call_plan
from service.compiler.lowering.link import link
from service.compiler.lowering.passes import PIPELINE, Context
from service.compiler.qnn import graph
from service.compiler.qnn.decompose import decompose
from service.compiler.qnn.numerics import Mode, get_mode
from service.compiler.qnn.passes import simplify
from service.compiler.select.select import select
from service.compiler.select.selection import Selection
from service.compiler.targets import CodegenTarget, codegen_target
from service.core.arrays import Array
from service.core.artifact import ArtifactConfig
from service.core.buffers import aligned_empty
from service.core.digest import canonical_json
from service.core.signature import ModelSignature, TensorSpec, datatype_of
from service.core.target import TARGETS, Target, detect_host, parse_target
from service.runtime import load_files
from tests.support import emulated, emulated_models
from tests.support.cuda import networks

import tvm  # isort: skip


# The targets that networks are tested on. With `OCTET_TEST_ISAS=aarch64`, they are those whose names begin with that,
# on emulated CPUs. By default, one ARM target is among them.
_CHOSEN = os.environ.get("OCTET_TEST_ISAS", "")
_EMULATED = [
    parse_target(name)
    for name in (emulated.CPUS if _CHOSEN else ["aarch64+dotprod"])
    if not emulated_models.missing(name)
]
# It adds only bfloat16 products to `x86-64-v4+vnni`, so only their tests use it.
BFLOAT16 = parse_target("x86-64-v4+vnni+bf16")
_HERE = [
    target
    for target in TARGETS
    if target.runs_on(detect_host()) and target.architecture == "x86_64" and target != BFLOAT16
]
RUNNING = [target for target in (*_HERE, *_EMULATED) if target.name.startswith(_CHOSEN)]


def selected(module: tvm.IRModule, target: Target, numerics: str) -> Selection:
    mode = get_mode(numerics)
    return select(simplify(decompose(module), mode).module, library_for(target, mode))


def compiled(kernels: Mapping[str, Kernel], target: CodegenTarget, directory: Path) -> list[Path]:
    """Compiles each kernel, and returns the paths of the objects in the order of their symbols."""
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
    """Compiles and runs a module. Returns the selection of kernels, and the outputs for `inputs`.

    Args:
        target: one of `RUNNING`.
        library_of: a function that returns the kernel library for a mode; by default that of the target.
    """
    selection, run = build_selected(module, target, numerics, inputs, scratch, library_of)
    return selection, run(inputs)


def build_selected(
    module: tvm.IRModule,
    target: Target,
    numerics: str,
    inputs: Sequence[Array],
    scratch: Path,
    library_of: Callable[[Mode], KernelLibrary] | None = None,
) -> tuple[Selection, Callable[[Sequence[Array]], list[Array]]]:
    """Compiles a module like `run_selected`. Returns the selection, and a function that computes the outputs for inputs
    with the shapes and types of `inputs`.
    """
    mode, codegen_for = get_mode(numerics), codegen_target(target)
    kernel_library = library_for(target, mode) if library_of is None else library_of(mode)
    context = Context(mode, codegen_for, kernel_library)
    module = PIPELINE.run(module, context)
    plain, library, layer = scratch / "plain.o", scratch / "library.so", scratch / "constants.bin"
    codegen.generate(module, codegen_for, plain)
    selection = context.selection
    assert selection is not None
    link([plain, *compiled(selection.kernels, codegen_for, scratch)], library, target, allow_unsandboxed=True)
    slots = constants.write(context.constants, layer)
    launched = {symbol: each.launch for symbol, each in selection.kernels.items() if each.launch is not None}
    plan = call_plan(module, slots, context.activations, launches=launched if codegen_for.cards else None)
    results = [(result.ty, np.dtype(str(result.ty.dtype))) for result in graph.results_of(graph.main_of(module))]
    outputs = [aligned_empty([int(dim) for dim in tensor.shape.values], dtype) for tensor, dtype in results]
    signature = ModelSignature(_specs("x", inputs), _specs("y", outputs))
    config = ArtifactConfig(signature, target.name, numerics, plan)
    if target.name in emulated.CPUS:
        described = scratch / "config.json"
        described.write_bytes(canonical_json(config.to_json()))

        def on_emulated_cpu(values: Sequence[Array]) -> list[Array]:
            (made,) = emulated_models.run(target.name, [described, library, layer], signature, [list(values)])
            return made

        return selection, on_emulated_cpu
    if codegen_for.cards:
        (capability,) = codegen_for.cards
        sources = {symbol: program_of(kernel) for symbol, kernel in selection.kernels.items()}
        networks.emulate(sources, capability, scratch / "kernels")
        return selection, lambda values: networks.run(config, library, layer, scratch / "kernels", values)
    return selection, load_files(config, library, layer).run


def _specs(name: str, values: Sequence[Array]) -> tuple[TensorSpec, ...]:
    return tuple(
        TensorSpec(f"{name}{place}", datatype_of(str(value.dtype)), value.shape) for place, value in enumerate(values)
    )

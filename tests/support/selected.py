"""Compiles a model of QNN operators in this process, with the steps of the build child: select, legalize, canonicalize,
link.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from service.compiler.kernels.group import KernelLibrary
from service.compiler.kernels.libraries import library_for
from service.compiler.kernels.objects import program_of
from service.compiler.qnn.decompose import decompose
from service.compiler.qnn.lengths.axes import Axes
from service.compiler.qnn.numerics import Mode, get_mode
from service.compiler.qnn.passes import simplify
from service.compiler.select.select import select
from service.compiler.select.selection import Selection
from service.compiler.targets import codegen_target
from service.core.models.arrays import Array
from service.core.target import TARGETS, Target, detect_host, parse_target
from service.runtime import load_files
from tests.support import emulated, emulated_models
from tests.support.cuda import networks
from tools.kernel.building import lower

import tvm  # isort: skip


# The targets on which networks are tested. With `OCTET_TEST_ISAS=aarch64`, the targets whose names begin with
# `aarch64`, on emulated CPUs. The default includes one ARM target.
_CHOSEN = os.environ.get("OCTET_TEST_ISAS", "")
_EMULATED = [
    parse_target(name)
    for name in (emulated.CPUS if _CHOSEN else ["aarch64+dotprod"])
    if not emulated_models.missing(name)
]
# A target that adds only bfloat16 products to `x86-64-v4+vnni`, so only tests of such products use it.
BFLOAT16 = parse_target("x86-64-v4+vnni+bf16")
_HERE = [
    target
    for target in TARGETS
    if target.runs_on(detect_host()) and target.architecture == "x86_64" and target != BFLOAT16
]
RUNNING = [target for target in (*_HERE, *_EMULATED) if target.name.startswith(_CHOSEN)]


def in_turns(*modes: str) -> list[tuple[Any, str]]:
    """Returns each target with one of the modes, in turn. The kernels' own tests cover all pairs."""
    return list(zip(RUNNING, itertools.cycle(modes), strict=False))


def selected(module: tvm.IRModule, target: Target, numerics: str) -> Selection:
    mode = get_mode(numerics)
    return select(simplify(decompose(module), mode).module, library_for(target, mode))


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
    varying: Sequence[Axes] = (),
) -> tuple[Selection, Callable[[Sequence[Array]], list[Array]]]:
    """Compiles a module like `run_selected`. Returns the selection, and a function that computes the outputs for inputs
    with the shapes and types of `inputs`.
    """
    lowered = lower(module, target, numerics, inputs, scratch, library_of, varying=varying)
    selection, config, library, layer = lowered.selection, lowered.config, lowered.library, lowered.constants
    if target.name in emulated.CPUS:
        paths = lowered.write_config()

        def on_emulated_cpu(values: Sequence[Array]) -> list[Array]:
            (made,) = emulated_models.run(target.name, paths, config.signature, [list(values)])
            return made

        return selection, on_emulated_cpu
    if codegen_target(target).cards:
        (capability,) = codegen_target(target).cards
        sources = {symbol: program_of(kernel) for symbol, kernel in selection.kernels.items()}
        networks.emulate(sources, capability, scratch / "kernels")
        return selection, lambda values: networks.run(config, library, layer, scratch / "kernels", values)
    return selection, load_files(config, library, layer).run

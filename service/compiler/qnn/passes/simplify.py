"""Runs the passes that simplify a model, one after the other."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import tvm
from tvm import relax

from service.compiler.qnn.numerics import Mode
from service.compiler.qnn.passes.biases import join_biases
from service.compiler.qnn.passes.casts import drop_casts
from service.compiler.qnn.passes.constants import fold_constants
from service.compiler.qnn.passes.extremes import split_extremes
from service.compiler.qnn.passes.functions import fuse_functions
from service.compiler.qnn.passes.moves import move_reshapes
from service.compiler.qnn.passes.normal_types import normalize_types
from service.compiler.qnn.passes.pads import move_pads
from service.compiler.qnn.passes.ranges import share_ranges
from service.compiler.qnn.passes.strides import move_strides
from service.compiler.qnn.passes.tables import make_tables
from service.compiler.qnn.passes.weights import keep_weights

# Returns a model and the names of the tensors that the pass changed.
Pass = Callable[[tvm.IRModule, Mode], tuple[tvm.IRModule, list[str]]]

PASSES: dict[str, Pass] = {
    "types normalized": normalize_types,
    "weights kept": keep_weights,
    "constants folded": fold_constants,
    "biases joined": join_biases,
    "functions fused": fuse_functions,
    "pads moved": move_pads,
    "tables made": make_tables,
    "casts dropped": drop_casts,
    "reshapes moved": move_reshapes,
    "strides moved": move_strides,
    "ranges shared": share_ranges,
    "extremes split": split_extremes,
}


@dataclass(frozen=True)
class Simplified:
    """A model after the passes.

    Attributes:
        done: pass -> the names of the tensors that it changed.
    """

    module: tvm.IRModule
    done: dict[str, list[str]]


def simplify(module: tvm.IRModule, mode: Mode) -> Simplified:
    """Runs all passes, in order.

    Requires: a model of `qnn.*` and plain operators, without transposed convolutions.
    Ensures: the outputs in `mode` do not change, bit for bit; no operator has an unused result.
    """
    done = {}
    module = relax.transform.DeadCodeElimination()(module)
    for name in PASSES:
        module, done[name] = run_pass(name, module, mode)
    return Simplified(module, done)


def run_pass(name: str, module: tvm.IRModule, mode: Mode) -> tuple[tvm.IRModule, list[str]]:
    """Runs one of `PASSES` and drops operators whose results are unused; returns the model and the names that it
    changed.
    """
    module, changed = PASSES[name](module, mode)
    return (relax.transform.DeadCodeElimination()(module) if changed else module), changed

"""Runs passes on the text of QNN graphs, for tests that contain a graph before and after a pass."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import tvm

from service.compiler.lowering.passes import PIPELINE, Context
from service.compiler.qnn import graph, oracle
from service.compiler.qnn.numerics import get_mode
from service.compiler.qnn.parser import parse_module
from service.compiler.qnn.printer import HEAD, complete_text_of
from service.compiler.targets import codegen_target
from service.core.builds.numerics import LITERT_REFERENCE
from service.core.models.arrays import Array
from service.core.target import parse_target

Run = Callable[[tvm.IRModule], tvm.IRModule]

PASSES = {each.name: each for each in PIPELINE.passes if each.returns_graph}
_TARGET = parse_target("x86-64-v3")


def check_pass(
    name: str | Run, before: str, after: str | None = None, *, mode: str = LITERT_REFERENCE, inputs: int = 2
) -> None:
    """Checks that a pass turns the graph `before` into `after`, and that the oracle computes the same from both.

    Args:
        name: a pass of the pipeline whose result is a graph, or a function that transforms a module.
        before: the complete text of a graph. The first line (`// qnn 1`) may be left out.
        after: the text of the result; None if the pass does not change the graph.
        mode: the numerics mode.
        inputs: the number of random inputs for which the outputs are compared.
    """
    module = parse_module(before)
    result = run_pass(name, module, mode)
    assert complete_text_of(result) == _complete(before if after is None else after)
    for values in random_inputs(module, inputs):
        expected, got = (oracle.run(each, get_mode(mode), values) for each in (module, result))
        for one, other in zip(expected, got, strict=True):
            np.testing.assert_array_equal(other, one)


def random_inputs(module: tvm.IRModule, count: int) -> list[list[Array]]:
    """Returns `count` lists of random inputs of a graph."""
    rng = np.random.default_rng(0)
    return [[_random(rng, param) for param in graph.main_of(module).params] for _ in range(count)]


def run_pass(name: str | Run, module: tvm.IRModule, mode: str = LITERT_REFERENCE) -> tvm.IRModule:
    """Returns the result of a pass. Its arguments are as for `check_pass`."""
    if not isinstance(name, str):
        return name(module)
    return PASSES[name].run(module, Context(get_mode(mode), codegen_target(_TARGET), None))


def _complete(text: str) -> str:
    return text if text.startswith(HEAD) else f"{HEAD}\n{text}"


def _random(rng: np.random.Generator, param: tvm.relax.Var) -> Array:
    shape, dtype = graph.shape_of(param), np.dtype(str(param.ty.dtype))
    if dtype.kind == "f":
        return rng.normal(0, 1, shape).astype(dtype)
    limits = np.iinfo(dtype)
    return rng.integers(limits.min, limits.max, shape, endpoint=True, dtype=dtype)

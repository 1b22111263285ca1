"""Compares kernels that are given the length of their input with the oracle, for models of exactly this length."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tvm import relax

from service.compiler.qnn import oracle
from service.compiler.qnn.numerics import get_mode
from service.core.builds.numerics import ONNXRUNTIME
from service.core.models.arrays import Array
from service.core.target import Target, detect_host
from service.runtime import load_files
from tests.support.qnn_models import Emit, module_of
from tests.support.selected import RUNNING
from tools.kernel.building import lower

# (emit, inputs, length) -> result. The length is None in a model that is built for one length.
Network = Callable[[Emit, list[relax.Var], relax.Var | None], relax.Var]
# The shape of each input; -1 is the length.
Shapes = Sequence[tuple[tuple[int, ...], str]]


def of_lengths(longest: Iterable[int], *more: Target) -> list[Any]:
    """Returns parameters (target, longest length). The first length on the first target, and on each of `more`, is not
    slow. The host must be able to run the target itself.
    """
    host, lengths = detect_host(), list(longest)
    targets = [each for each in (*RUNNING, *more) if each.architecture == host.architecture and each.runs_on(host)]
    return [
        pytest.param(
            target, each, marks=[] if target in (targets[0], *more) and each == lengths[0] else pytest.mark.slow
        )
        for target in targets
        for each in lengths
    ]


def check_lengths(
    network: Network, shapes: Shapes, longest: int, lengths: Sequence[int], target: Target, scratch: Path
) -> list[str]:
    """Checks a network that is built for inputs of up to `longest` positions against the oracle. Elements beyond the
    length are NaN, or the largest integer.

    Returns:
        The names of the kernels.
    """
    rng = np.random.default_rng(longest)

    def at(length: int) -> list[tuple[tuple[int, ...], str]]:
        return [(tuple(length if each < 0 else each for each in shape), dtype) for shape, dtype in shapes]

    whole = [_random(rng, shape, dtype) for shape, dtype in at(longest)]
    module = module_of([*at(longest), ((1,), "int32")], lambda emit, inputs: network(emit, inputs[:-1], inputs[-1]))
    varying = [tuple(axis for axis, extent in enumerate(shape) if extent < 0) for shape, _ in shapes]
    lowered = lower(module, target, ONNXRUNTIME, whole, scratch, varying=varying)
    # `less` computes which positions are inside the length.
    assert {each["operators"] for each in lowered.selection.plain} <= {"less"}
    model = load_files(lowered.config, lowered.library, lowered.constants)
    for length in lengths:
        inside = [x[tuple(map(slice, shape))] for x, (shape, _) in zip(whole, at(length), strict=True)]
        exact = module_of(at(length), lambda emit, inputs: network(emit, inputs, None))
        (expected,) = oracle.run(exact, get_mode(ONNXRUNTIME), inside)
        poisoned = [_poisoned(x, y.shape) for x, y in zip(inside, whole, strict=True)]
        (found,) = model.run_padded(poisoned, length)
        np.testing.assert_array_equal(found[tuple(map(slice, expected.shape))], expected, err_msg=f"length {length}")
    return [str(layer["kernel"]) for layer in lowered.selection.layers]


def _random(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> Array:
    if dtype.startswith("float"):
        return np.asarray(rng.standard_normal(shape).astype(dtype))
    bounds = np.iinfo(dtype)
    return np.asarray(rng.integers(bounds.min, bounds.max, shape, dtype, endpoint=True))


def _poisoned(x: Array, shape: tuple[int, ...]) -> Array:
    worst = np.nan if x.dtype.kind == "f" else np.iinfo(x.dtype).max
    whole = np.full(shape, worst, x.dtype)
    whole[tuple(map(slice, x.shape))] = x
    return whole

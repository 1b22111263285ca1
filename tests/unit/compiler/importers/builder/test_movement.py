"""Operators that move elements check their operands, and name the shapes that do not fit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tvm import relax

from service.compiler.importers.builder import movement
from service.compiler.importers.builder.node import Node
from service.compiler.qnn import oracle
from service.compiler.qnn.numerics import get_mode
from service.core.builds.numerics import LITERT_REFERENCE
from service.core.errors import OctetError

X = np.arange(24, dtype=np.float32).reshape(2, 3, 4)


def applied(function: Callable[..., Any], *arguments: Any) -> np.ndarray[Any, Any]:
    builder, x = relax.BlockBuilder(), relax.Var("x", relax.TensorType(list(X.shape), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            end = builder.emit_output(function(Node(builder, "Op #0", "y", "Op"), x, *arguments))
        builder.emit_func_output(end)
    return np.asarray(oracle.run(builder.get(), get_mode(LITERT_REFERENCE), [X])[0])


@pytest.mark.parametrize(
    ("function", "arguments", "expected"),
    [
        (movement.reshape, ([4, -1],), X.reshape(4, 6)),
        (movement.unsqueeze, ([0, -1],), X[np.newaxis, ..., np.newaxis]),
        (movement.transpose, ([2, 0, -2],), X.transpose(2, 0, 1)),
        (
            movement.rearrange,
            ([2, 3, 2, 2], [0, 2, 1, 3], [2, 12]),
            X.reshape(2, 3, 2, 2).swapaxes(1, 2).reshape(2, 12),
        ),
        (movement.cut, (2, range(1, 4, 2)), X[..., 1:4:2]),
        (movement.cut, (1, range(2, -1, -1)), X[:, ::-1]),
        (movement.pad, ([(0, 0), (1, 0), (0, 2)], 7.0), np.pad(X, [(0, 0), (1, 0), (0, 2)], constant_values=7)),
        (
            movement.pad_with_elements,
            ([(0, 0), (1, 2), (0, 0)], "reflect"),
            np.pad(X, [(0, 0), (1, 2), (0, 0)], "reflect"),
        ),
        (movement.tile, ([1, 2, 1],), np.tile(X, [1, 2, 1])),
        (movement.broadcast, ([5, 2, 3, 4],), np.broadcast_to(X, (5, 2, 3, 4))),
    ],
)
def test_elements_are_moved_as_numpy_moves_them(
    function: Callable[..., Any], arguments: Any, expected: np.ndarray[Any, Any]
) -> None:
    np.testing.assert_array_equal(applied(function, *arguments), expected)


@pytest.mark.parametrize(
    ("function", "arguments", "what"),
    [
        (movement.reshape, ([-1, -1],), r"cannot reshape \[2, 3, 4\] to \[-1, -1\]"),
        (movement.reshape, ([5, 5],), r"cannot reshape \[2, 3, 4\] to \[5, 5\]"),
        (movement.squeeze, ([1],), r"cannot remove the axes \[1\] of shape \[2, 3, 4\]"),
        (movement.unsqueeze, ([1, 1],), "names an axis twice"),
        (movement.transpose, ([0, 1, 1],), r"cannot permute 3 axes by \[0, 1, 1\]"),
        (movement.cut, (1, range(0)), r"selects an empty range on axis 1 of shape \[2, 3, 4\]"),
        (movement.pad_with_elements, ([(0, 0), (3, 0), (0, 0)], "reflect"), "pads axis 1 with 3 of its elements"),
        (movement.tile, ([2],), r"cannot repeat shape \[2, 3, 4\] \[2\] times"),
        (movement.broadcast, ([3, 3, 4],), r"cannot broadcast shape \[2, 3, 4\] to \[3, 3, 4\]"),
    ],
)
def test_operands_that_do_not_fit_are_named(function: Callable[..., Any], arguments: Any, what: str) -> None:
    x = relax.Var("x", relax.TensorType(list(X.shape), "float32"))
    with pytest.raises(OctetError, match=what):
        function(Node(relax.BlockBuilder(), "Op #0", "y", "Op"), x, *arguments)

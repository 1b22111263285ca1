"""The geometry of windows: the padding at the end of an axis, the elements that count, and the limits."""

from __future__ import annotations

import pytest
from tvm import relax

from service.compiler.importers.builder.node import Node
from service.compiler.importers.builder.pooling import Windows, check_padded, check_places, overhang
from service.core.errors import MalformedModel, Unsupported


def node() -> Node:
    return Node(relax.BlockBuilder(), "Pool #0", "y", "Pool")


@pytest.mark.parametrize(
    ("geometry", "ceil", "expected"),
    [
        ((6, 3, 2, 0, 0), "", -1),
        ((6, 3, 2, 0, 0), "any", 1),
        ((6, 3, 2, 1, 1), "inside", 2),
        ((4, 2, 3, 1, 1), "any", 3),
        ((4, 2, 3, 1, 1), "inside", 0),  # a third window would begin in the trailing padding
    ],
)
def test_the_last_window_may_extend_beyond_the_end(geometry: tuple[int, ...], ceil: str, expected: int) -> None:
    assert overhang(node(), *geometry, ceil=ceil) == expected


def test_a_window_must_fit_the_padded_image() -> None:
    with pytest.raises(MalformedModel, match="a window of 9, which is larger than the 8 padded elements"):
        overhang(node(), 6, 9, 1, 1, 1)
    with pytest.raises(Unsupported, match="pads its input to 65538 by 65536, which is too large"):
        check_padded(node(), 1, (1 << 16, 1 << 16), (1, 0, 1, 0))
    with pytest.raises(Unsupported, match="windows of 1025 real values along axis 2; at most 1024"):
        check_places(node(), 1025, " along axis 2")


def test_elements_of_the_padding_count_if_they_are_listed() -> None:
    windows = Windows((1, 2), (2, 2), (2, 2), (1, 1, 1, 1))
    assert windows.counts((1, 2, 2, 1), (0, 0, 0, 0)).reshape(2, 2).tolist() == [[1, 1], [1, 1]]
    assert windows.counts((1, 2, 2, 1), (1, 0, 1, 0)).reshape(2, 2).tolist() == [[2, 2], [2, 2]]

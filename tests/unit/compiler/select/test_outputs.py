"""Which elements of the tensors that kernels write are needed."""

from __future__ import annotations

import pytest
from tvm import relax

from service.compiler.kernels.layout import Halo, Image
from service.compiler.kernels.trimming.trim import Along, Written
from service.compiler.qnn import graph
from service.compiler.qnn.lengths.unread import UnreadAxes
from service.compiler.select.outputs import Outputs
from tests.support.qnn_models import module_of

LONG = 12


def described(shape: tuple[int, ...], dtype: str, axis: int) -> tuple[Outputs, relax.Var]:
    """Returns the description of a model that returns its input, and the input."""
    function = graph.main_of(module_of([(shape, dtype), ((1,), "int32")], lambda emit, inputs: inputs[0]))
    return Outputs(UnreadAxes(function, [(axis,)])), function.params[0]


def test_rows_of_a_plain_tensor() -> None:
    outputs, x = described((2, LONG, 6), "float32", 1)
    assert outputs.plain(x) == Written((Along(6, LONG),))
    assert outputs.places(x) == Written((Along(6, LONG),))


@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_places_are_all_written(dtype: str) -> None:
    """A kernel that reads the places of elements beyond the length would read memory of others."""
    outputs, x = described((1, LONG), dtype, 1)
    assert outputs.plain(x) == Written((Along(1, LONG),))
    assert outputs.places(x) == Written()


def test_tokens_of_an_image() -> None:
    outputs, x = described((1, LONG, 40), "uint8", 1)
    image = Image(1, LONG, 1, 40, 16)
    assert outputs.image(x, image) == Written((Along(16, LONG),))
    part = Image(1, LONG, 1, 48, 16).part(1, 32)
    assert outputs.image(x, part) == Written((Along(16, LONG, LONG * 16),))


def test_channels_of_an_image_are_in_blocks() -> None:
    outputs, x = described((3, 5, LONG * 4), "uint8", 2)
    assert outputs.image(x, Image(3, 5, 1, LONG * 4, 16)) == Written((Along(5 * 16, 3, 0, 16),))
    assert outputs.image(x, Image(3, 5, 1, LONG * 4, 0)) == Written((Along(1, LONG * 4),))
    assert outputs.image(x, Image(3, 5, 1, 96, 16).part(1, LONG * 4)) == Written()


def test_the_columns_of_an_image_with_a_border_are_all_written() -> None:
    outputs, x = described((1, LONG, 5, 16), "uint8", 1)
    assert outputs.image(x, Image(1, LONG, 5, 16, 16)) == Written((Along(80, LONG),))
    assert outputs.image(x, Image(1, LONG, 5, 16, 16, Halo(1, 1, 1, 1))) == Written()

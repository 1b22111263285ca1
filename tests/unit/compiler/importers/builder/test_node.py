"""A node names the values that it emits, and its errors name the operator and the tensor."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tvm import relax

from service.compiler.importers.builder.node import Node
from service.core.errors import MalformedModel, Unsupported


def node() -> Node:
    return Node(relax.BlockBuilder(), "Add #3", "y", "Add_3", "y")


def test_an_axis_may_count_from_the_end() -> None:
    assert node().axes([-1, 0], 3) == [2, 0]
    with pytest.raises(MalformedModel, match=r"^Add #3 has axis 3, but its input has 3 dimensions$") as caught:
        node().axis(3, 3)
    assert (caught.value.op, caught.value.tensor) == ("Add #3", "y")


@pytest.mark.parametrize("named", ["a", 1.0, None])
def test_an_axis_must_be_an_integer(named: Any) -> None:
    with pytest.raises(MalformedModel, match="but its input has 3 dimensions"):
        node().axes([0, named], 3)


def test_an_error_may_name_another_tensor() -> None:
    with pytest.raises(Unsupported, match=r"^Add #3 is odd$") as caught:
        node().require_supported(False, "is odd", "x" * 300, "leave it out")
    assert (caught.value.tensor, caught.value.hint) == ("x" * 199 + "…", "leave it out")


def test_values_are_named_and_checked() -> None:
    x = relax.Var("x", relax.TensorType([2, 3], "float32"))
    made = node()
    with made._builder.function("main", [x]):
        with made._builder.dataflow():
            result = made.emit(relax.op.add(x, x), "sum")
            with pytest.raises(MalformedModel, match=r"^Add #3: "):
                made.emit(relax.op.add(x, relax.const(np.zeros(4, np.float32))))
            with pytest.raises(Unsupported, match=r"computes a tensor of shape \[1048576, 4096\], which is too large"):
                made.emit(relax.op.broadcast_to(relax.const(np.float32(0)), [1 << 20, 1 << 12]))
            output = made._builder.emit_output(result)
        made._builder.emit_func_output(output)
    assert result.name == "Add_3_sum_y"

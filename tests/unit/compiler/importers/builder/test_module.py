"""All imports build the function `main` and report operators that cannot be compiled in the same way."""

from __future__ import annotations

import pytest
from tvm import relax

from service.compiler.importers.builder.module import (
    build_main,
    check_names,
    import_stage,
    param,
    unsupported_operators,
)
from service.core.builds.build import Stage
from service.core.errors import InvalidInput, MalformedModel


@pytest.mark.parametrize("count", [1, 2])
def test_main_returns_one_value_or_a_tuple(count: int) -> None:
    builder, x = relax.BlockBuilder(), param("x", [2], "float32")
    outputs = build_main(builder, [x], lambda: [relax.op.add(x, x)] * count)
    assert len(outputs) == count
    assert isinstance(builder.get()["main"].body.body, relax.Tuple) == (count > 1)


def test_obstacles_are_counted_and_named() -> None:
    error = unsupported_operators([("Loop", "Loop #1 → a"), ("Loop", "Loop #2 → b")], 5, "Loop #1", "a", "unroll it")
    assert error.message == "2 of 5 operators cannot be compiled: Loop (2 times); the first is Loop #1 → a"
    assert error.hint == "unroll it"
    error = unsupported_operators([("Det", "Det #3 → y")], 5, "Det #3", "y", None)
    assert error.message == "1 of 5 operators cannot be compiled: Det; it is Det #3 → y"
    assert "define the operator in a dialect" in str(error.hint)


def test_a_shape_for_another_input_is_refused() -> None:
    check_names({"": [1]}, ["x"])
    with pytest.raises(InvalidInput, match="no input ''"):
        check_names({"": [1]}, ["x", "y"])


def test_errors_belong_to_the_import() -> None:
    with pytest.raises(MalformedModel) as caught, import_stage():
        raise MalformedModel("damaged")
    assert caught.value.stage == Stage.IMPORT

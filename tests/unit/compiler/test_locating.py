"""Errors name their operator and tensor. An error that a bug in Octet causes does not blame the file."""

from __future__ import annotations

import pytest

from service.compiler.locating import Declined, declining, located
from service.compiler.qnn.types import InvalidQuantizedType
from service.core.errors import InternalError, Unsupported, UnsupportedOperator


def test_an_octet_error_gets_the_operator_and_the_tensor() -> None:
    with pytest.raises(Unsupported, match="too large") as caught, located("qnn.add", "Add_3_y"):
        raise Unsupported("too large")
    assert (caught.value.op, caught.value.tensor) == ("qnn.add", "Add_3_y")


def test_an_error_that_names_an_operator_keeps_it() -> None:
    with pytest.raises(Unsupported) as caught, located("qnn.add", "Add_3_y"):
        raise Unsupported("too large", op="Conv #1", tensor="x")
    assert (caught.value.op, caught.value.tensor) == ("Conv #1", "x")


@pytest.mark.parametrize("error", [ValueError("first\nlast line"), AssertionError("last line"), KeyError("last line")])
def test_any_other_exception_is_a_defect_of_octet(error: Exception) -> None:
    text = f"may be valid: {type(error).__name__}: .*last line"
    with pytest.raises(InternalError, match=text) as caught, located("qnn.add", "Add_3_y"):
        raise error
    assert (caught.value.op, caught.value.tensor) == ("qnn.add", "Add_3_y")
    assert caught.value.__cause__ is error


def test_a_kernel_that_declines_is_not_an_error() -> None:
    with pytest.raises(Declined), located("qnn.add", "Add_3_y"):
        raise Declined("no kernel")


def test_lack_of_memory_is_not_a_defect() -> None:
    with pytest.raises(MemoryError), located("qnn.add", "Add_3_y"):
        raise MemoryError


@pytest.mark.parametrize("error", [InvalidQuantizedType("several scales"), UnsupportedOperator("not defined")])
def test_a_formula_that_refuses_an_operator_declines_it(error: Exception) -> None:
    with pytest.raises(Declined, match=str(error)), declining():
        raise error

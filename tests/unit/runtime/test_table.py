"""Tests of tables as model inputs: columns by name and by position, quantization, and errors that name the cell."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from service.core.errors import InvalidInput, InvalidTensor
from service.core.models.signature import Quantization, TensorSpec
from service.runtime.table import Row, TableInput, inputs_of_row, read_table, rows_of

X = TableInput("x", "FP32", ((1, 3),))
NAMES = ("age", "height", "weight")


def rows(text: str, *inputs: TableInput, names: tuple[str, ...] = (), batches: int = 8) -> Any:
    tensors, _ = read_table(text.encode(), inputs or (X,), names, batches)
    found = {name: tensor.tolist() for name, tensor in tensors.items()}
    return found if len(found) > 1 else next(iter(found.values()))


@pytest.mark.parametrize(
    "text",
    [
        "1,2,3\n4,5,6\n",
        "a,b,c\r\n1,2,3\r\n4,5,6",
        "\ufeffage,height,weight\n1,2,3\n\n4,5,6\n",
        "1;2;3\n4;5;6",
        "1\t2\t3\n4\t5\t6",
        '"1", 2 ,3e0\n4,5,"6"\n',
    ],
)
def test_columns_by_position(text: str) -> None:
    assert rows(text) == [[1, 2, 3], [4, 5, 6]]


def test_columns_by_name_in_any_order_beside_others() -> None:
    assert rows("id,weight,age,height\nx,3,1,2\n", names=NAMES) == [[1, 2, 3]]
    assert rows("1,2,3", names=NAMES) == [[1, 2, 3]]


def test_several_inputs_by_name() -> None:
    pair, single = TableInput("p", "FP32", ((1, 2),)), TableInput("s", "INT32", ((1, 1),))
    assert rows("s,p[1],p[0]\n7,2,1\n", pair, single) == {"p": [[1, 2]], "s": [[7]]}
    assert rows("1,2,7\n", pair, single) == {"p": [[1, 2]], "s": [[7]]}
    with pytest.raises(InvalidInput, match=r"no column 'p\[1\]'"):
        rows("s,p[0],q\n7,2,1\n", pair, single)


def test_real_values_are_quantized() -> None:
    quantized = TableInput("x", "INT8", ((1, 3),), Quantization(0.5, -3))
    assert rows("0,0.25,0.75\n-1000,1000,1\n", quantized) == [[-3, -3, -1], [-128, 127, -1]]


@pytest.mark.parametrize(
    ("text", "names", "error"),
    [
        ("age,height,weight\n1,2,3\n4,x,6", (), "row 2, column 'height': 'x' is not a number"),
        ("1,2,3\n4,,6", (), r"row 2, column 'x\[1\]': the cell is empty"),
        ("age,height,weight,id\n1,2", NAMES, "row 1, column 'weight': the cell is empty"),
        ("1,2,3\n4,5", (), "row 2 has 2 cells, but the model has 3 features"),
        ("a,b\n1,2", (), "the table has 2 columns, but the model has 3 features"),
        ("age,height\n1,2", NAMES, "the table has no column 'weight'"),
        ("age,age,height,weight\n1,1,2,3", NAMES, "has the column 'age' twice"),
        ("1,abc,3", (), "row 1, column"),
        ("a,b,c", (), "contains no rows"),
        ("", (), "the table is empty"),
        ("\n\n", (), "the table is empty"),
        ("1,2,3\n" * 9, (), "more than 8 rows"),
        ('a,b,c\n1,2,"' + "3" * 200_000, (), "line 2 of the table is not valid CSV"),
    ],
)
def test_errors_name_the_row_and_the_column(text: str, names: tuple[str, ...], error: str) -> None:
    with pytest.raises(InvalidInput, match=error):
        rows(text, names=names)


def test_values_that_an_integer_cannot_store() -> None:
    whole = TableInput("x", "INT8", ((1, 2),))
    with pytest.raises(InvalidInput, match=r"row 2, column 'b': 1\.5 is not a whole number from -128 to 127"):
        rows("a,b\n1,2\n1,1.5", whole)
    with pytest.raises(InvalidInput, match=r"row 1, column 'a': 128 is not a whole"):
        rows("a,b\n128,2", whole)
    quantized = TableInput("x", "INT8", ((1, 2),), Quantization(0.5, 0))
    with pytest.raises(InvalidInput, match=r"row 1, column 'x\[1\]': nan is not finite"):
        rows("1,nan", quantized)
    assert np.isnan(rows("1,nan,2")).tolist() == [[False, True, False]]


def test_the_number_of_rows_is_one_that_the_model_takes() -> None:
    four = TableInput("x", "FP32", ((4, 1),))
    assert rows("1\n2\n3\n4", four, batches=1) == [[1], [2], [3], [4]]
    with pytest.raises(InvalidInput, match="the table has 2 rows, but the model takes 4 at a time"):
        rows("1\n2", four, batches=1)
    with pytest.raises(InvalidInput, match="more than 1 rows"):
        rows("1,2,3\n4,5,6", batches=1)


def test_other_shapes_take_no_table() -> None:
    with pytest.raises(InvalidTensor, match="does not take rows"):
        rows("1", TableInput("x", "FP32", ((1, 2, 3),)))
    with pytest.raises(InvalidInput, match="not UTF-8"):
        read_table(b"\xff", [X])
    with pytest.raises(InvalidTensor, match="3 features, but its metadata has 1 columns"):
        rows("1,2,3", names=("a",))


def test_single_rows_for_a_client_that_splits_tables() -> None:
    found = list(rows_of(["b,a\n", "1,2\n", "3,4\n"]))
    assert found == [Row(["b", "a"], ["1", "2"], 1), Row(["b", "a"], ["3", "4"], 2)]
    tensors = inputs_of_row(found[1], [TensorSpec("x", "FP32", (1, 2))], ("a", "b"))
    assert tensors["x"].tolist() == [[4, 3]]
    assert inputs_of_row(Row(None, list("1234"), 1), [TensorSpec("x", "FP32", (1, 2, 2, 1))])["x"].shape == (1, 2, 2, 1)
    with pytest.raises(InvalidInput, match="row 2, column 'a': 'z' is not a number"):
        inputs_of_row(Row(["b", "a"], ["3", "z"], 2), [TensorSpec("x", "FP32", (1, 2))])

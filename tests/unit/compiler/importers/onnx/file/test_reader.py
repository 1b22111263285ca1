"""An ONNX file is checked before anything is created from it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from service.compiler.importers.onnx.file.reader import OPSETS, read_model
from service.compiler.importers.onnx.importer import import_model
from service.core.errors import MalformedModel, OctetError, Unsupported
from tests.support.onnx_builder import DTYPES, OnnxBuilder, message, number, tensor, varint


def relu(build: Callable[[OnnxBuilder], object] = lambda model: None) -> OnnxBuilder:
    model = OnnxBuilder()
    model.input("x", "float32", [1, 4])
    model.node("Relu", ["x"], ["y"])
    model.output("y", "float32", [1, 4])
    build(model)
    return model


def refused(data: bytes, kind: type[OctetError], what: str) -> None:
    with pytest.raises(kind, match=what):
        read_model(data)


def test_a_file_is_read_into_plain_values() -> None:
    model = read_model(relu().build(opset=15))
    assert model.opset == 15
    assert [operator.label for operator in model.operators] == ["Relu #0"]
    assert [(end.name, end.dtype, end.shape) for end in model.inputs] == [("x", "float32", (1, 4))]


@pytest.mark.parametrize("opset", [OPSETS.start - 1, OPSETS.stop, 1 << 40])
def test_other_operator_sets_are_refused(opset: int) -> None:
    refused(relu().build(opset), Unsupported, "operator set")


def test_operators_are_sorted() -> None:
    model = OnnxBuilder()
    model.input("x", "float32", [1])
    model.node("Relu", ["b"], ["a"])
    model.node("Neg", ["x"], ["c"])
    model.node("Abs", ["x"], ["b"])
    model.output("a", "float32")
    assert [operator.label for operator in read_model(model.build()).operators] == ["Neg #1", "Abs #2", "Relu #0"]


def test_a_sorted_file_keeps_its_order() -> None:
    model = relu()
    for index in range(9):
        model.node("Neg", ["x" if index % 2 else "y"], [f"z{index}"])
    assert [operator.index for operator in read_model(model.build()).operators] == list(range(10))


def test_an_operator_may_not_read_an_uncomputed_tensor() -> None:
    model = OnnxBuilder()
    model.input("x", "float32", [1])
    model.output(model.node("Add", ["x", "b"]), "float32")
    refused(model.build(), MalformedModel, "b is read, but it is not an input, a constant or an operator's output")


def test_a_cycle_is_refused() -> None:
    model = OnnxBuilder()
    model.input("x", "float32", [1])
    model.node("Add", ["x", "b"], ["a"])
    model.node("Relu", ["a"], ["b"])
    model.output("b", "float32")
    refused(model.build(), MalformedModel, "Add #0 depends on its own output a")


def test_a_tensor_may_not_be_written_twice() -> None:
    model = relu()
    model.node("Relu", ["x"], ["y"])
    refused(model.build(), MalformedModel, "y is computed twice")


def test_the_last_of_several_constants_with_the_same_name_counts() -> None:
    def twice(model: OnnxBuilder) -> None:
        model.constants += [tensor("c", np.full(2, value, np.float32)) for value in (1, 2)]

    np.testing.assert_array_equal(read_model(relu(twice).build()).constants["c"].data, [2, 2])


@pytest.mark.parametrize("dims", [[2, 3], [6]], ids=["two indices", "one index"])
def test_a_sparse_constant_is_converted_to_a_dense_one(dims: list[int]) -> None:
    positions = np.array([[0, 1], [1, 2]]) if len(dims) == 2 else np.array([1, 5])
    sparse = message(1, tensor("c", np.array([7, 8], np.float32))) + message(2, tensor("", positions.astype(np.int64)))
    sparse += b"".join(number(3, size) for size in dims)
    model = read_model(relu().build() + message(7, message(15, sparse)))
    np.testing.assert_array_equal(model.constants["c"].data, np.reshape([0, 7, 0, 0, 0, 8], dims))


def test_a_large_sparse_constant_allocates_no_memory() -> None:
    sparse = (
        message(1, tensor("c", np.array([7], np.float32))) + message(2, tensor("", np.array([0]))) + number(3, 1 << 28)
    )
    oddity = read_model(relu().build() + message(7, message(15, sparse))).constants["c"].oddity
    assert oddity is not None
    assert "far larger than the file" in oddity


def test_a_sparse_constant_has_its_indices_inside_its_shape() -> None:
    sparse = message(1, tensor("c", np.array([7], np.float32))) + message(2, tensor("", np.array([4]))) + number(3, 4)
    refused(relu().build() + message(7, message(15, sparse)), MalformedModel, "c is sparse and has 1 values")


def test_a_constant_has_the_bytes_that_its_shape_needs() -> None:
    def short(model: OnnxBuilder) -> None:
        model.constants.append(number(1, 3) + number(2, 1) + message(8, "c") + message(9, b"\0" * 8))

    refused(relu(short).build(), MalformedModel, r"c has 8 bytes, but float32 \[3\] needs 12")


def test_a_large_shape_allocates_no_memory() -> None:
    def vast(model: OnnxBuilder) -> None:
        model.constants.append(number(1, 1 << 62) + number(1, 1 << 62) + number(2, 1) + message(8, "c"))

    assert read_model(relu(vast).build()).constants["c"].oddity is not None


def test_elements_may_be_numbers_instead_of_bytes() -> None:
    values = np.array([-128, 0, 127], np.int8)

    def numbers(model: OnnxBuilder) -> None:
        packed = message(5, b"".join(varint(int(value)) for value in values))
        model.constants.append(number(1, 3) + number(2, DTYPES["int8"]) + packed + message(8, "c"))

    data = read_model(relu(numbers).build()).constants["c"].data
    assert data is not None
    np.testing.assert_array_equal(data, values)


def test_weights_in_another_file_are_refused_and_never_opened(tmp_path: Path) -> None:
    elsewhere = tmp_path / "weights"
    elsewhere.write_bytes(np.full(4, 7, np.float32).tobytes())
    model = OnnxBuilder()
    model.input("x", "float32", [4])
    location = message(1, "location") + message(2, str(elsewhere))
    model.constants.append(number(1, 4) + number(2, 1) + message(8, "c") + message(13, location) + number(14, 1))
    model.output(model.node("Add", ["x", "c"]), "float32")
    with pytest.raises(Unsupported, match=r"Add #0 uses the constant c, which is kept in the file"):
        import_model(model.build())


def test_only_the_subgraphs_of_if_are_read() -> None:
    model = relu()
    body = message(5, message(1, "body") + message(6, b"\xff\xff no graph") + number(20, 5))
    model.nodes.append(message(1, "y") + message(2, "z") + message(4, "Loop") + body)
    model.output("z", "float32")
    with pytest.raises(OctetError, match=r"Loop #1"):
        import_model(model.build())


def test_a_damaged_branch_is_refused() -> None:
    model = relu()
    branch = message(5, message(1, "then_branch") + message(6, b"\xff\xff no graph") + number(20, 5))
    model.nodes.append(message(1, "y") + message(2, "z") + message(4, "If") + branch)
    model.output("z", "float32")
    with pytest.raises(MalformedModel, match=r"at If #1"):
        import_model(model.build())


def test_octets_own_operators_are_refused_in_files() -> None:
    model = OnnxBuilder()
    model.input("x", "uint8", [4])
    model.output(model.node("Requantize", ["x"], domain="octet"), "uint8")
    refused(model.build(), MalformedModel, "domain octet")


@pytest.mark.parametrize("dtype", ["int4", "uint4"])
def test_a_byte_contains_two_values(dtype: str) -> None:
    low = -8 if dtype == "int4" else 0
    values = np.arange(low, low + 15).reshape(3, 5)
    model = relu(lambda model: model.nibbles(values, dtype))
    (constant,) = read_model(model.build(21)).constants.values()
    assert (constant.dtype, constant.shape) == (dtype, (3, 5))
    np.testing.assert_array_equal(constant.data, values)

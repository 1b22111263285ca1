"""The user may give the shapes of inputs, as LiteRT's callers may."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from ai_edge_litert import schema_py_generated as schema

from service.compiler.importers.tflite import import_model
from service.compiler.qnn import oracle
from service.compiler.qnn.numerics import get_mode
from service.compiler.references.litert import open_session
from service.core.builds.numerics import LITERT_REFERENCE
from service.core.errors import InvalidInput, Unsupported
from tests.support.tflite_builder import ModelBuilder, serialize


def _model(shape: Sequence[int], signature: Sequence[int] | None = None, row: int = 4) -> bytes:
    """Returns the sum of `x` and a row, reshaped to rows of four."""
    builder = ModelBuilder()
    x, y = builder.tensor("x", shape, np.float32), builder.tensor("y", shape, np.float32)
    z = builder.tensor("z", (1, 4), np.float32)
    constant = builder.constant("c", np.arange(row, dtype=np.float32))
    builder.operator("ADD", [x, constant], [y], schema.AddOptionsT())
    builder.operator("RESHAPE", [y, builder.constant("rows", np.array([-1, 4], np.int32))], [z])
    data = builder.build([x], [z])
    if signature is None:
        return data
    builder.graph.tensors[x].shapeSignature = np.array(signature, np.int32)
    return serialize(builder.model)


@pytest.mark.parametrize("signature", [None, [-1, 4], [-1, -1]])
@pytest.mark.parametrize("name", ["", "x"])
def test_a_given_shape_is_litert_after_a_resize(tmp_path: Path, signature: list[int] | None, name: str) -> None:
    data = _model((1, 4), signature)
    (tmp_path / "model.tflite").write_bytes(data)
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    imported = import_model(data, shapes={name: x.shape})
    assert imported.signature.inputs[0].shape == (3, 4)
    assert imported.signature.outputs[0].shape == (3, 4)
    (ours,) = oracle.run(imported.module, get_mode(LITERT_REFERENCE), [x])
    (theirs,) = open_session(str(tmp_path / "model.tflite"), {})([x])
    np.testing.assert_array_equal(ours, theirs)


def test_the_reference_runtime_follows_each_sample(tmp_path: Path) -> None:
    (tmp_path / "model.tflite").write_bytes(_model((1, 4)))
    session = open_session(str(tmp_path / "model.tflite"), {})
    assert [session([np.ones((rows, 4), np.float32)])[0].shape for rows in (1, 2, 1)] == [(1, 4), (2, 4), (1, 4)]


def test_an_open_batch_is_one() -> None:
    assert import_model(_model((-1, 4))).signature.inputs[0].shape == (1, 4)
    assert import_model(_model((1, 4), (-1, 4))).notices == ()


def test_another_size_without_a_value_must_be_given() -> None:
    with pytest.raises(Unsupported, match="every dimension except the batch needs a number") as caught:
        import_model(_model((1, -1)))
    assert caught.value.hint == "give the shape: --input-shape x=1,…"
    assert import_model(_model((1, -1)), shapes={"": (1, 4)}).signature.inputs[0].shape == (1, 4)


def test_a_size_of_one_that_the_file_leaves_open_is_a_notice() -> None:
    (notice,) = import_model(_model((1, 1), (-1, -1))).notices
    assert notice == "sizes that the file leaves open are 1, choose others with --input-shape: x [?, ?]"


def test_an_open_size_that_does_not_fit_is_no_damage() -> None:
    with pytest.raises(Unsupported, match="where the file leaves the size open") as caught:
        import_model(_model((1, 1), (-1, -1), row=1))
    assert caught.value.hint == "give the shape: --input-shape x=1,…"


def test_a_given_shape_that_does_not_fit_is_no_damage() -> None:
    with pytest.raises(Unsupported, match="with the given shapes, ADD #0") as caught:
        import_model(_model((1, 4)), shapes={"": (1, 3)})
    assert "leave out --input-shape" in str(caught.value.hint)


@pytest.mark.parametrize("shapes", [{"y": (1, 4)}, {"x": (4,)}, {"x": (0, 4)}])
def test_an_impossible_shape_is_refused(shapes: dict[str, tuple[int, ...]]) -> None:
    with pytest.raises(InvalidInput, match=r"the model has no input|has the shape"):
        import_model(_model((1, 4)), shapes=shapes)

"""A hostile file either imports or raises an `OctetError`. It never causes another exception, a crash, a long wait or a
large allocation.
"""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.compiler.importers.auto import import_model
from service.core.errors import OctetError
from tests.support import tflite_recurrent, tflite_sparse
from tests.support.fuzz import fuzz
from tests.support.tflite_catalog import MODELS


def test_damaged_models_are_refused_or_imported() -> None:
    names = ("conv int8 dilated", "fully connected keep dims", "concatenation uint8 rescaled", "pad int8", "reshape")
    moving = ("STRIDED_SLICE int8", "SPLIT_V uint8", "GATHER_ND int8", "SPACE_TO_BATCH_ND int8", "MIRROR_PAD uint8")
    counts = fuzz(7, *names, *moving, "svdf", "variable", *tflite_sparse.MODELS)
    assert counts["refused"] > 500
    assert counts["imported"] > 50, "the verifier refuses so many mutations that the importer is hardly tested"


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_every_damage_to_every_model_is_refused_or_imported() -> None:
    counts = fuzz(1, *MODELS, *tflite_recurrent.MODELS, *tflite_sparse.MODELS)
    assert counts["refused"] > 50_000


@settings(max_examples=200, deadline=None)
@given(st.sampled_from(["conv uint8", "mean int8", "softmax int8", "squeeze"]), st.data())
def test_several_damages_at_once(name: str, data: st.DataObject) -> None:
    model = bytearray(MODELS[name]())
    for _ in range(data.draw(st.integers(1, 6))):
        model[data.draw(st.integers(8, len(model) - 1))] = data.draw(st.integers(0, 255))
    with suppress(OctetError):
        import_model(bytes(model))


@given(st.binary(max_size=300))
def test_random_bytes_after_the_identifier(tail: bytes) -> None:
    with pytest.raises(OctetError):
        import_model(b"\x10\0\0\0TFL3" + tail)

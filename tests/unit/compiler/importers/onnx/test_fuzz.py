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
from tests.support.fuzz import MODELS, fuzz

NAMES = sorted(name for name in MODELS if name.startswith("onnx "))


def test_damaged_models_are_refused_or_imported() -> None:
    counts = fuzz(5, "onnx Conv", "onnx QLinearAveragePool", "onnx movement")
    assert counts["refused"] > 500
    assert counts["imported"] > 50, "the reader refuses so many mutations that the importer is hardly tested"


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_every_damage_to_every_model_is_refused_or_imported() -> None:
    counts = fuzz(1, *NAMES)
    assert counts["refused"] > 20_000


@settings(max_examples=200, deadline=None)
@given(st.sampled_from(NAMES), st.data())
def test_several_damages_at_once(name: str, data: st.DataObject) -> None:
    model = bytearray(MODELS[name]())
    for _ in range(data.draw(st.integers(1, 6))):
        model[data.draw(st.integers(2, len(model) - 1))] = data.draw(st.integers(0, 255))
    with suppress(OctetError):
        import_model(bytes(model))


@given(st.binary(max_size=300))
def test_random_bytes_after_the_version(tail: bytes) -> None:
    with pytest.raises(OctetError):
        import_model(b"\x08\x08" + tail)

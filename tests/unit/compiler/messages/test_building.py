"""The messages of a build."""

from __future__ import annotations

import pytest

from service.compiler.messages.building import IMPORT, INSPECT, ImportResult
from service.core.errors import BuildFailed
from service.core.models.facts import Facts
from service.core.models.signature import ModelSignature
from service.core.verification.vectors import MOST_PROBES


def test_a_result_of_another_class_that_cannot_be_read_is_malformed() -> None:
    with pytest.raises(BuildFailed, match=r"malformed result: facts cannot be read$"):
        INSPECT.read_result({"facts": {"signature": 1}})


def test_a_description_is_either_facts_or_an_outline() -> None:
    with pytest.raises(BuildFailed, match="facts and outline are missing"):
        INSPECT.read_result({})


def test_the_number_of_chosen_inputs_is_limited() -> None:
    signature = ModelSignature((), ())
    facts = Facts("tflite", signature, {}, 0, 0, 0, None, None)
    result = ImportResult("", signature, "tflite", facts, MOST_PROBES)
    assert IMPORT.read_result(result.to_json()) == result
    with pytest.raises(BuildFailed, match=f"probes is more than {MOST_PROBES}"):
        IMPORT.read_result({**result.to_json(), "probes": MOST_PROBES + 1})

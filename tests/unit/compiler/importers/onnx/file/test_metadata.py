"""Labels and preprocessing in an ONNX file. Any problem with them gives a notice, not an error."""

from __future__ import annotations

import json
import re

import pytest

from service.compiler.importers.auto import import_model
from service.compiler.importers.facts import facts_of
from service.compiler.importers.imported import ImportedModel
from service.compiler.importers.onnx.file import protobuf
from service.compiler.importers.onnx.file.metadata import KEY
from service.core.models.metadata import NOTHING, ModelMetadata, Resize
from tests.support.float_networks import residual_network

LABELS = [f"number {digit}" for digit in range(10)]
SAID = {"labels": LABELS, "mean": [0.5, 0.4, 0.3], "std": [0.2], "resize": "crop"}


def imported(text: str, key: str = KEY) -> ImportedModel:
    """Imports a network with 10 classes whose file has the metadata `text`."""
    return import_model(residual_network() + _entry("author", "somebody") + _entry(key, text))


def _entry(key: str, value: str) -> bytes:
    """Returns an entry of `ModelProto.metadata_props`."""
    return protobuf.message(14, protobuf.text(1, key) + protobuf.text(2, value))


def test_labels_and_preprocessing_are_among_the_facts() -> None:
    expected = ModelMetadata(tuple(LABELS), (0.5, 0.4, 0.3), (0.2,), Resize.CROP)
    assert facts_of(imported(json.dumps(SAID))).metadata == expected


def test_other_entries_are_ignored() -> None:
    found = imported(json.dumps(SAID), "labels")
    assert (found.metadata, found.notices) == (NOTHING, ())


def test_labels_are_made_printable() -> None:
    found = imported(json.dumps({"labels": ["\x1b[31mred", *LABELS[1:]]}))
    assert found.metadata.labels[0] == "_[31mred"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ("1" * 5_000, "not JSON"),
        ("[]", "not well formed"),
        (json.dumps({"labels": 7}), "not well formed"),
        (json.dumps({"labels": [7]}), "not well formed"),
        (json.dumps({"mean": ["x"]}), "not well formed"),
        (f'{{"mean": [{10**400}]}}', "not well formed"),
        (json.dumps({"resize": "fold"}), "not well formed"),
        (json.dumps({"mean": [float("nan")]}), "mean is nan"),
        (json.dumps({"std": [0.0]}), "has to be above 0"),
        (json.dumps({"labels": LABELS[1:]}), r"there are 9 labels, but \[10\] classes"),
        (json.dumps({"labels": ["x"] * 100_001}), "more than 100000 labels"),
        (" " * ((8 << 20) + 1), "characters"),
    ],
)
def test_unusable_metadata_is_a_notice(text: str, why: str) -> None:
    found = imported(text)
    assert found.metadata == NOTHING
    (notice,) = found.notices
    assert notice.startswith("labels and preprocessing in the file's metadata cannot be used: ")
    assert re.search(why, notice)

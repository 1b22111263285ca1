"""The document of an evaluation that is attached to an artifact."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from service.core.digest import digest_of
from service.core.errors import InvalidInput
from service.core.models.metadata import ModelMetadata, Resize
from service.core.models.signature import ModelSignature
from service.core.provenance import trusted_keys
from service.core.settings import Settings
from service.core.verification.scoring import Metric
from service.evaluate.attached import document_of
from service.evaluate.evaluation import Evaluation
from service.evaluate.messages import DataSet
from service.evaluate.running import Outputs, Tick
from service.evaluate.task import Subject
from service.runtime.scores import read_score
from tests.support.signing import needs_signatures, write_pair

ARTIFACT, DATA = digest_of(b"an artifact"), digest_of(b"a data set")
TOP1 = Metric(0.8, 0.7, 0.9, 50)


def never_run(data: DataSet, scratch: Path, tick: Tick) -> Outputs:
    raise AssertionError


EVALUATION = Evaluation(
    Subject("digits", ARTIFACT, "x86-64-v3", "litert-reference", ModelSignature((), ()), never_run),
    "photographs",
    DATA,
    ModelMetadata(resize=Resize.CROP),
    "",
    50,
    {"top1": TOP1},
)


def test_the_document_contains_the_evaluation() -> None:
    found = read_score(document_of(EVALUATION, Settings(builder_id="https://example.org/me")), ARTIFACT, ())
    score = found.score
    assert found.claimed == ()
    assert (score.data, score.data_digest, score.inputs, score.metrics) == ("photographs", DATA, 50, {"top1": TOP1})
    assert (score.evaluator, score.preprocessing["resize"]) == ("https://example.org/me", "crop")


@needs_signatures
def test_the_signing_key_of_the_settings_signs_it(tmp_path: Path) -> None:
    key, public = write_pair(tmp_path)
    document = document_of(EVALUATION, Settings(signing_key=key))
    found = read_score(document, ARTIFACT, trusted_keys(Settings(trusted_keys=str(public))))
    assert found.key is not None


def test_a_metric_that_no_reader_accepts_is_refused() -> None:
    with pytest.raises(InvalidInput, match="the name of a metric"):
        document_of(replace(EVALUATION, metrics={"line\nbreak": TOP1}), Settings())

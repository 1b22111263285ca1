"""The statement of a score, and the gate that compares a score with the least values."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from service.core.digest import canonical_json, digest_of
from service.core.errors import InvalidInput
from service.core.provenance import Score
from service.core.provenance.score import Gate
from tests.support.scores import DATA, score_of

ARTIFACT, OTHER = digest_of(b"an artifact"), digest_of(b"another")


def test_a_statement_is_parsed_into_the_score_that_wrote_it() -> None:
    score = score_of(ARTIFACT, top1=0.8, top5=0.9)
    assert Score.from_bytes(score.to_bytes(), ARTIFACT) == score


def test_a_statement_is_about_one_artifact() -> None:
    with pytest.raises(InvalidInput, match="about another artifact"):
        Score.from_bytes(score_of(ARTIFACT, top1=0.8).to_bytes(), OTHER)


Change = Callable[[dict[str, Any]], object]


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda it: it["data"].update(inputs=0), "0 inputs"),
        (lambda it: it["data"].update(inputs=True), "True inputs"),
        (lambda it: it["data"].update(digest="sha256:12"), "digest"),
        (lambda it: it.update(metrics={}), "no metrics"),
        (lambda it: it["metrics"].update(top1=0.8), "not a JSON object"),
        (lambda it: it["metrics"]["top1"].update(value="high"), "malformed"),
        (lambda it: it["metrics"]["top1"].pop("low"), "malformed"),
        (lambda it: it["metrics"].update({"a\nb": it["metrics"]["top1"]}), "printable"),
        (lambda it: it.update(metrics={str(n): it["metrics"]["top1"] for n in range(65)}), "65 metrics"),
        (lambda it: it.pop("evaluator"), "not a JSON object"),
    ],
)
def test_a_malformed_statement_is_refused(change: Change, problem: str) -> None:
    statement = json.loads(score_of(ARTIFACT, top1=0.8).to_bytes())
    change(statement["predicate"])
    with pytest.raises(InvalidInput, match=problem):
        Score.from_bytes(canonical_json(statement), ARTIFACT)


def test_provenance_is_not_a_score() -> None:
    statement = json.loads(score_of(ARTIFACT, top1=0.8).to_bytes()) | {
        "predicateType": "https://slsa.dev/provenance/v1"
    }
    with pytest.raises(InvalidInput, match="not an evaluation"):
        Score.from_bytes(canonical_json(statement), ARTIFACT)


class TestGate:
    score = score_of(ARTIFACT, top1=0.8, equal_outputs=1.0)

    def test_every_score_must_be_reached(self) -> None:
        assert Gate({"top1": 0.8, "equal_outputs": 1.0}).why_refused(self.score) == ""
        assert Gate({"top1": 0.81, "equal_outputs": 1.0}).why_refused(self.score) == (
            "top1 is 0.8 (0.7 to 0.9, on 50 inputs of photographs), but at least 0.81 is required"
        )

    def test_the_lower_end_of_the_interval_can_be_required(self) -> None:
        assert Gate({"top1.low": 0.7}).why_refused(self.score) == ""
        assert Gate({"top1.low": 0.75}).why_refused(self.score).startswith("top1.low is 0.7 (0.7 to 0.9")

    @pytest.mark.parametrize("name", ["top5", "top5.low"])
    def test_a_score_that_was_not_measured_is_missing(self, name: str) -> None:
        refused = Gate({name: 0.0}).why_refused(self.score)
        assert refused == f"its score has no {name}, only top1, equal_outputs"

    def test_only_one_data_set_may_count(self) -> None:
        assert Gate({"top1": 0.1}, DATA).why_refused(self.score) == ""
        assert f"only {OTHER} counts" in Gate({"top1": 0.1}, OTHER).why_refused(self.score)

    def test_a_request_can_only_raise_what_the_settings_require(self) -> None:
        gate = Gate({"top1": 0.5, "top5": 0.6}, DATA).raised({"top1": 0.4, "top5": 0.9, "f1": 0.3})
        assert gate == Gate({"top1": 0.5, "top5": 0.9, "f1": 0.3}, DATA)

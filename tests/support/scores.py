"""Scores of artifacts that were never evaluated."""

from __future__ import annotations

from service.core.digest import Digest, digest_of
from service.core.provenance import Score
from service.core.verification.scoring import Metric

DATA = digest_of(b"a data set")


def score_of(artifact: Digest, /, **values: float) -> Score:
    """Returns a score on the data set `DATA`. The intervals reach 0.1 below and above, and count 50 inputs."""
    metrics = {name: Metric(value, value - 0.1, value + 0.1, 50) for name, value in values.items()}
    reference = ("LiteRT 2.3.0", {"top1": Metric(0.5, 0.4, 0.6, 50)})
    evaluator = ("https://example.org/evaluators/1", "0.2.0", "2026-11-27T20:00:00+00:00")
    return Score(artifact, "photographs", DATA, 50, metrics, *reference, "", {"resize": "crop"}, *evaluator)

"""The score of an artifact on a data set, as a statement that can be signed: an in-toto Statement whose predicate
contains the scores with their sampling errors, and identifies the data set; and the gate that compares it with the
least scores.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from service.core.digest import Digest, parse_digest
from service.core.errors import InvalidInput
from service.core.provenance.in_toto import predicate_of, statement_about
from service.core.strict_json import members, text
from service.core.verification.scoring import Metric

_PREDICATE = "https://octet.dev/evaluation/v1"
MOST_METRICS = 64
SAME_TOP1, EQUAL_OUTPUTS = "same_top1", "equal_outputs"  # the metrics of a comparison with a reference runtime
_MOST_NAME = 128


@dataclass(frozen=True)
class Score:
    """The score of one artifact.

    Attributes:
        artifact: the digest of the artifact's manifest.
        data: the name of the data set.
        data_digest: identifies the inputs and the labels.
        inputs: the number of inputs.
        metrics: the scores by name, with their confidence intervals.
        reference: the reference runtime with its version and options; empty without one.
        reference_metrics: the scores of the reference runtime.
        scorer: the digest of the Python file whose functions computed the scores, or the name of such a function; empty
            if the scores are those of a classifier.
        preprocessing: how pictures became tensors: members of `ModelMetadata.to_json`.
        evaluator: a URI that identifies the machine or service that measured the score, and its operator.
        evaluator_version: the version of Octet that measured the score.
        finished_at: a time in the format of RFC 3339.
    """

    artifact: Digest
    data: str
    data_digest: Digest
    inputs: int
    metrics: Mapping[str, Metric]
    reference: str
    reference_metrics: Mapping[str, Metric]
    scorer: str
    preprocessing: Mapping[str, Any]
    evaluator: str
    evaluator_version: str
    finished_at: str

    def to_bytes(self) -> bytes:
        """Returns the statement as canonical JSON."""
        predicate = {
            "data": {"name": self.data, "digest": self.data_digest, "inputs": self.inputs},
            "metrics": _metrics_to_json(self.metrics),
            "reference": {"title": self.reference, "metrics": _metrics_to_json(self.reference_metrics)},
            "scorer": self.scorer,
            "preprocessing": dict(self.preprocessing),
            "evaluator": {"id": self.evaluator, "version": {"octet": self.evaluator_version}},
            "finished_at": self.finished_at,
        }
        return statement_about(self.artifact, _PREDICATE, predicate)

    @staticmethod
    def from_bytes(data: bytes, artifact: Digest) -> Score:
        """Parses a statement about `artifact`.

        Raises:
            InvalidInput: `data` is not such a statement, or is about another artifact.
        """
        predicate = predicate_of(data, artifact, _PREDICATE, "an evaluation, version 1")
        data_set = members(predicate.get("data"), "the data set of a score")
        reference = members(predicate.get("reference"), "the reference of a score")
        evaluator = members(predicate.get("evaluator"), "the evaluator of a score")
        version = members(evaluator.get("version", {}), "the evaluator's version")
        inputs = data_set.get("inputs")
        if isinstance(inputs, bool) or not isinstance(inputs, int) or inputs < 1:
            raise InvalidInput(f"a score has {inputs!r} inputs")
        metrics = metrics_of(predicate.get("metrics"))
        if not metrics:
            raise InvalidInput("a score has no metrics")
        return Score(
            artifact,
            text(data_set.get("name"), "the name of a data set"),
            parse_digest(text(data_set.get("digest"), "the digest of a data set")),
            inputs,
            metrics,
            text(reference.get("title"), "the title of a reference"),
            metrics_of(reference.get("metrics")),
            text(predicate.get("scorer"), "the scorer"),
            members(predicate.get("preprocessing"), "the preprocessing of a score"),
            text(evaluator.get("id"), "the evaluator's id"),
            text(version.get("octet", ""), "the evaluator's version"),
            text(predicate.get("finished_at"), "the time of a score"),
        )


@dataclass(frozen=True)
class Gate:
    """The scores that a version needs in order to be promoted.

    Attributes:
        least: the least value of each metric, by name. A name followed by `.low` is the lower end of the metric's
            confidence interval.
        data: the digest of the data set; None for any.
    """

    least: Mapping[str, float] = field(default_factory=dict)
    data: Digest | None = None

    def raised(self, least: Mapping[str, float]) -> Gate:
        """Returns a gate that also requires `least`. It can only be stricter than this gate."""
        names = {**self.least, **least}
        return Gate({name: max(each.get(name, -math.inf) for each in (self.least, least)) for name in names}, self.data)

    def why_refused(self, score: Score) -> str:
        """Returns why a version with this score is not promoted; an empty text if it may be promoted."""
        if self.data is not None and score.data_digest != self.data:
            return f"its score was measured on the data set {score.data_digest}, but only {self.data} counts"
        for name, least in self.least.items():
            metric, value = _value(score.metrics, name)
            if metric is None:
                return f"its score has no {name}, only {', '.join(score.metrics)}"
            if value < least:
                interval = f"{metric.low:.4g} to {metric.high:.4g}, on {metric.inputs} inputs of {score.data}"
                return f"{name} is {value:.4g} ({interval}), but at least {least:g} is required"
        return ""

    @property
    def needs_reference(self) -> bool:
        """True if a score has to compare the outputs with those of a reference runtime."""
        return any(name.removesuffix(".low") in (SAME_TOP1, EQUAL_OUTPUTS) for name in self.least)

    def __str__(self) -> str:
        return ", ".join(f"{name} of at least {least:g}" for name, least in self.least.items())


def _value(metrics: Mapping[str, Metric], name: str) -> tuple[Metric | None, float]:
    """Returns the metric that a gate names, and the value that is compared."""
    if name in metrics:
        return metrics[name], metrics[name].value
    metric = metrics.get(name.removesuffix(".low")) if name.endswith(".low") else None
    return metric, math.nan if metric is None else metric.low


def _metrics_to_json(metrics: Mapping[str, Metric]) -> dict[str, Any]:
    return {name: metric.to_json() for name, metric in metrics.items()}


def metrics_of(value: Any) -> dict[str, Metric]:
    """Parses metrics by name. Raises `InvalidInput` if they are malformed."""
    found = members(value, "metrics")
    if len(found) > MOST_METRICS:
        raise InvalidInput(f"a score has {len(found)} metrics, more than {MOST_METRICS}")
    try:
        return {
            text(name, "the name of a metric", _MOST_NAME): Metric.from_json(members(metric, f"the metric {name!r}"))
            for name, metric in found.items()
        }
    except (LookupError, TypeError, ValueError, OverflowError) as error:
        raise InvalidInput(f"a metric of a score is malformed: {error}") from error

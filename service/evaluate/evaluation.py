"""Scores a model on a data set, and compares it with the reference runtime."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from service.core.digest import Digest
from service.core.errors import InvalidInput
from service.core.models.metadata import ModelMetadata
from service.core.provenance.score import EQUAL_OUTPUTS, SAME_TOP1
from service.core.settings import Settings
from service.core.verification.agreement import Comparison
from service.core.verification.comparison import compare_output
from service.core.verification.scoring import Metric, share_of
from service.evaluate.cases import Case, cases_of
from service.evaluate.metrics import check_labels, classifier_metrics
from service.evaluate.page import Picture, write_page
from service.evaluate.running import Outputs, ReferenceModel, Tick, draw_inputs, run_reference
from service.evaluate.task import Subject, Task


@dataclass(frozen=True)
class Evaluation:
    """The score of a model on a data set.

    Attributes:
        subject: the model.
        data: the name of the data set.
        data_digest: identifies the inputs and the labels.
        preprocessing: how pictures became tensors.
        scorer: identifies the user's functions; empty without any.
        inputs: the number of inputs.
        metrics: `top1` and `top5`, or the names that a user's function returned; with a reference also `same_top1` (the
            share of inputs with the same result) and `equal_outputs` (the share with equal outputs, bit for bit).
        reference: the reference runtime with its version and options; None without one.
        reference_metrics: the scores of the reference runtime.
        comparison: the comparison of all values with those of the reference; None without one.
        cases: the inputs with disagreements, the most important first.
    """

    subject: Subject
    data: str
    data_digest: Digest
    preprocessing: ModelMetadata
    scorer: str
    inputs: int
    metrics: Mapping[str, Metric]
    reference: str | None = None
    reference_metrics: Mapping[str, Metric] = field(default_factory=dict)
    comparison: Comparison | None = None
    cases: tuple[Case, ...] = ()

    def to_json(self) -> dict[str, Any]:
        return {
            "model": self.subject.title,
            "artifact": self.subject.artifact,
            "target": self.subject.target,
            "numerics": self.subject.numerics,
            "data": self.data,
            "data_digest": self.data_digest,
            "preprocessing": self.preprocessing.to_json(),
            "scorer": self.scorer,
            "inputs": self.inputs,
            "metrics": {name: metric.to_json() for name, metric in self.metrics.items()},
            "reference": self._reference_to_json(),
            "cases": [case.to_json() for case in self.cases],
        }

    def _reference_to_json(self) -> dict[str, Any] | None:
        if self.comparison is None:
            return None
        return {
            "title": self.reference,
            "metrics": {name: metric.to_json() for name, metric in self.reference_metrics.items()},
            "values": self.comparison.values,
            "equal": self.comparison.equal,
            "largest_difference": self.comparison.largest_difference,
        }


def evaluate(
    subject: Subject, task: Task, reference: ReferenceModel | None, settings: Settings, tick: Tick
) -> Evaluation:
    """Runs the model, and the reference runtime if there is one, on all inputs of the task.

    Args:
        tick: called with the name of the runtime that computes and the share of its inputs that are done.

    Raises:
        InvalidInput: there is nothing to compare with; a label is not one of the classes; or the user's function
            failed.
        OctetError: the inputs do not fit the model, or a runtime does not run here.
    """
    task.check(reference is not None)
    _check_labels(subject, task)
    with tempfile.TemporaryDirectory(prefix="octet-") as scratch:
        folders = [Path(scratch, name) for name in ("octet", "reference", "pictures")]
        for folder in folders:
            folder.mkdir()
        outputs = subject.run(task.data, folders[0], tick)
        expected = None
        if reference is not None:
            expected = run_reference(reference, subject.signature, task.data, settings, folders[1], tick)
        evaluation = _evaluation(subject, task, reference, outputs, expected)
        if task.page is not None:
            numbers = sorted(case.number for case in evaluation.cases)
            drawn = draw_inputs(task.data, subject.signature, numbers, settings, folders[2])
            _write(task.page, evaluation, task.classes, drawn)
    return evaluation


def _check_labels(subject: Subject, task: Task) -> None:
    """Checks that the labels are classes of the model. Done first, because computing the inputs may take long."""
    labels = [] if task.scorer is not None else task.texts()
    if all(label is None for label in labels):
        return
    spec = subject.signature.outputs[0]
    if not subject.is_classifier:
        raise InvalidInput(
            f"output {spec.name!r} of shape {list(spec.shape)} is not that of a classifier",
            tensor=spec.name,
            hint="score it by a function of your own: --score FILE.py",
        )
    check_labels(labels, task.names(len(labels)), math.prod(spec.shape))


def _evaluation(
    subject: Subject, task: Task, reference: ReferenceModel | None, outputs: Outputs, expected: Outputs | None
) -> Evaluation:
    names, labels = task.names(len(outputs)), task.texts() or [None] * len(outputs)
    if len(labels) != len(outputs):
        raise InvalidInput(
            f"there are {len(labels)} labels for {len(outputs)} inputs", hint="write a label for each input"
        )
    scores, metrics = _score(subject, task, names, labels, outputs)
    is_classifier = subject.is_classifier and task.scorer is None
    cases = cases_of(names, labels, outputs, expected, scores, is_classifier)
    comparison: Comparison | None = None
    reference_metrics: dict[str, Metric] = {}
    if expected is not None:
        _, reference_metrics = _score(subject, task, names, labels, expected)
        comparison = _compare(outputs, expected)
        metrics |= _agreement(cases, is_classifier)
    return Evaluation(
        subject,
        task.data.path.name,
        task.digest(len(outputs)),
        replace(task.data.metadata, labels=()),
        task.scorer.identity if task.scorer else "",
        len(outputs),
        metrics,
        reference.witness.title if reference else None,
        reference_metrics,
        comparison,
        tuple(sorted((case for case in cases if case.is_shown), key=lambda case: case.order)[: task.shown]),
    )


def _score(
    subject: Subject, task: Task, names: Sequence[str], labels: Sequence[str | None], outputs: Outputs
) -> tuple[list[float | None], dict[str, Metric]]:
    """Returns the number of each input by the user's function, if there is one, and the scores of the data set."""
    if (scorer := task.scorer) is not None:
        specs = subject.signature.outputs
        found = [
            scorer.score_input(
                name, {spec.name: each for spec, each in zip(specs, outputs.of_input(number), strict=True)}, label
            )
            for number, (name, label) in enumerate(zip(names, labels, strict=True))
        ]
        return [scorer.first_number(each) for each in found], scorer.metrics(found)
    if all(label is None for label in labels):
        return [], {}
    classes = [None if label is None else int(label) for label in labels]
    return [], classifier_metrics(outputs.arrays[0], classes)


def _agreement(cases: Sequence[Case], is_classifier: bool) -> dict[str, Metric]:
    same = {SAME_TOP1: share_of([not case.has_other_class for case in cases])} if is_classifier else {}
    return {**same, EQUAL_OUTPUTS: share_of([case.is_equal is True for case in cases])}


def _compare(outputs: Outputs, expected: Outputs) -> Comparison:
    pairs = zip(outputs.arrays, expected.arrays, strict=True)
    compared = (compare_output(zip(mine, theirs, strict=True)) for mine, theirs in pairs)
    return Comparison(tuple(range(len(outputs))), tuple(compared))


def _write(path: Path, evaluation: Evaluation, classes: Sequence[str], drawn: Mapping[int, bytes]) -> None:
    """Writes the page of disagreements."""

    def named(index: int) -> str:
        return classes[index] if index < len(classes) else f"class {index}"

    def label_of(case: Case) -> str:
        return named(int(case.label)) if case.classes and case.label else case.label or ""

    pictures = [
        Picture(
            case.name,
            drawn.get(case.number),
            label_of(case),
            [named(index) for index in case.classes],
            [named(index) for index in case.reference_classes],
            case.difference,
            case.score,
        )
        for case in evaluation.cases
    ]
    subject = evaluation.subject
    lines = [
        f"{subject.title}: {subject.artifact}, {subject.target}, {subject.numerics}",
        f"{evaluation.inputs} inputs of {evaluation.data}, {evaluation.data_digest}",
    ]
    write_page(path, lines, evaluation.metrics, evaluation.reference, evaluation.reference_metrics, pictures)

"""Scores models on data sets."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from octet._work import Stages
from octet.artifacts import Artifact
from service.core.builds.dialects import added
from service.core.builds.fixed import check_fixed
from service.core.builds.options import parse_open_shapes
from service.core.models.arrays import Array
from service.core.models.metadata import ModelMetadata
from service.core.settings import load_settings
from service.core.verification.scoring import Metric


@dataclass(frozen=True)
class Evaluation:
    """The score of a model on a data set.

    Attributes:
        artifact: the digest of the compiled model.
        inputs: the number of inputs.
        metrics: each score with `value`, the 95 % confidence interval from `low` to `high`, and `inputs`, the number of
            inputs that count. `top1` and `top5`, or the names that `score` returned. With a reference runtime also
            `same_top1`, the share of inputs for which it has the same result, and `equal_outputs`, the share for which
            its outputs are equal, bit for bit.
        reference: the name, version and options of the reference runtime; None without one.
        reference_metrics: the scores of the reference runtime.
        largest_difference: the largest difference of an output from the reference's; None without one, or if a value is
            NaN or infinite.
        disagreements: the inputs with wrong results, or other results than the reference's, the most important first:
            dicts with `input`, `label`, `classes`, `reference_classes`, `equal` and `difference`.
        data_digest: identifies the inputs and the labels.
        document: the score as it is attached to an artifact: an in-toto statement, in a signed envelope if
            `OCTET_SIGNING_KEY` is set.
    """

    artifact: str
    inputs: int
    metrics: Mapping[str, Metric]
    reference: str | None
    reference_metrics: Mapping[str, Metric]
    largest_difference: float | None
    disagreements: Sequence[Mapping[str, Any]]
    data_digest: str
    document: bytes

    def __repr__(self) -> str:
        scores = ", ".join(
            f"{name} {metric.value:.3f} ({metric.low:.3f} to {metric.high:.3f})"
            for name, metric in self.metrics.items()
        )
        return f"<octet.Evaluation of {self.artifact[:19]} on {self.inputs} inputs: {scores}>"


def evaluate(
    model: str | Path | Artifact,
    data: str | Path | Iterable[Array | Mapping[str, Array]],
    labels: str | Path | Sequence[int | str] | Mapping[str, int | str] | None = None,
    *,
    against: str | None = None,
    source: str | Path | None = None,
    score: Callable[[str, Mapping[str, Array], str | None], Any] | None = None,
    combine: Callable[[Sequence[Any]], float | Mapping[str, float]] | None = None,
    report: str | Path | None = None,
    classes: Sequence[str] = (),
    samples: int | None = None,
    numerics: str | None = None,
    input_shape: str = "",
    fix: Mapping[str, float | Sequence[float]] | None = None,
    member: str = "",
    signature: str = "",
    mean: Sequence[float] = (),
    std: Sequence[float] = (),
    resize: str | None = None,
    layout: str | None = None,
    threads: int = 0,
    attach: bool = False,
    dialects: Sequence[str | Path] = (),
    sandboxed: bool = True,
    on_progress: Callable[[str, float], None] | None = None,
) -> Evaluation:
    """Scores a quantized model on a data set, and compares it with its reference runtime.

    Args:
        model: a model file, which is compiled for this machine; the folder of a compiled model; or an `Artifact`.
        data: the inputs, in a form that `octet.quantize` accepts.
        labels: the class of each input; the first class is 0. A CSV file with lines of `file,class` for pictures or of
            `class` for arrays; or a mapping from pictures to classes, or a sequence of the classes of arrays. With
            `score`, any text instead of classes.
        against: `litert`, `onnxruntime`, `torch`, `mxnet` or `openvino`: also run the model file in this runtime, and
            compare.
        source: for a compiled model with `against`, the model file that it was compiled from.
        score: for other tasks than classification: called with the name of each input, its outputs by name, and its
            label as text or None. Returns a number, or several by name; their means are the scores.
        combine: computes the scores from the list of all that `score` returned, instead of the means.
        report: an HTML file to write, which shows the disagreements as pictures, as the model receives them.
        classes: the names of the classes, class 0 first, for the report; by default those in the model file.
        samples: the largest number of inputs to use.
        numerics, input_shape, fix, member, signature: how a model file is compiled, as in `octet.compile`. The last
            two are also the part of `source`.
        mean, std, resize, layout: how pictures become inputs, as `octet run` takes these options; by default as the
            model file describes it.
        threads: the most threads that compute a call; 0 for one on each core that this process may use.
        attach: true to attach the score to the artifact, in place of an earlier one. `octet push` sends it to a server,
            and `Client.promote` can require it.
        dialects: files that define operators, patterns, passes or formats, or names of entry points, besides those in
            `OCTET_DIALECTS` (docs/how-to/dialects.md). Their code runs, so name only files that you trust. What other
            threads compile meanwhile is compiled with them too.
        sandboxed: false to continue even if this kernel cannot isolate the processes that read the files. Do so only
            with files that you trust.
        on_progress: called with the stage of the build or the name of a runtime, and the share of it that is done.

    Raises:
        InvalidInput: the labels are malformed, there is nothing to compare the results with, or the score of a model
            file should be attached.
        InvalidTensor: the data does not fit the model.
        Unsupported: the runtime does not run such models, or is not installed.
        OctetError: the errors of `octet.compile`.
    """
    from service.evaluate.local import Request, evaluate_here
    from service.evaluate.metrics import Scorer

    tick = on_progress or (lambda what, share: None)
    request = Request(
        model.path if isinstance(model, Artifact) else Path(model),
        None if source is None else Path(source),
        model.digest if isinstance(model, Artifact) else None,
        against,
        numerics,
        parse_open_shapes(input_shape),
        threads,
        fixed=check_fixed(fix or {}),
        member=member,
        signature=signature,
    )
    settings = load_settings({"allow_unsandboxed": not sandboxed or None})
    with added(dialects):
        found, document = evaluate_here(
            request,
            data,
            labels,
            settings,
            Stages(lambda stage: tick(stage, 0.0)),
            tick,
            metadata=ModelMetadata.from_json({"mean": mean, "std": std, "resize": resize, "layout": layout}),
            classes=classes,
            samples=samples,
            scorer=None if score is None else Scorer(score, combine, identity=getattr(score, "__qualname__", "score")),
            page=None if report is None else Path(report),
            attaches=attach,
        )
    return Evaluation(
        str(found.subject.artifact),
        found.inputs,
        found.metrics,
        found.reference,
        found.reference_metrics,
        found.comparison.largest_difference if found.comparison else None,
        [case.to_json() for case in found.cases],
        str(found.data_digest),
        document,
    )

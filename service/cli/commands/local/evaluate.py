"""`octet evaluate`: scores a quantized model on a labelled data set, and compares it with its reference runtime."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from service.cli.completion import complete_model
from service.cli.configuration import load_checked
from service.cli.connection import connect
from service.cli.options import (
    ArtifactOption,
    ClassesOfInputsOption,
    FixOption,
    InputShapeOption,
    JsonOption,
    KeyOption,
    LayoutOption,
    MeanOption,
    MemberOption,
    NumericsOption,
    ResizeOption,
    ServerOption,
    SignatureOption,
    StdOption,
    ThreadsOption,
    UnsandboxedOption,
    joined_shapes,
    joined_values,
    metadata_from,
)
from service.cli.output import Output, reporting
from service.cli.tables import Table, whole
from service.cli.versions import resolve_model
from service.evaluate.choices import MOST_CASES, MOST_SAMPLES, RUNTIMES

if TYPE_CHECKING:
    from rich.progress import TaskID

    from service.core.settings import Settings
    from service.core.verification.scoring import Metric
    from service.evaluate.evaluation import Evaluation
    from service.evaluate.local import Request
    from service.evaluate.running import Tick
    from service.evaluate.task import Task


_TITLES = {
    "top1": "top-1",
    "top5": "top-5",
    "same_top1": "same top-1",
    "equal_outputs": "equal outputs",
}


def evaluate(
    model: Annotated[
        str,
        typer.Argument(
            metavar="FILE|DIR|MODEL[:VERSION|@ALIAS]",
            autocompletion=complete_model,
            help="A quantized model (TFLite, TorchScript, ONNX, OpenVINO or MXNet), which is compiled for this "
            "machine; a folder that octet compile wrote; or a model on the server.",
        ),
    ],
    data: Annotated[
        Path,
        typer.Option(
            "--data",
            metavar="DIR|FILE",
            help="The inputs: pictures in a folder or a zip archive, or an .npz or .npy file with one array for each "
            "of the model's inputs. An array's first axis counts the inputs.",
            exists=True,
        ),
    ],
    labels: ClassesOfInputsOption = None,
    against: Annotated[
        str | None,
        typer.Option(
            "--against", metavar="|".join(RUNTIMES), help="Also run the model file in this runtime, and compare."
        ),
    ] = None,
    score: Annotated[
        Path | None,
        typer.Option(
            "--score",
            metavar="FILE.py",
            help="For other tasks: a Python file with a function score(name, outputs, label), which returns numbers. "
            "It is run with all permissions of your user.",
            exists=True,
            dir_okay=False,
        ),
    ] = None,
    classes: Annotated[
        Path | None,
        typer.Option(
            "--classes",
            help="A text file with one name of a class per line, class 0 first, for --report.",
            exists=True,
            dir_okay=False,
        ),
    ] = None,
    report: Annotated[
        Path | None,
        typer.Option(
            "--report",
            metavar="FILE.html",
            help="Write the inputs with wrong or different results to this file, as pictures.",
            dir_okay=False,
        ),
    ] = None,
    shown: Annotated[
        int, typer.Option("--show", min=0, help="The most inputs with wrong or different results to report.")
    ] = MOST_CASES,
    attach: Annotated[
        bool,
        typer.Option(
            "--attach",
            help="Attach the score to the artifact, so that octet promote can require it. OCTET_SIGNING_KEY signs it.",
        ),
    ] = False,
    samples: Annotated[
        int | None, typer.Option("--samples", min=1, help="Use at most this many inputs.", show_default="all")
    ] = None,
    source: Annotated[
        Path | None,
        typer.Option(
            "--source",
            help="For --against with a folder or a model on the server: the file that it was compiled from.",
            exists=True,
            dir_okay=False,
        ),
    ] = None,
    artifact: ArtifactOption = None,
    numerics: NumericsOption = None,
    member: MemberOption = "",
    signature: SignatureOption = "",
    input_shape: InputShapeOption = None,
    fix: FixOption = None,
    mean: MeanOption = "",
    std: StdOption = "",
    resize: ResizeOption = None,
    layout: LayoutOption = None,
    threads: ThreadsOption = 0,
    unsandboxed: UnsandboxedOption = False,
    server: ServerOption = None,
    key: KeyOption = None,
    as_json: JsonOption = False,
) -> None:
    """Score a quantized model on a data set, and compare it with its reference runtime."""
    from service.cli.commands.remote.evaluate_on_server import evaluate_on_server
    from service.core.builds.fixed import parse_fixed
    from service.core.builds.options import parse_open_shapes
    from service.core.provenance import signer_of
    from service.evaluate.attached import document_of
    from service.evaluate.local import Request
    from service.evaluate.messages import DataSet
    from service.evaluate.metrics import Scorer
    from service.evaluate.task import Task
    from service.quantize.local import require_folder

    with reporting(as_json) as output:
        metadata = metadata_from(classes, mean, std, resize, layout)
        if report is not None:
            require_folder(report)
        scorer = Scorer.load(score) if score else None
        inputs = DataSet(data.absolute(), metadata, samples or MOST_SAMPLES)
        task = Task(inputs, labels, scorer, metadata.labels, report, shown)
        task.check(against is not None)
        settings = load_checked()
        if attach:
            signer_of(settings)  # an unusable key is reported before the evaluation
        if Path(model).exists():
            shapes = parse_open_shapes(joined_shapes(input_shape))
            fixed, part = parse_fixed(joined_values(fix)), (member, signature)
            request = Request(
                Path(model), source, artifact, against, numerics, shapes, threads, unsandboxed, fixed, *part
            )
            found = _evaluate_here(request, task, settings, output, attach)
        else:
            with connect(server, key) as client:
                named = resolve_model(client, model)
                with _bars(output) as tick:
                    reference = against, source, (member, signature)
                    found = evaluate_on_server(client, named, task, *reference, settings, tick)
                if attach:
                    client.put_score(found.subject.artifact, document_of(found, settings))
        if as_json:
            output.document(found.to_json())
            return
        _show(output, found, report)
        if attach:
            signed = "signed" if settings.signing_key else "not signed: OCTET_SIGNING_KEY is not set"
            output.show(Text(f"the score is attached to the artifact, {signed}"))


def _evaluate_here(request: Request, task: Task, settings: Settings, output: Output, attaches: bool) -> Evaluation:
    from service.cli.stages import StageView
    from service.evaluate.attached import attach as attach_score
    from service.evaluate.attached import document_of
    from service.evaluate.local import evaluate_artifact, opened

    if attaches:
        request.require_folder()
    with ExitStack() as stack:
        with StageView(output.progress) as view:
            folder, digest = stack.enter_context(opened(request, settings, view))
            view.finish(time.monotonic())
        with _bars(output) as tick:
            found = evaluate_artifact(request, folder, digest, task, settings, tick)
        if attaches:
            attach_score(folder, digest, document_of(found, settings))
        return found


@contextmanager
def _bars(output: Output) -> Iterator[Tick]:
    """Shows a bar for each runtime that computes. Without a terminal, one line is written when a runtime is done."""
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    columns = TextColumn("  {task.description:<13}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn()
    tasks: dict[str, TaskID] = {}
    is_terminal = output.progress.is_terminal
    with Progress(*columns, console=output.progress, disable=not is_terminal) as progress:

        def tick(runtime: str, share: float) -> None:
            if runtime not in tasks:
                tasks[runtime] = progress.add_task(runtime, total=1.0)
            progress.update(tasks[runtime], completed=share)
            if share >= 1.0 and not is_terminal:
                output.progress.print(Text(f"  ✓ {runtime} has computed all inputs"))

        yield tick


def _show(output: Output, found: Evaluation, report: Path | None) -> None:
    subject = found.subject
    output.show(Text(f"{subject.artifact} of {subject.title}, for {subject.target}, {subject.numerics}"))
    table = Table(
        whole(f"{found.inputs} inputs of {found.data}"),
        whole("Octet"),
        *([whole(found.reference or "reference")] if found.comparison else []),
    )
    for name, metric in found.metrics.items():
        theirs = found.reference_metrics.get(name)
        others = [_text(theirs) if theirs else ""] if found.comparison else []
        table.add(Text(_TITLES.get(name, name)), _text(metric), *others)
    output.show(table)
    if found.comparison is not None:
        compared, largest = found.comparison, found.comparison.largest_difference
        off = "not comparable" if largest is None else f"{largest:g}"
        output.show(f"{compared.equal} of {compared.values} values are equal; the largest difference is {off}")
    if report is not None:
        output.show(Text(f"{len(found.cases)} inputs with wrong or different results: {report}"))


def _text(metric: Metric) -> str:
    """Returns a share as `81.0 % (72.2 to 87.5)`, and another score as a number."""
    if 0 <= metric.value <= 1:
        value, low, high = (100 * each for each in (metric.value, metric.low, metric.high))
        return f"{value:.1f} % ({low:.1f} to {high:.1f})"
    return f"{metric.value:.4g} ({metric.low:.4g} to {metric.high:.4g})"

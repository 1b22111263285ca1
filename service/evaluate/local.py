"""Evaluates a model file, which is compiled for this machine first, or a compiled artifact in a folder."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from service.cache import OciLayout
from service.cache.metadata import metadata_of
from service.compiler.build.local import compile_to
from service.compiler.children.locked import LockedArtifact
from service.compiler.importers.detect import format_of
from service.compiler.importers.uploads import upload_of
from service.compiler.sandbox.policy import unlimited
from service.core.artifacts.artifact import SOURCE_ANNOTATION, only_artifact
from service.core.builds.build import Progress
from service.core.builds.fixed import Fixed, with_fixed
from service.core.builds.numerics import DEFAULT_MODE
from service.core.builds.options import with_acceptance, with_sizes
from service.core.digest import Digest, digest_of_file, parse_digest
from service.core.errors import InvalidInput
from service.core.models.metadata import NOTHING, ModelMetadata
from service.core.settings import Settings
from service.evaluate.attached import attach, document_of
from service.evaluate.choices import MOST_SAMPLES
from service.evaluate.evaluation import Evaluation, evaluate
from service.evaluate.messages import DataSet
from service.evaluate.metrics import Scorer
from service.evaluate.running import MOST_OUTPUT_BYTES, Outputs, ReferenceModel, Tick, reference_of, run_artifact
from service.evaluate.task import Subject, Task
from service.quantize.local import Inputs, Labels, inputs_file, labels_file


@dataclass(frozen=True)
class Request:
    """A request to evaluate a model on this machine.

    Attributes:
        model: a model file, or a folder with an artifact.
        source: for a folder, the model file that it was compiled from; the reference runtime runs it.
        artifact: for a folder with several artifacts, the digest of one.
        against: a reference runtime, one of `choices.RUNTIMES`; or None.
        numerics, shapes, fixed: for a model file, how it is compiled.
        member, signature: the part of the model file, or of `source`, as for `upload_of`.
        threads: with how many threads to compute; 0 for all cores.
        unsandboxed: run the artifact without a sandbox.
    """

    model: Path
    source: Path | None = None
    artifact: str | None = None
    against: str | None = None
    numerics: str | None = None
    shapes: Mapping[str, list[int | list[int]]] | None = None
    threads: int = 0
    unsandboxed: bool = False
    fixed: Fixed | None = None
    member: str = ""
    signature: str = ""

    def require_folder(self) -> None:
        """Raises `InvalidInput` if the model is a file, so that the score has no artifact to be attached to."""
        if not self.model.is_dir():
            raise InvalidInput(
                f"the score cannot be attached: {self.model} is compiled for this evaluation only",
                hint="evaluate an artifact: the folder that octet compile writes, or a model that octet push uploaded",
            )


def evaluate_here(
    request: Request,
    data: Inputs,
    labels: Labels | None,
    settings: Settings,
    progress: Progress,
    tick: Tick,
    *,
    metadata: ModelMetadata = NOTHING,
    classes: Sequence[str] = (),
    samples: int | None = None,
    scorer: Scorer | None = None,
    page: Path | None = None,
    attaches: bool = False,
) -> tuple[Evaluation, bytes]:
    """Compiles the model if it is a file, and evaluates it on inputs that may be in memory.

    Args:
        metadata: how pictures become tensors; missing members are those of the model.
        classes, scorer, page: see `Task`.
        samples: the largest number of inputs; None for all.
        attaches: true to attach the score to the artifact, which must be in a folder.

    Returns:
        The evaluation, and the score as the document that can be attached.

    Raises:
        OctetError: the model, an input or a label cannot be used.
    """
    with tempfile.TemporaryDirectory(prefix="octet-") as folder:
        most = samples or MOST_SAMPLES
        inputs = inputs_file(data, Path(folder), most)
        texts = None if labels is None else labels_file(labels, Path(folder))
        task = Task(DataSet(inputs, metadata, most), texts, scorer, classes, page)
        task.check(request.against is not None)
        if attaches:
            request.require_folder()
        with opened(request, settings, progress) as (layout, digest):
            found = evaluate_artifact(request, layout, digest, task, settings, tick)
            document = document_of(found, settings)
            if attaches:
                attach(layout, digest, document)
            return found, document


@contextmanager
def opened(request: Request, settings: Settings, progress: Progress) -> Iterator[tuple[OciLayout, Digest]]:
    """Yields the artifact to evaluate, which is compiled into a temporary folder if the model is a file.

    Raises:
        OctetError: the file cannot be compiled, or the folder contains no artifact.
    """
    if request.model.is_dir():
        layout = OciLayout.open(request.model)
        listed = ((entry.digest, entry.artifact_type) for entry in layout.index())
        yield layout, parse_digest(request.artifact) if request.artifact else only_artifact(listed)
        return
    sizes = with_sizes([1], request.shapes or {})
    if len(sizes) != 1:
        raise InvalidInput("a model of several sizes cannot be evaluated", hint="pass one size in --input-shape")
    with (
        tempfile.TemporaryDirectory(prefix="octet-") as folder,
        upload_of(request.model, request.member, request.signature) as upload,
    ):
        if request.against is not None:  # checked early, as compiling takes a while
            with upload.open("rb") as file:
                mode = request.numerics or DEFAULT_MODE[format_of(file)]
            reference_of(upload, mode, request.against, settings)
        # A build that differs from its reference is evaluated too: the score shows what the difference costs.
        options = with_acceptance(with_fixed(sizes[0], request.fixed or {}), True)
        digest, _ = compile_to(upload, Path(folder), "host", request.numerics, options, settings, progress)
        yield OciLayout.open(Path(folder)), digest


def evaluate_artifact(
    request: Request, layout: OciLayout, digest: Digest, task: Task, settings: Settings, tick: Tick
) -> Evaluation:
    """Evaluates an artifact that `opened` yielded. Members of the task's metadata that are not set are those of the
    model.

    Raises:
        InvalidInput: `against` is set for a folder, without the file that the artifact was compiled from.
        OctetError: see `evaluation.evaluate`.
    """
    locked = LockedArtifact.read(
        layout, digest, settings, unsandboxed=request.unsandboxed, limits=unlimited(MOST_OUTPUT_BYTES)
    )
    metadata = task.data.metadata.over(metadata_of(layout, digest))
    task = replace(task, data=replace(task.data, metadata=metadata), classes=task.classes or metadata.labels)
    subject = Subject(
        request.model.name,
        digest,
        locked.stored.config.target,
        locked.stored.config.numerics,
        locked.signature,
        partial(_run, locked, request.threads),
    )
    if request.against is None:
        return evaluate(subject, task, None, settings, tick)
    source = request.source if request.model.is_dir() else request.model
    annotations, part = layout.manifest(digest).annotations, (request.member, request.signature)
    with reference_model(source, request.against, subject.numerics, annotations, part, settings) as reference:
        return evaluate(subject, task, reference, settings, tick)


def _run(locked: LockedArtifact, threads: int, data: DataSet, scratch: Path, tick: Tick) -> Outputs:
    return run_artifact(locked, data, threads, scratch, tick)


@contextmanager
def reference_model(
    source: Path | None,
    against: str,
    numerics: str,
    annotations: Mapping[str, str],
    part: tuple[str, str],
    settings: Settings,
) -> Iterator[ReferenceModel]:
    """Yields the model file of an artifact in its reference runtime.

    Args:
        annotations: the annotations of the artifact's manifest.
        part: the member and the signature of `source`, as for `upload_of`.

    Raises:
        InvalidInput: `source` is None, or another file than the one that the artifact was compiled from.
        Unsupported: the runtime does not run the file.
    """
    if source is None:
        raise InvalidInput("the reference runtime needs the model file", hint="pass it as --source FILE")
    with upload_of(source, *part) as upload:
        if digest_of_file(upload) != annotations.get(SOURCE_ANNOTATION):
            raise InvalidInput(
                f"{source} is not the file that the artifact was compiled from",
                hint=f"the digest of that file is {annotations.get(SOURCE_ANNOTATION)}",
            )
        yield reference_of(upload, numerics, against, settings)

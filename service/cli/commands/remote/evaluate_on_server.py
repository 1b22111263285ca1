"""`octet evaluate NAME`: evaluates a model on the server, whose requests a client sends."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

from service.cli.client import Client
from service.compiler.messages.files import OUTPUTS_FILE
from service.core.artifacts.artifact import NUMERICS_ANNOTATION, TARGET_ANNOTATION
from service.core.digest import parse_digest
from service.core.errors import InvalidInput, InvalidTensor, NotReady
from service.core.models.metadata import ModelMetadata
from service.core.models.signature import ModelSignature
from service.core.settings import Settings
from service.evaluate.evaluation import Evaluation, evaluate
from service.evaluate.local import reference_model
from service.evaluate.messages import DataSet
from service.evaluate.running import Outputs, Tick, map_outputs
from service.evaluate.task import Subject, Task
from service.quantize.calibration.data import Data
from service.runtime.protocol import signature_of


def evaluate_on_server(
    client: Client,
    model: tuple[str, int | None],
    task: Task,
    against: str | None,
    source: Path | None,
    part: tuple[str, str],
    settings: Settings,
    tick: Tick,
) -> Evaluation:
    """Evaluates a version of a model; the newest one that has an artifact, if `model` names none.

    The server turns pictures into tensors, by the preprocessing of the version.

    Args:
        source: the model file, which the runtime `against` runs.
        part: the member and the signature of `source`, as for `importers.uploads.upload_of`.

    Raises:
        InvalidInput: the task has other preprocessing than the version.
        NotReady: no version has an artifact.
        OctetError: see `evaluate`.
    """
    name, number = model
    versions = [each for each in client.model(name)["versions"] if each["artifact"]]
    found = next((each for each in versions if number in (None, each["version"])), None)
    if found is None:
        raise NotReady(f"{name!r} has no version that could be evaluated", hint=f"octet models {name}")
    stored = ModelMetadata.from_json(found["metadata"] or {})
    chosen = replace(task.data.metadata, labels=())
    if chosen and chosen.over(stored) != stored:
        raise InvalidInput(
            "the server reads pictures with the preprocessing of the version",
            hint=f"push the model again with these options, or evaluate a copy: octet pull {name} DIR",
        )
    task = replace(task, data=replace(task.data, metadata=stored), classes=task.classes or stored.labels)
    annotations = client.artifact(found["artifact"])["annotations"]
    described = client.metadata(name, found["version"])
    signature = signature_of(described)
    for spec in (*signature.inputs, *signature.outputs):
        if -1 in spec.shape:
            raise InvalidTensor(f"{spec.name!r} has several sizes: {list(spec.shape)}", tensor=spec.name)
    subject = Subject(
        f"{name} version {found['version']}",
        parse_digest(found["artifact"]),
        annotations[TARGET_ANNOTATION],
        annotations[NUMERICS_ANNOTATION],
        signature,
        partial(_run, client, name, found["version"], signature),
    )
    if against is None:
        return evaluate(subject, task, None, settings, tick)
    facts = client.report(found["artifact"], "facts") or {}
    fixed = ModelSignature.from_json({"inputs": (), "outputs": (), **facts.get("signature", {})}).fixed
    subject = replace(subject, signature=replace(signature, fixed=fixed))
    with reference_model(source, against, subject.numerics, annotations, part, settings) as reference:
        return evaluate(subject, task, reference, settings, tick)


def _run(
    client: Client, name: str, version: int, signature: ModelSignature, dataset: DataSet, scratch: Path, tick: Tick
) -> Outputs:
    """Sends a request for each input, and writes the outputs to files as a child would."""
    data, done = Data(dataset.path, dataset.metadata, dataset.most), 0
    total = data.count(signature)
    names = [spec.name for spec in signature.inputs]
    if data.has_pictures and len(names) > 1:
        raise InvalidInput(f"the model has {len(names)} inputs, so pictures cannot be used", hint="pass an .npz file")
    pictures = ([data.picture(each)] for each in data.pictures()[: data.most])
    with ExitStack() as stack:
        files = [
            stack.enter_context((scratch / OUTPUTS_FILE.format(index)).open("wb"))
            for index in range(len(signature.outputs))
        ]
        for inputs in pictures if data.has_pictures else data.inputs(signature):
            _, outputs = client.infer(name, names, inputs, version)
            for file, spec in zip(files, signature.outputs, strict=True):
                file.write(np.ascontiguousarray(outputs[spec.name], spec.dtype).tobytes())
            done += 1
            tick("octet", min(0.99, done / total))
    if not done:
        raise InvalidInput(f"{dataset.path} has no inputs")
    tick("octet", 1.0)
    return map_outputs(scratch, signature, done)

"""The roles of the sandboxed children that run models on a data set. `evaluate.running` is their parent."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path

import numpy as np
from PIL import Image

from service import runtime
from service.compiler.children.handler import handles
from service.compiler.messages.files import OUTPUTS_FILE
from service.compiler.references import REFERENCES
from service.compiler.sandbox import Report
from service.core.builds.build import Stage
from service.core.errors import InvalidInput, OctetError, Unsupported
from service.core.models.arrays import Array
from service.core.models.signature import ModelSignature, TensorSpec
from service.evaluate.messages import (
    DRAW_INPUTS,
    PICTURE_FILE,
    RUN_ARTIFACT,
    RUN_REFERENCE,
    ArtifactRequest,
    DataSet,
    InputsRead,
    PicturesRequest,
    RuntimeRequest,
)
from service.quantize.calibration.data import Data

_REPORT_EVERY_S = 0.2
_SIDE = 160  # the least width of a written picture


@handles(RUN_ARTIFACT)
def artifact_role(request: ArtifactRequest, report: Report) -> InputsRead:
    """Runs the artifact on every input. Each input is a sequence of one call, if the model keeps state."""
    model = runtime.load_files(request.config, *request.paths, threads=request.threads)
    return _answer_all(request.data, model.signature, model.run, report)


@handles(RUN_REFERENCE)
def reference_role(request: RuntimeRequest, report: Report) -> InputsRead:
    """Runs the model file in its reference runtime on every input."""
    reference = REFERENCES[request.format]
    session = reference.sessions[request.numerics][0]
    try:
        answer = reference.open(str(request.source), session)
    except Exception as error:  # frameworks raise many types of exceptions
        raise Unsupported(f"{reference.name} does not load the model: {_line(error)}") from error

    def run(inputs: Sequence[Array]) -> Sequence[Array]:
        try:
            return answer(inputs)
        except Exception as error:
            raise Unsupported(f"{reference.name} does not compute the model: {_line(error)}") from error

    return _answer_all(request.data, request.signature, run, report)


@handles(DRAW_INPUTS)
def draw_role(request: PicturesRequest, report: Report) -> InputsRead:
    """Writes inputs as the model receives them: as JPEG, with the darkest value black and the brightest one white."""
    wanted, last = set(request.numbers), max(request.numbers, default=-1)
    spec = request.signature.inputs[0]
    for number, tensors in enumerate(_open(request.data).inputs(request.signature)):
        if number in wanted:
            _draw(tensors[0], spec).save(PICTURE_FILE.format(number), "JPEG", quality=85)
        if number >= last:
            break
    return InputsRead(len(wanted))


def _open(data: DataSet) -> Data:
    return Data(data.path, data.metadata, data.most)


def _answer_all(
    data: DataSet, signature: ModelSignature, answer: Callable[[Sequence[Array]], Sequence[Array]], report: Report
) -> InputsRead:
    """Writes the outputs of `answer` for each input, and reports the share of the inputs that are done."""
    opened = _open(data)
    total, done, reported_s = opened.count(signature), 0, 0.0
    with ExitStack() as stack:
        specs = signature.outputs
        files = [stack.enter_context(Path(OUTPUTS_FILE.format(index)).open("wb")) for index in range(len(specs))]
        for tensors in opened.inputs(signature):
            try:
                outputs = answer(tensors)
            except OctetError as error:
                raise type(error)(f"input {done} of {data.path}: {error.message}", hint=error.hint) from error
            if len(outputs) != len(specs):
                raise Unsupported(f"the runtime returned {len(outputs)} outputs, but the model has {len(specs)}")
            for file, spec, output in zip(files, specs, outputs, strict=True):
                _check(spec, output)
                file.write(np.ascontiguousarray(output).tobytes())
            done += 1
            if time.monotonic() - reported_s > _REPORT_EVERY_S:
                reported_s = time.monotonic()
                report.stage(Stage.MEASURE, min(0.99, done / max(1, total)))  # the parent reports the end
    return InputsRead(done)


def _check(spec: TensorSpec, output: Array) -> None:
    if output.dtype != spec.dtype or tuple(output.shape) != tuple(spec.shape):
        raise Unsupported(
            f"the runtime's output {spec.name!r} is {output.dtype}{list(output.shape)}, but the model's signature "
            f"has {spec.dtype}{list(spec.shape)}",
            tensor=spec.name,
        )


def _draw(tensor: Array, spec: TensorSpec) -> Image.Image:
    """Returns an input as a picture of at least `_SIDE` pixels width. Raises `InvalidInput` if it is not a picture."""
    if spec.image_axes is None:
        raise InvalidInput(f"input {spec.name!r} of shape {list(spec.shape)} is not a picture", tensor=spec.name)
    rows, columns, channels = spec.image_axes
    pixels = tensor.transpose(0, rows, columns, channels)[0].astype(np.float32)
    low, high = float(pixels.min()), float(pixels.max())
    scaled = np.rint((pixels - low) * (255 / max(high - low, 1e-30))).astype(np.uint8)
    image = Image.fromarray(scaled if scaled.shape[2] == 3 else scaled[:, :, 0])
    if image.width >= _SIDE:
        return image
    factor = -(-_SIDE // image.width)
    return image.resize((image.width * factor, image.height * factor), Image.Resampling.NEAREST)


def _line(error: Exception) -> str:
    """Returns the message of a framework's exception as one line."""
    text = " ".join((str(error) or type(error).__name__).split())
    return "".join(character for character in text if character.isprintable())[:250]

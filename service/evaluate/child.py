"""The roles of the sandboxed children that run models on a data set. `evaluate.running` is their parent."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path

import numpy as np
from PIL import Image

from service import runtime
from service.compiler.children.handler import handles
from service.compiler.sandbox import Report
from service.core.errors import InvalidInput
from service.core.models.arrays import Array
from service.core.models.signature import ModelSignature, TensorSpec
from service.evaluate.answering import answer_all, open_reference
from service.evaluate.messages import (
    DRAW_INPUTS,
    INPUTS_FILE,
    PICTURE_FILE,
    RUN_ARTIFACT,
    RUN_REFERENCE,
    WRITE_INPUTS,
    ArtifactRequest,
    DataSet,
    InputsRead,
    InputsRequest,
    PicturesRequest,
    RuntimeRequest,
)
from service.quantize.calibration.data import Data

_SIDE = 160  # the least width of a written picture


@handles(RUN_ARTIFACT)
def artifact_role(request: ArtifactRequest, report: Report) -> InputsRead:
    """Runs the artifact on every input. Each input is a sequence of one call, if the model keeps state."""
    model = runtime.load_files(request.config, *request.paths, threads=request.threads)
    return _answer_all(request.data, model.signature, model.run, report)


@handles(RUN_REFERENCE)
def reference_role(request: RuntimeRequest, report: Report) -> InputsRead:
    """Runs the model file in its reference runtime on every input."""
    answer = open_reference(str(request.source), request.format, request.numerics, request.signature)
    return _answer_all(request.data, request.signature, answer, report)


@handles(WRITE_INPUTS)
def write_role(request: InputsRequest, report: Report) -> InputsRead:
    """Writes input number K of all samples to `INPUTS_FILE` K, for a runtime in another environment."""
    count = 0
    with ExitStack() as stack:
        names = (INPUTS_FILE.format(index) for index in range(len(request.signature.inputs)))
        files = [stack.enter_context(Path(name).open("wb")) for name in names]
        for tensors in _open(request.data).inputs(request.signature):
            for file, tensor in zip(files, tensors, strict=True):
                file.write(np.ascontiguousarray(tensor).tobytes())
            count += 1
    return InputsRead(count)


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
    opened = _open(data)
    return answer_all(opened.inputs(signature), opened.count(signature), signature, answer, report, str(data.path))


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

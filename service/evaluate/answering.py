"""Runs a model on inputs and writes its outputs to files. This module is also loaded in the environments of other
runtimes, so it imports only NumPy and modules that need no other package.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from pathlib import Path

import numpy as np

from service.compiler.children.handler import handles
from service.compiler.messages.files import OUTPUTS_FILE
from service.compiler.references import REFERENCES, Answer
from service.compiler.sandbox import Report
from service.core.builds.build import Stage
from service.core.errors import OctetError, Unsupported
from service.core.models.arrays import Array
from service.core.models.signature import ModelSignature, TensorSpec
from service.evaluate.messages import INPUTS_FILE, RUN_ELSEWHERE, InputsRead, StoredRequest

_REPORT_EVERY_S = 0.2


@handles(RUN_ELSEWHERE)
def elsewhere_role(request: StoredRequest, report: Report) -> InputsRead:
    """Runs the model file in its reference runtime on inputs that another child has written to files."""
    specs = request.signature.inputs
    files = [
        np.memmap(request.inputs / INPUTS_FILE.format(index), spec.dtype, "r", shape=(request.count, *spec.shape))
        for index, spec in enumerate(specs)
    ]
    answer = open_reference(str(request.source), request.format, request.numerics, request.signature)
    inputs = ([np.array(values[number]) for values in files] for number in range(request.count))
    return answer_all(inputs, request.count, request.signature, answer, report)


def open_reference(source: str, format: str, numerics: str, signature: ModelSignature) -> Answer:
    """Loads a model file in its reference runtime. Returns a function that runs it on the inputs of `signature`.

    Raises:
        Unsupported: the runtime does not load the file. The returned function raises it if the runtime fails.
    """
    reference = REFERENCES[format]
    session = reference.sessions[numerics][0]
    try:
        answer = reference.open(source, session)
    except Exception as error:  # frameworks raise many types of exceptions
        raise Unsupported(f"{reference.name} does not load the model: {_line(error)}") from error

    def run(inputs: Sequence[Array]) -> list[Array]:
        try:
            return answer(signature.complete(inputs))
        except Exception as error:
            raise Unsupported(f"{reference.name} does not compute the model: {_line(error)}") from error

    return run


def answer_all(
    inputs: Iterable[Sequence[Array]],
    total: int,
    signature: ModelSignature,
    answer: Callable[[Sequence[Array]], Sequence[Array]],
    report: Report,
    title: str = "the data",
) -> InputsRead:
    """Writes the outputs of `answer` for each input, and reports the share of the inputs that are done.

    Args:
        total: the number of inputs.
        title: the name of the data set in error messages.
    """
    done, reported_s = 0, 0.0
    with ExitStack() as stack:
        specs = signature.outputs
        files = [stack.enter_context(Path(OUTPUTS_FILE.format(index)).open("wb")) for index in range(len(specs))]
        for tensors in inputs:
            try:
                outputs = answer(tensors)
            except OctetError as error:
                raise type(error)(f"input {done} of {title}: {error.message}", hint=error.hint) from error
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


def _line(error: Exception) -> str:
    """Returns the message of a framework's exception as one line."""
    text = " ".join((str(error) or type(error).__name__).split())
    return "".join(character for character in text if character.isprintable())[:250]

"""Whether a bucket may answer shorter inputs that are filled up with zeros: the oracle says, by doing both.

A mask takes what was filled up out of attention exactly, where scores are real values. It does not where they were
quantized with a range in which no mask occurred, or where a range is taken over all tokens (dynamic quantization). No
rule on names tells these apart. So a model that takes a range over a whole tensor is refused, and of others the oracle
computes random inputs of a few lengths, and the same ones filled up to the bucket. Only if every value of every answer
is equal does the bucket take lengths between two buckets. The lengths are the shortest and the longest of these.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from service.compiler.build.steps import MODULE_FILE, Steps
from service.core.buckets import padded_length
from service.core.build import Stage
from service.core.errors import BuildFailed, BuildTimedOut, OctetError
from service.core.options import Shapes, buckets_of, place_of, shapes_of
from service.core.signature import ModelSignature, TensorSpec


@dataclass(frozen=True)
class Padding:
    """What came of it.

    Attributes:
        exact: whether every value was equal.
        text: the result, or why nothing was asked.
    """

    exact: bool
    text: str
    lengths: tuple[int, ...] = ()
    values: int = 0
    equal: int = 0

    def to_json(self) -> dict[str, Any]:
        return {
            "exact": self.exact,
            "summary": self.text,
            "lengths": list(self.lengths),
            "values": self.values,
            "equal": self.equal,
        }


def padding_of(steps: Steps, signature: ModelSignature) -> Padding | None:
    """Asks the oracle; None where the model has no buckets.

    Args:
        signature: of the bucket, as it was imported.
    """
    options = steps.request.options
    buckets, place = buckets_of(options), place_of(options)
    if not buckets:
        return None
    varying = _varying(signature, buckets)
    length = padded_length(signature, varying)
    if length is None:
        return Padding(False, "only inputs of integers that vary in one length are filled up")
    if any(spec.dtype.kind in "iu" and spec.bounds is None for spec in signature.inputs):
        return Padding(False, "the file does not say which values its inputs take")
    lengths = sorted({_before(signature, buckets, place, varying) + 1, length - 1} - {0, length})
    if not lengths:
        return Padding(False, "no length lies between this bucket and the one before")
    try:
        return _asked(steps, signature, varying, [each for each in lengths if each < length])
    except BuildTimedOut:
        raise
    except OctetError as error:  # at another length, the model may be another
        return Padding(False, f"the model could not be asked at other lengths: {error.message}")


def _asked(
    steps: Steps, signature: ModelSignature, varying: Sequence[tuple[int, int]], lengths: Sequence[int]
) -> Padding:
    shapes = shapes_of(steps.request.options)
    modules, signatures = [], []
    for length in lengths:
        within = f"import-{length}"
        said = steps.imported_at(_at(signature, shapes, varying, length), within)
        modules.append(steps.output(within, MODULE_FILE))
        signatures.append(said["signature"])
    own = steps.output("import", MODULE_FILE)
    request = {
        "module": str(own),
        "signature": signature.to_json(),
        "modules": [str(each) for each in modules],
        "signatures": signatures,
        "numerics": steps.request.numerics,
    }
    answer = steps.run("padding", request, readable=[own, *modules])
    try:
        values, equal, reason = int(answer["values"]), int(answer["equal"]), str(answer["reason"])
    except (LookupError, TypeError, ValueError) as error:
        raise BuildFailed("the padding process did not say what came of it", stage=Stage.VERIFY) from error
    if reason:
        return Padding(False, reason)
    exact = 0 < values == equal
    shown = ", ".join(map(str, lengths))
    text = f"{equal} of {values} values of inputs of length {shown} stayed equal when they were filled up"
    return Padding(exact, text, tuple(lengths), values, equal)


def _varying(signature: ModelSignature, buckets: Sequence[Shapes]) -> list[tuple[int, int]]:
    """The index of an input and the axis, of each dimension that the buckets' shapes do not agree in."""
    return [
        (index, axis)
        for index, spec in enumerate(signature.inputs)
        for axis in range(len(spec.shape))
        if len({_said(each, spec)[axis] for each in buckets}) > 1
    ]


def _said(shapes: Mapping[str, Sequence[int]], spec: TensorSpec) -> Sequence[int]:
    return shapes.get(spec.name, shapes.get("", spec.shape))


def _before(
    signature: ModelSignature, buckets: Sequence[Shapes], place: int, varying: Sequence[tuple[int, int]]
) -> int:
    """The length of the bucket before; 0 of the first."""
    index, axis = varying[0]
    return int(_said(buckets[place - 1], signature.inputs[index])[axis]) if place else 0


def _at(
    signature: ModelSignature, shapes: Shapes, varying: Sequence[tuple[int, int]], length: int
) -> dict[str, list[int]]:
    changed = {name: list(shape) for name, shape in shapes.items()}
    for index, axis in varying:
        name = signature.inputs[index].name
        changed[name if name in changed else ""][axis] = length
    return changed

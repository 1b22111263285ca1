"""Checks whether the artifact of a bucket may serve shorter inputs, padded with zeros. A bucket is one of the input
sizes for which a model is compiled.

If attention scores are real values, a mask excludes padding from attention exactly. If the scores were quantized, a
mask may fail to exclude it: the range of the scores may have been calibrated without a mask, or may be computed over
all tokens (dynamic quantization). Names in the model do not distinguish these cases. So a model that computes a range
over a whole tensor is rejected. For other models, the oracle computes random inputs of two lengths, unpadded and padded
to the bucket: the shortest and the longest that this bucket, rather than the previous one, would serve. Shorter inputs
are served only if all values of all outputs are equal.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from service.compiler.build.steps import Steps
from service.compiler.messages.checking import PADDING, PaddingRequest
from service.compiler.messages.files import MODULE_FILE
from service.core.builds.options import Shapes, bucket_index_of, buckets_of, shapes_of
from service.core.errors import BuildTimedOut, OctetError
from service.core.models.buckets import padded_length
from service.core.models.signature import ModelSignature, TensorSpec


@dataclass(frozen=True)
class Padding:
    """The result of comparing outputs with and without padding.

    Attributes:
        exact: true if every output value was the same with and without padding.
        text: a sentence with the result, or the reason why nothing was checked.
        lengths: the lengths that were checked.
        values: the number of output values that were compared.
        equal: the number of these values that were the same with and without padding.
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
    """Checks the bucket of this build. Returns None if the model does not have buckets.

    Args:
        signature: the signature of the bucket, as the import child returned it.
    """
    options = steps.request.options
    buckets, position = buckets_of(options), bucket_index_of(options)
    if not buckets:
        return None
    varying = _varying(signature, buckets)
    length = padded_length(signature, varying)
    if length is None:
        return Padding(False, "inputs are padded only if all that vary are integers and have the same length")
    if any(spec.dtype.kind in "iu" and spec.bounds is None for spec in signature.inputs):
        return Padding(False, "the file does not state which values its inputs may have")
    lengths = sorted({_previous_length(signature, buckets, position, varying) + 1, length - 1} - {0, length})
    if not lengths:
        return Padding(False, "there is no length between the previous bucket and this one")
    try:
        return _compare_padded(steps, signature, varying, [each for each in lengths if each < length])
    except BuildTimedOut:
        raise
    except OctetError as error:  # the import of the model at another length failed
        return Padding(False, f"the model could not be computed at other lengths: {error.message}")


def _compare_padded(
    steps: Steps, signature: ModelSignature, varying: Sequence[tuple[int, int]], lengths: Sequence[int]
) -> Padding:
    shapes = shapes_of(steps.request.options)
    modules, signatures = [], []
    for length in lengths:
        within = f"import-{length}"
        imported = steps.imported_at(_shapes_at(signature, shapes, varying, length), within)
        modules.append(steps.output(within, MODULE_FILE))
        signatures.append(imported.signature)
    own = steps.output("import", MODULE_FILE)
    request = PaddingRequest(own, signature, tuple(modules), tuple(signatures), steps.request.numerics)
    result = steps.run(PADDING, request, readable=[own, *modules])
    if result.reason:
        return Padding(False, result.reason)
    values, equal = result.values, result.equal
    shown = ", ".join(map(str, lengths))
    text = f"{equal} of {values} values for inputs of length {shown} stayed equal when the inputs were padded"
    return Padding(0 < values == equal, text, tuple(lengths), values, equal)


def _varying(signature: ModelSignature, buckets: Sequence[Shapes]) -> list[tuple[int, int]]:
    """Returns an (index of the input, axis) for each dimension that differs between buckets."""
    return [
        (index, axis)
        for index, spec in enumerate(signature.inputs)
        for axis in range(len(spec.shape))
        if len({_bucket_shape(each, spec)[axis] for each in buckets}) > 1
    ]


def _bucket_shape(shapes: Mapping[str, Sequence[int]], spec: TensorSpec) -> Sequence[int]:
    return shapes.get(spec.name, shapes.get("", spec.shape))


def _previous_length(
    signature: ModelSignature, buckets: Sequence[Shapes], position: int, varying: Sequence[tuple[int, int]]
) -> int:
    """Returns the length of the previous bucket, or 0 for the first bucket."""
    index, axis = varying[0]
    return int(_bucket_shape(buckets[position - 1], signature.inputs[index])[axis]) if position else 0


def _shapes_at(
    signature: ModelSignature, shapes: Shapes, varying: Sequence[tuple[int, int]], length: int
) -> dict[str, list[int]]:
    changed = {name: list(shape) for name, shape in shapes.items()}
    for index, axis in varying:
        name = signature.inputs[index].name
        changed[name if name in changed else ""][axis] = length
    return changed

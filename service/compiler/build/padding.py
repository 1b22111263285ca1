"""Makes the artifact of a bucket serve shorter inputs, padded with zeros, and checks that padding changes no result. A
bucket is one of the input sizes for which a model is compiled.

If possible, the length becomes a number that is bound when the model is called (`qnn.lengths`): padding then has no
effect, in any operator. A few models contain an operator that depends on the number of positions in another way. They
may be padded if a mask excludes the padding exactly, which names in the model do not show: if attention scores were
quantized, the mask may fail.

So in both cases the oracle computes random inputs of some lengths, unpadded and padded to the bucket: the shortest and
the longest length that this bucket, rather than the previous one, would serve, and a prime number between them. Shorter
inputs are served only if all values of all outputs are equal. The outputs of the artifact are compared too.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from service.compiler.build.steps import Steps
from service.compiler.messages.checking import PADDING, PaddingRequest, Shorter
from service.compiler.messages.files import MODULE_FILE, shorter_file
from service.core.builds.build import Stage
from service.core.builds.options import Shapes, bucket_index_of, buckets_of, ladder, ranges_of, shapes_of
from service.core.errors import BuildTimedOut, OctetError, Unsupported
from service.core.models.buckets import common_length
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
        longest: the length of the bucket if the length is bound when the model is called, else 0.
        module: the module to build. Its last input is the length, if that is bound.
        shorter: the expected outputs of the artifact for shorter inputs.
    """

    exact: bool
    text: str
    lengths: tuple[int, ...] = ()
    values: int = 0
    equal: int = 0
    longest: int = 0
    module: Path | None = None
    shorter: tuple[Shorter, ...] = ()

    def to_json(self) -> dict[str, Any]:
        return {
            "exact": self.exact,
            "summary": self.text,
            "lengths": list(self.lengths),
            "values": self.values,
            "equal": self.equal,
            "bound": self.longest > 0,
        }


def padding_of(steps: Steps, signature: ModelSignature) -> Padding | None:
    """Checks the bucket of this build. Returns None if the model accepts one size only.

    Args:
        signature: the signature of the bucket, as the import child returned it.

    Raises:
        Unsupported: the build has to accept a range of lengths, but an operator depends on the length.
    """
    options = steps.request.options
    ranges, buckets = ranges_of(options), buckets_of(options)
    if ranges:
        padding = _checked(steps, signature, _in_range(signature, ranges), 0)
        if not padding.exact:
            raise Unsupported(
                f"the model cannot accept inputs of any length up to a limit: {padding.text}",
                stage=Stage.VERIFY,
                hint=f"list the lengths instead: --input-shape '{_shapes_with_lists(shapes_of(options), ranges)}'",
            )
        return padding
    if not buckets:
        return None
    varying = _varying(signature, buckets)
    return _checked(steps, signature, varying, _previous_length(signature, buckets, bucket_index_of(options), varying))


def _checked(steps: Steps, signature: ModelSignature, varying: Sequence[tuple[int, int]], previous: int) -> Padding:
    """Checks lengths greater than `previous`."""
    length = common_length(signature, varying)
    if length is None:
        return Padding(False, "inputs are padded only if all sizes that vary are the same length")
    lengths = _tried(previous + 1, length)
    if not lengths:
        return Padding(False, "there is no length between the previous bucket and this one")
    try:
        return _compare_padded(steps, signature, varying, lengths)
    except BuildTimedOut:
        raise
    except OctetError as error:  # the import of the model at another length failed
        return Padding(False, f"the model could not be computed at other lengths: {error.message}")


def _shapes_with_lists(shapes: Shapes, ranges: Mapping[str, Sequence[int]]) -> str:
    """Returns the shapes as text, with a list of sizes in place of each range."""
    texts = []
    for name, shape in shapes.items():
        sizes = [
            f"[{','.join(map(str, ladder(size)))}]" if axis in ranges.get(name, ()) else str(size)
            for axis, size in enumerate(shape)
        ]
        texts.append(f"{name}={'x'.join(sizes)}" if name else "x".join(sizes))
    return ";".join(texts)


def _in_range(signature: ModelSignature, ranges: Mapping[str, Sequence[int]]) -> list[tuple[int, int]]:
    """Returns an (index of the input, axis) for each dimension that has a range of sizes."""
    return [
        (index, axis)
        for index, spec in enumerate(signature.inputs)
        for axis in ranges.get(spec.name, ranges.get("", ()))
    ]


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
    own, numerics = steps.output("import", MODULE_FILE), steps.request.numerics
    binds = steps.request.target.binds
    request = PaddingRequest(own, signature, tuple(modules), tuple(signatures), numerics, binds)
    result = steps.run(PADDING, request, readable=[own, *modules])
    if result.reason:
        return Padding(False, result.reason)
    values, equal = result.values, result.equal
    shown = ", ".join(map(str, lengths))
    text = f"{equal} of {values} values for inputs of length {shown} stayed equal when the inputs were padded"
    if not 0 < values == equal:
        return Padding(False, text, tuple(lengths), values, equal)
    return Padding(
        True,
        text,
        tuple(lengths),
        values,
        equal,
        common_length(signature, varying) or 0 if result.bound else 0,
        steps.output(PADDING.name, MODULE_FILE) if result.bound else None,
        tuple(
            Shorter(length, each, steps.output(PADDING.name, shorter_file(length)))
            for length, each in zip(lengths, signatures, strict=True)
        ),
    )


def _tried(shortest: int, longest: int) -> list[int]:
    """Returns the lengths to compare: the shortest, the longest but one, a prime number about halfway, and a random
    one.
    """
    middle = (shortest + longest) // 2
    primes = [each for each in range(middle, longest) if each > 1 and all(each % n for n in range(2, each))]
    other = random.Random(longest).randint(shortest, longest)  # the same in each build, as builds can be repeated
    return sorted({each for each in (shortest, *primes[:1], other, longest - 1) if 0 < each < longest})


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

"""Buckets: the short list of static shapes that a model with dynamic input sizes is built for. A request uses one.

A request of a size between two buckets uses the larger bucket and is padded with zeros, if the build has checked that
this changes no bit of the result (`ModelSignature.pads`). Otherwise requests of other sizes are refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from service.core.errors import InvalidTensor
from service.core.models.signature import ModelSignature, TensorSpec

if TYPE_CHECKING:  # see `core.models.signature`
    from service.core.models.arrays import Array
DYNAMIC = -1


def merge_buckets(signatures: Sequence[ModelSignature]) -> ModelSignature:
    """Returns the signature of a model with the buckets `signatures`: -1 for each dimension in which they differ, or
    along which they accept shorter inputs.

    Args:
        signatures: the signatures of one model's buckets, in any order.

    Raises:
        ValueError: the signatures are not buckets of one model, or the model keeps state.
    """
    ascending = sorted(signatures, key=lambda each: [spec.shape for spec in each.inputs])
    first = ascending[0]
    if any(_interface_of(each) != _interface_of(first) or each.states for each in ascending):
        raise ValueError("the artifacts are not buckets of one model")
    inputs = tuple(_merge_specs(specs) for specs in zip(*(each.inputs for each in ascending), strict=True))
    outputs = tuple(_merge_specs(specs) for specs in zip(*(each.outputs for each in ascending), strict=True))
    return ModelSignature(inputs, outputs, buckets=tuple(ascending))


def check_shape(signature: ModelSignature, index: int, shape: Sequence[int]) -> TensorSpec:
    """Returns the spec of input `index` of a model with buckets, with the `shape` that a request gives it.

    Raises:
        InvalidTensor: no bucket accepts the shape.
    """
    if _bucket(signature, {index: tuple(shape)}) is None:
        raise _shape_error(signature, index, shape)
    return replace(signature.inputs[index], shape=tuple(shape))


@dataclass(frozen=True)
class FittedInputs:
    """A request that was fitted to a bucket.

    Attributes:
        bucket: the index of the bucket.
        inputs: the inputs, padded with zeros if necessary.
        length: the request's size along the dynamic dimensions; None if the request has exactly the bucket's shapes.
    """

    bucket: int
    inputs: Sequence[Array]
    length: int | None

    def cut(self, signature: ModelSignature, outputs: Sequence[Array]) -> list[Array]:
        """Returns `outputs` without the part that belongs to the padding."""
        if self.length is None:
            return list(outputs)
        return [_cut(spec, output, self.length) for spec, output in zip(signature.outputs, outputs, strict=True)]


def fit_inputs(signature: ModelSignature, inputs: Sequence[Array]) -> FittedInputs:
    """Fits `inputs`, which are in the signature's order, to the smallest bucket that accepts them.

    Raises:
        InvalidTensor: no bucket accepts the inputs, or their number or types do not match the signature.
    """
    if len(inputs) != len(signature.inputs):
        raise InvalidTensor(f"the model takes {len(signature.inputs)} inputs, not {len(inputs)}")
    for spec, array in zip(signature.inputs, inputs, strict=True):
        if array.dtype != spec.dtype:
            raise InvalidTensor(
                f"input {spec.name!r} is {array.dtype}, but the model takes {spec.datatype}", tensor=spec.name
            )
    bucket_index = _bucket(signature, {index: array.shape for index, array in enumerate(inputs)})
    if bucket_index is None:
        for index, array in enumerate(inputs):
            check_shape(signature, index, array.shape)
        sizes = " and ".join(str(list(array.shape)) for array in inputs)
        raise InvalidTensor(f"the inputs have the shapes {sizes}, which do not go together", hint=_sizes(signature))
    wanted = [spec.shape for spec in signature.buckets[bucket_index].inputs]
    if wanted == [array.shape for array in inputs]:
        return FittedInputs(bucket_index, inputs, None)
    length = next(
        size
        for spec, array in zip(signature.inputs, inputs, strict=True)
        for size, own in zip(array.shape, spec.shape, strict=True)
        if own == DYNAMIC
    )
    return FittedInputs(bucket_index, [_pad(array, shape) for array, shape in zip(inputs, wanted, strict=True)], length)


def accepting_shorter(signature: ModelSignature, shorter: ModelSignature) -> ModelSignature:
    """Returns the signature of a bucket that accepts shorter inputs. `shorter` is the signature for such inputs."""

    def open_specs(specs: Sequence[TensorSpec], others: Sequence[TensorSpec]) -> tuple[TensorSpec, ...]:
        return tuple(replace(spec, varies=_different(spec, other)) for spec, other in zip(specs, others, strict=True))

    inputs, outputs = open_specs(signature.inputs, shorter.inputs), open_specs(signature.outputs, shorter.outputs)
    return replace(signature, inputs=inputs, outputs=outputs, pads=True)


def _different(spec: TensorSpec, other: TensorSpec) -> tuple[int, ...]:
    return tuple(axis for axis, (one, two) in enumerate(zip(spec.shape, other.shape, strict=True)) if one != two)


def common_length(signature: ModelSignature, varying: Sequence[tuple[int, int]]) -> int | None:
    """Returns the length of a bucket if all varying dimensions have the same one, else None.

    Args:
        signature: the signature of the bucket.
        varying: the dimensions that vary between buckets, each as the index of an input and an axis.
    """
    lengths = {signature.inputs[index].shape[axis] for index, axis in varying}
    return lengths.pop() if len(lengths) == 1 else None


def pad_inputs(inputs: Sequence[Array], signature: ModelSignature) -> list[Array]:
    """Returns `inputs` padded with zeros at the end of each dimension, up to the shapes of `signature`."""
    return [_pad(array, spec.shape) for array, spec in zip(inputs, signature.inputs, strict=True)]


def _bucket(signature: ModelSignature, shapes: dict[int, tuple[int, ...]]) -> int | None:
    """Returns the index of the bucket with these input shapes, or else of the smallest one that can be padded to; None
    if no bucket accepts them.

    Args:
        shapes: input index -> shape.
    """
    for bucket_index, bucket in enumerate(signature.buckets):
        if all(bucket.inputs[index].shape == shape for index, shape in shapes.items()):
            return bucket_index
    lengths: set[int] = set()
    for index, shape in shapes.items():
        own = signature.inputs[index].shape
        if len(own) != len(shape) or any(size not in (DYNAMIC, given) for size, given in zip(own, shape, strict=True)):
            return None
        lengths |= {given for size, given in zip(own, shape, strict=True) if size == DYNAMIC}
    if len(lengths) != 1 or min(lengths) < 1:
        return None
    (length,) = lengths
    for bucket_index, bucket in enumerate(signature.buckets):
        if length <= _length(signature, bucket):
            return bucket_index if bucket.pads else None
    return None


def _length(signature: ModelSignature, bucket: ModelSignature) -> int:
    """Returns the smallest size of the dynamic dimensions in `bucket`. If the bucket pads, they all have this size."""
    return min(
        size
        for spec, own in zip(signature.inputs, bucket.inputs, strict=True)
        for given, size in zip(spec.shape, own.shape, strict=True)
        if given == DYNAMIC
    )


def _pad(array: Array, shape: Sequence[int]) -> Array:
    if array.shape == tuple(shape):
        return array
    import numpy as np

    filled = np.zeros(shape, array.dtype)
    filled[tuple(map(slice, array.shape))] = array
    return filled


def _cut(spec: TensorSpec, output: Array, length: int) -> Array:
    if DYNAMIC not in spec.shape:
        return output
    import numpy as np

    return np.ascontiguousarray(output[tuple(slice(length if size == DYNAMIC else None) for size in spec.shape)])


def _merge_specs(specs: Sequence[TensorSpec]) -> TensorSpec:
    sizes = [set(each) for each in zip(*(spec.shape for spec in specs), strict=True)]
    for axis in {axis for spec in specs for axis in spec.varies}:
        sizes[axis].add(DYNAMIC)
    return replace(specs[0], shape=tuple(each.pop() if len(each) == 1 else DYNAMIC for each in sizes), varies=())


def _interface_of(signature: ModelSignature) -> list[tuple[str, str, int]]:
    return [(spec.name, spec.datatype, len(spec.shape)) for spec in (*signature.inputs, *signature.outputs)]


def _shape_error(signature: ModelSignature, index: int, shape: Sequence[int]) -> InvalidTensor:
    spec = signature.inputs[index]
    return InvalidTensor(
        f"input {spec.name!r} has shape {list(shape)}, but the model takes {list(spec.shape)}",
        tensor=spec.name,
        hint=_sizes(signature, index),
    )


def _sizes(signature: ModelSignature, index: int = 0) -> str:
    shapes = ", ".join(str(list(bucket.inputs[index].shape)) for bucket in signature.buckets)
    between = ", and shorter ones are filled up" if any(bucket.pads for bucket in signature.buckets) else ""
    return f"it is built for {shapes}{between}"

"""The shapes of a model's inputs: those of the file, unless the user gives others.

LiteRT runs a model with the shapes of the file. Its caller may resize any input before (`ResizeInputTensor` in
tflite/core/subgraph.cc), whether the file leaves the sizes open (-1 in `shape_signature`) or not.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from service.compiler.importers.builder.fixing import Declared, check_inputs, elements_of, fixed_inputs
from service.compiler.importers.builder.module import Shapes, agreed_shape, check_names
from service.compiler.importers.tflite.model import Model, Tensor
from service.compiler.importers.tflite.signature import signature_of
from service.core.builds.fixed import Fixed
from service.core.errors import InvalidInput, MalformedModel, Unsupported
from service.core.models.signature import FixedInput

_OPEN = -1


def with_shapes(model: Model, shapes: Shapes) -> Model:
    """Returns `model` with the shapes that the user gives for its inputs, by name; "" is the name of an only input.

    Raises:
        InvalidInput: no input has a given name, or a shape has another number of dimensions.
        Unsupported: the file leaves a size open, except that of the batch, and no shape is given.
    """
    names = [spec.name for spec in signature_of(model).inputs]
    check_names(shapes, names)
    tensors = list(model.tensors)
    for index, name in zip(model.inputs, names, strict=True):
        given = shapes.get(name, shapes.get("") if len(names) == 1 else None)
        tensors[index] = _resized(tensors[index], name, given)
    return replace(model, tensors=tuple(tensors))


def with_fixed(model: Model, shapes: Shapes, fixed: Fixed) -> tuple[Model, tuple[FixedInput, ...]]:
    """Returns `model` with the inputs `fixed` as constants, and these inputs.

    Raises:
        InvalidInput: no input has a given name, or the values do not fit the input.
    """
    names = [spec.name for spec in signature_of(model).inputs]
    check_inputs(names, shapes, fixed)
    inputs = [
        Declared(name, tensor.dtype, [None if size == _OPEN else size for size in _declared(tensor)])
        for name, tensor in zip(names, (model.tensors[index] for index in model.inputs), strict=True)
    ]
    found = fixed_inputs(inputs, shapes, fixed)
    tensors = list(model.tensors)
    for each in found:
        index = model.inputs[each.index]
        tensors[index] = replace(
            tensors[index],
            shape=each.spec.shape,
            signature=(),
            storage=-1 - index,
            data=elements_of(each),
            is_open=False,
        )
    chosen = {model.inputs[each.index] for each in found}
    signatures = tuple(
        replace(signature, inputs=tuple(end for end in signature.inputs if end[1] not in chosen))
        for signature in model.signatures
    )
    left = tuple(index for index in model.inputs if index not in chosen)
    return replace(model, tensors=tuple(tensors), inputs=left, signatures=signatures), found


def _resized(tensor: Tensor, name: str, given: Sequence[int] | None) -> Tensor:
    if given is None:
        if not tensor.is_open:
            return tensor
        declared = [None if size == _OPEN else size for size in tensor.signature]
        return replace(tensor, shape=agreed_shape(name, declared, None))
    if len(given) != len(tensor.shape) or min(given, default=1) < 1:
        raise InvalidInput(f"the input {name} has the shape {list(_declared(tensor))}, not {list(given)}")
    return replace(tensor, shape=tuple(given))


def _declared(tensor: Tensor) -> tuple[int, ...]:
    return tensor.signature or tensor.shape


def open_inputs(model: Model) -> list[str]:
    """Returns each input whose size the file leaves open, except that of the batch: its name and shape."""
    specs = signature_of(model).inputs
    tensors = [model.tensors[index] for index in model.inputs]
    return [
        f"{spec.name} {['?' if size == _OPEN else size for size in tensor.signature]}".replace("'", "")
        for spec, tensor in zip(specs, tensors, strict=True)
        if _OPEN in tensor.signature[1:]
    ]


@contextmanager
def naming_shapes(model: Model, shapes: Shapes) -> Iterator[None]:
    """Changes errors of the block that the shapes of the inputs may have caused: the file is not damaged."""
    try:
        yield
    except MalformedModel as error:
        found = open_inputs(model)
        if shapes:
            raise Unsupported(
                f"with the given shapes, {error.message}",
                op=error.op,
                tensor=error.tensor,
                hint="give shapes that fit the model's constants, or leave out --input-shape",
            ) from error
        if found:
            raise Unsupported(
                f"with inputs of one element where the file leaves the size open ({', '.join(found[:4])}), "
                f"{error.message}",
                op=error.op,
                tensor=error.tensor,
                hint=f"give the shape: --input-shape {found[0].partition(' ')[0]}=1,…",
            ) from error
        raise

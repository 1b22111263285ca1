"""The parameters of a calibration program, layer by layer."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import astuple, dataclass, fields

from service.core.models.arrays import Array
from service.quantize.file.document import Document
from service.quantize.rewrites.patterns import Layer, Plan

_REAL_PRODUCTS = ("ConvTranspose",)
_PRODUCTS = ("Conv", "ConvTranspose", "Gemm", "MatMul")


@dataclass(frozen=True)
class Conversion:
    """The names of the parameters of one stored tensor. All are `[1]`.

    Attributes:
        stored, real: 1 and 0 if the tensor is stored, and 0 and 1 if it stays float.
        scale: the scale.
        low, high: the bounds of the stored integers without the zero point.
    """

    stored: str
    real: str
    scale: str
    low: str
    high: str


@dataclass(frozen=True, eq=False)
class Variant:
    """Weights that can be selected.

    Attributes:
        steps: the stored integers, in the layout of the file.
        scales: the scale of each channel.
    """

    steps: Array
    scales: Array


@dataclass(frozen=True, eq=False)
class Product:
    """The parameters of a product, which computes (sum + bias) * factor, in float and in each stored form.

    Attributes:
        weights: the float weights for which the program is written; None if the weights are computed.
        variants: the stored weights that can be selected. If the weights are computed, there is one variant, None.
        real: the name of a parameter `[1]`, which is 1 if the product is computed in float, and otherwise 0.
        selectors: the names of such parameters for each variant.
        narrow: the name of such a parameter for the product of operands rounded to bfloat16; "" if the program does
            not contain this product.
        factor: the name of a parameter of the shape `shape`.
        bias: the name of a parameter of the same shape; "" if the operator has no bias.
        is_real: true if the product multiplies the real values of stored integers, and not the integers. These
            products have no integer form with a real result.
    """

    weights: Array | None
    variants: tuple[Variant | None, ...]
    real: str
    selectors: tuple[str, ...]
    narrow: str
    factor: str
    bias: str
    shape: tuple[int, ...]
    is_real: bool

    @property
    def selections(self) -> tuple[str, ...]:
        """The names of the parameters of which one is 1."""
        return self.real, *self.selectors, *([self.narrow] if self.narrow else [])


@dataclass(frozen=True, eq=False)
class Slots:
    """The parameters of one layer.

    Attributes:
        operands: the index of each operand that can be stored -> its conversion.
        result: None if the result always has the type of the operand, or always stays float.
        product: None if the layer multiplies nothing.
    """

    layer: Layer
    operands: Mapping[int, Conversion]
    result: Conversion | None
    product: Product | None

    @property
    def inputs(self) -> list[tuple[str, tuple[int, ...]]]:
        """The names and shapes of the parameters, in the order of the program's inputs."""
        conversions = [*self.operands.values(), *([self.result] if self.result else [])]
        found: list[tuple[str, tuple[int, ...]]]
        found = [(name, (1,)) for each in conversions for name in astuple(each)]
        if self.product is None:
            return found
        found += [(name, (1,)) for name in self.product.selections]
        return found + [(name, self.product.shape) for name in (self.product.factor, self.product.bias) if name]


Variants = Mapping[str, Sequence[Variant]]  # name of a layer with constant weights -> its stored weights


def slots_of(document: Document, plan: Plan, variants: Variants, narrow: Collection[str] = ()) -> list[Slots]:
    """Returns the parameters of each layer of `plan`, with names that are new in `document`.

    Args:
        narrow: the names of the layers that can run in bfloat16 too.
    """
    return [
        _slots(document, layer, tuple(variants.get(layer.name, ())), is_narrow=layer.name in narrow)
        for layer in plan.layers
    ]


def _slots(document: Document, layer: Layer, variants: tuple[Variant, ...], *, is_narrow: bool) -> Slots:
    def new_name(what: str) -> str:
        return document.new_name(f"{layer.name}_octet_{what}")

    def conversion(what: str) -> Conversion:
        return Conversion(*(new_name(f"{what}_{part.name}") for part in fields(Conversion)))

    positions = sorted((*layer.operands, *layer.constants))
    operands = {position: conversion(str(position)) for position in positions}
    is_stored = layer.result is not None and not layer.pattern.moves
    product = None
    if layer.node.op_type in _PRODUCTS:
        product = _product(document, layer, variants, new_name, is_narrow=is_narrow)
    return Slots(layer, operands, conversion("result") if is_stored else None, product)


def _product(
    document: Document,
    layer: Layer,
    variants: tuple[Variant, ...],
    new_name: Callable[[str], str],
    *,
    is_narrow: bool,
) -> Product:
    node, pattern = layer.node, layer.pattern
    weights, shape = None, (1,)
    if pattern.weights is not None:
        weights, axis = document.constants[node.inputs[pattern.weights]], pattern.axis(node)
        shape = (weights.shape[axis], *[1] * (weights.ndim - 2))
    choices: tuple[Variant | None, ...] = variants if weights is not None else (None,)
    selectors = tuple(new_name(f"selector_{index}") for index in range(len(choices)))
    bias = "" if pattern.bias is None else new_name("bias")
    is_real = node.op_type in _REAL_PRODUCTS
    narrow = new_name("narrow") if is_narrow else ""
    return Product(weights, choices, new_name("real"), selectors, narrow, new_name("factor"), bias, shape, is_real)

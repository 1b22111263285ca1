"""The operator names of a framework, as the pass needs them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Generic, TypeVar

from service.compiler.importers.qdq.graph import Graph, Operator

G = TypeVar("G", bound=Graph)
Bounds = tuple[float, float]
# Takes an operator and the conversion of its output (None if the output stays real). Returns equivalent quantized
# operators; the last one computes the output. Returns an empty list if there are none.
Fuse = Callable[[G, Operator, Operator | None], list[Operator]]


@dataclass(frozen=True)
class Vocabulary(Generic[G]):
    """A framework's operators.

    Attributes:
        quantize, dequantize: types of the conversions; their first input is the converted tensor.
        moves: types of operators that only move elements of their first input, or select some of them by their order,
            which stored values share.
        splits: types of such operators that have several outputs, all with elements of the first input.
        joins: types of such operators that join all of their inputs.
        keeps_conversions: returns true if the framework's own optimizer does not move conversions through the given
            operator (one of `moves`, `splits` or `bounded_types`). A dequantization that the pass moves through it
            nevertheless gets the attribute `MOVED`.
        by_channel: returns true if the rule of the given operator accepts the given conversion after it even if the
            conversion has a scale for each channel.
        alike: returns true if the given conversions have the same scale, zero point and storage type. `per_tensor` is
            true for each of the conversions.
        per_tensor: returns true if the given conversion has one scale, which is constant and positive, and a storage
            type that the operators of `fused` support.
        bounds: takes an operator and the name of its operand. If the operator is an activation, returns the real bounds
            to which it clamps the operand; otherwise None.
        bounded: takes an activation of `bounded_types`, the conversion before it and a name. Returns an operator that
            computes the activation on stored values, in the conversion's type, under that name.
        bounded_types: types of activations whose bound is stored exactly, whatever the scale: Relu.
        fused: type -> the function that replaces such an operator between conversions.
    """

    quantize: str
    dequantize: str
    moves: Set[str]
    per_tensor: Callable[[G, Operator], bool]
    bounds: Callable[[G, Operator, str], Bounds | None]
    bounded: Callable[[Operator, Operator, str], Operator]
    bounded_types: Set[str]
    fused: Mapping[str, Fuse[G]]
    splits: Set[str] = frozenset()
    joins: Set[str] = frozenset()
    alike: Callable[[G, Sequence[Operator]], bool] = lambda graph, conversions: False
    keeps_conversions: Callable[[G, Operator], bool] = lambda graph, operator: False
    by_channel: Callable[[G, Operator, Operator], bool] = lambda graph, operator, conversion: False

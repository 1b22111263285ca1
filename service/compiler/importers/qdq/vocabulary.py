"""The operator names of a framework that the pass looks for."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Generic, TypeVar

from service.compiler.importers.qdq.graph import Graph, Operator

G = TypeVar("G", bound=Graph)
Bounds = tuple[float, float]
# Maps an operator and the conversion of its output (None if that stays real) to operators that compute the same in its
# place; the last one computes the output. Returns an empty list if there are none.
Fuse = Callable[[G, Operator, Operator | None], list[Operator]]


@dataclass(frozen=True)
class Vocabulary(Generic[G]):
    """A framework's operators.

    Attributes:
        quantize, dequantize: types of the conversions; their first input is the converted tensor.
        moves: types of operators that only move elements of their first input, or choose between them by an order that
            stored values share.
        splits: types of such operators with several outputs, all of elements of their first input.
        joins: types of such operators that join all their inputs.
        keeps_conversions: returns true if the framework's own optimizer leaves conversions on the side of the given
            operator (of `moves`, `splits` or `bounded_types`) where the file has them. A dequantization that moves
            through it anyway gets the attribute `MOVED`.
        by_channel: returns true if the rule of the given operator accepts the given conversion after it, although that
            has a scale for each channel.
        alike: returns true if the given conversions, each `per_tensor`, have the same scale, zero point and storage.
        per_tensor: returns true if the given conversion has one scale, which is constant and positive, and stored
            values that the operators of `fused` take.
        bounds: maps an activation and the name of its operand to the real bounds that it sets to that operand; returns
            None for any other operator.
        bounded: maps an activation of `bounded_types`, the conversion before it and a name to an operator that computes
            the activation under that name on stored values, of the conversion's type.
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

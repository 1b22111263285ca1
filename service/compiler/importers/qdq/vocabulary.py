"""The operator names of a framework that the pass looks for."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Generic, TypeVar

from service.compiler.importers.qdq.graph import Graph, Operator

G = TypeVar("G", bound=Graph)
Bounds = tuple[float, float]
# From an operator and the conversion of its output (None if that stays real) to what computes the same in its place;
# the last of them makes the output. None of them where nothing does.
Fuse = Callable[[G, Operator, Operator | None], list[Operator]]


@dataclass(frozen=True)
class Vocabulary(Generic[G]):
    """A framework's operators.

    Attributes:
        quantize, dequantize: types of the conversions; their first input is what they convert.
        moves: types of operators that only move elements of their first input, or choose between them by an order
            that stored values share.
        splits: the same of operators with several outputs, all of elements of their first input.
        joins: the same of operators that put all their inputs together.
        keeps_conversions: an operator of `moves`, `splits` or `bounded_types` -> whether the framework's own optimizer
            leaves conversions on the side of it where the file has them. A dequantization that moves through it anyway
            gets the attribute `MOVED`.
        by_channel: an operator and a conversion behind it -> whether the operator's rule takes it, though that has a
            scale for each channel.
        alike: whether conversions, each `per_tensor`, have one scale, zero point and storage.
        per_tensor: whether a conversion has one scale, which is constant and positive, and stored values that the
            operators of `fused` take.
        bounds: an activation and the name of its operand -> the real bounds that it sets to that operand; None of
            any other operator.
        bounded: an activation of `bounded_types`, the conversion in front of it, and a name -> an operator that
            computes the activation under that name on stored values, of the type that the conversion has.
        bounded_types: of activations whose bound is stored exactly, whatever the scale: Relu.
        fused: type -> what takes its place between conversions.
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

"""Chooses the types of tensors from their statistics."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from service.compiler.qnn.types import QuantizedType
from service.quantize.calibration.methods import Statistics, minmax
from service.quantize.rewrites.patterns import Plan
from service.quantize.rewrites.rewriting import Form
from service.quantize.rewrites.widening import STORAGE
from service.quantize.steps.live import widened
from service.quantize.steps.options import Options


@dataclass(frozen=True)
class TensorStatistics:
    """The statistics of a model's tensors.

    If the operator before it runs in a more precise type, a tensor that only contains moved elements of another tensor
    has its own type. Such a tensor uses the statistics of the original.

    Attributes:
        observed: the statistics of tensors that were observed.
        originals: tensor -> the tensor whose elements it contains.
    """

    observed: Mapping[str, Statistics]
    originals: Mapping[str, str]

    def __contains__(self, name: str) -> bool:
        return name in self.observed or name in self.originals

    def __getitem__(self, name: str) -> Statistics:
        return self.observed[name if name in self.observed else self.originals[name]]


def integer_form(statistics: TensorStatistics, plan: Plan, options: Options) -> Form:
    """Returns the types of tensors that int8 layers read and write, chosen by the method in `options`."""
    types = {name: options.method(statistics[name], options.storage) for name in plan.observed}
    return Form(widened(types, options.live, {*statistics.observed, *statistics.originals}))


def wide_form(statistics: TensorStatistics, plan: Plan) -> Form:
    """Returns the 16-bit types of tensors, which cover all observed values. The steps of these types are so small that
    clipping would not reduce the error.
    """
    types: dict[str, QuantizedType] = {}
    for name, own in plan.tensors.items():
        if own in statistics:
            types[name] = minmax(statistics[own], STORAGE)
    return Form(types, real_biases=True)

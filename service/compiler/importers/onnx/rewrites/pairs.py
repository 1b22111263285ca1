"""Merges two successive pairs of QuantizeLinear and DequantizeLinear into one, as ONNX Runtime's optimizer does.

A session without graph optimizations then rounds twice, and an optimized session once. The mode `onnxruntime` follows
the optimized session (`core.verification.witnesses`), so the two sessions of a report may disagree here.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from service.compiler.importers.onnx.model import Model, Tensor
from service.compiler.importers.onnx.rewriting import BYTES, DEQUANTIZE, QUANTIZE
from service.compiler.importers.qdq import Operator
from service.compiler.qnn.numerics.scaling.affine import round_away
from service.core.models.arrays import Array

_STORAGES = (*BYTES, "int16", "uint16")
_CLOSEST = 1e-20  # scales that differ by less are equal for ONNX Runtime


@dataclass(frozen=True)
class _Step:
    """The constant scale and zero point of a conversion."""

    scale: np.float32
    point: Array


def merge_pairs(model: Model) -> Model:
    """Returns `model` with two successive pairs of conversions replaced by one.

    The remaining pair has the intersection of both ranges (`FindNewZeroPointAndScale` in
    optimizer/double_qdq_pairs_remover.cc). Both pairs must store the same type of 8 or 16 bits with an explicit zero
    point, and nothing else may read the values between them.

    Requires: a graph that `graph.check_graph` accepts.
    Ensures: a graph that `check_graph` would accept, with the same inputs and outputs.
    """
    return _Merging(model).run()


class _Merging:
    def __init__(self, model: Model) -> None:
        self.model = model
        self.constants = dict(model.constants)
        self.operators: dict[str, Operator] = {
            each.outputs[0]: each for each in model.operators
        }  # the operators in the order of the model
        self.ends = {end.name for end in model.outputs}
        self.readers: dict[str, list[str]] = {}  # name -> the operators that read it, each by its first output
        for operator in model.operators:
            for name in {*operator.inputs} - {""}:
                self.readers.setdefault(name, []).append(operator.outputs[0])

    def run(self) -> Model:
        for name in [name for name, each in self.operators.items() if each.op_type == DEQUANTIZE and each.inputs]:
            self._merge(name)
        if len(self.operators) == len(self.model.operators):
            return self.model
        return replace(self.model, operators=tuple(self.operators.values()), constants=self.constants)

    def _merge(self, name: str) -> None:
        """Removes the DequantizeLinear `name` and the QuantizeLinear after it, if they are the middle of two pairs."""
        middle = self.operators.get(name)
        first = None if middle is None else self._maker(middle.inputs[0], QUANTIZE)
        second = self._only_reader(name, QUANTIZE)
        if middle is None or first is None or second is None or self._only_reader(first.outputs[0], DEQUANTIZE) is None:
            return
        last = [self.operators[reader] for reader in self.readers.get(second.outputs[0], ())]
        if not last or second.outputs[0] in self.ends or any(each.op_type != DEQUANTIZE for each in last):
            return
        steps = [self._step(first, middle), *(self._step(second, each) for each in last)]
        if any(step is None or step.point.dtype != steps[0].point.dtype for step in steps if steps[0] is not None):
            return
        before, after = steps[0], steps[1]
        if before is None or after is None:
            return
        common = _common(before, after)
        if common is None:
            return
        names = self._named(first, common) if common is not before else first.inputs[1:3]
        self.operators[first.outputs[0]] = replace(first, inputs=(first.inputs[0], *names))
        for each in last:
            self.operators[each.outputs[0]] = replace(each, inputs=(first.outputs[0], *names))
        self.readers[first.outputs[0]] = [each.outputs[0] for each in last]
        del self.operators[name], self.operators[second.outputs[0]]

    def _maker(self, name: str, op_type: str) -> Operator | None:
        maker = self.operators.get(name)
        return maker if maker is not None and maker.op_type == op_type else None

    def _only_reader(self, name: str, op_type: str) -> Operator | None:
        readers = self.readers.get(name, [])
        if len(readers) != 1 or name in self.ends:
            return None
        return self._maker(readers[0], op_type) if readers[0] in self.operators else None

    def _step(self, quantize: Operator, dequantize: Operator) -> _Step | None:
        """Returns the scale and zero point that both conversions of a pair have. Returns None if ONNX Runtime does not
        treat the two as a pair (`IsQDQPairSupported` in qdq_transformer/qdq_util.cc).
        """
        if len(quantize.inputs) != 3 or len(dequantize.inputs) != 3:
            return None
        parts = [self.constants.get(name) for each in (quantize, dequantize) for name in each.inputs[1:]]
        found = [part.data for part in parts if part is not None and part.data is not None and part.data.size == 1]
        if len(found) != 4 or parts[1] is None or parts[1].dtype not in _STORAGES:
            return None
        scale, point, other_scale, other_point = (data.reshape(()) for data in found)
        if scale.dtype != np.float32 or other_scale.dtype != np.float32 or point.dtype != other_point.dtype:
            return None
        return _Step(np.float32(scale), point) if scale == other_scale and point == other_point else None

    def _named(self, conversion: Operator, step: _Step) -> tuple[str, str]:
        """Adds the scale and the zero point as constants and returns their names."""
        values: tuple[Array, Array] = np.asarray(step.scale), step.point
        names = []
        for name, data in zip(conversion.inputs[1:3], values, strict=True):
            new = f"{name}_merged"
            while new in self.constants or new in self.readers:
                new += "_"
            self.constants[new] = Tensor(new, data.dtype.name, data.shape, data)
            names.append(new)
        return names[0], names[1]


def _common(before: _Step, after: _Step) -> _Step | None:
    """Returns the intersection of two ranges, in float32, or None if it is empty."""
    if before.point == after.point and abs(before.scale - after.scale) < _CLOSEST:
        return before
    limits = np.iinfo(before.point.dtype)
    lows, highs = (
        [np.float32(bound - int(step.point)) * step.scale for step in (before, after)]
        for bound in (limits.min, limits.max)
    )
    low, high = max(lows), min(highs)
    scale = (high - low) / np.float32(limits.max - limits.min)
    if not scale > 0:
        return None
    return _Step(scale, round_away(np.asarray(np.float32(limits.min) - low / scale)).astype(before.point.dtype))

"""Writes quantized TFLite graphs operator by operator. `tflite_operators` uses it.

LiteRT runs every operator as soon as it is drawn, on the values of its operands. LiteRT also computes the shape of the
result, even if the file declares another shape. The scale of the result is changed until most of its values fit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from service.core.models.arrays import Array
from tests.fuzz.graphs.formats import to_bytes
from tests.fuzz.graphs.graph import OMITTED, Graph, GraphWriter, Operator, Quantization, Rng, Tensor, Unsuitable
from tests.support.litert import interpreter, run

_NONE, _RELU, _RELU_N1, _RELU6 = 0, 1, 2, 3
_STEEP = (2.0**-12, 2.0**-8, 2.0**-4, 2.0**4, 2.0**8, 2.0**12)
_MOST_ELEMENTS = 100_000
_FITTING_ROUNDS = 5  # each round changes the scale by a factor of at most 8


class TfliteWriter(GraphWriter):
    """A TFLite graph while it is drawn.

    Attributes:
        dtype: the type of the activations.
        values: the names of the quantized tensors that later operators may read.
    """

    def __init__(self, rng: Rng, dtype: str) -> None:
        super().__init__("tflite", rng)
        self.dtype = dtype
        self.values: list[str] = []

    def count(self) -> tuple[int, ...]:
        return (*super().count(), len(self.values))

    def withdraw(self, count: tuple[int, ...]) -> None:
        super().withdraw(count)
        del self.values[count[3] :]

    def ints(self, *values: int) -> str:
        return self.constant(np.array(values, np.int32))

    def quantization(self, name: str) -> Quantization:
        quantization = self.tensors[name].quantization
        assert quantization is not None
        return quantization

    def scale(self, name: str) -> float:
        return self.quantization(name).scales[0]

    def any_value(self) -> str:
        """Returns one of the values that operators may read. Newer ones are more likely."""
        return self.values[-1] if self.often(0.6) else self.values[int(self.rng.integers(len(self.values)))]

    def drawn_quantization(self, scale: float | None = None, dtype: str | None = None) -> Quantization:
        dtype = dtype or self.dtype
        scale = float(np.float32(scale or 10 ** self.rng.uniform(-3, 0)))
        if dtype == "int16":
            return Quantization((scale,), (0,))
        info = np.iinfo(dtype)
        middle = (info.min + info.max + 1) // 2
        point = self.choose(info.min, info.max, middle, *self.rng.integers(info.min, info.max, 4).tolist())
        return Quantization((scale,), (int(point),))

    def new_input(self, shape: tuple[int, ...]) -> str:
        name = self.input(Tensor(shape, self.dtype, self.drawn_quantization()))
        self.samples[name] = self.stored(shape, self.dtype)
        self.values.append(name)
        return name

    def node(
        self,
        op_type: str,
        inputs: Sequence[str],
        options: Mapping[str, Any] | None,
        results: Sequence[Tensor],
        *,
        fit: bool = False,
    ) -> list[str]:
        """Adds an operator. LiteRT computes the shapes of `results`.

        Args:
            fit: true to change the scale of the first result until most of its values fit.

        Raises:
            Unsuitable: LiteRT does not run the operator.
        """
        outputs = tuple(f"r{len(self.tensors) + index}" for index in range(len(results)))
        operator = Operator(op_type, tuple(inputs), outputs, dict(options or {}))
        results, elements = self._run(operator, list(results))
        for _ in range(_FITTING_ROUNDS if fit else 0):
            factor = _factor(elements[0], results[0])
            if factor == 1:
                break
            results, elements = self._run(operator, [_scaled(results[0], factor), *results[1:]])
        if fit:
            factor = 2.0 ** self.rng.uniform(-1, 1.5)
            factor *= float(self.rng.choice(_STEEP)) if self.often(0.04) else 1.0
            results, elements = self._run(operator, [_scaled(results[0], factor), *results[1:]])
        self.operators.append(operator)
        for name, tensor, values in zip(outputs, results, elements, strict=True):
            self.tensors[name], self.samples[name] = tensor, values
        return list(outputs)

    def _run(self, operator: Operator, results: list[Tensor]) -> tuple[list[Tensor], list[Array]]:
        read = {name: self.tensors[name] for name in operator.inputs if name != OMITTED}
        given = tuple(name for name, tensor in read.items() if tensor.data is None)
        tensors = {**read, **dict(zip(operator.outputs, results, strict=True))}
        if not given:
            raise Unsuitable("all operands are constants")
        try:
            loaded = interpreter(to_bytes(Graph("tflite", tensors, (operator,), given, operator.outputs)))
            elements = [values.copy() for values in run(loaded, [self.samples[name] for name in given])]
        except Exception as error:
            raise Unsuitable(str(error)) from error
        if any(not 0 < values.size <= _MOST_ELEMENTS for values in elements):
            raise Unsuitable(f"{operator.type} gives {[values.shape for values in elements]}")
        shaped = [replace(tensor, shape=values.shape) for tensor, values in zip(results, elements, strict=True)]
        return shaped, elements


def _scaled(tensor: Tensor, factor: float) -> Tensor:
    assert tensor.quantization is not None
    scale = float(np.clip(tensor.quantization.scales[0] * factor, 1e-15, 1e15))
    return replace(tensor, quantization=replace(tensor.quantization, scales=(float(np.float32(scale)),)))


def _factor(values: Array, tensor: Tensor) -> float:
    """Returns the factor by which a result's scale is changed if too many of its values saturate, or if they use too
    little of the range.
    """
    assert tensor.quantization is not None
    info = np.iinfo(tensor.dtype)
    saturated = float(((values == info.min) | (values == info.max)).mean())
    used = np.abs(values.astype(np.int64) - tensor.quantization.zero_points[0]).max() / (info.max - info.min)
    if saturated > 0.5:
        return 8.0
    return 0.125 if 0 < used < 0.02 else 1


def draw_activation(writer: TfliteWriter) -> int:
    """Draws a fused activation, which half of the operators do not have."""
    return int(writer.choose(_NONE, _NONE, _NONE, _RELU, _RELU6, _RELU_N1))


def new_result(writer: TfliteWriter, quantization: Quantization | None = None) -> Tensor:
    """Returns a result whose shape is not computed yet."""
    return Tensor((), writer.dtype, quantization or writer.drawn_quantization())


def compute(
    writer: TfliteWriter,
    op_type: str,
    inputs: Sequence[str],
    options: dict[str, Any] | None,
    scale: float | None = None,
) -> None:
    """Adds an operator whose result gets a scale that fits its values."""
    result = new_result(writer, writer.drawn_quantization(scale or writer.scale(inputs[0])))
    writer.values += writer.node(op_type, inputs, options, [result], fit=True)


def copy(
    writer: TfliteWriter, op_type: str, inputs: Sequence[str], options: dict[str, Any] | None, n: int = 1, of: int = 0
) -> None:
    """Adds an operator whose results have the quantization of an operand."""
    result = new_result(writer, writer.quantization(inputs[of]))
    writer.values += writer.node(op_type, inputs, options, [result] * n)

"""Writes quantized ONNX graphs operator by operator. `onnx_operators` uses it.

ONNX Runtime runs every operator as soon as it is drawn, on the values of its operands. This gives the shape of the
result without a second implementation of shape inference, and the range from which the next scale is chosen.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnxruntime

from service.core.models.arrays import Array
from tests.fuzz.graphs.formats import to_bytes
from tests.fuzz.graphs.graph import OMITTED, Graph, GraphWriter, Operator, Rng, Tensor, Unsuitable, need

MICROSOFT = "com.microsoft"  # the domain of ONNX Runtime's own operators
_STEEP = (2.0**-16, 2.0**-9, 2.0**-5, 2.0**5, 2.0**9, 2.0**16)


@dataclass(frozen=True)
class Value:
    """A quantized tensor of the graph, with the names of its scale and zero point."""

    name: str
    scale: str
    zero_point: str

    @property
    def parameters(self) -> tuple[str, str]:
        return self.scale, self.zero_point


class OnnxWriter(GraphWriter):
    """An ONNX graph while it is drawn.

    Attributes:
        values: the quantized tensors that later operators may read.
    """

    def __init__(self, rng: Rng) -> None:
        super().__init__("onnx", rng)
        self.values: list[Value] = []
        self._dequantized: dict[str, str] = {}

    def count(self) -> tuple[int, ...]:
        return (*super().count(), len(self.values))

    def withdraw(self, count: tuple[int, ...]) -> None:
        super().withdraw(count)
        del self.values[count[3] :]
        self._dequantized.clear()  # some of the conversions were removed

    def dtype(self, value: Value) -> str:
        return self.tensors[value.name].dtype

    def storage(self) -> str:
        return str(self.choose("uint8", "int8"))

    def node(
        self,
        op_type: str,
        inputs: Sequence[str],
        options: Mapping[str, Any] | None = None,
        domain: str = "",
        n: int = 1,
    ) -> list[str]:
        """Adds an operator with `n` results.

        Raises:
            Unsuitable: ONNX Runtime does not run the operator.
        """
        outputs = tuple(f"r{len(self.tensors) + index}" for index in range(n))
        operator = Operator(op_type, tuple(inputs), outputs, dict(options or {}), domain)
        results = self._run(operator)
        self.operators.append(operator)
        for name, result in zip(outputs, results, strict=True):
            self.tensors[name] = Tensor(result.shape, result.dtype.name)
            self.samples[name] = result
        return list(outputs)

    def _run(self, operator: Operator) -> list[Array]:
        read = {name: self.tensors[name] for name in operator.inputs if name != OMITTED}
        given = tuple(name for name, tensor in read.items() if tensor.data is None)
        # The types of the outputs are not known here; ONNX Runtime infers them.
        tensors = {**read, **{name: Tensor((), "float32") for name in operator.outputs}}
        alone = Graph("onnx", tensors, (operator,), given, operator.outputs)
        try:
            session = _session(to_bytes(alone, typed=False))
            results = session.run(None, {name: self.samples[name] for name in given})
        except Exception as error:
            raise Unsuitable(str(error)) from error
        if any(result.size == 0 or result.size > 200_000 for result in results):
            raise Unsuitable(f"{operator.type} gives {[result.shape for result in results]}")
        return list(results)

    def quantization(self, scale: Any, zero_point: Any, dtype: str) -> tuple[str, str]:
        return self.constant(scale, "float32"), self.constant(zero_point, dtype)

    def chosen_quantization(self, real: Array, dtype: str) -> tuple[str, str]:
        """Returns the names of a scale and a zero point for `real`. Most values fit the range, but sometimes many do
        not.
        """
        finite = real[np.isfinite(real)]
        low, high = (min(0.0, float(finite.min())), max(0.0, float(finite.max()))) if finite.size else (-1.0, 1.0)
        span = (high - low) or 1.0
        scale = span / 255 * 2.0 ** self.rng.uniform(-1.5, 0.5)
        if self.often(0.05):
            scale *= float(self.rng.choice(_STEEP))
        scale = float(np.clip(scale, 1e-20, 1e20))
        info = np.iinfo(dtype)
        fitting = round(info.min - low / scale)
        point = int(np.clip(fitting, info.min, info.max))
        if self.often(0.2):
            point = int(self.choose(info.min, info.max, (info.min + info.max + 1) // 2))
        return self.quantization(np.float32(scale), point, dtype)

    def quantized_input(self, shape: tuple[int, ...]) -> Value:
        """Adds an input of the graph. It contains stored integers, or real numbers that are quantized first."""
        dtype = self.storage()
        real = (self.rng.normal(0, 1, shape) * 10 ** self.rng.uniform(-2, 2)).astype(np.float32)
        if self.often(0.5):
            name = self.input(Tensor(shape, "float32"))
            self.samples[name] = real
            return self.quantize(name, dtype)
        name = self.input(Tensor(shape, dtype))
        info = np.iinfo(dtype)
        self.samples[name] = self.rng.integers(info.min, info.max, shape, dtype, endpoint=True)
        value = Value(name, *self.chosen_quantization(real, dtype))
        self.values.append(value)
        return value

    def any_value(self) -> Value:
        """Returns one of the values that operators may read. Newer ones are more likely."""
        return self.values[-1] if self.often(0.6) else self.values[int(self.rng.integers(len(self.values)))]

    def dequantize(self, value: Value) -> str:
        """Returns the name of the dequantized tensor of `value`. Readers share a conversion, or each has its own."""
        known = self._dequantized.get(value.name)
        if known is not None and self.often(0.4):
            return known
        (name,) = self.node("DequantizeLinear", [value.name, *value.parameters])
        self._dequantized[value.name] = name
        return name

    def quantize(self, real: str, dtype: str | None = None, like: Value | None = None) -> Value:
        """Quantizes a real tensor. It uses the scale and zero point of `like` if that is given."""
        dtype = dtype or self.storage()
        parameters = like.parameters if like else self.chosen_quantization(self.samples[real], dtype)
        (name,) = self.node("QuantizeLinear", [real, *parameters])
        value = Value(name, *parameters)
        self.values.append(value)
        return value


def _session(data: bytes) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])


def finish(writer: OnnxWriter, real: str, like: Value | None = None, *, same: float = 0.0) -> None:
    """Quantizes a result, sometimes after an activation. Some results stay real and become outputs instead."""
    if writer.often(0.25):
        kind, options = writer.choose(("Relu", {}), ("Clip", None), ("Relu", {}))
        operands = [real]
        if options is None:
            operands += [writer.constant(0.0, "float32"), writer.constant(writer.choose(6.0, 1.0), "float32")]
        (real,) = writer.node(kind, operands, options)
    if writer.often(0.06) and writer.samples[real].dtype == np.float32:
        writer.reals.append(real)
        return
    need(writer.samples[real].dtype == np.float32, "the result is not real")
    dtype = writer.dtype(like) if like and writer.often(0.8) else None
    writer.quantize(real, dtype, like if like and writer.often(same) else None)

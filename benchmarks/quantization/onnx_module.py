"""An ONNX model as a PyTorch module of the operators that PT2E's quantizers know. Runs in the peers' environment."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import onnx  # type: ignore[import-not-found]
import torch  # type: ignore[import-not-found]
from onnx import numpy_helper
from torch.nn import functional  # type: ignore[import-not-found]

Inputs = list[Any]
Attributes = Mapping[str, Any]
_SETTINGS = ("Clip", "Pad", "Pow", "Resize")


class OnnxModule(torch.nn.Module):  # type: ignore[misc]
    """A module with one input of a fixed shape. Operators that only compute shapes, from constants, are evaluated here.

    Raises:
        NotImplementedError: an operator or an attribute is not supported.
    """

    def __init__(self, model: Any) -> None:
        super().__init__()
        self._nodes = [node for node in model.graph.node if node.op_type != "Constant"]
        constants = {value.name: numpy_helper.to_array(value) for value in model.graph.initializer}
        for node in model.graph.node:
            if node.op_type == "Constant":
                constants[node.output[0]] = numpy_helper.to_array(_attributes(node)["value"])
        # Bounds, exponents and scales stay arrays, because their values are needed when the module is traced.
        read = {name for node in self._nodes if node.op_type in _SETTINGS for name in node.input[1:]}
        traced = [name for name, values in constants.items() if values.dtype == np.float32 and name not in read]
        self._fixed = {name: values for name, values in constants.items() if name not in traced}
        self._names = {name: f"constant_{index}" for index, name in enumerate(traced)}
        for name, own in self._names.items():
            values = torch.from_numpy(constants[name].copy())
            self.register_parameter(own, torch.nn.Parameter(values, requires_grad=False))
        self._source = next(each.name for each in model.graph.input if each.name not in constants)
        self._results = [each.name for each in model.graph.output]
        unknown = sorted({node.op_type for node in self._nodes} - {*_OPERATORS})
        if unknown:
            raise NotImplementedError(f"not converted to PyTorch: {', '.join(unknown)}")

    def forward(self, x: Any) -> Any:
        made: dict[str, Any] = {self._source: x, "": None, **self._fixed}
        made |= {name: getattr(self, own) for name, own in self._names.items()}
        for node in self._nodes:
            found = _OPERATORS[node.op_type]([made[name] for name in node.input], _attributes(node))
            several = found if isinstance(found, tuple) else (found,)
            made |= dict(zip(node.output, several, strict=False))
        return tuple(made[name] for name in self._results)


def _attributes(node: Any) -> Attributes:
    return {each.name: onnx.helper.get_attribute_value(each) for each in node.attribute}


def name_sources(exported: Any) -> None:
    """Marks each operator with the type of module, such as `nn.Conv2d`, that would contain it in a network written by
    hand, because quantizers search for these types.
    """
    sources = {
        torch.ops.aten.conv2d.default: torch.nn.Conv2d,
        torch.ops.aten.linear.default: torch.nn.Linear,
        torch.ops.aten.relu.default: torch.nn.ReLU,
        torch.ops.aten.relu6.default: torch.nn.ReLU6,
        torch.ops.aten.hardswish.default: torch.nn.Hardswish,
        torch.ops.aten.add.Tensor: operator.add,
    }
    for node in exported.graph.nodes:
        if node.target in sources:
            node.meta["source_fn_stack"] = [(node.name, sources[node.target])]


def _conv(inputs: Inputs, given: Attributes) -> Any:
    x, weights, bias = (*inputs, None)[:3]
    rank = weights.ndim - 2
    x, around = _padded(x, given, rank)
    settings = (given.get("strides", [1] * rank), around, given.get("dilations", [1] * rank), given.get("group", 1))
    return (functional.conv2d if rank == 2 else functional.conv1d)(x, weights, bias, *settings)


def _padded(x: Any, given: Attributes, rank: int) -> tuple[Any, list[int]]:
    """Returns `x`, and the padding that PyTorch's operator must add. If the two ends of an axis need different padding,
    which the operator does not support, this function pads `x` instead."""
    if given.get("auto_pad", b"NOTSET") not in (b"NOTSET", b"VALID"):
        raise NotImplementedError("auto_pad is not converted to PyTorch")
    pads = list(given.get("pads", [0] * 2 * rank))
    if pads[:rank] == pads[rank:]:
        return x, pads[:rank]
    return functional.pad(x, _for_torch(pads, rank)), [0] * rank


def _for_torch(pads: list[int], rank: int) -> list[int]:
    """Returns the padding in PyTorch's order: the last axis first, each with both ends."""
    return [pads[axis + end * rank] for axis in reversed(range(rank)) for end in (0, 1)]


def _transposed(inputs: Inputs, given: Attributes) -> Any:
    pads = given.get("pads", [0, 0, 0, 0])
    if pads[:2] != pads[2:] or any(given.get("output_padding", [])):
        raise NotImplementedError("uneven pads of ConvTranspose are not converted to PyTorch")
    x, weights, bias = (*inputs, None)[:3]
    return functional.conv_transpose2d(x, weights, bias, given["strides"], pads[:2], 0, given.get("group", 1))


def _pool(inputs: Inputs, given: Attributes) -> Any:
    if given.get("ceil_mode"):
        raise NotImplementedError("ceil_mode is not converted to PyTorch")
    x, around = _padded(inputs[0], {**given}, 2)
    return functional.max_pool2d(x, given["kernel_shape"], given.get("strides", 1), around)


def _average(inputs: Inputs, given: Attributes) -> Any:
    pads, counted = given.get("pads", [0, 0, 0, 0]), bool(given.get("count_include_pad"))
    if pads[:2] != pads[2:] or given.get("ceil_mode"):
        raise NotImplementedError("uneven pads of AveragePool are not converted to PyTorch")
    strides = given.get("strides", [1, 1])
    return functional.avg_pool2d(inputs[0], given["kernel_shape"], strides, pads[:2], count_include_pad=counted)


def _gemm(inputs: Inputs, given: Attributes) -> Any:
    if given.get("alpha", 1) != 1 or given.get("beta", 1) != 1 or given.get("transA"):
        raise NotImplementedError("a scaled Gemm is not converted to PyTorch")
    return functional.linear(inputs[0], inputs[1] if given.get("transB") else inputs[1].t(), (*inputs, None)[2])


def _matmul(inputs: Inputs, given: Attributes) -> Any:
    x, y = inputs
    constant = isinstance(y, torch.nn.Parameter) and y.ndim == 2
    return functional.linear(x, y.t()) if constant else torch.matmul(x, y)


def _clip(inputs: Inputs, given: Attributes) -> Any:
    low, high = ((*inputs, None, None)[position] for position in (1, 2))
    bounds = [given.get(name) if end is None else float(end) for name, end in (("min", low), ("max", high))]
    if bounds == [0, 6]:
        return functional.relu6(inputs[0])
    return torch.clamp(inputs[0], *bounds)


def _reshape(inputs: Inputs, given: Attributes) -> Any:
    sizes = [inputs[0].shape[index] if size == 0 else int(size) for index, size in enumerate(inputs[1])]
    return inputs[0].reshape(sizes)


def _resize(inputs: Inputs, given: Attributes) -> Any:
    x, mode, around = inputs[0], given.get("mode", b"nearest"), given.get("coordinate_transformation_mode")
    sizes = inputs[3][2:] if len(inputs) > 3 else _scaled(x, inputs[2])
    if mode == b"linear":
        if around not in (None, b"half_pixel", b"pytorch_half_pixel", b"align_corners"):
            raise NotImplementedError(f"Resize by {around.decode()} is not converted to PyTorch")
        corners = around == b"align_corners"
        return functional.interpolate(x, [int(size) for size in sizes], mode="bilinear", align_corners=corners)
    return functional.interpolate(x, [int(size) for size in sizes], mode="nearest")


def _scaled(x: Any, scales: Any) -> list[int]:
    return [round(size * float(scale)) for size, scale in zip(x.shape[2:], scales[2:], strict=True)]


def _pad(inputs: Inputs, given: Attributes) -> Any:
    if given.get("mode", b"constant") != b"constant":
        raise NotImplementedError("Pad with other modes than constant is not converted to PyTorch")
    pads = [int(size) for size in inputs[1]]
    value = float(inputs[2]) if len(inputs) > 2 and inputs[2] is not None else 0.0
    return functional.pad(inputs[0], _for_torch(pads, len(pads) // 2), value=value)


def _slice(inputs: Inputs, given: Attributes) -> Any:
    x, starts, ends = inputs[:3]
    axes = inputs[3] if len(inputs) > 3 and inputs[3] is not None else range(len(starts))
    steps = inputs[4] if len(inputs) > 4 else [1] * len(starts)
    positions = [slice(None)] * x.ndim
    for axis, start, end, step in zip(axes, starts, ends, steps, strict=True):
        positions[int(axis)] = slice(int(start), None if int(end) >= x.shape[int(axis)] else int(end), int(step))
    return x[tuple(positions)]


def _split(inputs: Inputs, given: Attributes) -> Any:
    axis, sizes = given.get("axis", 0), [int(size) for size in inputs[1]]
    return torch.split(inputs[0], sizes, axis)


def _softmax(inputs: Inputs, given: Attributes) -> Any:
    return torch.softmax(inputs[0], given.get("axis", -1))


def _mean(inputs: Inputs, given: Attributes) -> Any:
    axes = given.get("axes", inputs[1] if len(inputs) > 1 else None)
    return torch.mean(inputs[0], [int(axis) for axis in axes], bool(given.get("keepdims", 1)))


def _hard_sigmoid(inputs: Inputs, given: Attributes) -> Any:
    alpha, beta = given.get("alpha", 0.2), given.get("beta", 0.5)
    if abs(alpha - 1 / 6) < 1e-6 and beta == 0.5:
        return functional.hardsigmoid(inputs[0])
    return torch.clamp(inputs[0] * alpha + beta, 0, 1)


def _norm(inputs: Inputs, given: Attributes) -> Any:
    x, weights, bias = (*inputs, None)[:3]
    return functional.layer_norm(x, x.shape[given.get("axis", -1) :], weights, bias, given.get("epsilon", 1e-5))


def _batch_norm(inputs: Inputs, given: Attributes) -> Any:
    x, scale, bias, mean, variance = inputs
    return functional.batch_norm(x, mean, variance, scale, bias, eps=given.get("epsilon", 1e-5))


def _squeezed(x: Any, axes: Any) -> Any:
    for axis in sorted((int(axis) % x.ndim for axis in axes), reverse=True):
        x = x.squeeze(axis)
    return x


def _unsqueezed(x: Any, axes: Any) -> Any:
    for axis in sorted(int(axis) for axis in axes):
        x = x.unsqueeze(axis)
    return x


def _prelu(inputs: Inputs, given: Attributes) -> Any:
    x, slope = inputs
    return torch.clamp(x, min=0) + slope * torch.clamp(x, max=0)


_OPERATORS: Mapping[str, Callable[[Inputs, Attributes], Any]] = {
    "Add": lambda inputs, given: inputs[0] + inputs[1],
    "AveragePool": _average,
    "BatchNormalization": _batch_norm,
    "Clip": _clip,
    "Concat": lambda inputs, given: torch.cat(inputs, given["axis"]),
    "Conv": _conv,
    "ConvTranspose": _transposed,
    "Div": lambda inputs, given: inputs[0] / inputs[1],
    "Flatten": lambda inputs, given: inputs[0].flatten(given.get("axis", 1)),
    "Gemm": _gemm,
    "GlobalAveragePool": lambda inputs, given: functional.adaptive_avg_pool2d(inputs[0], 1),
    "HardSigmoid": _hard_sigmoid,
    "HardSwish": lambda inputs, given: functional.hardswish(inputs[0]),
    "Identity": lambda inputs, given: inputs[0],
    "LayerNormalization": _norm,
    "LeakyRelu": lambda inputs, given: functional.leaky_relu(inputs[0], given.get("alpha", 0.01)),
    "MatMul": _matmul,
    "MaxPool": _pool,
    "Mul": lambda inputs, given: inputs[0] * inputs[1],
    "PRelu": _prelu,
    "Pad": _pad,
    "Pow": lambda inputs, given: inputs[0] ** float(inputs[1]),
    "ReduceMean": _mean,
    "Relu": lambda inputs, given: functional.relu(inputs[0]),
    "Reshape": _reshape,
    "Resize": _resize,
    "Sigmoid": lambda inputs, given: torch.sigmoid(inputs[0]),
    "Slice": _slice,
    "Softmax": _softmax,
    "Split": _split,
    "Sqrt": lambda inputs, given: torch.sqrt(inputs[0]),
    "Squeeze": lambda inputs, given: _squeezed(inputs[0], inputs[1]),
    "Sub": lambda inputs, given: inputs[0] - inputs[1],
    "Transpose": lambda inputs, given: inputs[0].permute(given["perm"]),
    "Unsqueeze": lambda inputs, given: _unsqueezed(inputs[0], inputs[1]),
}

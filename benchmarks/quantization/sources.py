"""Float networks with real weights: hosted quantized TFLite files, dequantized, as ONNX; and the inputs for them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.models.photographs import photographs
from benchmarks.places import SHARED
from service.compiler.importers.tflite.model import Model, Operator, Tensor
from service.compiler.importers.tflite.reader import read_model
from tests.support.onnx_builder import OnnxBuilder

SIZE, CLASSES = 224, 1001
Array = np.ndarray[Any, np.dtype[Any]]
_RELU6 = 3  # ActivationFunctionType


def dequantized(path: Path) -> bytes:
    """The MobileNetV2 in a TFLite file, in float32 and with its channels first: `image` `[1, 3, 224, 224]`, pixels from
    -1 to 1, to `logits` `[1, 1001]`. Weights and biases are those of the file, each times its scale; activations are
    not rounded, nor bounded by other than ReLU6."""
    model, made = read_model(path.read_bytes()), OnnxBuilder()
    names = {model.inputs[0]: made.input("image", "float32", (1, 3, SIZE, SIZE))}
    for operator in model.operators:
        first, output = names[operator.inputs[0]], operator.outputs[0]
        match operator.name:
            case "QUANTIZE" | "RESHAPE" | "SOFTMAX":
                names[output] = first
            case "ADD":
                names[output] = made.node("Add", [first, names[operator.inputs[1]]])
            case "AVERAGE_POOL_2D" | "MEAN":
                names[output] = made.node("GlobalAveragePool", [first])
            case "CONV_2D" | "DEPTHWISE_CONV_2D":
                names[output] = _convolution(made, model, operator, first)
            case other:
                raise SystemExit(f"{path.name} has a {other}")
    made.output(made.node("Flatten", [names[model.outputs[0]]], ["logits"]), "float32", (1, CLASSES))
    return made.build(13)


def _convolution(made: OnnxBuilder, model: Model, operator: Operator, x: str) -> str:
    filters, bias = (_real(model.tensors[place]) for place in operator.inputs[1:3])
    source = model.tensors[operator.inputs[0]].shape
    depthwise = operator.name == "DEPTHWISE_CONV_2D"
    options = operator.options or {}
    strides = [int(str(options[name])) for name in ("stride_h", "stride_w")]
    weights = filters.transpose((3, 0, 1, 2) if depthwise else (0, 3, 1, 2))
    totals = [
        max((-(-size // stride) - 1) * stride + kernel - size, 0) if options["padding"] == 0 else 0
        for size, stride, kernel in zip(source[1:3], strides, weights.shape[2:], strict=True)
    ]
    pads = [total // 2 for total in totals] + [total - total // 2 for total in totals]
    operands = [x, made.constant(np.ascontiguousarray(weights)), made.constant(bias)]
    groups = source[3] if depthwise else 1
    y = made.node("Conv", operands, group=groups, strides=strides, pads=pads, kernel_shape=list(weights.shape[2:]))
    if options["fused_activation_function"] == _RELU6:
        y = made.node("Clip", [y, made.constant(0.0, "float32"), made.constant(6.0, "float32")])
    return y


def _real(tensor: Tensor) -> Array:
    assert tensor.data is not None
    assert tensor.quantization is not None
    kind, shape = tensor.quantization, [1] * len(tensor.shape)
    shape[kind.axis if kind.per_axis else 0] = -1
    scales, points = np.array(kind.scales).reshape(shape), np.array(kind.zero_points).reshape(shape)
    return np.asarray((tensor.data.astype(np.float64) - points) * scales, np.float32)


def labelled() -> tuple[Array, Array]:
    """The 100 photographs, `[100, 3, 224, 224]` from -1 to 1, and the class of each among 1001."""
    told = np.load(SHARED / "expected" / "mobilenet_v2_1.0_224_quant.npz")
    files = sorted((SHARED / "images").glob("*.JPEG"))
    classes = dict(zip(map(str, told["image"]), told["label_index"].tolist(), strict=True))
    mean, std = np.array([0.485, 0.456, 0.406]), np.array([0.229, 0.224, 0.225])
    order = np.random.default_rng(0).choice(len(files), len(files), replace=False)  # that of `photographs`
    pixels = (photographs(SHARED / "images", len(files), SIZE) * std + mean) * 2 - 1
    images = np.ascontiguousarray(pixels.transpose(0, 3, 1, 2), dtype=np.float32)
    return images, np.array([classes[files[index].name] for index in order])

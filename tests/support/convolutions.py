"""Models of one convolution of any shape, with values drawn by Hypothesis."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from hypothesis import strategies as st
from tvm import relax

from service.compiler.kernels.group import Group, shape_of
from service.compiler.kernels.layer import Window
from service.compiler.qnn import graph, ops
from service.compiler.qnn.types import QuantizedType, accumulator_type
from service.compiler.select.groups import Model
from service.core.models.arrays import Array
from tests.support.images import arrays, quantized_types
from tests.support.qnn_models import Emit, float32, module_of

import tvm  # isort: skip


@dataclass(frozen=True)
class Shape:
    """The shape of a convolution. Each group has `channels` input channels and `filters` output channels."""

    image: tuple[int, int, int]
    groups: int
    channels: int
    filters: int
    window: Window
    padding: tuple[int, int, int, int]
    residual: bool = False

    @property
    def input(self) -> tuple[int, int, int, int]:
        return (*self.image, self.groups * self.channels)

    @property
    def weights(self) -> tuple[int, int, int, int]:
        return (self.groups * self.filters, *self.window.kernel, self.channels)


def module_and_inputs(data: st.DataObject, shape: Shape, storage: str) -> tuple[tvm.IRModule, list[Array]]:
    """Draws types and values. Returns the layer, which has a residual of its output's shape, and the inputs."""
    draw = data.draw
    in_type, own, added, out_type = (draw(quantized_types(storage)) for _ in range(4))
    total = shape.weights[0]
    if storage == "int8":
        scales = tuple(float32(scale) for scale in np.geomspace(1e-4, 2e-2, total))
        weight_type = QuantizedType("int8", scales, axis=0)
    else:
        weight_type = QuantizedType("uint8", (float32(0.003),), (draw(st.sampled_from([0, 128, 255])),))
    weights, biases = draw(arrays(shape.weights, storage)), draw(arrays((total,), "int8")).astype(np.int32) * 100

    def convolve(emit: Emit, x: relax.Var) -> relax.Var:
        accumulators = ops.conv2d(
            x,
            relax.const(weights),
            relax.const(biases),
            in_type,
            weight_type,
            strides=shape.window.strides,
            padding=shape.padding,
            dilation=shape.window.dilation,
            groups=shape.groups,
        )
        return emit(ops.requantize(emit(accumulators), accumulator_type(in_type, weight_type, axis=3), own))

    alone = module_of([(shape.input, storage)], lambda emit, inputs: convolve(emit, inputs[0]))
    inputs = [draw(arrays(shape.input, storage))]
    if not shape.residual:
        return alone, inputs
    out_shape = shape_of(graph.results_of(graph.main_of(alone))[0])
    inputs.append(draw(arrays(out_shape, storage)))
    body = [(shape.input, storage), (out_shape, storage)]
    module = module_of(body, lambda emit, vars: emit(ops.add(convolve(emit, vars[0]), vars[1], own, added, out_type)))
    return module, inputs


def group_of(module: tvm.IRModule) -> Group:
    (group,) = Model(graph.main_of(module), 16).groups.values()
    return group

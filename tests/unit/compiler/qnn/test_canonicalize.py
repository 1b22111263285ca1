"""The canonical form of each operator gives the oracle's result bit for bit, in each mode and for each operand type."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, assume, given, settings
from hypothesis import strategies as st
from tvm import relax

from service.compiler.qnn import ops, oracle
from service.compiler.qnn.canonicalize import canonicalize
from service.compiler.qnn.numerics import get_mode
from service.compiler.qnn.ops.unary import FUNCTIONS
from service.compiler.qnn.types import STORAGE_RANGES, QuantizedType, accumulator_type
from service.compiler.targets import OperandTypes
from service.core.builds.numerics import MXNET_ONEDNN, ONNXRUNTIME
from service.core.errors import UnsupportedOperator
from tests.support import litert
from tests.support.canonical import holds
from tests.support.examples import examples
from tests.support.qnn_models import STORED_MODES, compile_and_run, compile_and_run_all, float32, module_of

OPERANDS = [OperandTypes("uint8", "int8"), OperandTypes("int8", "int8"), OperandTypes("int16", "int16")]
# Each example compiles a module twice, so there are few examples, and a failing one is not shrunk.
EXAMPLES = settings(
    max_examples=examples(8),
    deadline=None,
    suppress_health_check=list(HealthCheck),
    phases=(Phase.explicit, Phase.reuse, Phase.generate),
)
Draw = Callable[[st.SearchStrategy[Any]], Any]
SCALES = st.floats(1e-3, 1.0).map(float32)


@st.composite
def per_tensor(draw: st.DrawFn, storage: str) -> QuantizedType:
    low, high = STORAGE_RANGES[storage]
    zero_point = draw(st.sampled_from([low, high, 0 if low < 0 else 128]) | st.integers(low, high))
    clamp = draw(st.booleans())
    return QuantizedType(storage, (draw(SCALES),), (zero_point,), None, low, low + 200 if clamp else high)


def values(draw: Draw, shape: tuple[int, ...], storage: str) -> np.ndarray:
    low, high, dtype = *STORAGE_RANGES[storage], QuantizedType(storage, (1.0,)).dtype
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    kind = draw(st.sampled_from(["random", "minimum", "maximum", "extremes"]))
    if kind == "random":
        return rng.integers(low, high, shape, endpoint=True).astype(dtype)
    return rng.choice({"minimum": [low], "maximum": [high], "extremes": [low, high]}[kind], shape).astype(dtype)


@pytest.mark.parametrize("axes", [[1, 2], [0], None], ids=str)
@pytest.mark.parametrize("keepdims", [True, False])
def test_widening_and_a_sum_are_one_program(axes: list[int] | None, keepdims: bool) -> None:
    """The values are integers, so the order of a sum does not matter. float32 could not represent all sums."""

    def body(emit: Callable[[relax.Call], relax.Var], inputs: list[relax.Var]) -> relax.Var:
        wide = emit(relax.op.astype(inputs[0], "float64"))
        return emit(relax.op.sum(wide, axis=axes, keepdims=keepdims))

    x = np.random.default_rng(0).integers(1 << 20, 1 << 24, (2, 5, 7, 20)).astype(np.float32)
    module = canonicalize(module_of([(x.shape, "float32")], body), get_mode(ONNXRUNTIME))
    (actual,) = compile_and_run_all(module, [x])
    expected = x.astype(np.float64).sum(axis=None if axes is None else tuple(axes), keepdims=keepdims)
    np.testing.assert_array_equal(actual, expected)
    assert "wide_sum" in module.script()


def test_quantized_types_are_lowered_to_storage() -> None:
    """A `storage_cast` marks integers as values of a quantized type. After lowering, it is gone."""
    quantized = QuantizedType("uint8", (0.5,), (3,))

    def body(emit: Callable[[relax.Call], relax.Var], inputs: list[relax.Var]) -> relax.Var:
        stored = emit(ops.storage_cast(inputs[0], quantized))
        return emit(ops.dequantize(emit(ops.storage_cast(stored, quantized)), quantized))

    module = module_of([((2, 3), "uint8")], body)
    assert module.script().count("R.qnn.storage_cast(") == 2
    assert "!quant.uniform<u8:f32, 0.5:3>" in module.script()
    text = canonicalize(module, get_mode("xnnpack")).script()
    assert "qnn" not in text
    assert "quant" not in text.replace("dequantize", "")
    assert "T.float32(0.5)" in text
    assert text.count("R.call_tir") == 1


@pytest.mark.parametrize("mode", STORED_MODES)
@pytest.mark.parametrize("axis", [None, 1])
def test_sums_become_float32_before_they_are_scaled(mode: str, axis: int | None) -> None:
    """ONNX Runtime 1.31 and PyTorch 2.13 also convert sums to float32 before scaling, and computed the expected values.
    One of the sums exceeds 16777216, beyond which float32 does not represent every integer.
    """
    scales = (float32(0.1),) if axis is None else (float32(0.1), float32(3.0))
    sums = np.array([[16777217, 16777219], [-(2**31), 2**31 - 1]], np.int32)
    quantized = QuantizedType("int32", scales, axis=axis)
    module = module_of([(sums.shape, "int32")], lambda emit, inputs: emit(ops.dequantize(inputs[0], quantized)))
    holds(module, mode, OPERANDS[0], [sums])
    real = oracle.run(module, get_mode(mode), [sums])[0]
    assert real[0, 0] == np.float32(1677721.6) != np.float32(16777217 * scales[0])


@EXAMPLES
@given(st.data(), st.sampled_from(STORED_MODES))
def test_blocks(data: st.DataObject, mode: str) -> None:
    draw = data.draw
    storage = draw(st.sampled_from(["int4", "uint4", "int8", "uint8"]))
    grid, sizes = draw(st.tuples(*[st.integers(1, 3)] * 3)), draw(st.tuples(*[st.integers(1, 4)] * 3))
    low, high = STORAGE_RANGES[storage]
    count = math.prod(grid)
    quantized = QuantizedType(
        storage,
        tuple(draw(SCALES) for _ in range(count)),
        tuple(draw(st.integers(low, high)) for _ in range(count)),
        blocks=tuple(enumerate(sizes)),
        grid=grid,
    )
    shape = tuple(size * blocks for size, blocks in zip(sizes, grid, strict=True))
    x = values(draw, shape, storage)
    module = module_of([(shape, quantized.dtype)], lambda emit, inputs: emit(ops.dequantize(inputs[0], quantized)))
    holds(module, mode, OPERANDS[0], [x])
    for corner in np.ndindex(*grid):  # the index of the block that contains an element
        position = tuple(size * block for size, block in zip(sizes, corner, strict=True))
        index = int(np.ravel_multi_index(corner, grid))
        real = np.float32(quantized.scales[index]) * (int(x[position]) - quantized.zero_points[index])
        assert oracle.run(module, get_mode(mode), [x])[0][position] == np.float32(real)
    back = module_of([(shape, "float32")], lambda emit, inputs: emit(ops.quantize(inputs[0], quantized)))
    holds(back, mode, OPERANDS[0], [np.random.default_rng(1).normal(0, 8, shape).astype(np.float32)])


@EXAMPLES
@given(st.data(), st.sampled_from(STORED_MODES), st.sampled_from(OPERANDS))
def test_conv2d(data: st.DataObject, mode: str, operands: OperandTypes) -> None:
    draw = data.draw
    storage = draw(st.sampled_from(["int8", "uint8"]))
    groups, per_group, multiplier = (draw(st.integers(1, 3)) for _ in range(3))
    channels, filters = groups * per_group, groups * multiplier * draw(st.sampled_from([1, 4]))
    kernel = (draw(st.integers(1, 3)), draw(st.integers(1, 3)))
    in_type, out_type = draw(per_tensor(storage)), draw(per_tensor(storage))
    if storage == "int8":
        weight_type = QuantizedType("int8", tuple(draw(SCALES) for _ in range(filters)), axis=0)
    else:
        weight_type = draw(per_tensor("uint8"))
    weight = values(draw, (filters, *kernel, per_group), weight_type.storage)
    bias = np.random.default_rng(1).integers(-(1 << 16), 1 << 16, filters).astype(np.int32)
    x = values(draw, (draw(st.integers(1, 2)), 7, 6, channels), storage)

    module = module_of(
        [(x.shape, storage)],
        lambda emit, inputs: emit(
            ops.requantize(
                emit(
                    ops.conv2d(
                        inputs[0],
                        relax.const(weight),
                        relax.const(bias),
                        in_type,
                        weight_type,
                        strides=(draw(st.integers(1, 2)), draw(st.integers(1, 2))),
                        padding=tuple(draw(st.integers(0, 2)) for _ in range(4)),
                        dilation=(draw(st.integers(1, 2)), draw(st.integers(1, 2))),
                        groups=groups,
                    )
                ),
                accumulator_type(in_type, weight_type, axis=3),
                out_type,
            )
        ),
    )
    holds(module, mode, operands, [x])


@EXAMPLES
@given(st.data(), st.sampled_from(STORED_MODES), st.sampled_from(OPERANDS), st.booleans())
def test_dense(data: st.DataObject, mode: str, operands: OperandTypes, per_axis: bool) -> None:
    draw = data.draw
    rows, depth, filters = draw(st.integers(1, 3)), draw(st.integers(1, 40)), draw(st.sampled_from([1, 7, 16, 40]))
    in_type, out_type = draw(per_tensor("int8")), draw(per_tensor("int8"))
    scales = tuple(draw(SCALES) for _ in range(filters if per_axis else 1))
    weight_type = QuantizedType("int8", scales, axis=0 if per_axis else None)
    weight, x = values(draw, (filters, depth), "int8"), values(draw, (rows, depth), "int8")
    bias = relax.const(np.arange(filters, dtype=np.int32) * 1000) if draw(st.booleans()) else None
    module = module_of(
        [(x.shape, "int8")],
        lambda emit, inputs: emit(
            ops.requantize(
                emit(ops.dense(inputs[0], relax.const(weight), bias, in_type, weight_type)),
                accumulator_type(in_type, weight_type, axis=1),
                out_type,
            )
        ),
    )
    holds(module, mode, operands, [x])


@pytest.mark.parametrize("dtype", ["int8", "int32", "float32"])
@pytest.mark.parametrize("find", [relax.op.argmax, relax.op.argmin])
@pytest.mark.parametrize(("axis", "keepdims"), [(0, False), (1, True), (-1, False)])
def test_the_first_extreme(dtype: str, find: Callable[..., relax.Expr], axis: int, keepdims: bool) -> None:
    """The values include NaN, and cases in which all elements are the smallest value of the type."""
    shape = (2, 3, 4)
    module = module_of([(shape, dtype)], lambda emit, x: emit(find(x[0], axis=axis, keepdims=keepdims)))
    real = dtype == "float32"
    ends = (-np.inf, np.inf, np.nan) if real else (np.iinfo(dtype).min, np.iinfo(dtype).max)
    some = np.random.default_rng(1).integers(-2, 3, shape).astype(dtype)
    some[1, 1, 1:3] = ends[-1]
    holds(module, ONNXRUNTIME, OPERANDS[0], [some], *([np.full(shape, end, dtype)] for end in ends))


@EXAMPLES
@given(st.data(), st.sampled_from(STORED_MODES), st.sampled_from(["add", "mul", "concatenate"]))
def test_two_operands(data: st.DataObject, mode: str, name: str) -> None:
    assume(name in get_mode(mode).formulas)
    draw = data.draw
    storage = draw(st.sampled_from(["int8", "uint8"]))
    types = [draw(per_tensor(storage)) for _ in range(3)]
    a = values(draw, (1, 3, 4, 5), storage)
    b = values(
        draw, (1, 3, 4, 5) if name == "concatenate" else draw(st.sampled_from([(1, 3, 4, 5), (5,), ()])), storage
    )

    def call(lhs: relax.Var, rhs: relax.Var) -> relax.Call:
        if name == "concatenate":
            return ops.concatenate([lhs, rhs], types[:2], types[2], axis=2)
        return {"add": ops.add, "mul": ops.mul}[name](lhs, rhs, *types)

    module = module_of([(a.shape, storage), (b.shape, storage)], lambda emit, inputs: emit(call(*inputs)))
    if mode == "xnnpack" and name == "add" and max(types[0].scale, types[1].scale) / types[2].scale < 2**-10:
        return  # XNNPACK and Octet both refuse such scales
    holds(module, mode, OPERANDS[0], [a, b])


@EXAMPLES
@given(
    st.data(),
    st.sampled_from(STORED_MODES),
    st.sampled_from(["avg_pool2d", "max_pool2d", "mean", "softmax", "requantize"]),
)
def test_one_operand(data: st.DataObject, mode: str, name: str) -> None:
    assume(name in get_mode(mode).formulas)
    draw = data.draw
    assume(name in get_mode(mode).formulas)
    storage = draw(st.sampled_from(["int8", "uint8"]))
    in_type, out_type = draw(per_tensor(storage)), draw(per_tensor(storage))
    x = values(draw, (1, 6, 5, draw(st.integers(1, 9))), storage)
    window: dict[str, Any] = {
        "pool_size": (draw(st.integers(2, 3)), draw(st.integers(2, 3))),
        "strides": (draw(st.integers(1, 2)), draw(st.integers(1, 2))),
        "padding": tuple(draw(st.integers(0, 1)) for _ in range(4)),
    }
    probability = QuantizedType(storage, (1 / 256,), (STORAGE_RANGES[storage][0],))
    axes = draw(st.sampled_from([(1, 2), (3,), (1, 2, 3)]))
    # TFLite averages stored values, and ONNX Runtime averages real ones.
    averaged, whole = (out_type, draw(st.booleans())) if mode == ONNXRUNTIME else (in_type, False)
    calls: dict[str, Callable[[relax.Var], relax.Call]] = {
        "avg_pool2d": lambda v: ops.avg_pool2d(v, in_type, averaged, **window, count_include_pad=whole),
        "max_pool2d": lambda v: ops.max_pool2d(v, in_type, in_type, **window),
        "mean": lambda v: ops.mean(v, in_type, out_type, axes=axes, keepdims=draw(st.booleans())),
        "softmax": lambda v: ops.softmax(v, in_type, probability, beta=1.0),
        "requantize": lambda v: ops.requantize(v, in_type, out_type),
    }
    call = calls[name]
    holds(module_of([(x.shape, storage)], lambda emit, inputs: emit(call(inputs[0]))), mode, OPERANDS[0], [x])


@EXAMPLES
@given(st.data(), st.sampled_from([*litert.MODES, ONNXRUNTIME]), st.sampled_from(sorted(FUNCTIONS)))
def test_function_of_one_value(data: st.DataObject, mode: str, function: str) -> None:
    draw = data.draw
    if function not in get_mode(mode).formulas:
        return  # the reference of the mode does not have this operator
    storage = draw(st.sampled_from(["int8", "uint8"]))
    in_type, out_type = draw(per_tensor(storage)), draw(per_tensor(storage))
    known = {"alpha": 0.1, "approximate": True, "low": 3, "high": 90, "even_low": 4, "even_high": 89}
    attrs = {name: known[name] for name in FUNCTIONS[function]}
    if function == "hard_swish" and in_type.scale / out_type.scale > 128:
        return  # LiteRT and Octet both refuse such scales
    x = values(draw, (2, 3, 21), storage)
    module = module_of(
        [(x.shape, storage)], lambda emit, inputs: emit(ops.unary(function, inputs[0], in_type, out_type, **attrs))
    )
    holds(module, mode, OPERANDS[0], [x])


@pytest.mark.parametrize(
    "columns", [255, 512, 513, 5000, *(pytest.param(columns, marks=pytest.mark.slow) for columns in (511, 1023, 1024))]
)
@pytest.mark.parametrize("mode", [*litert.MODES, ONNXRUNTIME])
def test_softmax_of_equal_logits(mode: str, columns: int) -> None:
    """LiteRT's reference kernel aborts for some of these, but compiled code still equals the oracle."""
    in_type, out_type = QuantizedType("uint8", (0.1,), (58,)), QuantizedType("uint8", (1 / 256,), (0,))
    rows = np.array([[0], [255], [7]], np.uint8).repeat(columns, axis=1)
    rows[2, 0] = 9
    module = module_of([(rows.shape, "uint8")], lambda emit, inputs: emit(ops.softmax(inputs[0], in_type, out_type)))
    holds(module, mode, OPERANDS[0], [rows])


@pytest.mark.parametrize("mode", STORED_MODES)
def test_real_values(mode: str) -> None:
    real = np.array([-np.inf, -1e30, -2.5, -1.5, -0.5, 0.0, 0.5, 1.5, 2.5, 3.49, 1e30, np.inf], np.float32)
    stored = QuantizedType("uint8", (1.0,), (7,))
    module = module_of(
        [(real.shape, "float32")],
        lambda emit, inputs: emit(ops.dequantize(emit(ops.quantize(inputs[0], stored)), stored)),
    )
    holds(module, mode, OPERANDS[0], [real])


@EXAMPLES
@given(st.data(), st.sampled_from(OPERANDS), st.booleans())
def test_sum_before_rounding(data: st.DataObject, operands: OperandTypes, per_axis: bool) -> None:
    draw = data.draw
    in_type, residual_type, out_type = (draw(per_tensor(draw(st.sampled_from(["int8", "uint8"])))) for _ in range(3))
    filters = draw(st.sampled_from([1, 5, 16]))
    scales = tuple(draw(SCALES) for _ in range(filters if per_axis else 1))
    weight_type = QuantizedType("int8", scales, axis=0 if per_axis else None)
    weight = values(draw, (filters, 1, 1, 3), "int8")
    x, residual = (
        values(draw, (1, 4, 5, depth), quantized.storage)
        for depth, quantized in ((3, in_type), (filters, residual_type))
    )

    def body(emit: Callable[[relax.Call], relax.Var], inputs: list[relax.Var]) -> relax.Var:
        sums = emit(ops.conv2d(inputs[0], relax.const(weight), None, in_type, weight_type))
        totals = accumulator_type(in_type, weight_type, axis=3)
        return emit(ops.requantize_add(sums, inputs[1], totals, residual_type, out_type))

    module = module_of([(x.shape, in_type.storage), (residual.shape, residual_type.storage)], body)
    holds(module, MXNET_ONEDNN, operands, [x, residual])


def test_an_operator_that_a_mode_does_not_define_is_refused() -> None:
    quantized = QuantizedType("int8", (0.5,))
    module = module_of(
        [((2, 3), "int8")], lambda emit, inputs: emit(ops.softmax(inputs[0], quantized, quantized, beta=1.0))
    )
    with pytest.raises(UnsupportedOperator, match="mxnet-onednn does not define softmax"):
        oracle.run(module, get_mode(MXNET_ONEDNN), [np.zeros((2, 3), np.int8)])


@pytest.mark.parametrize(
    ("storage", "scale", "zero_point"), [("int8", 1 / 256, -128), ("uint8", 1 / 256, 0), ("int8", 1e-4, -20)]
)
def test_a_softmax_of_the_first_columns(storage: str, scale: float, zero_point: int) -> None:
    """With so few columns, the products of ONNX Runtime's formula leave float32."""
    in_type = QuantizedType(storage, (float32(0.05),), (3,))
    out_type = QuantizedType(storage, (float32(scale),), (zero_point,))
    shapes = [((2, 5, 19), storage), ((1,), "int32")]
    module = module_of(shapes, lambda emit, inputs: emit(ops.softmax(inputs[0], in_type, out_type, length=inputs[1])))
    lowered, limits = canonicalize(module, get_mode(ONNXRUNTIME)), np.iinfo(storage)
    for length in (1, 2, 16, 19):
        x = np.random.default_rng(length).integers(limits.min, limits.max + 1, (2, 5, 19)).astype(storage)
        x[..., length:] = limits.min
        inputs = [x, np.array([length], np.int32)]
        (expected,) = oracle.run(module, get_mode(ONNXRUNTIME), inputs)
        np.testing.assert_array_equal(compile_and_run(lowered, inputs)[..., :length], expected[..., :length])

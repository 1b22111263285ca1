"""Functions of one value that change nothing are removed, and clamps become storage bounds. Other functions stay."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tvm import relax

from service.compiler.qnn import graph, ops, oracle
from service.compiler.qnn.numerics import get_mode
from service.compiler.qnn.passes import run_pass
from service.compiler.qnn.passes.casts import drop_casts
from service.compiler.qnn.types import QuantizedType, accumulator_type
from service.core.builds.numerics import LITERT_REFERENCE, XNNPACK
from tests.support.examples import examples
from tests.support.qnn_models import SIGNED_MODES, Emit, float32, i8, module_of, u8
from tests.support.qnn_text import check_pass

ALL = np.arange(-128, 128, dtype=np.int8).reshape(1, 256)


def names(module: Any) -> list[str]:
    operations = [found for _, _, found in graph.operations(graph.main_of(module)) if found is not None]
    return [found.name.removeprefix("qnn.") for found in operations]


def defined(mode: str, *operators: str) -> list[str]:
    """Returns the operators for which the mode has formulas."""
    return [operator for operator in operators if operator in get_mode(mode).formulas]


def simplified(module: Any, mode: str, x: np.ndarray) -> Any:
    """Runs the pass, checks that the module gives the same results, and returns it."""
    result, _ = run_pass("casts dropped", module, get_mode(mode))
    expected, got = (oracle.run(each, get_mode(mode), [x])[0] for each in (module, result))
    np.testing.assert_array_equal(got, expected)
    return result


@pytest.mark.parametrize("mode", SIGNED_MODES)
@pytest.mark.parametrize("scale", [1e-3, 0.1, 1 / 3, 1e-30, 1e9])
def test_quantizing_again_with_the_same_type_changes_nothing(mode: str, scale: float) -> None:
    kind = i8(scale, 7)

    def body(emit: Emit, inputs: list[relax.Var]) -> relax.Var:
        real = emit(relax.op.reshape(emit(ops.dequantize(inputs[0], kind)), [16, 16]))
        return emit(ops.quantize(emit(relax.op.permute_dims(real, [1, 0])), kind))

    assert names(simplified(module_of([((1, 256), "int8")], body), mode, ALL)) == []


def test_a_conversion_to_another_type_is_kept() -> None:
    def body(emit: Emit, inputs: list[relax.Var]) -> relax.Var:
        return emit(ops.quantize(emit(ops.dequantize(inputs[0], i8(0.1))), i8(0.11)))

    assert names(simplified(module_of([((1, 256), "int8")], body), "xnnpack", ALL)) == ["dequantize", "quantize"]


def test_a_clamp_becomes_the_bounds_of_its_operand() -> None:
    relu6 = QuantizedType("int8", (float32(0.1),), (-10,), storage_min=-10, storage_max=50)

    def body(emit: Emit, inputs: list[relax.Var]) -> relax.Var:
        total = emit(ops.add(inputs[0], inputs[0], i8(0.1), i8(0.1), i8(0.1, -10)))
        return emit(ops.unary("relu", emit(ops.unary("relu", total, i8(0.1, -10), relu6)), relu6, relu6))

    module = simplified(module_of([((1, 256), "int8")], body), "xnnpack", ALL)
    (operation,) = (found for _, _, found in graph.operations(graph.main_of(module)) if found is not None)
    assert (operation.name, operation.per_tensor("out_type")) == ("qnn.add", relu6)


def test_an_operand_with_other_readers_is_not_clamped() -> None:
    relu = QuantizedType("int8", (float32(0.1),), (0,), storage_min=0)

    def body(emit: Emit, inputs: list[relax.Var]) -> relax.Var:
        total = emit(ops.add(inputs[0], inputs[0], i8(0.1), i8(0.1), i8(0.1)))
        return emit(ops.mul(total, emit(ops.unary("relu", total, i8(0.1), relu)), i8(0.1), relu, i8(0.1)))

    module = simplified(module_of([((1, 256), "int8")], body), "xnnpack", ALL)
    assert names(module) == ["add", "relu", "mul"]


@settings(max_examples=examples(80), deadline=None)
@given(st.data(), st.sampled_from(SIGNED_MODES))
def test_any_chain_keeps_its_values(data: st.DataObject, mode: str) -> None:
    draw = data.draw
    scale = float32(draw(st.floats(0.05, 0.5)))

    def kind() -> QuantizedType:
        low, high = sorted(draw(st.lists(st.integers(-128, 127), min_size=2, max_size=2, unique=True)))
        bounds = draw(st.sampled_from([(-128, 127), (low, high)]))
        zero_point = draw(st.sampled_from([0, 0, -128, draw(st.integers(-128, 127))]))
        own = draw(st.sampled_from([scale, scale, 2 * scale]))
        return QuantizedType("int8", (own,), (zero_point,), storage_min=bounds[0], storage_max=bounds[1])

    def body(emit: Emit, inputs: list[relax.Var]) -> relax.Var:
        weights = np.random.default_rng(draw(st.integers(0, 99))).integers(-50, 50, (256, 256)).astype(np.int8)
        y, of_y = inputs[0], i8(scale)
        for _ in range(draw(st.integers(1, 4))):
            out = kind()
            match draw(st.sampled_from([*defined(mode, "add", "mul", "relu", "requantize"), "dense", "cast"])):
                case "dense":
                    sums = emit(ops.dense(y, relax.const(weights), None, of_y, i8(0.02)))
                    y = emit(ops.requantize(sums, accumulator_type(of_y, i8(0.02), axis=1), out))
                case "add":
                    y = emit(ops.add(y, inputs[0], of_y, i8(scale), out))
                case "mul":
                    y = emit(ops.mul(y, inputs[0], of_y, i8(scale), out))
                case "relu":
                    out = QuantizedType("int8", of_y.scales, of_y.zero_points, None, out.min, out.max)
                    y = emit(ops.unary("relu", y, of_y, out))
                case "requantize":
                    y = emit(ops.requantize(y, of_y, out))
                case _:
                    y = emit(ops.quantize(emit(ops.dequantize(y, of_y)), out))
            of_y = out
        return y

    simplified(module_of([((1, 256), "int8")], body), mode, ALL)


def test_the_layer_before_a_change_of_storage_computes_it() -> None:
    """The model's input and output are uint8, so the model ends with a change of storage."""
    weights = np.random.default_rng(0).integers(-50, 50, (10, 256)).astype(np.int8)

    def body(emit: Emit, inputs: list[relax.Var]) -> relax.Var:
        sums = emit(ops.dense(inputs[0], relax.const(weights), None, i8(0.1), i8(0.1)))
        signed = emit(ops.requantize(sums, accumulator_type(i8(0.1), i8(0.1), axis=1), i8(0.5, 3)))
        return emit(ops.requantize(signed, i8(0.5, 3), u8(0.5, 131)))

    for mode in SIGNED_MODES:
        module = simplified(module_of([((1, 256), "int8")], body), mode, ALL)
        # In other modes, the zero point may be added before the last rounding.
        if mode in (LITERT_REFERENCE, XNNPACK):
            assert names(module) == ["dense", "requantize"]


def test_the_names_of_removed_values_are_reported() -> None:
    def body(emit: Emit, inputs: list[relax.Var]) -> relax.Var:
        return emit(ops.requantize(inputs[0], i8(0.1), i8(0.1)))

    _, dropped = drop_casts(module_of([((1, 256), "int8")], body), get_mode("xnnpack"))
    assert dropped == ["lv"]


def test_values_of_types_with_several_scales_stay() -> None:
    """They do not depend on one stored value alone."""
    check_pass(
        "drop-casts",
        """\
!0 = !quant.uniform<i8:f32:{1:2}, {{0.5,0.25}}>
!1 = !quant.uniform<i8:f32, 0.5>
!2 = !quant.uniform<i8:f32:1, {0.5,0.25,0.5,1.0}>
main
  %0: tensor<2x4xi8> loc("x")
  %1 = qnn.dequantize(%0) {in_type = !0} : tensor<2x4xf32> loc("real")
  %2 = reshape(%1, shape<4x2>) : tensor<4x2xf32> loc("rows")
  %3 = qnn.quantize(%2) {out_type = !1} : tensor<4x2xi8> loc("stored")
  %4 = qnn.requantize(%0) {in_type = !1, out_type = !2} : tensor<2x4xi8> loc("by_column")
  %5 = qnn.requantize(%4) {in_type = !2, out_type = !1} : tensor<2x4xi8> loc("whole")
  %6 = %3 : tensor<4x2xi8> loc("gv")
  %7 = %5 : tensor<2x4xi8> loc("gv1")
  return %6, %7,
""",
    )

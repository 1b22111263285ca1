"""Exported programs: the module to which they are converted, and the errors for invalid ones. Nothing is executed or
unpacked to disk.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from service.compiler.importers.torch.exported import import_exported
from service.core.errors import InvalidInput, UnsupportedOperator
from service.core.models.arrays import Array
from tests.support.exported import dequantize, document, node, program, quantize, tensor
from tests.support.exported_programs import RELU, STEPS, refused, result


def operators(data: bytes, **options: Any) -> list[str]:
    module = import_exported(data, **options).module
    return [line.split("R.qnn.")[1].split("(")[0] for line in str(module).splitlines() if "R.qnn." in line]


# -- conversions


def test_an_activation_between_conversions_is_a_bound() -> None:
    x = np.linspace(-8, 8, 32, dtype=np.float32).reshape(1, 2, 4, 4)
    expected = np.float32(0.05) * (np.clip(np.rint(x * np.float32(1 / 0.05)) + 3, 3, 127) - 3)
    np.testing.assert_array_equal(result(STEPS, x), expected.astype(np.float32))
    assert "requantize" in operators(program(document(STEPS)))


def test_a_tensor_that_was_changed_in_place_has_its_new_value() -> None:
    """The program is `y = x - 1; y.relu_(); y + 0`. The addition reads the result of relu_."""
    nodes = [
        node("torch.ops.aten.sub.Tensor", "a", tensor("x"), {"as_float": 1.0}),
        node("torch.ops.aten.relu_.default", "b", tensor("a")),
        node("torch.ops.aten.add.Tensor", "y", tensor("a"), {"as_float": 0.0}),
    ]
    x = np.array([[-2, 0, 3]], np.float32)
    np.testing.assert_array_equal(result(nodes, x), np.array([[0, 0, 2]], np.float32))


def test_a_tensor_with_views_may_not_be_changed_in_place() -> None:
    nodes = [
        node("torch.ops.aten.view.default", "a", tensor("x"), {"as_ints": [-1]}),
        node("torch.ops.aten.relu_.default", "b", tensor("a")),
        node("torch.ops.aten.add.Tensor", "y", tensor("x"), {"as_float": 0.0}),
    ]
    assert "shares its elements, is read afterwards" in str(refused(document(nodes)))


# multiples of the scale, so that they are stored exactly
ROWS = np.float32(0.05) * np.random.default_rng(0).integers(-100, 100, (5, 24)).astype(np.float32)
_WIDE = ROWS.astype(np.float64)
_CENTERED = _WIDE - _WIDE.mean(-1, keepdims=True)
_GROWN = np.exp(_WIDE - _WIDE.max(-1, keepdims=True))
# operator -> its arguments after x, and its result in float64
LAYERS: dict[str, tuple[list[dict[str, Any]], Array]] = {
    "gelu.default": ([], _WIDE / 2 * (1 + np.vectorize(math.erf)(_WIDE * math.sqrt(0.5)))),
    "layer_norm.default": (
        [{"as_ints": [24]}],
        _CENTERED / np.sqrt((_CENTERED**2).mean(-1, keepdims=True) + 1e-5),
    ),
    "linear.default": ([tensor("r")], _WIDE @ _WIDE.T),
    "mean.dim": ([{"as_ints": [-1]}], _WIDE.mean(-1)),
    "silu.default": ([], _WIDE / (1 + np.exp(-_WIDE))),
    "softmax.int": ([{"as_int": -1}], _GROWN / _GROWN.sum(-1, keepdims=True)),
    "sum.dim_IntList": ([{"as_ints": [0]}], _WIDE.sum(0)),
    "tanh.default": ([], np.tanh(_WIDE)),
}


@pytest.mark.parametrize("name", LAYERS)
def test_a_layer_of_real_values(name: str) -> None:
    """The layer is computed in float32, so the test allows the rounding of some tens of terms."""
    arguments, expected = LAYERS[name]
    layer = node(f"torch.ops.aten.{name}", "y", tensor("r"), *arguments)
    made = result([quantize("x", "q"), dequantize("q", "r"), layer], ROWS)
    np.testing.assert_allclose(made, expected, rtol=1e-6, atol=4e-6)


PAD, CONSTANT_PAD = "torch.ops.aten.pad.default", "torch.ops.aten.constant_pad_nd.default"
_AROUND = {"as_ints": [1, 2, 0, 1]}  # Pads of the last axis, then of the one before it.
# PyTorch's mode -> NumPy's mode
_MODES: dict[str, Any] = {"reflect": "reflect", "replicate": "edge", "circular": "wrap"}


@pytest.mark.parametrize("mode", _MODES)
@pytest.mark.parametrize("is_stored", [False, True])
def test_padding_with_elements(mode: str, is_stored: bool) -> None:
    x = np.random.default_rng(0).normal(0, 1, (1, 2, 4, 4)).astype(np.float32)
    padded = node(PAD, "p", tensor("x" if not is_stored else "r"), _AROUND, {"as_string": mode})
    steps = [quantize("x", "q"), dequantize("q", "r")] if is_stored else []
    real = result([*steps, node("torch.ops.aten.relu.default", "y", tensor("r"))], x) if is_stored else x
    made = result([*steps, padded, node("torch.ops.aten.relu.default", "y", tensor("p"))], x)
    np.testing.assert_array_equal(made, np.maximum(np.pad(real, [(0, 0), (0, 0), (0, 1), (1, 2)], _MODES[mode]), 0))


@pytest.mark.parametrize(
    "padding",
    [
        node(PAD, "p", tensor("r"), _AROUND),
        node(PAD, "p", tensor("r"), _AROUND, {"as_string": "constant"}, {"as_float": 0.0}),
        node(CONSTANT_PAD, "p", tensor("r"), _AROUND),
        node(CONSTANT_PAD, "p", tensor("r"), _AROUND, value={"as_int": 0}),
    ],
)
def test_padding_with_zeros_uses_stored_values(padding: dict[str, Any]) -> None:
    """The layers before and after the padding stay in integers."""
    x = np.random.default_rng(0).normal(0, 1, (1, 2, 4, 4)).astype(np.float32)
    nodes = [node(RELU, "r", tensor("x")), padding, quantize("p", "q"), dequantize("q", "y")]
    plain = result([nodes[0], quantize("r", "q"), nodes[-1]], x)
    np.testing.assert_array_equal(result(nodes, x), np.pad(plain, [(0, 0), (0, 0), (0, 1), (1, 2)]))
    text = str(import_exported(program(document(nodes))).module)
    assert text.index("qnn.quantize") < text.index("nn.pad") < text.index("qnn.dequantize")


def test_padding_with_other_numbers_uses_real_values() -> None:
    x = np.random.default_rng(0).normal(0, 1, (1, 2, 4, 4)).astype(np.float32)
    nodes = [
        node(CONSTANT_PAD, "p", tensor("x"), _AROUND, {"as_float": 1.33}),
        quantize("p", "q"),
        dequantize("q", "y"),
    ]
    plain = result([quantize("x", "q"), nodes[-1]], x)
    filled = np.pad(plain, [(0, 0), (0, 0), (0, 1), (1, 2)], constant_values=np.float32(0.05) * 27)
    np.testing.assert_array_equal(result(nodes, x), filled)


@pytest.mark.parametrize(
    ("widths", "mode", "message"),
    [
        ([-1, 0], "constant", "has negative pads"),
        ([1 << 20, 0], "constant", "pads by 1048576 elements"),
        ([0] * 10, "constant", "10 pads for 4 dimensions"),
        ([1], "constant", "1 pads for 4 dimensions"),
        ([4, 0], "reflect", "of its elements, but has only"),
        ([5, 0], "circular", "of its elements, but has only"),
        ([1, 0], "symmetric", "unknown padding mode 'symmetric'"),
    ],
)
def test_invalid_padding_is_refused(widths: list[int], mode: str, message: str) -> None:
    assert message in str(refused(document([node(PAD, "y", tensor("x"), {"as_ints": widths}, {"as_string": mode})])))


def test_sizes_that_the_program_computes_are_constants() -> None:
    size = {"target": "torch.ops.aten.sym_size.int", "outputs": [{"as_sym_int": {"as_name": "n"}}]}
    size["inputs"] = [{"name": "self", "arg": tensor("x"), "kind": 1}, {"name": "dim", "arg": {"as_int": 0}, "kind": 1}]
    shape = {"as_sym_ints": [{"as_name": "n"}, {"as_int": -1}]}
    nodes = [
        size,
        node("torch.ops.aten.view.default", "r", tensor("x"), shape),
        quantize("r", "q"),
        dequantize("q", "y"),
    ]
    assert result(nodes, np.zeros((3, 2, 5), np.float32)).shape == (3, 10)


def test_an_open_batch_has_size_one_unless_it_is_given() -> None:
    whole = document(STEPS)
    sizes = whole["graph_module"]["graph"]["tensor_values"]["x"]["sizes"]
    sizes[0] = {"as_expr": {"expr_str": "s77", "hint": {"as_int": 2}}}
    assert import_exported(program(whole)).signature.inputs[0].shape == (1, 2, 4, 4)
    assert import_exported(program(whole), shapes={"": (5, 2, 4, 4)}).signature.outputs[0].shape == (5, 2, 4, 4)
    with pytest.raises(InvalidInput, match="has the shape"):
        import_exported(program(whole), shapes={"x": (5, 3, 4, 4)})
    sizes[2] = sizes[0]
    assert "every dimension except the batch" in str(refused(whole))


def test_all_unsupported_operators_are_named_at_once() -> None:
    nodes = [
        node("torch.ops.aten.cdist.default", "a", tensor("x")),
        node("torch.ops.my.own.default", "y", tensor("a")),
    ]
    with pytest.raises(UnsupportedOperator, match=r"aten::cdist, my::own; the first is aten::cdist → a"):
        import_exported(program(document(nodes)))


def test_dynamic_quantization_is_refused_by_name() -> None:
    choose = node("torch.ops.quantized_decomposed.choose_qparams.tensor", "s", tensor("x"))
    converted = node("torch.ops.quantized_decomposed.quantize_per_tensor.tensor", "y", tensor("x"), tensor("s"))
    with pytest.raises(UnsupportedOperator, match="choose_qparams"):
        import_exported(program(document([choose, converted])))


# -- damaged and unsupported programs

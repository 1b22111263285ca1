"""Attention layers between other kernels equal the oracle, bit for bit, with heads of any size.

Heads that are whole blocks of channels are split and joined without copies.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tvm import relax

from service.compiler.kernels.simd.library import SimdLibrary
from service.compiler.kernels.vector.portable import PortableIsa
from service.compiler.qnn import ops, oracle
from service.compiler.qnn.numerics import get_mode
from service.compiler.qnn.types import QuantizedType, accumulator_type
from service.core.target import Target
from tests.support.qnn_models import Emit, float32, module_of
from tests.support.selected import RUNNING, run_selected

import tvm  # isort: skip

HERE = RUNNING
# (batch, tokens, heads, channels of a head). The heads in `WHOLE` are whole blocks of channels.
WHOLE = [(1, 37, 3, 32), (2, 16, 2, 16), (1, 5, 1, 48)]
OTHERS = [(1, 19, 2, 24), (2, 21, 4, 5)]


def attention(
    batch: int, tokens: int, heads: int, size: int, *, together: bool, storage: str = "uint8", scaled: bool = False
) -> tuple[tvm.IRModule, list[np.ndarray]]:
    """Returns a module of an attention layer, and its inputs.

    The layer consists of dense layers for query, key and value (or one layer for all three if `together`), two
    products, and a dense layer.
    """
    rng = np.random.default_rng(7)
    channels = heads * size
    middle = 0 if storage == "int8" else 128
    kind = QuantizedType(storage, (float32(0.02),), (middle + 5,))

    of_layers = kind

    def dense(emit: Emit, x: relax.Expr, out: int, kind: QuantizedType = kind) -> relax.Var:
        weights = QuantizedType("int8", tuple(float32(scale) for scale in rng.uniform(0.005, 0.01, out)), axis=0)
        values = rng.integers(-127, 128, (out, 1, 1, channels)).astype(np.int8)
        pixels = relax.op.reshape(x, (batch, tokens, 1, channels))
        call = ops.conv2d(emit(pixels), relax.const(values), None, in_type=kind, weight_type=weights)
        stored = emit(ops.requantize(emit(call), accumulator_type(kind, weights, 3), of_layers))
        return emit(relax.op.reshape(stored, (batch, tokens, out)))

    def product(emit: Emit, lhs: relax.Var, rhs: relax.Var, out: QuantizedType) -> relax.Var:
        sums = QuantizedType("int32", (float32(kind.scale * kind.scale),), (0,))
        return emit(ops.requantize(emit(ops.matmul(lhs, rhs, kind, kind)), sums, out))

    def body(emit: Emit, inputs: list[relax.Var]) -> relax.Var:
        if together:
            wide = emit(relax.op.reshape(dense(emit, inputs[0], 3 * channels), (batch, tokens, 3, heads, size)))
            cut = [emit(relax.op.strided_slice(wide, [2], [part], [part + 1], [1])) for part in range(3)]
            parts = [emit(relax.op.reshape(part, (batch, tokens, heads, size))) for part in cut]
        else:
            layers = [dense(emit, inputs[0], channels) for _ in range(3)]
            parts = [emit(relax.op.reshape(layer, (batch, tokens, heads, size))) for layer in layers]
        if scaled:
            third, half = (QuantizedType(storage, (float32(scale),), (middle + 5,)) for scale in (0.02 / 3, 0.01))
            constant = relax.const(np.full((1, 1, 1, 1), middle + 105, storage))
            parts[0], parts[1] = (
                emit(ops.mul(part, constant, kind, each, kind))
                for part, each in zip(parts, (third, half), strict=False)
            )
        query, key, value = (
            emit(relax.op.permute_dims(part, axes))
            for part, axes in zip(parts, ((0, 2, 1, 3), (0, 2, 3, 1), (0, 2, 1, 3)), strict=True)
        )
        of_scores, of_sums = (
            QuantizedType(storage, (float32(0.02 * np.sqrt(depth)),), (middle - 9,)) for depth in (size, tokens)
        )
        scores = emit(ops.requantize(product(emit, query, key, of_scores), of_scores, kind))
        mixed = emit(relax.op.permute_dims(product(emit, scores, value, of_sums), (0, 2, 1, 3)))
        return dense(emit, emit(relax.op.reshape(mixed, (batch, tokens, channels))), channels, of_sums)

    bounds = np.iinfo(storage)
    sample = rng.integers(bounds.min, bounds.max, (batch, tokens, channels), storage, endpoint=True)
    return module_of([(sample.shape, storage)], body), [sample]


@pytest.mark.parametrize("target", HERE, ids=str)
@pytest.mark.parametrize(("sizes", "together"), list(zip(WHOLE, (True, True, False), strict=True)))
def test_heads_of_whole_blocks_are_not_copied(
    target: Target, sizes: tuple[int, int, int, int], together: bool, tmp_path: Path
) -> None:
    module, inputs = attention(*sizes, together=together)
    selection, (actual,) = run_selected(module, target, "onnxruntime", inputs, tmp_path)
    np.testing.assert_array_equal(actual, oracle.run(module, get_mode("onnxruntime"), inputs)[0])
    assert selection.plain == []
    kinds = [layer["kernel"] for layer in selection.layers]
    assert (kinds.count("pack"), kinds.count("unpack"), kinds.count("product")) == (1, 1, 2)


@pytest.mark.parametrize("target", HERE, ids=str)
@pytest.mark.parametrize(("sizes", "storage"), list(zip(OTHERS, ("int8", "uint8"), strict=True)))
def test_heads_of_other_sizes_are_computed_without_copies(
    target: Target, sizes: tuple[int, int, int, int], storage: str, tmp_path: Path
) -> None:
    module, inputs = attention(*sizes, together=True, storage=storage)
    selection, (actual,) = run_selected(module, target, "onnxruntime", inputs, tmp_path)
    np.testing.assert_array_equal(actual, oracle.run(module, get_mode("onnxruntime"), inputs)[0])
    assert [layer["kernel"] for layer in selection.layers].count("product") == 2
    assert not any("permute" in each["operators"] for each in selection.plain)


@pytest.mark.parametrize("target", HERE[:1], ids=str)
def test_attention_runs_on_the_portable_instruction_set(target: Target, tmp_path: Path) -> None:
    module, inputs = attention(2, 7, 3, 8, together=True)
    selection, (actual,) = run_selected(
        module, target, "xnnpack", inputs, tmp_path, lambda mode: SimdLibrary(PortableIsa(), mode)
    )
    np.testing.assert_array_equal(actual, oracle.run(module, get_mode("xnnpack"), inputs)[0])
    assert selection.plain == []


@pytest.mark.parametrize("target", HERE, ids=str)
def test_scaling_after_the_split_is_a_lookup_of_tokens(target: Target, tmp_path: Path) -> None:
    module, inputs = attention(1, 37, 3, 32, together=True, scaled=True)
    selection, (actual,) = run_selected(module, target, "onnxruntime", inputs, tmp_path)
    np.testing.assert_array_equal(actual, oracle.run(module, get_mode("onnxruntime"), inputs)[0])
    assert selection.plain == []
    kinds = [layer["kernel"] for layer in selection.layers]
    assert (kinds.count("pack"), kinds.count("unpack"), kinds.count("product"), kinds.count("table")) == (1, 1, 2, 3)


@pytest.mark.parametrize("target", HERE[:1], ids=str)
def test_a_kernel_computes_a_lookup_after_a_softmax(target: Target, tmp_path: Path) -> None:
    """Some exporters emit such a lookup to replace NaN in rows whose scores are all masked."""
    kind, share = QuantizedType("uint8", (float32(0.02),), (133,)), QuantizedType("uint8", (float32(1 / 256),))

    def body(emit: Emit, inputs: list[relax.Var]) -> relax.Var:
        shares = emit(ops.table(emit(ops.softmax(inputs[0], kind, share)), share, share, [255, *range(1, 256)]))
        sums = QuantizedType("int32", (float32(share.scale * kind.scale),), (0,))
        return emit(ops.requantize(emit(ops.matmul(shares, inputs[1], share, kind)), sums, kind))

    shapes = [(1, 2, 19, 19), (1, 2, 19, 32)]
    inputs = [np.random.default_rng(3).integers(0, 256, shape).astype(np.uint8) for shape in shapes]
    module = module_of([(shape, "uint8") for shape in shapes], body)
    selection, (actual,) = run_selected(module, target, "onnxruntime", inputs, tmp_path)
    np.testing.assert_array_equal(actual, oracle.run(module, get_mode("onnxruntime"), inputs)[0])
    assert selection.plain == []

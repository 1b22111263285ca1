"""MatMulNBits, compared with ONNX Runtime. The results differ only by the rounding of sums."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from service.compiler.importers.onnx.importer import import_model
from service.compiler.qnn import oracle
from service.compiler.qnn.numerics import get_mode
from service.core.builds.numerics import ONNXRUNTIME
from service.core.errors import Unsupported
from service.core.target import detect_host
from tests.support.onnx_builder import OnnxBuilder
from tests.support.onnx_reference import Reference
from tests.support.selected import run_selected

# ONNX Runtime multiplies stored values less their zero point only at the end, so its sums are larger than the result.
_TOLERANCE = 4e-6  # relative to the largest value
COLUMNS = 6


def product(
    bits: int = 4,
    size: int = 32,
    depth: int = 83,
    *,
    level: int = 0,
    points: str = "",
    groups: str = "",
    biased: bool = False,
    shape: tuple[int, ...] | None = None,
) -> bytes:
    """Returns a file with one product.

    Args:
        points: "packed" or "real" for explicit zero points.
        groups: "sorted" or "mixed" for g_idx: blocks of equal size, or any.
    """
    rng, model, count = np.random.default_rng(bits + size), OnnxBuilder(), -(-depth // size)
    names = [model.input("x", "float32", (3, depth) if shape is None else shape)]
    names.append(model.constant(rng.integers(0, 256, (COLUMNS, count, size * bits // 8)), "uint8"))
    names.append(model.constant(rng.standard_normal(COLUMNS * count) / 8, "float32"))
    packed = rng.integers(0, 256, COLUMNS * -(-count * bits // 8))
    real = rng.uniform(0, 15, COLUMNS * count)
    names.append({"": "", "packed": model.constant(packed, "uint8"), "real": model.constant(real, "float32")}[points])
    blocks = np.arange(depth) // size
    indices = {"sorted": rng.permutation(blocks), "mixed": rng.integers(0, count, depth)}
    names.append(model.constant(indices[groups], "int32") if groups else "")
    names.append(model.constant(rng.standard_normal(COLUMNS), "float32") if biased else "")
    while not names[-1]:
        names.pop()
    options = {"bits": bits, "block_size": size, "K": depth, "N": COLUMNS, "accuracy_level": level}
    model.output(model.microsoft("MatMulNBits", names, **options), "float32")
    return model.build()


CASES: dict[str, bytes] = {
    **{f"{bits} bits, level {level}": product(bits, level=level) for bits in (2, 4, 8) for level in (0, 1, 4)},
    **{f"{bits} bits, zero points": product(bits, points="packed", level=4) for bits in (2, 4, 8)},
    **{f"{bits} bits, blocks of 16": product(bits, 16, 40, level=4) for bits in (2, 4, 8)},
    "level 2": product(level=2),
    "level 3": product(8, level=3),
    "blocks of 256": product(2, 256, 512, level=4),
    "real zero points": product(points="real", level=4),
    "g_idx": product(depth=96, groups="sorted", level=4),
    "g_idx of blocks of different sizes": product(groups="mixed"),
    "g_idx and packed zero points": product(depth=96, groups="sorted", points="packed"),
    "g_idx and real zero points": product(groups="mixed", points="real", biased=True),
    "a bias": product(biased=True, level=4),
    "a row": product(depth=32, shape=(32,), biased=True, level=4),
    "batches": product(8, 64, 64, shape=(2, 3, 64), level=4),
    "one block that is not full": product(8, 128, 20, level=4),
}


def inputs_of(file: bytes) -> np.ndarray[Any, Any]:
    (spec,) = import_model(file).signature.inputs
    x = np.random.default_rng(0).standard_normal(spec.shape).astype(np.float32)
    x[..., :16] = 0  # a block of zeros, if blocks have 16 elements
    return x


@pytest.mark.parametrize("name", CASES)
def test_results_are_those_of_onnx_runtime(name: str) -> None:
    file = CASES[name]
    x = inputs_of(file)
    (expected,) = Reference(file, optimized=True)([x])
    (actual,) = oracle.run(import_model(file).module, get_mode(ONNXRUNTIME), [x])
    assert actual.shape == expected.shape
    np.testing.assert_allclose(actual, expected, rtol=0, atol=_TOLERANCE * np.abs(expected).max())


@pytest.mark.parametrize("name", ["2 bits, zero points", "g_idx"])
def test_the_compiled_product_computes_what_the_oracle_does(name: str, tmp_path: Any) -> None:
    module, x = import_model(CASES[name]).module, inputs_of(CASES[name])
    (expected,) = oracle.run(module, get_mode(ONNXRUNTIME), [x])
    _, (compiled,) = run_selected(module, detect_host().target, ONNXRUNTIME, [x], tmp_path)
    np.testing.assert_array_equal(compiled, expected)


@pytest.mark.parametrize("options", [{"groups": "sorted"}, {"points": "real"}])
def test_combinations_that_onnx_runtime_cannot_run_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(Unsupported, match="has weights of 8 bits with g_idx or real zero points"):
        import_model(product(8, **options))

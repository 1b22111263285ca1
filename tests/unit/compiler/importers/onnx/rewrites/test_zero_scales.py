"""Constants with scales that are not positive, and with a last block that is not full."""

from __future__ import annotations

import numpy as np
import pytest

from service.compiler.importers.onnx.importer import import_model
from service.compiler.qnn import graph, oracle
from service.compiler.qnn.numerics import get_mode
from service.compiler.qnn.passes import simplify
from service.core.builds.numerics import ONNXRUNTIME
from tests.support.onnx_builder import OnnxBuilder
from tests.support.onnx_reference import Reference

ROWS, COLUMNS = 20, 6
MODE = get_mode(ONNXRUNTIME)
RANGES = {"int4": (-8, 7), "uint4": (0, 15), "int8": (-128, 127), "uint8": (0, 255), "int32": (-9999, 9999)}


def table(model: OnnxBuilder, dtype: str, block: int, axis: int, pointed: bool) -> str:
    """Writes a DequantizeLinear of `[ROWS, COLUMNS]`. Some of its scales are negative, and some are 0."""
    rng, (low, high) = np.random.default_rng(block), RANGES[dtype]
    grid = [ROWS, COLUMNS]
    grid[axis] = -(-grid[axis] // block) if block else grid[axis]
    shape = grid if block else [grid[axis]]
    scales = rng.uniform(0.1, 1, shape) * rng.choice([-1, 0, 1, 1], shape)

    def stored(values: np.ndarray) -> str:
        return model.nibbles(values, dtype) if dtype.endswith("4") else model.constant(values, dtype)

    names = [stored(rng.integers(low, high + 1, (ROWS, COLUMNS))), model.constant(scales, "float32")]
    if pointed:
        names.append(stored(rng.integers(low, high + 1, shape)))
    return model.node("DequantizeLinear", names, axis=axis, block_size=block)


@pytest.mark.parametrize("dtype", ["int4", "uint4", "int8", "uint8"])
@pytest.mark.parametrize(("block", "axis"), [(0, 0), (0, 1), (16, 0), (8, 0), (4, 1)])
@pytest.mark.parametrize("pointed", [True, False])
def test_rows_of_a_table_are_those_of_onnx_runtime(dtype: str, block: int, axis: int, pointed: bool) -> None:
    model = OnnxBuilder()
    indices = model.input("i", "int64", (2, 4))
    model.output(model.node("Gather", [table(model, dtype, block, axis, pointed), indices]), "float32")
    file, given = model.build(21), [np.random.default_rng(0).integers(-ROWS, ROWS, (2, 4))]
    (expected,) = Reference(file, optimized=True)(given)
    module = import_model(file).module
    for each in (module, simplify(module, MODE).module):
        np.testing.assert_array_equal(oracle.run(each, MODE, given)[0], expected)


@pytest.mark.parametrize("dtype", ["int4", "uint8", "int32"])
def test_a_product_reads_the_stored_weights(dtype: str) -> None:
    model = OnnxBuilder()
    x = model.input("x", "float32", (3, ROWS))
    model.output(model.node("MatMul", [x, table(model, dtype, 16, 0, pointed=False)]), "float32")
    file, given = model.build(21), [np.random.default_rng(0).standard_normal((3, ROWS)).astype(np.float32)]
    (expected,) = Reference(file, optimized=True)(given)
    module = simplify(import_model(file).module, MODE).module
    (actual,) = oracle.run(module, MODE, given)
    np.testing.assert_allclose(actual, expected, rtol=0, atol=1e-5 * np.abs(expected).max())
    names = [graph.name_of(value) for _, value in graph.bindings(graph.main_of(module))]
    assert names.count("qnn.block_matmul") == (dtype != "int32")

from __future__ import annotations

import numpy as np
import pytest
from tvm import relax

from service.compiler.qnn import ops, oracle
from service.compiler.qnn.numerics import get_mode
from service.compiler.qnn.passes.weights import keep_weights
from service.compiler.qnn.types import QuantizedType
from service.core.builds.numerics import ONNXRUNTIME
from tests.support.qnn_models import Emit, float32, module_of

MODE = get_mode(ONNXRUNTIME)
DEPTH, COLUMNS = 6, 4
RNG = np.random.default_rng(0)


def scales(count: int) -> tuple[float, ...]:
    return tuple(float32(value) for value in RNG.uniform(0.01, 0.1, count))


def blocked(storage: str, grid: tuple[int, int], *sizes: tuple[int, int]) -> QuantizedType:
    points = tuple(int(point) for point in RNG.integers(0, 7, grid[0] * grid[1]))
    return QuantizedType(storage, scales(grid[0] * grid[1]), points, blocks=sizes, grid=grid)


# (type of the weights, true if they are transposed, true if they stay stored)
TYPES: dict[str, tuple[QuantizedType, bool, bool]] = {
    "one scale": (QuantizedType("uint8", scales(1), (7,)), False, True),
    "one scale, transposed": (QuantizedType("int8", scales(1), (-3,)), True, True),
    "by column": (QuantizedType("int8", scales(COLUMNS), (1, 2, 3, 4), axis=1), False, True),
    "by column, transposed": (QuantizedType("int4", scales(COLUMNS), (0,), axis=0), True, True),
    "3 bits": (QuantizedType("int3", scales(COLUMNS), (1,), axis=1), False, True),
    "6 bits": (QuantizedType("uint6", scales(1), (33,)), False, True),
    "by row": (QuantizedType("int8", scales(DEPTH), (0,), axis=0), False, False),
    "blocks": (blocked("uint4", (2, COLUMNS), (0, 3), (1, 1)), False, True),
    "blocks, transposed": (blocked("int4", (COLUMNS, 3), (0, 1), (1, 2)), True, True),
    "blocks of columns": (blocked("uint4", (2, 2), (0, 3), (1, 2)), False, False),
    "16 bits": (QuantizedType("int16", scales(1)), False, False),
}


@pytest.mark.parametrize("name", TYPES)
def test_weights_are_read_as_they_are_stored(name: str) -> None:
    kind, transposed, kept = TYPES[name]
    shape = (COLUMNS, DEPTH) if transposed else (DEPTH, COLUMNS)
    check(RNG.integers(max(kind.min, -8), min(kind.max, 15) + 1, shape), kind, transposed, kept)


def test_weights_that_exceed_their_type_are_not_packed() -> None:
    """Importers never create such weights, but the text of a graph may contain them."""
    values = RNG.integers(-8, 8, (DEPTH, COLUMNS))
    values[0, 0] = 8
    check(values, QuantizedType("int4", (0.5,)), transposed=False, kept=False)


def check(values: np.ndarray, kind: QuantizedType, transposed: bool, kept: bool) -> None:
    """Checks that the pass keeps the weights if `kept`, and that the results do not change."""
    stored = relax.const(values.astype(kind.dtype))
    bias = relax.const(RNG.normal(0, 1, COLUMNS).astype(np.float32))

    def network(emit: Emit, inputs: list[relax.Var]) -> relax.Var:
        weights = emit(ops.dequantize(stored, kind))
        weights = emit(relax.op.permute_dims(weights, (1, 0))) if transposed else weights
        return emit(ops.real_matmul(inputs[0], weights, bias))

    module, x = module_of([((3, DEPTH), "float32")], network), RNG.normal(0, 1, (3, DEPTH)).astype(np.float32)
    after, done = keep_weights(module, MODE)
    assert bool(done) == kept
    assert ("block_matmul" in after.script()) == kept
    np.testing.assert_array_equal(oracle.run(after, MODE, [x])[0], oracle.run(module, MODE, [x])[0])

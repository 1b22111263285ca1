"""GatherBlockQuantized, compared with ONNX Runtime bit for bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from service.compiler.importers.onnx.importer import import_model
from service.compiler.qnn import oracle
from service.compiler.qnn.numerics import get_mode
from service.core.builds.numerics import ONNXRUNTIME
from service.core.errors import MalformedModel
from service.core.target import detect_host
from tests.support.onnx_builder import OnnxBuilder
from tests.support.onnx_reference import Reference
from tests.support.selected import run_selected


def lookup(
    storage: str,
    shape: tuple[int, ...] = (9, 40),
    *,
    axis: int = 0,
    along: int = -1,
    bits: int = 4,
    pointed: bool = True,
    indices: tuple[int, ...] = (2, 3),
    dtype: str = "int64",
) -> bytes:
    """Returns a file with a table of the given shape, in blocks of 16."""
    rng, model = np.random.default_rng(sum(shape)), OnnxBuilder()
    counts = [-(-size // 16) if index == along % len(shape) else size for index, size in enumerate(shape)]

    def stored(extents: list[int]) -> str:
        if storage != "uint8":
            return model.nibbles(rng.integers(0, 16, extents), storage)
        return model.constant(rng.integers(0, 256, (*extents[:-1], -(-extents[-1] * bits // 8))), storage)

    scales = model.constant(rng.standard_normal(counts) / 8, "float32")  # quantizers write negative scales, too
    names = [stored([*shape]), model.input("i", dtype, indices), scales, *([stored(counts)] if pointed else [])]
    options = {"bits": bits} if storage == "uint8" else {}
    result = model.microsoft(
        "GatherBlockQuantized", names, block_size=16, gather_axis=axis, quantize_axis=along, **options
    )
    model.output(result, "float32")
    return model.build()


CASES: dict[str, tuple[bytes, int]] = {
    "uint4": (lookup("uint4"), 9),
    "int4": (lookup("int4", dtype="int32"), 9),
    "int4 without zero points": (lookup("int4", pointed=False), 9),
    "uint4 without zero points": (lookup("uint4", pointed=False), 9),
    "blocks along the gathered axis": (lookup("int4", (37, 5), along=0), 37),
    "blocks before the gathered axis": (lookup("uint4", (33, 4, 3), axis=1, along=0), 4),
    "the last axis is gathered": (lookup("int4", (3, 20, 5), axis=2, along=1, indices=()), 5),
    "2 bits": (lookup("uint8", bits=2), 9),
    "4 bits": (lookup("uint8", (2, 3, 24), bits=4), 2),
    "4 bits without zero points": (lookup("uint8", bits=4, pointed=False), 9),
    "8 bits": (lookup("uint8", bits=8, indices=(4,)), 9),
}


@pytest.mark.parametrize("name", CASES)
def test_results_are_those_of_onnx_runtime(name: str) -> None:
    """Indices beyond the ends select zeros."""
    file, size = CASES[name]
    imported = import_model(file)
    (spec,) = imported.signature.inputs
    rng = np.random.default_rng(1)
    indices = rng.integers(-size - 2, size + 2, spec.shape).astype(spec.dtype)
    (expected,) = Reference(file, optimized=True)([indices])
    (actual,) = oracle.run(imported.module, get_mode(ONNXRUNTIME), [indices])
    assert actual.shape == expected.shape
    np.testing.assert_array_equal(actual, expected)


def test_the_compiled_lookup_computes_the_same(tmp_path: Any) -> None:
    file, size = CASES["blocks before the gathered axis"]
    indices = np.arange(6).reshape(2, 3) - size // 2
    (expected,) = Reference(file, optimized=True)([indices])
    module = import_model(file).module
    _, (compiled,) = run_selected(module, detect_host().target, ONNXRUNTIME, [indices], tmp_path)
    np.testing.assert_array_equal(compiled, expected)


def test_scales_of_another_shape_are_refused() -> None:
    model = OnnxBuilder()
    names = [model.nibbles(np.zeros((4, 32)), "uint4"), model.input("i", "int64", (2,))]
    names.append(model.constant(np.ones((4, 3)), "float32"))
    model.output(model.microsoft("GatherBlockQuantized", names, block_size=16), "float32")
    with pytest.raises(MalformedModel, match=r"has scales \[4, 3\], not \[4, 2\]"):
        import_model(model.build())

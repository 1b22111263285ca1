"""Runs models in LiteRT, the reference runtime."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from ai_edge_litert.interpreter import Interpreter, OpResolverType

from service.core.builds.numerics import MODES_OF
from service.core.models.arrays import Array

MODES = MODES_OF["tflite"]  # the numerics modes that LiteRT defines


def interpreter(model: bytes, *, reference: bool = True) -> Interpreter:
    """Returns an interpreter that is ready to run, with the reference kernels or with LiteRT's default (XNNPACK)."""
    kind = OpResolverType.BUILTIN_REF if reference else OpResolverType.AUTO
    loaded = Interpreter(model_content=model, experimental_op_resolver_type=kind, num_threads=1)
    loaded.allocate_tensors()
    return loaded


def run(loaded: Interpreter, inputs: Sequence[Array]) -> list[Array]:
    for detail, value in zip(loaded.get_input_details(), inputs, strict=True):
        loaded.set_tensor(detail["index"], value)
    loaded.invoke()
    return [loaded.get_tensor(detail["index"]) for detail in loaded.get_output_details()]


def random_inputs(loaded: Interpreter, rng: np.random.Generator) -> list[Array]:
    """Returns random inputs: integers with equal probability, floats in a range that 8 bits can represent."""
    return [_random(detail["shape"], np.dtype(detail["dtype"]), rng) for detail in loaded.get_input_details()]


def _random(shape: Sequence[int], dtype: np.dtype[Any], rng: np.random.Generator) -> Array:
    if dtype.kind == "f":
        return rng.normal(0, 4, shape).astype(dtype)
    if dtype.kind == "b":
        return rng.integers(0, 2, shape).astype(dtype)
    limits = np.iinfo(dtype)
    return rng.integers(limits.min, limits.max, shape, dtype=dtype, endpoint=True)

"""Compares the canonical form of a module with the oracle."""

from __future__ import annotations

import numpy as np

from service.compiler.lowering.codegen import FUSE
from service.compiler.lowering.schedule import schedule
from service.compiler.qnn import oracle
from service.compiler.qnn.canonicalize import canonicalize
from service.compiler.qnn.legalize import legalize
from service.compiler.qnn.numerics import get_mode
from service.compiler.targets import CodegenTarget, OperandTypes
from tests.support.qnn_models import compile_and_run

import tvm  # isort: skip


def holds(module: tvm.IRModule, mode: str, operands: OperandTypes, inputs: list[np.ndarray]) -> None:
    """Checks that four results are equal: that of the oracle, that of the oracle after Legalize, and those of the
    canonical form compiled without a schedule and with the default schedule.
    """
    expected = oracle.run(module, get_mode(mode), inputs)[0]
    legal = legalize(module, operands)
    np.testing.assert_array_equal(oracle.run(legal, get_mode(mode), inputs)[0], expected)
    canonical = canonicalize(legal, get_mode(mode))
    assert "R.qnn." not in canonical.script()
    np.testing.assert_array_equal(compile_and_run(canonical, inputs), expected)
    target = CodegenTarget({"kind": "llvm"}, operands, vector_bytes=16, vector_registers=16)
    scheduled = schedule(tvm.transform.Sequential(list(FUSE))(canonical), target)
    np.testing.assert_array_equal(compile_and_run(scheduled, inputs), expected)

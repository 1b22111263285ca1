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
from tests.support.qnn_models import compile_and_run_each

import tvm  # isort: skip


def holds(module: tvm.IRModule, mode: str, operands: OperandTypes, *samples: list[np.ndarray]) -> None:
    """Checks that four results are equal for each sample: that of the oracle, that of the oracle after Legalize, and
    those of the canonical form compiled without a schedule and with the default schedule.
    """
    expected = [oracle.run(module, get_mode(mode), inputs)[0] for inputs in samples]
    legal = legalize(module, operands)
    canonical = canonicalize(legal, get_mode(mode))
    assert "R.qnn." not in canonical.script()
    target = CodegenTarget({"kind": "llvm"}, operands, vector_bytes=16, vector_registers=16)
    scheduled = schedule(tvm.transform.Sequential(list(FUSE))(canonical), target)
    results = (
        [oracle.run(legal, get_mode(mode), inputs) for inputs in samples],
        compile_and_run_each(canonical, samples),
        compile_and_run_each(scheduled, samples),
    )
    for outputs in results:
        for (ours, *_), wanted in zip(outputs, expected, strict=True):
            np.testing.assert_array_equal(ours, wanted)

"""The loop that measures the peak computes as many products as it reports."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from service.compiler.kernels.libraries import peak_for
from service.compiler.lowering.link import link
from service.compiler.targets import codegen_target
from service.core.artifacts.artifact import ArtifactConfig
from service.core.artifacts.buffers import aligned_empty
from service.core.artifacts.call_plan import CallPlan
from service.core.models.arrays import Array
from service.core.models.signature import ModelSignature
from service.core.target import TARGETS, Target, detect_host
from service.runtime import load_files
from tools.kernel.building import compiled

HERE = [target for target in TARGETS if target.runs_on(detect_host()) and target.architecture == "x86_64"]


@pytest.mark.parametrize("target", HERE, ids=str)
def test_the_loop_makes_every_product_that_it_counts(target: Target, tmp_path: Path) -> None:
    kernel = peak_for(target)
    assert kernel is not None
    symbol, operands_of, totals_of = (kernel.facts[name] for name in ("symbol", "operands", "totals"))
    objects = compiled({symbol: kernel}, codegen_target(target), tmp_path)
    library = tmp_path / "library.so"
    link(objects, library, target, trusted=True)
    constants = tmp_path / "constants"
    constants.touch()
    config = ArtifactConfig(ModelSignature((), ()), target.name, "xnnpack", CallPlan(0, (), ()))
    model = load_files(config, library, constants, threads=1)
    function = model.native.symbol(symbol)
    assert function is not None

    def totals_after(operands: Array, calls: int) -> Array:
        buffers = [aligned_empty([each["elements"]], each["dtype"]) for each in (operands_of, totals_of)]
        buffers[0][...], buffers[1][...] = operands, 0
        for _ in range(calls):
            model.threads.team.call(1, function, [buffer.ctypes.data for buffer in buffers])
        return buffers[1]

    ones, numbers = np.ones(operands_of["elements"]), np.arange(operands_of["elements"]) % 7
    assert totals_after(ones, 1).astype(np.int64).sum() == kernel.facts["macs"]
    np.testing.assert_array_equal(totals_after(numbers, 2), 2 * totals_after(numbers, 1))


def test_a_target_without_kernels_has_no_loop() -> None:
    assert peak_for(Target("riscv64", "riscv64", frozenset(), "none")) is None

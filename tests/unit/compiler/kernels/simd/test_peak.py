"""The loop that measures the peak multiplies as often as it says, and leaves nothing out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm
import tvm_ffi
from numpy.typing import NDArray

from service.compiler.kernels.libraries import peak_for
from service.compiler.link import link
from service.compiler.targets import codegen_target
from service.core.target import TARGETS, Target, detect_host
from tests.support.selected import compiled

Array = NDArray[Any]
HERE = [target for target in TARGETS if target.runs_on(detect_host()) and target.architecture == "x86_64"]


@pytest.mark.parametrize("target", HERE, ids=str)
def test_the_loop_makes_every_product_that_it_counts(target: Target, tmp_path: Path) -> None:
    kernel = peak_for(target)
    assert kernel is not None
    symbol, operands_of, totals_of = (kernel.facts[name] for name in ("symbol", "operands", "totals"))
    objects = compiled({symbol: kernel}, codegen_target(target), tmp_path)
    library = tmp_path / "library.so"
    link(objects, library, target, allow_unsandboxed=True)
    function = tvm_ffi.load_module(str(library))[symbol]

    def totals_after(operands: Array, calls: int) -> Array:
        totals = tvm.runtime.tensor(np.zeros(totals_of["elements"], totals_of["dtype"]))
        for _ in range(calls):
            function(tvm.runtime.tensor(operands.astype(operands_of["dtype"])), totals)
        result: Array = totals.numpy()
        return result

    ones, numbers = np.ones(operands_of["elements"]), np.arange(operands_of["elements"]) % 7
    assert totals_after(ones, 1).astype(np.int64).sum() == kernel.facts["macs"]
    np.testing.assert_array_equal(totals_after(numbers, 2), 2 * totals_after(numbers, 1))


def test_a_target_without_kernels_has_no_loop() -> None:
    assert peak_for(next(target for target in TARGETS if target.architecture == "aarch64")) is None

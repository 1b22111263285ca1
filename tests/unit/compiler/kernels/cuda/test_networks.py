"""Whole networks on emulated cards equal the oracle: the plan, the runtime, and every kernel by its source."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tvm import relax

from service.compiler.qnn import oracle
from service.compiler.qnn.numerics import get_mode
from service.core.numerics import LITERT_REFERENCE, ONNXRUNTIME, TORCH_X86
from service.core.target import parse_target
from tests.support.cuda.machine_code import needs_nvrtc
from tests.support.qnn_models import SIGNED_MODES, Emit, module_of
from tests.support.selected import run_selected
from tests.unit.compiler.select.test_select import Network, Tensor

pytestmark = needs_nvrtc
ADDING = (LITERT_REFERENCE, ONNXRUNTIME, TORCH_X86)  # the kernels' own tests have all modes


@pytest.mark.parametrize(("capability", "mode"), [*zip(["sm_61", "sm_75", "sm_80"], ADDING, strict=True)])
def test_a_residual_network(capability: str, mode: str, tmp_path: Path) -> None:
    rng = np.random.default_rng(len(mode))
    storage = "int8" if mode in SIGNED_MODES else "uint8"

    def body(emit: Emit, xs: list[relax.Var]) -> relax.Var:
        network = Network(emit, rng, storage)
        x = Tensor(xs[0], (2, 9, 11, 3), network.type())
        x = network.conv(x, 40, (3, 3), stride=2)
        y = network.conv(x, 0, (3, 3), depthwise=True)
        return network.add(network.conv(y, 40, (1, 1)), x).var

    values = rng.integers(-128 if storage == "int8" else 0, 128, (2, 9, 11, 3)).astype(storage)
    module = module_of([(values.shape, storage)], body)
    (expected,) = oracle.run(module, get_mode(mode), [values])
    _, (computed,) = run_selected(module, parse_target(f"cuda-{capability}"), mode, [values], tmp_path)
    np.testing.assert_array_equal(computed, expected)

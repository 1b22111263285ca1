"""Whole networks on emulated cards equal the oracle: the plan, the runtime, and every kernel by its source."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tvm import relax

from service.compiler.qnn import ops, oracle
from service.compiler.qnn.numerics import get_mode
from service.compiler.qnn.types import QuantizedType
from service.core.numerics import LITERT_REFERENCE, ONNXRUNTIME, TORCH_X86, XNNPACK
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


def test_a_network_of_pools_and_resized_images(tmp_path: Path) -> None:
    rng, kind = np.random.default_rng(6), QuantizedType("int8", (0.1,), (7,))

    def body(emit: Emit, xs: list[relax.Var]) -> relax.Var:
        network = Network(emit, rng, "int8")
        network.shared = kind
        x = network.conv(Tensor(xs[0], (2, 9, 11, 3), kind), 40, (3, 3))
        x = network.max_pool(x, (1, 1, 0, 1))
        x = network.conv(x, 0, (5, 5), stride=2, depthwise=True)
        larger = emit(ops.resize_bilinear(x.var, kind, kind, size=(5, 4), align_corners=False, half_pixel_centers=True))
        taken = emit(ops.take_pixels(larger, kind, rows=[0, 0, 1, 4], columns=[3, 2, 2]))
        x = network.conv(Tensor(taken, (2, 4, 3, 40), kind), 33, (3, 3))
        return network.dense(network.flat(network.average(x)), 10).var

    values = rng.integers(-128, 128, (2, 9, 11, 3)).astype(np.int8)
    module = module_of([(values.shape, "int8")], body)
    (expected,) = oracle.run(module, get_mode(XNNPACK), [values])
    selection, (computed,) = run_selected(module, parse_target("cuda-sm_80"), XNNPACK, [values], tmp_path)
    np.testing.assert_array_equal(computed, expected)
    families = ["pack", "conv", "max_pool", "depthwise", "resize", "pixels", "conv", "avg_pool", "conv", "unpack"]
    assert [layer["kernel"] for layer in selection.layers] == families

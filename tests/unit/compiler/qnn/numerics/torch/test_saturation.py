"""Counts layers in which FBGEMM may saturate at 16 bits. PyTorch 2.13.0 differs from Octet only in models with such
layers.
"""

from __future__ import annotations

import pytest
import tvm
from tvm import relax

from service.compiler.qnn import graph
from service.compiler.qnn.numerics import get_mode
from service.compiler.qnn.numerics.torch.saturation import saturating_layers
from service.compiler.qnn.operation import value_of
from service.core.builds.numerics import FBGEMM, ONEDNN, QNNPACK, TORCH_X86
from tests.support.torchscript import FIXTURES, imported


def module_of(name: str) -> tvm.IRModule:
    return imported(next(path for path in FIXTURES if path.stem == name)).module


@pytest.mark.parametrize(
    ("name", "mode", "layers"),
    [
        ("depthwise", FBGEMM, 1),  # The other depthwise layer of the model is dilated.
        ("depthwise", TORCH_X86, 1),  # A convolution with 120 groups.
        ("squeezed", FBGEMM, 1),  # 5 by 5.
        ("squeezed", TORCH_X86, 0),  # oneDNN computes its convolution with 16 groups.
        ("depthwise", ONEDNN, 0),
        ("depthwise", QNNPACK, 0),
        ("residual", FBGEMM, 0),
    ],
)
def test_layers_that_may_saturate_are_counted(name: str, mode: str, layers: int) -> None:
    assert saturating_layers(module_of(name), get_mode(mode)) == layers


def test_7_bit_weights_never_saturate() -> None:
    def halved(
        builder: relax.BlockBuilder, call: relax.Call, args: list[relax.Expr], operation: object
    ) -> relax.Expr | None:
        weights = value_of(args[1]) if call.op.name == "relax.qnn.conv2d" else None
        return graph.with_args(call, args if weights is None else [args[0], relax.const(weights >> 1), *args[2:]])

    module = graph.rewrite(module_of("depthwise"), halved)
    assert saturating_layers(module, get_mode(FBGEMM)) == 0

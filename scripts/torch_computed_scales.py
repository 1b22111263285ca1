"""Writes exported programs whose scales are computed when they run, and recurrent layers, with PyTorch's results
(tests/fixtures/torch/computed_scales.zip).

Run it in an environment with PyTorch 2.13, torchao 0.18 and ExecuTorch 1.5.1, which has the quantizer:
python scripts/torch_computed_scales.py
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch  # type: ignore[import-not-found]
from executorch.backends.xnnpack.quantizer.xnnpack_quantizer import (  # type: ignore[import-not-found]
    XNNPACKQuantizer,
    get_symmetric_quantization_config,
)
from torch import nn
from torchao.quantization import (  # type: ignore[import-not-found]
    Int8DynamicActivationInt8WeightConfig,
    Int8DynamicActivationIntxWeightConfig,
    PerAxis,
    PerGroup,
    quantize_,
)
from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e  # type: ignore[import-not-found]

FILE = Path(__file__).parents[1] / "tests" / "fixtures" / "torch" / "computed_scales.zip"
SAMPLES = 2
ops = torch.ops.quantized_decomposed


class Of(nn.Module):  # type: ignore[misc]
    """A module that computes a function, with one module as its parameter."""

    def __init__(self, function: Callable[..., Any], inner: Any = None) -> None:
        super().__init__()
        self.function, self.inner = function, inner

    def forward(self, x: Any) -> Any:
        return self.function(x) if self.inner is None else self.function(self.inner, x)


def dense() -> Any:
    return nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 16)).eval()


def by_pt2e() -> Any:
    quantizer = XNNPACKQuantizer().set_global(get_symmetric_quantization_config(is_per_channel=True, is_dynamic=True))
    inputs = (torch.randn(3, 64),)
    prepared = prepare_pt2e(torch.export.export(dense(), inputs, strict=True).module(), quantizer)
    prepared(*inputs)
    return convert_pt2e(prepared)


def by_torchao(config: Any) -> Any:
    model = dense()
    quantize_(model, config)
    return model


def tensor(x: Any) -> Any:
    scale, point = ops.choose_qparams.tensor(x, -128, 127, 1e-5, torch.int8)
    stored = ops.quantize_per_tensor.tensor(x, scale, point, -128, 127, torch.int8)
    return stored, ops.dequantize_per_tensor.tensor(stored, scale, point, -128, 127, torch.int8)


def symmetric(x: Any) -> Any:
    scale, point = ops.choose_qparams_symmetric.tensor(x, -127, 127, 1e-5, torch.int8)
    return ops.quantize_per_tensor.tensor(x, scale, point, -127, 127, torch.int8)


def tokens(x: Any) -> Any:
    scale, point = ops.choose_qparams_per_token(x, torch.int8)
    stored = ops.quantize_per_token(x, scale, point, -127, 127, torch.int8)
    return stored, ops.dequantize_per_token(stored, scale, point, -127, 127, torch.int8, torch.float32)


def asymmetric_tokens(x: Any) -> Any:
    scale, point = ops.choose_qparams_per_token_asymmetric(x, torch.int8)
    stored = ops.quantize_per_token(x, scale, point, -128, 127, torch.int8)
    return stored, ops.dequantize_per_token(stored, scale, point, -128, 127, torch.int8, torch.float32)


def recurrent(layer: Any) -> Any:
    return Of(lambda inner, x: inner(x)[0], layer).eval()


FOUR = torch.int4
MODELS: dict[str, tuple[Callable[[], Any], tuple[int, ...]]] = {
    "dense_pt2e": (by_pt2e, (3, 64)),
    "dense_int8": (lambda: by_torchao(Int8DynamicActivationInt8WeightConfig()), (3, 64)),
    "dense_int4_rows": (
        lambda: by_torchao(Int8DynamicActivationIntxWeightConfig(weight_dtype=FOUR, weight_granularity=PerAxis(0))),
        (3, 64),
    ),
    "dense_int4_groups": (
        lambda: by_torchao(Int8DynamicActivationIntxWeightConfig(weight_dtype=FOUR, weight_granularity=PerGroup(32))),
        (3, 64),
    ),
    "tensor": (lambda: Of(tensor), (4, 50)),
    "symmetric": (lambda: Of(symmetric), (4, 50)),
    "tokens": (lambda: Of(tokens), (2, 4, 50)),
    "asymmetric_tokens": (lambda: Of(asymmetric_tokens), (2, 4, 50)),
    "lstm": (lambda: recurrent(nn.LSTM(8, 6, num_layers=2, bidirectional=True, batch_first=True)), (2, 5, 8)),
    "gru": (lambda: recurrent(nn.GRU(8, 6, batch_first=True)), (1, 5, 8)),
    "rnn_tanh": (lambda: recurrent(nn.RNN(8, 6, num_layers=2)), (5, 2, 8)),
    "rnn_relu": (lambda: recurrent(nn.RNN(8, 6, nonlinearity="relu", bias=False)), (5, 2, 8)),
    "attention": (
        lambda: Of(lambda m, x: m(x, x, x), nn.MultiheadAttention(16, 4, batch_first=True)).eval(),
        (2, 6, 16),
    ),
    "encoder": (lambda: nn.TransformerEncoderLayer(16, 4, 32, batch_first=True).eval(), (2, 5, 16)),
    "average": (lambda: nn.AvgPool3d(2).eval(), (1, 2, 4, 4, 4)),
}


def main() -> None:
    with zipfile.ZipFile(FILE, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name, (make, shape) in MODELS.items():
            torch.manual_seed(0)
            model, file, arrays, saved = make(), io.BytesIO(), {}, io.BytesIO()
            for index in range(SAMPLES):
                x = torch.randn(shape)
                with torch.no_grad():
                    results = model(x)
                arrays[f"x{index}"] = x.numpy()
                listed = results if isinstance(results, tuple) else (results,)
                arrays |= {f"y{index}_{at}": each.numpy() for at, each in enumerate(listed)}
            torch.export.save(torch.export.export(model, (x,), strict=True), file)
            np.savez_compressed(saved, **arrays)
            archive.writestr(zipfile.ZipInfo(f"{name}.pt2"), file.getvalue(), zipfile.ZIP_DEFLATED, 9)
            archive.writestr(zipfile.ZipInfo(f"{name}.npz"), saved.getvalue(), zipfile.ZIP_DEFLATED, 9)


if __name__ == "__main__":
    main()

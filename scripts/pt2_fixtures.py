"""Creates the exported programs in tests/fixtures/torch (`*.pt2`), inputs, and PyTorch's outputs.

    python -m scripts.pt2_fixtures

Needs PyTorch and torchao, which are not in any of the project's environments. The weights are random.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch  # type: ignore[import-not-found]
import torchao.quantization.pt2e.quantizer.x86_inductor_quantizer as x86  # type: ignore[import-not-found]
from torch import nn
from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e  # type: ignore[import-not-found]
from torchao.testing.pt2e._xnnpack_quantizer import (  # type: ignore[import-not-found]
    XNNPACKQuantizer,
    get_symmetric_quantization_config,
)

FOLDER = Path(__file__).parents[1] / "tests" / "fixtures" / "torch"
IMAGE = (2, 3, 12, 12)
SPREADS = (0.3, 1.0, 3.0, 30.0)
DECOMPOSED = torch.ops.quantized_decomposed


class Residual(nn.Module):
    """Additions with and without a ReLU after them, a depthwise convolution, ReLU6, max pooling, a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 24, 3, stride=2, padding=1), nn.BatchNorm2d(24), nn.ReLU())
        self.left, self.right = nn.Conv2d(24, 24, 3, padding=1, bias=False), nn.Conv2d(24, 24, 1)
        self.apart, self.act = nn.Conv2d(24, 24, 3, padding=1, groups=24), nn.ReLU6(inplace=True)
        self.head = nn.Linear(24, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.stem(x)
        x = torch.relu(self.left(x) + x)
        x = self.right(x) + x
        x = nn.functional.max_pool2d(self.act(self.apart(x)), 2)
        return self.head(torch.flatten(nn.functional.adaptive_avg_pool2d(x, 1), 1))


class Branches(nn.Module):
    """Concatenation and average pooling, and functions that the quantizers leave in float32."""

    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Sequential(nn.Conv2d(3, 32, 3, padding=1), nn.BatchNorm2d(32), nn.Hardswish())
        self.b, self.c = nn.Conv2d(3, 16, 1), nn.Conv2d(48, 48, 1)
        self.squeeze, self.expand = nn.Conv2d(48, 8, 1), nn.Conv2d(8, 48, 1)
        self.head = nn.Linear(48 * 9, 7)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.cat([self.a(x), self.b(x)], 1)
        x = self.c(nn.functional.avg_pool2d(x, 2))
        gate = self.expand(torch.relu(self.squeeze(nn.functional.adaptive_avg_pool2d(x, 1))))
        x = nn.functional.max_pool2d(x * torch.sigmoid(nn.functional.hardsigmoid(gate)), 3, 1, 1)
        x = nn.functional.avg_pool2d(x, 2, ceil_mode=True)
        return torch.softmax(self.head(x.reshape(-1, 48 * 9)), 1)


class Steps(nn.Module):
    """Many single operators between hand-written conversions; each is an output."""

    def forward(self, x: torch.Tensor) -> Sequence[torch.Tensor]:
        x, y = stepped(x, 0.05, 3), stepped(x.transpose(2, 3), 0.02, -20)
        window = nn.functional.avg_pool2d(x, 3, 2, 1, count_include_pad=False)
        return (
            stepped(x + y, 0.07, 11),
            stepped(x * y, 0.1, -4),
            stepped(torch.relu(x - 1.0 + 1.0), 0.03, -128),
            stepped(nn.functional.hardtanh(x, -1.5, 2.0), 0.06, 1),
            stepped(torch.cat([x, y], 1), 0.04, 0),
            stepped(x.mean([2, 3]), 0.01, 5),
            stepped(window, 0.05, 3),
            stepped(torch.sigmoid(x), 1 / 256, -128),
            stepped(torch.tanh(x), 1 / 128, 0),
            stepped(nn.functional.hardswish(x), 0.03, -100),
            stepped(nn.functional.hardsigmoid(x), 1 / 200, -100),
            stepped(nn.functional.silu(x), 0.03, -110),
            stepped(nn.functional.leaky_relu(x, 0.2), 0.045, -90),
            stepped(nn.functional.elu(x), 0.04, -100),
            stepped(y.permute(0, 2, 3, 1), 0.03, 2),
        )


class Layers(nn.Module):
    """Operators that timm and transformers leave in float32 between quantized ones; each is an output."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.rows, self.table = nn.BatchNorm2d(3), nn.LayerNorm(12), nn.Embedding(9, 12)
        self.groups, self.root = nn.GroupNorm(3, 6), nn.RMSNorm(12)
        self.dense, self.conv = nn.Linear(12, 5), nn.Conv2d(3, 4, 3, stride=2, padding=1)
        for row in (self.norm.running_mean, self.norm.running_var, *self.norm.parameters(), *self.rows.parameters()):
            nn.init.uniform_(row, 0.5, 1.5)
        self.register_buffer("places", torch.tensor([[1, 4, 4], [0, 8, 2]]))
        self.register_buffer("seen", torch.tril(torch.ones(12, 12, dtype=torch.bool), 2))

    def forward(self, x: torch.Tensor) -> Sequence[torch.Tensor]:
        x = stepped(x, 0.05, 3)
        query, key, value = (x + self.table(self.places)[:, 0:1, None]).unbind(1)
        attend = nn.functional.scaled_dot_product_attention
        token = self.table.weight[:1].expand(2, 3, -1)
        return (
            self.norm(x),
            self.rows(x),
            self.root(x),
            self.groups(torch.cat([x, x], 1)),
            nn.functional.gelu(x),
            nn.functional.gelu(x, approximate="tanh"),
            nn.functional.silu(x, inplace=False),
            nn.functional.elu(x, 0.7),
            nn.functional.leaky_relu(x, 0.2),
            self.dense(x),
            self.conv(x),
            torch.bmm(x[:, 0], x[:, 1]),
            x @ x.transpose(2, 3),
            attend(query, key, value),
            attend(query, key, value, is_causal=True),
            attend(query[:, None], key[:, None], value[:, None], attn_mask=self.seen, scale=0.3),
            torch.cat([token, x[:, 0, :3]], 1),
            torch.stack([query, key], 1).roll((1, -2), (2, 3)),
            x.pow(2).sum(3, keepdim=True).sqrt(),
            torch.rsqrt(x.pow(2).amax(1) + 1.0),
            torch.exp(x * 0.1) * torch.sin(x) + torch.cos(x).repeat(1, 1, 1, 1),
        )


class Padded(nn.Module):
    """Separate padding operators before convolutions, as in networks that were trained with TensorFlow's "same". They
    pad with zeros, with another number, and with elements of the image."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.apart = nn.Conv2d(3, 8, 3, stride=2), nn.Conv2d(8, 8, 3, groups=8)
        self.mixed, self.last = nn.Conv2d(8, 8, 3), nn.Conv2d(8, 4, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        pad = nn.functional.pad
        x = nn.functional.relu6(self.stem(pad(x, (0, 1, 0, 1))))
        x = torch.relu(self.apart(pad(x, (1, 1, 1, 1), value=0.5)))
        x = torch.relu(self.mixed(pad(pad(x, (1, 1, 0, 0), mode="reflect"), (0, 0, 1, 1), mode="replicate")))
        return self.last(pad(x, (2, 1, 1, 2), mode="circular"))


class Affine(nn.Module):
    """torchao's conversions: activations per tensor, weights per axis and per tensor; a convolution along one axis."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("first", torch.randint(-127, 128, (8, 36, 3), dtype=torch.int8))
        self.register_buffer("scales", torch.rand(8) * 0.01 + 0.001)
        self.register_buffer("points", torch.zeros(8, dtype=torch.int64))
        self.register_buffer("second", torch.randint(-127, 128, (5, 12), dtype=torch.int8))
        self.register_buffer("scale", torch.tensor([0.004]))
        self.register_buffer("point", torch.tensor([0]))
        self.bias = nn.Parameter(torch.randn(8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = affine(x.reshape(2, 36, 12), 0.05, 2)
        weight = torch.ops.torchao.dequantize_affine(
            self.first, (1, 36, 3), self.scales, self.points, torch.int8, -127, 127
        )
        x = affine(torch.relu(nn.functional.conv1d(x, weight, self.bias, padding=1)), 0.3, -128)
        weight = torch.ops.torchao.dequantize_affine(self.second, (5, 12), self.scale, self.point, torch.int8)
        return affine(nn.functional.linear(x, weight), 0.2, 0)


def stepped(x: torch.Tensor, scale: float, zero_point: int) -> torch.Tensor:
    stored = DECOMPOSED.quantize_per_tensor(x, scale, zero_point, -128, 127, torch.int8)
    return DECOMPOSED.dequantize_per_tensor(stored, scale, zero_point, -128, 127, torch.int8)


def affine(x: torch.Tensor, scale: float, zero_point: int) -> torch.Tensor:
    given = (x.shape, torch.tensor([scale]), torch.tensor([zero_point]), torch.int8, -128, 127)
    return torch.ops.torchao.dequantize_affine(torch.ops.torchao.quantize_affine(x, *given), *given)


def quantized(model: nn.Module, quantizer: Any, dynamic: bool) -> Any:
    example = (torch.randn(IMAGE),)
    shapes = ({0: torch.export.Dim("batch", min=1, max=64)},) if dynamic else None
    prepared = prepare_pt2e(torch.export.export(model.eval(), example, dynamic_shapes=shapes).module(), quantizer)
    for _ in range(3):
        prepared(torch.randn(IMAGE))
    return torch.export.export(convert_pt2e(prepared), example, dynamic_shapes=shapes)


def save(name: str, program: Any) -> None:
    """Saves the program, inputs of several spreads, and PyTorch's outputs."""
    for node in program.graph.nodes:  # removes paths of source files and the nodes' history
        node.meta = {key: value for key, value in node.meta.items() if key in ("val", "tensor_meta")}
    torch.export.save(program, FOLDER / f"{name}.pt2")
    arrays: dict[str, Any] = {}
    for position, spread in enumerate(SPREADS):
        x = np.random.default_rng(position).normal(0, spread, IMAGE).astype(np.float32)
        arrays[f"input.{position}"] = x
        answer = program.module()(torch.from_numpy(x))
        for index, output in enumerate(answer if isinstance(answer, tuple) else (answer,)):
            arrays[f"pt2e.{position}.{index}"] = output.numpy()
    np.savez_compressed(FOLDER / f"{name}.npz", **arrays)


def nearest() -> None:
    """Saves the rows that `upsample_nearest2d` chooses, for channels first and last: nearest.npz."""
    sizes = [(before, after, np.nan) for before in (1, 2, 3, 5, 7, 10, 13) for after in (1, 2, 3, 4, 6, 7, 9, 14, 15)]
    factors = ((5, 1.5), (7, 1.7), (12, 0.5), (9, 0.3), (6, 2.0), (4, 3.0), (31, 1.1), (10, 4.0), (23, 0.77))
    cases = [*sizes, *((before, int(before * factor), factor) for before, factor in factors)]
    positions = []
    for before, after, factor in cases:
        for form in (torch.contiguous_format, torch.channels_last):
            rows = torch.arange(before, dtype=torch.float32).reshape(1, 1, before, 1).expand(1, 4, before, 3)
            scales = () if np.isnan(factor) else (factor, 1.0)
            made = torch.ops.aten.upsample_nearest2d(rows.contiguous(memory_format=form), [after, 3], *scales)
            positions.append(made[0, 0, :, 0].numpy().astype(np.int64))
    columns: dict[str, Any] = dict(
        zip(("before", "after", "factor"), map(np.array, zip(*cases, strict=True)), strict=True)
    )
    np.savez_compressed(FOLDER / "nearest.npz", **columns, places=np.concatenate(positions))


def transposed() -> None:
    """Saves outputs of `conv_transpose2d` between conversions, by stride, padding and output padding:
    transposed.npz.
    """
    arrays: dict[str, Any] = {}
    for case, geometry in enumerate(
        ((1, 1, 0, 0, 0, 0), (2, 2, 1, 1, 1, 1), (2, 1, 0, 1, 0, 0), (3, 2, 2, 0, 2, 1), (2, 2, 0, 0, 0, 0))
    ):
        rng = np.random.default_rng(case)
        x = rng.normal(0, 2, (2, 12, 5, 7)).astype(np.float32)
        weights = rng.integers(-127, 128, (12, 8, 3, 3 if case % 2 else 2)).astype(np.int8)
        scales, bias = rng.uniform(1e-3, 4e-3, 8).astype(np.float32), rng.normal(0, 1, 8).astype(np.float32)
        real = torch.from_numpy(weights.astype(np.float32) * scales.reshape(1, -1, 1, 1))
        pairs = [list(geometry[position : position + 2]) for position in (0, 2, 4)]
        sums = nn.functional.conv_transpose2d(rounded(x, 0.05, 3), real, torch.from_numpy(bias), *pairs)
        y = rounded(sums.numpy(), 0.11, -9).numpy()
        named = {"x": x, "weights": weights, "scales": scales, "bias": bias, "geometry": np.array(geometry), "y": y}
        arrays |= {f"{name}.{case}": values for name, values in named.items()}
    np.savez_compressed(FOLDER / "transposed.npz", **arrays)


def rounded(x: Any, scale: float, zero_point: int) -> torch.Tensor:
    """Quantizes to int8 and dequantizes, like `quantized_decomposed` (torch/ao/quantization/fx/_decomposed.py)."""
    stored = torch.clamp(torch.round(torch.from_numpy(x) * (1.0 / scale)) + zero_point, -128, 127).to(torch.int8)
    return (stored.to(torch.float32) - zero_point) * scale


def main() -> None:
    warnings.filterwarnings("ignore")
    logging.disable(logging.CRITICAL)
    torch.set_num_threads(1)
    quantizers: dict[str, Callable[[], Any]] = {
        "xnnpack": lambda: XNNPACKQuantizer().set_global(get_symmetric_quantization_config(is_per_channel=True)),
        "inductor": lambda: x86.X86InductorQuantizer().set_global(x86.get_default_x86_inductor_quantization_config()),
    }
    nearest()
    transposed()
    with torch.no_grad():
        for quantizer, make in quantizers.items():
            for kind in (Residual, Branches, Padded):
                torch.manual_seed(0)
                save(f"{kind.__name__.lower()}_{quantizer}", quantized(kind(), make(), kind is Residual))
        for single in (Steps, Affine, Layers):
            torch.manual_seed(0)
            save(single.__name__.lower(), torch.export.export(single().eval(), (torch.randn(IMAGE),)))


if __name__ == "__main__":
    main()

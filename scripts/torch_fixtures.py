"""Creates tests/fixtures/torch: small quantized PyTorch models, inputs, and PyTorch's outputs with each engine.

    python -m scripts.torch_fixtures              # all models
    python -m scripts.torch_fixtures recurrent    # the recurrent ones only

Needs PyTorch, which is not in any of the project's environments; the saved outputs let the tests run without it. The
weights are random. The machine must have AVX512-VNNI, as the outputs of the x86 and onednn engines depend on it.
"""

from __future__ import annotations

import io
import sys
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch  # type: ignore[import-not-found]
from torch import nn
from torch.ao.quantization import (  # type: ignore[import-not-found]
    DeQuantStub,
    QuantStub,
    convert,
    default_dynamic_qconfig,
    get_default_qconfig,
    get_default_qconfig_mapping,
    per_channel_dynamic_qconfig,
    quantize_dynamic,
)
from torch.ao.quantization import prepare as prepare_eager
from torch.ao.quantization.quantize_fx import convert_fx, prepare_fx  # type: ignore[import-not-found]

FOLDER = Path(__file__).parents[1] / "tests" / "fixtures" / "torch"
ENGINES = ("fbgemm", "onednn", "x86", "qnnpack")
# FBGEMM's depthwise kernels saturate sums of two products at 16 bits, which 7-bit activations never reach.
WITHIN_7_BITS = (0.2, 0.4, 0.6, 0.8)


class Residual(nn.Module):
    """Additions, with and without ReLU, and a mean."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 24, 3, stride=2, padding=1), nn.BatchNorm2d(24), nn.ReLU())
        self.left, self.right = nn.Conv2d(24, 24, 3, padding=1, bias=False), nn.Conv2d(24, 24, 1)
        self.head = nn.Linear(24, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.stem(x)
        x = torch.relu(self.left(x) + x)
        x = self.right(x) + x
        return self.head(torch.flatten(nn.functional.adaptive_avg_pool2d(x, 1), 1))


class Depthwise(nn.Module):
    """Grouped convolutions for which the x86 engine chooses either of its kernels, ReLU6 and hardtanh."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.act = nn.Conv2d(3, 120, 1), nn.ReLU6()
        self.apart = nn.Conv2d(120, 120, 3, padding=1, groups=120)
        self.down, self.few = nn.Conv2d(120, 32, 1), nn.Conv2d(32, 32, 3, padding=2, dilation=2, groups=32)
        self.grouped, self.clamp = nn.Conv2d(32, 24, 3, groups=4), nn.Hardtanh(-0.5, 0.75)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.act(self.apart(self.act(self.up(x))))
        return self.clamp(self.grouped(self.few(self.down(x))))


class Branches(nn.Module):
    """Concatenation, max and average pools with all options, multiplication, dropout."""

    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Sequential(nn.Conv2d(3, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU())
        self.b, self.c = nn.Conv2d(3, 16, 1), nn.Conv2d(48, 48, 1)
        self.most, self.average = nn.MaxPool2d(3, 2, 1, ceil_mode=True), nn.AvgPool2d(3, 1, 1)
        self.ragged = nn.AvgPool2d(2, 2, 1, ceil_mode=True, count_include_pad=False)
        self.drop, self.head = nn.Dropout(0.2), nn.Linear(48 * 16, 7)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.cat([self.a(x), self.b(x)], 1)
        x = self.most(x)
        x = self.c(x) + self.average(x)
        x = self.ragged(x)
        return self.head(self.drop(x).reshape(-1, 48 * 16))


class Functions(nn.Module):
    """Functions of one value: some whose output scale PyTorch fixes, and some whose output scale it calibrates."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.between = nn.Conv2d(3, 16, 1), nn.Conv2d(16, 16, 1)
        self.swish, self.leaky, self.elu = nn.Hardswish(), nn.LeakyReLU(0.2), nn.ELU()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.between(self.swish(self.conv(x)))
        return torch.cat([torch.sigmoid(x), torch.tanh(x), self.leaky(x), self.elu(x)], 1)


class Unfused(nn.Module):
    """The parts of timm's networks that FX does not fuse: batch normalization and an in-place activation after a
    convolution, in float32, and a layer normalization of quantized values."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.head, self.rows = nn.Conv2d(3, 16, 3, padding=1), nn.Conv2d(16, 8, 1), nn.LayerNorm(12)
        self.register_buffer("mean", torch.randn(16) * 0.1)
        self.register_buffer("variance", torch.rand(16) + 0.5)
        self.scale, self.move = nn.Parameter(torch.rand(16) + 0.5), nn.Parameter(torch.randn(16) * 0.1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = nn.functional.batch_norm(self.conv(x), self.mean, self.variance, self.scale, self.move, False)
        return self.rows(self.head(nn.functional.silu(x, inplace=True)))


class Eager(nn.Module):
    """Modules that were not fused, so that activations are separate operators; per-tensor weights; several outputs."""

    def __init__(self) -> None:
        super().__init__()
        self.quant, self.back = QuantStub(), DeQuantStub()
        self.conv, self.relu, self.pool = nn.Conv2d(3, 17, 3), nn.ReLU(), nn.MaxPool2d(2)
        self.first, self.second = nn.Linear(17, 33), nn.Linear(33, 5)
        self.sum, self.product = nn.quantized.FloatFunctional(), nn.quantized.FloatFunctional()

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x = self.pool(self.relu(self.conv(self.quant(x))))
        rows = self.first(x.mean([2, 3]))
        return self.back(self.second(rows)), self.back(self.product.mul(rows, self.sum.add(rows, rows)))


class Squeezed(nn.Module):
    """A network with the parts of MobileNetV3 and ShuffleNet: a gate for each channel, hardswish, a shuffle of channel
    halves.
    """

    def __init__(self) -> None:
        super().__init__()
        self.quant, self.back = QuantStub(), DeQuantStub()
        self.stem, self.swish = nn.Conv2d(3, 32, 3, padding=1), nn.Hardswish()
        self.less, self.more = nn.Conv2d(32, 8, 1), nn.Conv2d(8, 32, 1)
        self.relu, self.gate = nn.ReLU(), nn.Hardsigmoid()
        self.product, self.joined = nn.quantized.FloatFunctional(), nn.quantized.FloatFunctional()
        self.branch = nn.Conv2d(16, 16, 5, padding=2, groups=16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.swish(self.stem(self.quant(x)))
        mean = nn.functional.adaptive_avg_pool2d(x, 1)
        x = self.product.mul(self.gate(self.more(self.relu(self.less(mean)))), x)
        kept, changed = x.chunk(2, dim=1)
        x = self.joined.cat([kept, self.branch(changed)], 1)
        batch, channels, height, width = x.shape
        x = x.view(batch, 2, channels // 2, height, width).transpose(1, 2).reshape(batch, -1, height, width)
        return self.back(nn.functional.avg_pool2d(x, 2))


class Numbers(nn.Module):
    """Sums and products of a quantized tensor and a number: positive, negative, zero, on the left, with ReLU, and so
    large that the zero point would leave its range."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.last = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 4, 1)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        x = self.stem(x)
        sums = (x + 0.3, 0.25 + x, torch.relu(x - -0.5), x + 9.0, x + -7.0, torch.relu(x + -0.4))
        products = (x * 0.5, 1.75 * x, x * -1.5, torch.relu(x * -0.7), torch.relu(x * 0.6), x * 0.0)
        return self.last(x * 0.5 + 0.25), *sums, *products


class Sequence(nn.Module):
    """One-dimensional convolutions, as sensors and audio have them, and pixels that are shuffled."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv1d(3, 16, 5, stride=2, padding=2), nn.Conv1d(16, 12, 3, dilation=2, groups=4)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x = self.second(torch.relu(self.first(torch.flatten(x, 2))))
        return x, nn.functional.pixel_shuffle(torch.reshape(x, (2, 12, 4, 17)), 2)


class Pooled(nn.Module):
    """Adaptive averages of even areas, where many means are halfway between two steps: in whole blocks of channels, and
    in those left over."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks, self.rest = nn.Conv2d(3, 24, 1), nn.Conv2d(3, 13, 1)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        pool = nn.functional.adaptive_avg_pool2d
        a, b = self.blocks(x), self.rest(x)
        return pool(a, 1), pool(b, 1), pool(a, (6, 2)), pool(b, (3, 4))


class Rows(nn.Module):
    """Linear layers whose activations are quantized at run time, with per-tensor and per-channel weights."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(37, 70), nn.Linear(70, 37, bias=False)
        self.head = nn.Linear(37, 11)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(x + self.second(torch.relu(self.first(x))) / 2.0**0.5)


def by_fx(model: nn.Module, shape: tuple[int, ...]) -> nn.Module:
    example = (torch.randn(shape),)
    prepared = prepare_fx(model.eval(), get_default_qconfig_mapping("x86"), example)
    for _ in range(3):
        prepared(torch.randn(shape))
    return convert_fx(prepared)


class Recurrent(nn.Module):
    """Two layers of LSTM in both directions, and a GRU. Both return their states."""

    def __init__(self, batch_first: bool) -> None:
        super().__init__()
        self.lstm = nn.LSTM(6, 9, num_layers=2, bidirectional=True, batch_first=batch_first)
        self.gru, self.head = nn.GRU(18, 7, batch_first=batch_first), nn.Linear(7, 4)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
        y, (hidden, cell) = self.lstm(x)
        y, last = self.gru(y)
        return self.head(y), hidden, cell, last


def by_hand(model: nn.Module, shape: tuple[int, ...], engine: str) -> nn.Module:
    model.eval()
    model.qconfig = get_default_qconfig(engine)
    prepared = prepare_eager(model)
    for _ in range(3):
        prepared(torch.randn(shape))
    return convert(prepared)


def without_places(file: Path | io.BytesIO) -> None:
    """Removes the records of an archive that contain paths of source files."""
    with zipfile.ZipFile(file) as archive:
        records = {name: archive.read(name) for name in archive.namelist() if not name.endswith(".debug_pkl")}
    if isinstance(file, io.BytesIO):
        file.seek(0)
        file.truncate()
    with zipfile.ZipFile(file, "w") as archive:
        for name, data in records.items():
            archive.writestr(zipfile.ZipInfo(name), data)


def save(name: str, model: Any, shape: tuple[int, ...], spreads: tuple[float, ...] = (0.3, 1.0, 3.0, 30.0)) -> None:
    """Saves the model, inputs of several spreads, and the outputs with each engine."""
    path = FOLDER / f"{name}.pt"
    torch.jit.save(model, str(path))
    without_places(path)
    arrays = {
        f"input.{position}": np.random.default_rng(position).normal(0, s, shape) for position, s in enumerate(spreads)
    }
    arrays = {key: value.astype(np.float32) for key, value in arrays.items()}
    for engine in ENGINES:
        torch.backends.quantized.engine = engine
        loaded = torch.jit.load(str(path))
        for position in range(len(spreads)):
            answer = loaded(torch.from_numpy(arrays[f"input.{position}"]))
            for index, output in enumerate(answer if isinstance(answer, tuple) else (answer,)):
                arrays[f"{engine}.{position}.{index}"] = output.detach().numpy()
    kept: dict[str, Any] = arrays
    np.savez_compressed(FOLDER / f"{name}.npz", **kept)


def recurrent() -> None:
    """Saves a scripted model, of which all samples share ranges, and a traced model of one sample."""
    torch.backends.quantized.engine = "x86"
    types = {nn.LSTM, nn.GRU, nn.Linear}
    torch.manual_seed(0)
    scripted = torch.jit.script(quantize_dynamic(Recurrent(True).eval(), types))
    save("recurrent", scripted, (2, 5, 6), (1e-6, 0.3, 1.0, 5.0))
    traced = torch.jit.trace(quantize_dynamic(Recurrent(False).eval(), types), torch.randn(5, 1, 6))
    save("recurrent_traced", traced, (5, 1, 6), (1e-6, 0.3, 1.0, 5.0))


def main() -> None:
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    FOLDER.mkdir(parents=True, exist_ok=True)
    with torch.no_grad():
        recurrent()
    if "recurrent" in sys.argv:
        return
    image = (2, 3, 12, 12)
    torch.backends.quantized.engine = "x86"
    kinds: dict[str, Callable[[], nn.Module]] = {
        "residual": Residual,
        "depthwise": Depthwise,
        "branches": Branches,
        "functions": Functions,
        "unfused": Unfused,
        "numbers": Numbers,
        "sequence": Sequence,
        "pooled": Pooled,
    }
    tokens = (2, 5, 37)
    with torch.no_grad():
        for name, kind in kinds.items():
            torch.manual_seed(0)
            model = by_fx(kind(), image)
            traced = torch.jit.trace(model, torch.randn(image))
            if name == "depthwise":
                save(name, torch.jit.freeze(traced.eval()), image, WITHIN_7_BITS)
            elif name == "numbers":  # fewer inputs, because this model has many outputs
                save(name, traced, image, (0.5, 8.0))
            else:
                save(name, traced, image)
        for name, engine in (("eager", "x86"), ("eager_per_tensor", "qnnpack")):
            torch.manual_seed(0)
            torch.backends.quantized.engine = "x86"
            save(name, torch.jit.script(by_hand(Eager(), image, engine)), image)
        torch.manual_seed(0)
        torch.backends.quantized.engine = "x86"
        save("squeezed", torch.jit.trace(by_hand(Squeezed(), image, "x86"), torch.randn(image)), image, WITHIN_7_BITS)
        torch.manual_seed(0)
        kinds_of_layers = {"first": per_channel_dynamic_qconfig, nn.Linear: default_dynamic_qconfig}
        model = quantize_dynamic(Rows().eval(), kinds_of_layers)
        save("dynamic", torch.jit.trace(model, torch.randn(tokens)), tokens, (1e-7, 3e-4, 0.3, 30.0))


if __name__ == "__main__":
    main()

"""Creates the float programs in tests/fixtures/float (TorchScript and `.pt2`), their input, and PyTorch's outputs.

    python -m scripts.float_fixtures

Needs PyTorch, which is not in any of the project's environments. The weights are random.
"""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import torch  # type: ignore[import-not-found]
from torch import nn

from scripts.torch_fixtures import without_places

FOLDER = Path(__file__).parents[1] / "tests" / "fixtures" / "float"
IMAGE = (1, 3, 24, 24)


class Inverted(nn.Module):
    """The block of MobileNetV2."""

    def __init__(self, channels: int, hidden: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(channels, hidden, 1, bias=False),
            nn.BatchNorm2d(hidden),
            nn.ReLU6(),
            nn.Conv2d(hidden, hidden, 3, padding=1, groups=hidden, bias=False),
            nn.BatchNorm2d(hidden),
            nn.ReLU6(),
            nn.Conv2d(hidden, channels, 1, bias=False),
            nn.BatchNorm2d(channels),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.body(x)


class Network(nn.Module):
    """Convolutions as in MobileNetV2, other activations and pools, attention with normalization, and means."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 16, 3, 2, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU6())
        self.block, self.next = Inverted(16, 32), nn.Conv2d(16, 16, 3, padding=1)
        self.group, self.norm = nn.GroupNorm(4, 16), nn.LayerNorm(16)
        self.qkv, self.out, self.head = nn.Linear(16, 48), nn.Linear(16, 16), nn.Linear(16, 10)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x = self.block(self.stem(x))
        x = nn.functional.max_pool2d(nn.functional.leaky_relu(x, 0.1), 3, 2, 1)
        x = torch.cat([nn.functional.silu(self.next(x)), nn.functional.hardswish(x)], 1)[:, 8:24]
        x = nn.functional.elu(self.group(nn.functional.avg_pool2d(x, 2, 2, 1)))
        height, width = x.shape[2:]
        tokens = x.flatten(2).transpose(1, 2)
        tokens = tokens + self.out(self.attention(self.norm(tokens), height * width))
        pooled = nn.functional.adaptive_avg_pool2d(nn.functional.hardsigmoid(x), (1, 1))
        return self.head(nn.functional.gelu(tokens).mean(1)), torch.sigmoid(torch.flatten(pooled, 1))

    def attention(self, tokens: torch.Tensor, count: int) -> torch.Tensor:
        query, key, value = self.qkv(tokens).reshape(1, count, 3, 2, 8).permute(2, 0, 3, 1, 4).unbind(0)
        mixed = (query @ key.transpose(-2, -1) * 8**-0.5).softmax(-1) @ value
        return mixed.transpose(1, 2).reshape(1, count, 16)


class Sequence(nn.Module):
    """One-dimensional convolutions, two of which pad to the same size, and attention as PyTorch's own module traces it,
    with linear layers that are quantized as they run."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv1d(5, 8, 3, padding=2, stride=2), nn.Conv1d(8, 8, 4, padding="same", groups=2)
        self.third = nn.Conv1d(8, 16, 3, padding="same", dilation=2)
        self.attention, self.head = nn.MultiheadAttention(16, 4), nn.Linear(16, 6)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x = torch.relu(self.third(torch.relu(self.second(self.first(x)))))
        tokens = x.permute(2, 0, 1)
        return x, self.head(tokens + self.attention(tokens, tokens, tokens, need_weights=False)[0])


def save_sequence() -> None:
    """Saves the sequence model with a batch of one, for which the order of PyTorch's sums is fixed."""
    torch.manual_seed(0)
    torch.backends.quantized.engine = "fbgemm"
    x = torch.randn(1, 5, 18)
    model = torch.ao.quantization.quantize_dynamic(Sequence().eval(), {nn.Linear})
    with torch.no_grad():
        traced = torch.jit.trace(model, x)
        torch.jit.save(traced, str(FOLDER / "sequence.pt"))
        without_places(FOLDER / "sequence.pt")
        np.savez_compressed(FOLDER / "sequence.npz", x=x, **{f"y{n}": each for n, each in enumerate(traced(x))})


def main() -> None:
    warnings.filterwarnings("ignore")
    torch.manual_seed(0)
    network = Network()
    for module in network.modules():
        if isinstance(module, nn.BatchNorm2d):
            nn.init.uniform_(module.weight, 0.6, 1.4)
            nn.init.normal_(module.bias, 0, 0.2)
    with torch.no_grad():
        for _ in range(2):
            network.train()(torch.randn(1, *IMAGE[1:]))
        x = torch.randn(IMAGE)
        torch.jit.trace(network.eval(), x).save(FOLDER / "network.pt")
        without_places(FOLDER / "network.pt")
        program = torch.export.export(network, (x,))
        for node in program.graph.nodes:  # removes paths of source files and the nodes' history
            node.meta = {key: value for key, value in node.meta.items() if key in ("val", "tensor_meta")}
        torch.export.save(program, FOLDER / "network.pt2")
        answers = network(x)
    np.savez_compressed(FOLDER / "network.npz", x=x, **{f"y{index}": each for index, each in enumerate(answers)})
    save_sequence()


if __name__ == "__main__":
    main()

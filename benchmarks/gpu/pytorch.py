"""The peer: PyTorch at its best settings on the same GPU, with all data in its memory.

    python -m benchmarks.gpu.pytorch NETWORK DTYPE BATCH…

Prints a line of JSON for each batch and mode: eager, and compiled by `torch.compile`, both as a CUDA graph, so that
launches and copies of the input do not count. Batch normalization is folded into the convolutions, as in Octet. The
networks are defined here because torchvision may not be installed; their weights are random, which does not affect the
time.
"""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Callable
from typing import Any

import torch  # type: ignore[import-not-found]
from torch import nn

_WARM, _TIMED, _ROUNDS = 3, 50, 5


class Bottleneck(nn.Module):  # type: ignore[misc]
    """A block of ResNet-50 (He et al. 2015; the stride is the 3x3 convolution's, as in torchvision)."""

    def __init__(self, given: int, middle: int, stride: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            *convolution(given, middle, 1),
            *convolution(middle, middle, 3, stride),
            convolution(middle, 4 * middle, 1)[0],
        )
        same = stride == 1 and given == 4 * middle
        self.shortcut = nn.Identity() if same else convolution(given, 4 * middle, 1, stride)[0]

    def forward(self, x: Any) -> Any:
        return torch.relu(self.layers(x) + self.shortcut(x))


class Inverted(nn.Module):  # type: ignore[misc]
    """A block of MobileNetV2 (Sandler et al. 2018)."""

    def __init__(self, given: int, filters: int, stride: int, expansion: int) -> None:
        super().__init__()
        wide = given * expansion
        first = convolution(given, wide, 1) if expansion > 1 else []
        self.layers = nn.Sequential(
            *first, *convolution(wide, wide, 3, stride, groups=wide), convolution(wide, filters, 1)[0]
        )
        self.is_residual = stride == 1 and given == filters

    def forward(self, x: Any) -> Any:
        return x + self.layers(x) if self.is_residual else self.layers(x)


def convolution(given: int, filters: int, kernel: int, stride: int = 1, groups: int = 1) -> list[nn.Module]:
    """A convolution with its activation."""
    return [nn.Conv2d(given, filters, kernel, stride, kernel // 2, groups=groups), nn.ReLU()]


def resnet50() -> nn.Module:
    layers: list[nn.Module] = [*convolution(3, 64, 7, 2), nn.MaxPool2d(3, 2, 1)]
    given = 64
    for middle, count, stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
        for index in range(count):
            layers.append(Bottleneck(given, middle, stride if index == 0 else 1))
            given = 4 * middle
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(given, 1000))


def mobilenet_v2() -> nn.Module:
    layers: list[nn.Module] = convolution(3, 32, 3, 2)
    given = 32
    for expansion, filters, count, stride in (
        *((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2)),
        *((6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1)),
    ):
        for index in range(count):
            layers.append(Inverted(given, filters, stride if index == 0 else 1, expansion))
            given = filters
    layers += convolution(given, 1280, 1)
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(1280, 1000))


def main() -> None:
    network, dtype, *batches = sys.argv[1:]
    if not torch.cuda.is_available():
        raise SystemExit(f"PyTorch {torch.__version__} sees no card")
    made = {"resnet50": resnet50, "mobilenet_v2": mobilenet_v2}[network]()
    model = made.eval().to("cuda", getattr(torch, dtype)).to(memory_format=torch.channels_last)
    ways = {"eager": model, "compiled": torch.compile(model, dynamic=False)}
    for batch in map(int, batches):
        given = torch.randn(batch, 3, 224, 224, device="cuda", dtype=getattr(torch, dtype))
        given = given.to(memory_format=torch.channels_last)
        for way, call in ways.items():
            with torch.inference_mode():
                median_s = _median_s(call, given)
            found = {"batch": batch, "way": way, "median_s": median_s, "torch": torch.__version__}
            print(json.dumps(found), flush=True)


def _median_s(call: Callable[[Any], Any], given: Any) -> float:
    """Returns the seconds per call on the GPU's clock, as a graph that is launched repeatedly."""
    beside = torch.cuda.Stream()  # a captured call must have run before, on a stream other than the default
    beside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(beside):
        for _ in range(_WARM):
            call(given)
    torch.cuda.current_stream().wait_stream(beside)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call(given)
    graph.replay()
    return statistics.median(_timed(graph) for _ in range(_ROUNDS))


def _timed(graph: Any) -> float:
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    for _ in range(_TIMED):
        graph.replay()
    end.record()
    torch.cuda.synchronize()
    return float(begin.elapsed_time(end)) / 1e3 / _TIMED


if __name__ == "__main__":
    main()

"""Creates the ExecuTorch programs of tests/fixtures/executorch: small networks that XNNPACKQuantizer quantizes and the
XNNPACK delegate runs, with some inputs and ExecuTorch's outputs for them.

ExecuTorch needs an environment of its own:

    python -m venv DIR && DIR/bin/pip install executorch==1.5.1 torch==2.13.0
    DIR/bin/python scripts/make_executorch_fixtures.py tests/fixtures/executorch/programs.zip [NAME...]

The archive contains NAME.pte and NAME.npz of each program. NAME.npz has the inputs `x0_0`, … (sample, input), and the
outputs `y0_0`, … (sample, output). Weights are random and seeded.
"""

from __future__ import annotations

import argparse
import io
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch  # type: ignore[import-not-found]
from executorch.backends.xnnpack.partition.xnnpack_partitioner import (  # type: ignore[import-not-found]
    XnnpackPartitioner,
)
from executorch.backends.xnnpack.quantizer.xnnpack_quantizer import (  # type: ignore[import-not-found]
    XNNPACKQuantizer,
    get_symmetric_quantization_config,
)
from executorch.exir import to_edge_transform_and_lower  # type: ignore[import-not-found]
from executorch.runtime import Runtime  # type: ignore[import-not-found]
from torch import nn
from torchao.quantization import (  # type: ignore[import-not-found]
    Int8DynamicActivationIntxWeightConfig,
    PerAxis,
    PerGroup,
    quantize_,
)
from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e  # type: ignore[import-not-found]

SAMPLES = 2
IMAGE, ROWS = (1, 8, 9, 9), (3, 20)
Inputs = tuple[Any, ...]


class Of(nn.Module):  # type: ignore[misc]
    """A module that computes a function, with modules as its parameters."""

    def __init__(self, function: Callable[..., Any], **modules: Any) -> None:
        super().__init__()
        self.function = function
        for name, module in modules.items():
            setattr(self, name, module)

    def forward(self, *inputs: Any) -> Any:
        return self.function(self, *inputs)


def reals(*shapes: tuple[int, ...]) -> Inputs:
    return tuple(torch.randn(shape) for shape in shapes)


def residual() -> Any:
    def forward(self: Any, x: Any) -> Any:
        x = torch.relu(self.norm(self.stem(x)))
        x = x + self.point(nn.functional.hardtanh(self.depth(x), 0, 6))
        return self.dense(nn.functional.adaptive_avg_pool2d(x, 1).flatten(1))

    layers = {"stem": nn.Conv2d(3, 16, 3, 2, 1), "norm": nn.BatchNorm2d(16), "point": nn.Conv2d(16, 16, 1)}
    return Of(forward, depth=nn.Conv2d(16, 16, 3, 1, 1, groups=16), dense=nn.Linear(16, 10), **layers)


def functions(_: Any, a: Any) -> Inputs:
    plain = (torch.exp(a), torch.log(a.abs() + 1), torch.sin(a), torch.cos(a), torch.sqrt(a.abs()), torch.ceil(a))
    pairs = (torch.minimum(a, a * 2), torch.maximum(a, -a), a / 2, a - 1, a * a, torch.floor(a))
    others = (torch.rsqrt(a.abs() + 1), torch.clamp(a, -1, 1), nn.functional.elu(a), a[:, 1:5], torch.tanh(a))
    return *plain, *pairs, *others, torch.bmm(a[0], a[0].transpose(1, 2)), nn.functional.pad(a, (1, 2, 3, 0))


def of_image(*layers: Any) -> tuple[Any, Inputs]:
    return nn.Sequential(nn.Conv2d(8, 6, 3), *layers), reals(IMAGE)


STATIC: dict[str, Callable[[], tuple[Any, Inputs]]] = {
    "residual": lambda: (residual(), reals((1, 3, 12, 12))),
    "dense": lambda: (nn.Sequential(nn.Linear(20, 32), nn.ReLU(), nn.Linear(32, 7)), reals(ROWS)),
    "sum": lambda: (Of(lambda _, a, b: torch.relu(a + b)), reals(IMAGE, IMAGE)),
    "product": lambda: (Of(lambda _, a, b: a * b), reals(IMAGE, IMAGE)),
    "joined": lambda: (
        Of(lambda s, x: torch.cat([s.a(x), s.b(x)], 1), a=nn.Conv2d(8, 8, 3, padding=1), b=nn.Conv2d(8, 4, 1)),
        reals(IMAGE),
    ),
    "largest": lambda: of_image(nn.MaxPool2d(2)),
    "average": lambda: of_image(nn.AvgPool2d(2)),
    "transposed": lambda: (nn.ConvTranspose2d(8, 6, 3, 2, 1, 1), reals(IMAGE)),
    "rows": lambda: (nn.Conv1d(8, 8, 3), reals((1, 8, 20))),
    "grown": lambda: of_image(nn.Upsample(scale_factor=2, mode="bilinear", align_corners=False)),
    "attention": lambda: (
        Of(lambda s, x: s.m(x, x, x, need_weights=False)[0], m=nn.MultiheadAttention(16, 4, batch_first=True)),
        reals((1, 6, 16)),
    ),
    "normalized": lambda: (nn.Sequential(nn.Linear(20, 16), nn.LayerNorm(16), nn.Linear(16, 3)), reals(ROWS)),
}
DYNAMIC: dict[str, Callable[[], tuple[Any, Inputs]]] = {
    "dynamic_dense": STATIC["dense"],
    "dynamic_image": lambda: of_image(nn.Hardswish()),
    "dynamic_pixels": lambda: (nn.Conv2d(8, 4, 1), reals((2, 8, 5, 5))),
}
REAL: dict[str, Callable[[], tuple[Any, Inputs]]] = {
    "functions": lambda: (Of(functions), reals(IMAGE)),
    "embedded": lambda: (nn.Sequential(nn.Embedding(30, 16), nn.Linear(16, 4)), (torch.randint(0, 30, (1, 6)),)),
}


def four_bits(granularity: Any) -> tuple[Any, Inputs]:
    model = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 16)).eval()
    config = Int8DynamicActivationIntxWeightConfig(weight_dtype=torch.int4, weight_granularity=granularity)
    quantize_(model, config)
    return model, reals((3, 64))


FOUR_BITS = {"four_bits": lambda: four_bits(PerAxis(0)), "four_bits_in_blocks": lambda: four_bits(PerGroup(32))}


def quantized(model: Any, inputs: Inputs, *, dynamic: bool) -> Any:
    quantizer = XNNPACKQuantizer().set_global(
        get_symmetric_quantization_config(is_per_channel=True, is_dynamic=dynamic)
    )
    prepared = prepare_pt2e(torch.export.export(model, inputs, strict=True).module(), quantizer)
    for _ in range(4):
        prepared(*(torch.randn_like(each) for each in inputs))
    return convert_pt2e(prepared)


def lowered(model: Any, inputs: Inputs) -> bytes:
    program = torch.export.export(model, inputs, strict=True)
    return bytes(to_edge_transform_and_lower(program, partitioner=[XnnpackPartitioner()]).to_executorch().buffer)


def answers(data: bytes, inputs: Inputs) -> dict[str, Any]:
    """Returns inputs, and ExecuTorch's outputs for them."""
    program = Runtime.get().load_program(data)
    method = program.load_method("forward")
    arrays: dict[str, Any] = {}
    for index in range(SAMPLES):
        sample = inputs if inputs[0].dtype == torch.int64 else tuple(torch.randn_like(each) for each in inputs)
        arrays |= {f"x{index}_{at:02}": each.numpy() for at, each in enumerate(sample)}
        results = method.execute(list(sample))
        arrays |= {f"y{index}_{at:02}": each.clone().numpy() for at, each in enumerate(results)}
    return arrays


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("archive", type=Path)
    parser.add_argument("names", nargs="*", help="programs to make, in place of all")
    given = parser.parse_args()
    kinds: tuple[tuple[dict[str, Any], bool | None], ...] = (
        (STATIC, False),
        (DYNAMIC, True),
        (REAL, None),
        (FOUR_BITS, None),
    )
    with zipfile.ZipFile(given.archive, "w") as archive:
        for makers, dynamic in kinds:
            for name, make in makers.items():
                if given.names and name not in given.names:
                    continue
                torch.manual_seed(len(name))
                model, inputs = make()
                model.eval()
                data = lowered(model if dynamic is None else quantized(model, inputs, dynamic=dynamic), inputs)
                saved = io.BytesIO()
                np.savez_compressed(saved, **answers(data, inputs))
                for suffix, part in ((".pte", data), (".npz", saved.getvalue())):
                    archive.writestr(zipfile.ZipInfo(name + suffix), part, zipfile.ZIP_DEFLATED, 9)


if __name__ == "__main__":
    main()

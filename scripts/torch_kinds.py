"""Writes small models, one for each of PyTorch's operators, with PyTorch's results (tests/fixtures/torch/kinds.zip).

    python -m scripts.torch_kinds          # in an environment with PyTorch 2.13 and torchao 0.18

Each model is quantized in one of these ways:

- `fx`: with FX, for the engine fbgemm; `float` parts stay between quantized ones
- `eager`: in eager mode, with one scale for all weights of a layer
- `dynamic`: `quantize_dynamic`
- `half`: `quantize_dynamic` to float16
- `float`: not at all
"""

from __future__ import annotations

import io
import json
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
    default_qconfig,
    float_qparams_weight_only_qconfig,
    float_qparams_weight_only_qconfig_4bit,
    get_default_qconfig_mapping,
    prepare,
    quantize_dynamic,
)
from torch.ao.quantization.quantize_fx import (  # type: ignore[import-not-found]
    convert_fx,
    prepare_fx,
)
from torch.nn import functional as F  # type: ignore[import-not-found]
from torchao.quantization import (  # type: ignore[import-not-found]
    Int8WeightOnlyConfig,
    IntxWeightOnlyConfig,
    quantize_,
)
from torchao.quantization.granularity import PerGroup  # type: ignore[import-not-found]

from scripts.torch_fixtures import without_places

FILE = Path(__file__).parents[1] / "tests" / "fixtures" / "torch" / "kinds.zip"
Examples = tuple[torch.Tensor, ...]
Kind = tuple[nn.Module, Examples, str]


class Of(nn.Module):
    """A function of its inputs, and modules that the function uses."""

    def __init__(self, function: Callable[..., torch.Tensor], *parts: nn.Module) -> None:
        super().__init__()
        self.function, self.parts = function, nn.ModuleList(parts)

    def forward(self, *inputs: torch.Tensor) -> torch.Tensor:
        return self.function(*self.parts, *inputs)


class Between(nn.Module):
    """A model between its quantization and its dequantization, for eager mode."""

    def __init__(self, body: nn.Module) -> None:
        super().__init__()
        self.quant, self.body, self.back = QuantStub(), body, DeQuantStub()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.back(self.body(self.quant(x)))


def images(channels: int = 3) -> Examples:
    return (torch.randn(2, channels, 6, 7),)


def rows(channels: int = 3) -> Examples:
    return (torch.randn(2, channels, 12),)


def volumes(channels: int = 3) -> Examples:
    return (torch.randn(1, channels, 4, 5, 6),)


def tokens() -> Examples:
    return (torch.randn(2, 5, 16),)


def ids() -> Examples:
    return (torch.randint(0, 20, (2, 6)),)


def after(body: nn.Module | Callable[[torch.Tensor], torch.Tensor]) -> nn.Module:
    """Returns the body after a convolution of images."""
    return nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), body if isinstance(body, nn.Module) else Of(body))


def convolutions() -> dict[str, Kind]:
    transposed = {"stride": 2, "padding": 1}
    short = {"stride": 3}  # the stride exceeds the kernel
    return {
        "conv1d": (nn.Conv1d(3, 4, 3), rows(), "fx"),
        "conv1d_reflect": (nn.Conv1d(3, 4, 3, padding=1, padding_mode="reflect"), rows(), "eager"),
        "conv1d_grouped": (nn.Conv1d(4, 8, 3, stride=2, padding=2, dilation=2, groups=2), rows(4), "fx"),
        "conv1d_float": (nn.Conv1d(3, 4, 5, padding="same"), rows(), "float"),
        "conv3d": (nn.Conv3d(3, 4, 3, padding=1), volumes(), "fx"),
        "conv3d_grouped": (nn.Conv3d(4, 6, (2, 3, 1), stride=(1, 2, 2), padding=(1, 1, 0), groups=2), volumes(4), "fx"),
        "conv3d_float": (nn.Conv3d(3, 4, 3, padding=2, dilation=2), volumes(), "float"),
        "transposed1d": (nn.ConvTranspose1d(3, 4, 4, **transposed), rows(), "eager"),
        "transposed1d_short": (nn.ConvTranspose1d(3, 4, 2, **short), rows(), "eager"),
        "transposed2d": (nn.ConvTranspose2d(3, 4, 3, **transposed), images(), "eager"),
        "transposed2d_grouped": (nn.ConvTranspose2d(4, 8, 3, stride=2, groups=4), images(4), "eager"),
        "transposed2d_dilated": (nn.ConvTranspose2d(3, 4, 3, dilation=2), images(), "eager"),
        "transposed3d": (nn.ConvTranspose3d(3, 4, 3, stride=2), (torch.randn(1, 3, 3, 3, 3),), "eager"),
        "transposed1d_float": (nn.ConvTranspose1d(4, 4, 3, stride=2, groups=2), rows(4), "float"),
        "transposed2d_float": (
            nn.ConvTranspose2d(3, 4, 3, output_padding=1, **transposed),
            images(),
            "float",
        ),
        "transposed3d_float": (nn.ConvTranspose3d(3, 4, 3, stride=2), (torch.randn(1, 3, 3, 3, 3),), "float"),
    }


def activations() -> dict[str, Kind]:
    modules = {
        "celu": nn.CELU(0.8),
        "glu": nn.GLU(1),
        "hardshrink": nn.Hardshrink(),
        "log_sigmoid": nn.LogSigmoid(),
        "log_softmax": nn.LogSoftmax(1),
        "mish": nn.Mish(),
        "prelu": nn.PReLU(4),
        "selu": nn.SELU(),
        "softplus": nn.Softplus(),
        "softshrink": nn.Softshrink(),
        "softsign": nn.Softsign(),
        "threshold": nn.Threshold(0.1, 0.0),
        "instance_norm": nn.InstanceNorm2d(4, affine=True),
    }
    return {f"{name}_float": (after(module), images(), "float") for name, module in modules.items()}


def functions() -> dict[str, Kind]:
    made: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
        "argmax": lambda x: x.argmax(1),
        "comparison": lambda x: torch.where(x > 0, x, x * 2),
        "cumsum_float": lambda x: x.cumsum(1),
        "expanded": lambda x: x.unsqueeze(-1) * x.unsqueeze(-2),
        "flip": lambda x: x.flip(2),
        "floor": lambda x: x.floor() + x.round() - x.ceil(),
        "index": lambda x: x[:, [0, 2]],
        "index_select": lambda x: x.index_select(1, torch.tensor([2, 0])),
        "masked": lambda x: x.masked_fill(x > 0, 0.0),
        "maximum": lambda x: torch.maximum(x, -x) + torch.min(x, x * 2),
        "movedim": lambda x: x.movedim(1, 3),
        "repeat_interleave": lambda x: x.repeat_interleave(2, 1),
        "reversed_difference": lambda x: 1.0 - x,
        "sorted": lambda x: x.sort(1)[0],
        "tiled": lambda x: x.tile(2, 1),
        "topk": lambda x: x.flatten(1).topk(3)[0],
        "triangle": lambda x: x.tril() + x.triu(1),
    }
    # PyTorch's sums along an axis differ in their last bits
    return {
        name: (after(function), images(), "float" if name.endswith("_float") else "fx")
        for name, function in made.items()
    }


def stored_layers() -> dict[str, Kind]:
    norms = nn.BatchNorm2d(4), nn.BatchNorm3d(3)
    for norm in norms:
        nn.init.uniform_(norm.running_var, 0.5, 2)
        nn.init.normal_(norm.running_mean)
        nn.init.normal_(norm.bias)
    after_sigmoid = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.Sigmoid(), norms[0])
    modules = {
        "dilated_max": nn.MaxPool2d(2, 1, dilation=2),
        "gelu": nn.GELU(),
        "group_norm": nn.GroupNorm(2, 4),
        "instance_norm": nn.InstanceNorm2d(4, affine=True),
        "other_elu": nn.ELU(0.7),
        "other_threshold": nn.Threshold(0.1, 0.0),
        "pixel_shuffle": nn.PixelShuffle(2),
    }
    of_rows = {
        "average_of_rows": nn.AvgPool1d(3, 2, 1),
        "means_of_rows": nn.AdaptiveAvgPool1d(5),
        "maxima_of_rows": nn.MaxPool1d(3, 2, 1),
    }
    return {
        **{name: (after(module), images(), "eager") for name, module in modules.items()},
        **{name: (nn.Sequential(nn.Conv1d(3, 4, 3), module), rows(), "fx") for name, module in of_rows.items()},
        "adaptive_max_float": (after(nn.AdaptiveMaxPool2d(1)), images(), "float"),
        "batch_norm2d": (after_sigmoid, images(), "fx"),
        "batch_norm3d": (nn.Sequential(norms[1]), volumes(), "fx"),
        "maxima_of_volumes": (nn.Sequential(nn.Conv3d(3, 2, 1), nn.MaxPool3d(2)), volumes(), "fx"),
        "means_of_volumes_float": (nn.AvgPool3d(3, 2, 1), volumes(), "float"),
        "prelu": (after(nn.PReLU(4)), images(), "fx"),
        "softmax": (after(nn.Softmax(1)), images(), "fx"),
        "variance_float": (after(lambda x: x.var(1) + x.std(1) + x.norm(dim=1) + x.logsumexp(1)), images(), "float"),
    }


def sizes() -> dict[str, Kind]:
    options: dict[str, dict[str, object]] = {
        "bilinear": {"scale_factor": 2, "mode": "bilinear"},
        "bilinear_aligned": {"scale_factor": 2, "mode": "bilinear", "align_corners": True},
        "bilinear_factors": {"scale_factor": (1.5, 0.7), "mode": "bilinear"},
        "bilinear_size": {"size": (5, 17), "mode": "bilinear"},
        "nearest_exact": {"scale_factor": 2, "mode": "nearest-exact"},
    }

    def resized(given: dict[str, object]) -> Callable[[torch.Tensor], torch.Tensor]:
        return lambda x: F.interpolate(x, **given)

    trilinear = resized({"scale_factor": 2, "mode": "trilinear"})
    linear = resized({"scale_factor": 2, "mode": "linear"})
    nearest = nn.Sequential(nn.Conv3d(3, 2, 1), Of(resized({"scale_factor": 2})))
    return {
        **{name: (after(resized(given)), images(), "fx") for name, given in options.items()},
        "linear_float": (Of(linear), rows(), "float"),
        "nearest_volumes": (nearest, volumes(), "fx"),
        "trilinear_float": (Of(trilinear), volumes(), "float"),
    }


def languages() -> dict[str, Kind]:
    def positions(table: nn.Module, places: nn.Module, head: nn.Module, x: torch.Tensor) -> torch.Tensor:
        return head(table(x) + places(torch.arange(x.shape[1])))

    parts = (nn.Embedding(20, 8), nn.Embedding(10, 8), nn.Linear(8, 3))
    bag, places = nn.EmbeddingBag(20, 8, mode="sum"), torch.randint(0, 20, (9,))
    return {
        "bag_of_4_bits": (Of(lambda table, x: table(x), bag), ids(), "dynamic"),
        "bag_with_offsets": (Of(lambda table, x: table(x, torch.tensor([0, 3, 3])), bag), (places,), "dynamic"),
        "half_float": (nn.Sequential(nn.Linear(16, 5), nn.ReLU(), nn.Linear(5, 3)), tokens(), "half"),
        "positions_float": (Of(positions, *parts), ids(), "float"),
        "table_of_8_bits": (Of(lambda table, x: table(x), nn.Embedding(20, 8)), ids(), "dynamic"),
    }


def kinds() -> dict[str, Kind]:
    return convolutions() | activations() | functions() | stored_layers() | sizes() | languages()


def quantized(model: nn.Module, examples: Examples, way: str) -> nn.Module:
    torch.backends.quantized.engine = "fbgemm"
    if way == "fx":
        prepared = prepare_fx(model, get_default_qconfig_mapping("fbgemm"), examples)
        prepared(*examples)
        return convert_fx(prepared)
    if way == "eager":
        whole = Between(model).eval()
        whole.qconfig = default_qconfig
        prepared = prepare(whole)
        prepared(*examples)
        return convert(prepared)
    if way == "dynamic":
        layers = dict.fromkeys((nn.Linear, nn.LSTM, nn.GRU), default_dynamic_qconfig)
        tables = {nn.Embedding: float_qparams_weight_only_qconfig}
        bags = {nn.EmbeddingBag: float_qparams_weight_only_qconfig_4bit}
        return quantize_dynamic(model, layers | tables | bags)
    if way == "half":
        return quantize_dynamic(model, {nn.Linear}, dtype=torch.float16)
    return model


def main() -> None:
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    torch.manual_seed(0)
    with zipfile.ZipFile(FILE, "w", zipfile.ZIP_DEFLATED) as file:
        for name, (model, examples, way) in kinds().items():
            write(file, name, model.eval(), examples, way)
        for name, config in weights_only().items():
            write_exported(file, name, config)


def weights_only() -> dict[str, Any]:
    """Returns torchao's ways to quantize the weights of linear layers alone."""
    blocks = IntxWeightOnlyConfig(weight_dtype=torch.int4, granularity=PerGroup(8))
    return {"int4_blocks_float": blocks, "int8_weights_float": Int8WeightOnlyConfig(version=2)}


def write_exported(file: zipfile.ZipFile, name: str, config: Any) -> None:
    model, examples = nn.Sequential(nn.Linear(16, 5), nn.ReLU(), nn.Linear(5, 3)).eval(), tokens()
    quantize_(model, config, filter_fn=lambda module, _: getattr(module, "in_features", 0) == 16)
    with torch.no_grad():
        program = torch.export.export(model, examples)
        results = program.module()(*examples)
    saved = io.BytesIO()
    torch.export.save(program, saved)
    with zipfile.ZipFile(saved) as archive:
        records = {key: archive.read(key) for key in archive.namelist() if "sample_inputs" not in key}
    small, arrays = io.BytesIO(), io.BytesIO()
    with zipfile.ZipFile(small, "w") as archive:
        for key, data in records.items():
            archive.writestr(zipfile.ZipInfo(key), without_traces(data) if key.endswith("model.json") else data)
    np.savez(arrays, x0=examples[0].numpy(), y0=results.numpy())
    for suffix, data in (("pt2", small.getvalue()), ("npz", arrays.getvalue())):
        file.writestr(zipfile.ZipInfo(f"{name}.{suffix}"), data, zipfile.ZIP_DEFLATED)


def without_traces(data: bytes) -> bytes:
    """Removes the metadata of operators, which contains paths of source files."""
    whole = json.loads(data)
    for node in whole["graph_module"]["graph"]["nodes"]:
        node["metadata"] = {}
    return json.dumps(whole).encode()


def write(file: zipfile.ZipFile, name: str, model: nn.Module, examples: Examples, way: str) -> None:
    with torch.no_grad():
        traced = torch.jit.trace(quantized(model, examples, way), examples, check_trace=False)
        saved = io.BytesIO()
        torch.jit.save(traced, saved)
        results = traced(*examples)
    outputs = [results] if isinstance(results, torch.Tensor) else list(results)
    arrays = io.BytesIO()
    inputs = {f"x{index}": each.numpy() for index, each in enumerate(examples)}
    np.savez(arrays, **inputs, **{f"y{index}": each.numpy() for index, each in enumerate(outputs)})
    without_places(saved)
    for suffix, data in (("pt", saved.getvalue()), ("npz", arrays.getvalue())):
        file.writestr(zipfile.ZipInfo(f"{name}.{suffix}"), data, zipfile.ZIP_DEFLATED)


if __name__ == "__main__":
    main()

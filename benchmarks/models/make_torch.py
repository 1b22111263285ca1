"""torchvision's networks with random seeded weights: float32 as ONNX and TorchScript, int8 as TorchScript (FX).

Runs in the environment `torch`:

    python -m benchmarks.models.make_torch resnet50 onnx --images FOLDER --output resnet50.fp32.onnx
"""

from __future__ import annotations

import argparse
import importlib
import re
import sys
import warnings
from pathlib import Path
from typing import Any

import torch  # type: ignore[import-not-found]
from torch.ao.quantization import get_default_qconfig_mapping  # type: ignore[import-not-found]
from torch.ao.quantization.quantize_fx import convert_fx, prepare_fx  # type: ignore[import-not-found]

from benchmarks.models.samples import SAMPLES
from benchmarks.models.torch_networks import transformer

ENGINE = "x86"
_SAMPLES, _AT_ONCE = 32, 8

_libraries: list[Any] = []  # references, because torch removes the operators of a library that is not referenced


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("network", choices=SAMPLES)
    parser.add_argument("kind", choices=["onnx", "torchscript", "int8"])
    parser.add_argument("--images", type=Path, required=True)
    parser.add_argument("--output", type=Path, required=True)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore", DeprecationWarning)  # TorchScript and FX quantization are deprecated
    images = torch.from_numpy(SAMPLES[arguments.network].batch_channels_first(arguments.images, _SAMPLES))
    model = build(arguments.network, images)
    with torch.no_grad():
        if arguments.kind == "onnx":
            torch.onnx.export(
                model,
                (images[:1],),
                str(arguments.output),
                input_names=["input"],
                output_names=["output"],
                dynamic_axes={"input": {0: "N"}, "output": {0: "N"}},
                opset_version=17,
                dynamo=False,
            )
            return
        if arguments.kind == "int8":
            model = quantize(model, images)
        torch.jit.freeze(torch.jit.trace(model, images[:1]).eval()).save(str(arguments.output))


def build(name: str, images: torch.Tensor) -> Any:
    """Builds a network: He's initialization; the affine part of batch normalization near (1, 0), with the statistics of
    `images`.
    """
    torch.manual_seed(0)
    if name == "transformer":
        return transformer().eval()
    extra = {"aux_logits": False, "init_weights": False} if name == "inception_v3" else {}
    model = getattr(torchvision_models(), name)(weights=None, **extra)
    for module in model.modules():
        if isinstance(module, torch.nn.Conv2d | torch.nn.Linear):
            mode = "fan_out" if isinstance(module, torch.nn.Conv2d) else "fan_in"
            torch.nn.init.kaiming_normal_(module.weight, mode=mode, nonlinearity="relu")
            if module.bias is not None:
                torch.nn.init.uniform_(module.bias, -0.1, 0.1)
        if isinstance(module, torch.nn.BatchNorm2d):
            torch.nn.init.uniform_(module.weight, 0.6, 1.4)
            torch.nn.init.normal_(module.bias, 0, 0.2)
            module.momentum = None  # a plain average over the batches
    model.train()
    with torch.no_grad():
        for batch in images.split(2 * _AT_ONCE):
            model(batch)
    return model.eval()


def quantize(model: Any, images: torch.Tensor) -> Any:
    torch.backends.quantized.engine = ENGINE
    prepared = prepare_fx(model, get_default_qconfig_mapping(ENGINE), (images[:1],))
    for batch in images.split(_AT_ONCE):
        prepared(batch)
    return convert_fx(prepared)


def torchvision_models() -> Any:
    """Returns `torchvision.models`. Its compiled operators, built for another torch, are declared by name only."""
    while True:
        try:
            return importlib.import_module("torchvision").models
        except RuntimeError as error:
            missing = re.search(r"operator torchvision::(\w+) does not exist", str(error))
            if not missing:
                raise
            library = torch.library.Library("torchvision", "FRAGMENT")
            library.define(f"{missing[1]}(Tensor x) -> Tensor")
            _libraries.append(library)
            for name in [name for name in sys.modules if name.partition(".")[0] == "torchvision"]:
                del sys.modules[name]


if __name__ == "__main__":
    main()

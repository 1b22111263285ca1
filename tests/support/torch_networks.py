"""Quantizes a network of torchvision with PyTorch, and stores the outputs of each engine.

Tests run this script in the environment of the benchmarks, which has torchvision. They never import it.

python -m tests.support.torch_networks NETWORK MODEL.pt ANSWERS.npz
"""

from __future__ import annotations

import sys
import warnings

import numpy as np
import torch  # type: ignore[import-not-found]
from torch.ao.quantization import convert, get_default_qconfig, prepare  # type: ignore[import-not-found]

from benchmarks.models.make_torch import torchvision_models

ENGINES = ("fbgemm", "onednn", "x86", "qnnpack")
SHAPE = (1, 3, 96, 96)


def main(network: str, path: str, answers: str) -> None:
    warnings.filterwarnings("ignore")
    torch.manual_seed(0)
    torch.backends.quantized.engine = "x86"
    with torch.no_grad():
        torch.jit.trace(quantized(network), torch.randn(SHAPE)).save(path)
        x = np.random.default_rng(0).normal(0, 1, SHAPE).astype(np.float32)
        arrays = {"input": x}
        for engine in ENGINES:
            torch.backends.quantized.engine = engine
            arrays[engine] = torch.jit.load(path)(torch.from_numpy(x)).numpy()
    np.savez(answers, **arrays)  # type: ignore[arg-type]


def quantized(network: str) -> torch.nn.Module:
    """Returns the network with random weights. It was calibrated on random images, which also determine its batch
    normalization.
    """
    make = getattr(torchvision_models().quantization, network)
    # Networks with auxiliary heads are built without them.
    options = {"aux_logits": False} if network in ("googlenet", "inception_v3") else {}
    model = make(weights=None, quantize=False, **options)
    batch = (8, *SHAPE[1:])
    for module in model.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            torch.nn.init.uniform_(module.weight, 0.6, 1.4)
            torch.nn.init.normal_(module.bias, 0, 0.2)
    model.train()
    for _ in range(2):
        model(torch.randn(batch))
    model.eval().fuse_model(is_qat=False)
    model.qconfig = get_default_qconfig("x86")
    prepared = prepare(model)
    for _ in range(2):
        prepared(torch.randn(batch))
    return convert(prepared)


if __name__ == "__main__":
    main(*sys.argv[1:])

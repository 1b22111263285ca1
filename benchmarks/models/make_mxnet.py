"""Networks of MXNet's model zoo with random seeded weights: float32, and int8 with weights per channel.

Runs in the environment `mxnet`:

    python -m benchmarks.models.make_mxnet resnet50_v1 int8 --images FOLDER --output resnet50_v1.int8.mxnet.zip

The file is a zip archive of the symbol and the parameters, as `octet push` makes it. `quantize_model_mkldnn` calibrates
with photographs.
"""

from __future__ import annotations

import argparse
import logging
import tempfile
import zipfile
from pathlib import Path
from typing import Any

import mxnet
import numpy as np
from mxnet.contrib.quantization import quantize_model_mkldnn
from mxnet.gluon.model_zoo import vision

from benchmarks.models.samples import SAMPLES

_SAMPLES, _STATISTICS, _AT_ONCE = 24, 16, 8
_PASSES = 6  # over the samples of batch normalization's statistics


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("network", choices=list(SAMPLES), help="a network of the model zoo, by the name of `get_model`")
    parser.add_argument("kind", choices=["int8", "fp32"])
    parser.add_argument("--images", type=Path, required=True)
    parser.add_argument("--output", type=Path, required=True)
    arguments = parser.parse_args()
    images = SAMPLES[arguments.network].batch_channels_first(arguments.images, _SAMPLES)
    mxnet.random.seed(0)
    np.random.seed(0)  # the generator of MXNet's initializers
    model = build(arguments.network, images)
    arguments.output.write_bytes(packed(quantize(model, images) if arguments.kind == "int8" else model))


def build(network: str, images: Any) -> tuple[Any, Any, Any]:
    """Returns symbol, parameters and statistics of a network, with the statistics of the photographs."""
    net = vision.get_model(network, pretrained=False)
    net.initialize(mxnet.init.MSRAPrelu())
    with mxnet.autograd.record(train_mode=True):
        for _ in range(_PASSES):
            net(mxnet.nd.array(images[:_STATISTICS])).wait_to_read()
    net.hybridize()
    net(mxnet.nd.array(images[:1])).wait_to_read()
    with tempfile.TemporaryDirectory() as folder:
        net.export(f"{folder}/model", epoch=0)
        model: tuple[Any, Any, Any] = mxnet.model.load_checkpoint(f"{folder}/model", 0)
    return model


def quantize(model: tuple[Any, Any, Any], images: Any) -> tuple[Any, Any, Any]:
    symbol, arguments, auxiliary = model
    quiet = logging.getLogger("quantize")
    quiet.setLevel(logging.ERROR)
    quantized: tuple[Any, Any, Any] = quantize_model_mkldnn(
        sym=symbol,
        arg_params=arguments,
        aux_params=auxiliary,
        ctx=mxnet.cpu(),
        excluded_sym_names=[],
        calib_mode="naive",
        calib_data=mxnet.io.NDArrayIter(data={"data": images}, batch_size=_AT_ONCE),
        num_calib_examples=len(images),
        quantized_dtype="auto",
        quantize_mode="smart",
        quantize_granularity="channel-wise",
        logger=quiet,
        data_names=("data",),
        label_names=None,
    )
    return quantized


def packed(model: tuple[Any, Any, Any]) -> bytes:
    """Returns the archive, which has the names that Octet gives to its files."""
    with tempfile.TemporaryDirectory() as folder:
        mxnet.model.save_checkpoint(f"{folder}/model", 0, *model)
        path = Path(folder, "model.zip")
        with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
            for name in ("model-symbol.json", "model-0000.params"):
                archive.write(f"{folder}/{name}", name)
        return path.read_bytes()


if __name__ == "__main__":
    main()

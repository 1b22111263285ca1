"""A float32 ONNX model quantized by ONNX Runtime: QDQ, unsigned activations, signed weights per channel.

Runs in the environment `onnxruntime`:

    python -m benchmarks.models.make_onnx resnet18 resnet18.fp32.onnx --images FOLDER --output resnet18.u8s8.onnx
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any

from onnxruntime.quantization import (
    CalibrationDataReader,
    CalibrationMethod,
    QuantFormat,
    QuantType,
    quantize_static,
)
from onnxruntime.quantization.shape_inference import quant_pre_process

from benchmarks.models.samples import SAMPLES

_SAMPLES = 24


class Samples(CalibrationDataReader):  # type: ignore[misc]
    def __init__(self, network: str, folder: Path) -> None:
        values = SAMPLES[network].batch_channels_first(folder, _SAMPLES)
        self._inputs = iter([{"input": values[index : index + 1]} for index in range(len(values))])

    def get_next(self) -> dict[str, Any] | None:
        return next(self._inputs, None)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("network", choices=SAMPLES)
    parser.add_argument("model", type=Path)
    parser.add_argument("--images", type=Path, required=True)
    parser.add_argument("--output", type=Path, required=True)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        prepared = str(Path(folder) / "prepared.onnx")
        quant_pre_process(str(arguments.model), prepared, skip_symbolic_shape=True)
        quantize_static(
            prepared,
            str(arguments.output),
            Samples(arguments.network, arguments.images),
            quant_format=QuantFormat.QDQ,
            activation_type=QuantType.QUInt8,
            weight_type=QuantType.QInt8,
            per_channel=True,
            calibrate_method=CalibrationMethod.MinMax,
            extra_options={"ActivationSymmetric": False, "WeightSymmetric": True},
        )


if __name__ == "__main__":
    main()

"""A float32 ONNX model quantized by ONNX Runtime: QDQ, unsigned activations, signed weights per channel.

Runs in the environment `onnxruntime`:

    python -m benchmarks.models.make_onnx resnet18.fp32.onnx --size 224 --images FOLDER --output resnet18.u8s8.onnx
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from onnxruntime.quantization import (
    CalibrationDataReader,
    CalibrationMethod,
    QuantFormat,
    QuantType,
    quantize_static,
)
from onnxruntime.quantization.shape_inference import quant_pre_process

from benchmarks.models.photographs import photographs

_PHOTOGRAPHS = 24


class Photographs(CalibrationDataReader):  # type: ignore[misc]
    def __init__(self, folder: Path, size: int) -> None:
        nchw = np.ascontiguousarray(photographs(folder, _PHOTOGRAPHS, size).transpose(0, 3, 1, 2))
        self._inputs = iter([{"input": nchw[index : index + 1]} for index in range(len(nchw))])

    def get_next(self) -> dict[str, Any] | None:
        return next(self._inputs, None)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("--size", type=int, required=True, help="of the images, in pixels")
    parser.add_argument("--images", type=Path, required=True)
    parser.add_argument("--output", type=Path, required=True)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        prepared = str(Path(folder) / "prepared.onnx")
        quant_pre_process(str(arguments.model), prepared, skip_symbolic_shape=True)
        quantize_static(
            prepared,
            str(arguments.output),
            Photographs(arguments.images, arguments.size),
            quant_format=QuantFormat.QDQ,
            activation_type=QuantType.QUInt8,
            weight_type=QuantType.QInt8,
            per_channel=True,
            calibrate_method=CalibrationMethod.MinMax,
            extra_options={"ActivationSymmetric": False, "WeightSymmetric": True},
        )


if __name__ == "__main__":
    main()

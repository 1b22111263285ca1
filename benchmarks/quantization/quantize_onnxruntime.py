"""Runs in ONNX Runtime's environment: quantizes a float model by three methods, or runs models on inputs.

python quantize_onnxruntime.py quantize FLOAT CALIBRATION.npy METHOD OUTPUT
python quantize_onnxruntime.py run INPUTS.npy OUTPUTS.npz MODEL...
"""

from __future__ import annotations

import sys
import time
from typing import Any

import numpy as np
import onnxruntime
from onnxruntime.quantization import CalibrationDataReader, CalibrationMethod, QuantFormat, QuantType, quantize_static


class Reader(CalibrationDataReader):  # type: ignore[misc]
    def __init__(self, model: str, inputs: Any) -> None:
        self._name = _session(model).get_inputs()[0].name
        self._rest = iter(inputs)

    def get_next(self) -> dict[str, Any] | None:
        image = next(self._rest, None)
        return None if image is None else {self._name: image[None].astype(np.float32)}


def _session(model: str) -> Any:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    options.add_session_config_entry("session.qdqisint8allowed", "1")
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def quantize(model: str, inputs: str, method: str, output: str) -> None:
    started_s = time.perf_counter()
    quantize_static(
        model,
        output,
        Reader(model, np.load(inputs)),
        quant_format=QuantFormat.QDQ,
        activation_type=QuantType.QUInt8,
        weight_type=QuantType.QInt8,
        per_channel=True,
        calibrate_method=CalibrationMethod[method],
    )
    print(time.perf_counter() - started_s)


def run(inputs: str, outputs: str, *models: str) -> None:
    images, answers = np.load(inputs), {}
    for model in models:
        session = _session(model)
        name = session.get_inputs()[0].name
        answers[model] = np.concatenate(
            [session.run(None, {name: image[None].astype(np.float32)})[0] for image in images]
        )
    named: dict[str, Any] = {f"answers_{place}": answers[model] for place, model in enumerate(models)}
    np.savez(outputs, **named)


if __name__ == "__main__":
    (quantize if sys.argv[1] == "quantize" else run)(*sys.argv[2:])

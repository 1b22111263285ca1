"""Runs in the zoo's environment, which has onnx, ONNX Runtime and NNCF.

python peer.py prepare FLOAT OUTPUT OPSET DIM,DIM…   the same model with inputs of one shape
python peer.py onnxruntime FLOAT CALIBRATION.npy OUTPUT METHOD
python peer.py nncf FLOAT CALIBRATION.npy OUTPUT PRESET
python peer.py run INPUTS.npy OUTPUT.npz DECISION MODEL…   what each decides, and how far it is from the first
python peer.py answers INPUTS.npy OUTPUT.npy MODEL     its first output

The quantizing commands print the seconds that they took.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx  # type: ignore[import-not-found]
import onnxruntime
from onnx import shape_inference, version_converter
from onnxruntime.quantization import CalibrationDataReader, CalibrationMethod, QuantFormat, QuantType, quantize_static
from onnxruntime.quantization.shape_inference import quant_pre_process

DECISIONS: dict[str, Callable[[Any], Any]] = {
    "class": lambda output: output.reshape(-1).argmax(),
    "characters": lambda output: output.argmax(axis=-1)[0],  # [1, T, C]
    "mask": lambda output: np.packbits(output.reshape(-1) > 0.3),  # PaddleOCR's threshold of a pixel of text
}


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


def prepare(model: str, output: str, opset: str, dims: str) -> None:
    loaded = onnx.load(model)
    (given,) = loaded.graph.input
    for dim, size in zip(given.type.tensor_type.shape.dim, map(int, dims.split(",")), strict=True):
        dim.dim_value = size
    for made in loaded.graph.output:
        made.type.tensor_type.ClearField("shape")
    del loaded.graph.value_info[:]
    onnx.save(shape_inference.infer_shapes(version_converter.convert_version(loaded, int(opset))), output)


def by_onnxruntime(model: str, inputs: str, output: str, method: str) -> None:
    """With its own preparation, as its documentation asks."""
    started_s, prepared = time.perf_counter(), f"{output}.prepared"
    quant_pre_process(model, prepared)
    quantize_static(
        prepared,
        output,
        Reader(model, np.load(inputs)),
        quant_format=QuantFormat.QDQ,
        activation_type=QuantType.QUInt8,
        weight_type=QuantType.QInt8,
        per_channel=True,
        calibrate_method=CalibrationMethod[method],
    )
    print(time.perf_counter() - started_s)


def by_nncf(model: str, inputs: str, output: str, preset: str) -> None:
    import nncf  # type: ignore[import-not-found]

    images, started_s = np.load(inputs), time.perf_counter()
    loaded = onnx.load(model)
    name = loaded.graph.input[0].name
    data = nncf.Dataset([{name: image[None].astype(np.float32)} for image in images])
    made = nncf.quantize(loaded, data, preset=nncf.QuantizationPreset(preset), subset_size=len(images))
    onnx.save(made, output)
    print(time.perf_counter() - started_s)


def run(inputs: str, output: str, decision: str, *models: str) -> None:
    images, decide = np.load(inputs, mmap_mode="r"), DECISIONS[decision]
    sessions = [_session(model) for model in models]
    sums = np.zeros((len(models), 2))
    decided: list[list[Any]] = [[] for _ in models]
    for made in _answers(sessions, images):
        real = made[0].astype(np.float64)
        for row, found, answer in zip(sums, decided, made, strict=True):
            row += (real**2).sum(), ((real - answer) ** 2).sum()
            found.append(decide(answer))
    named: dict[str, Any] = {f"decided_{place}": np.array(found) for place, found in enumerate(decided)}
    np.savez(output, sums=sums, **named)


def answers(inputs: str, output: str, model: str) -> None:
    made = _answers([_session(model)], np.load(inputs))
    np.save(output, np.concatenate([answer for (answer,) in made]))


def _answers(sessions: list[Any], images: Any) -> Iterator[list[Any]]:
    name = sessions[0].get_inputs()[0].name
    for image in images:
        yield [session.run(None, {name: image[None].astype(np.float32)})[0] for session in sessions]


if __name__ == "__main__":
    commands: dict[str, Callable[..., None]] = {
        "prepare": prepare,
        "onnxruntime": by_onnxruntime,
        "nncf": by_nncf,
        "run": run,
        "answers": answers,
    }
    commands[sys.argv[1]](*(str(Path(each)) if Path(each).exists() else each for each in sys.argv[2:]))

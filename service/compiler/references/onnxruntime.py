"""Runs models in ONNX Runtime."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
from onnxruntime import GraphOptimizationLevel, InferenceSession, OrtValue, SessionOptions

from service.compiler.importers.detect import HEAD_BYTES, ZIP, detect_format
from service.compiler.importers.onnx.file.package import SUFFIX, archive_of
from service.compiler.references import Answer
from service.core.models.arrays import Array

_LEVEL = "graph_optimization_level"
# ONNX Runtime's name of a type -> its number in TensorProto.DataType, and the NumPy type
_SMALL_REALS: Mapping[str, tuple[int, Any]] = {
    "tensor(bfloat16)": (16, ml_dtypes.bfloat16),
    "tensor(float8e4m3fn)": (17, ml_dtypes.float8_e4m3fn),
    "tensor(float8e4m3fnuz)": (18, ml_dtypes.float8_e4m3fnuz),
    "tensor(float8e5m2)": (19, ml_dtypes.float8_e5m2),
    "tensor(float8e5m2fnuz)": (20, ml_dtypes.float8_e5m2fnuz),
}


def open_session(source: str, options: Mapping[str, str]) -> Answer:
    """Loads the model in `source`. The model runs on one thread with the CPU kernels.

    Args:
        options: session configuration entries, and the attribute `graph_optimization_level` of `SessionOptions`.
    """
    settings = SessionOptions()
    settings.intra_op_num_threads = settings.inter_op_num_threads = 1
    for name, value in options.items():
        if name == _LEVEL:
            settings.graph_optimization_level = GraphOptimizationLevel.__members__[value]
        else:
            settings.add_session_config_entry(name, value)
    session = InferenceSession(_model_in(Path(source)), settings, providers=["CPUExecutionProvider"])
    ends = (*session.get_inputs(), *session.get_outputs())
    if any(end.type in _SMALL_REALS for end in ends):
        return _with_small_reals(session)
    names = [end.name for end in session.get_inputs()]

    def answer(sample: Sequence[Array]) -> list[Array]:
        return list(session.run(None, dict(zip(names, sample, strict=True))))

    return answer


def _with_small_reals(session: InferenceSession) -> Answer:
    """Returns the function for a model with inputs or outputs of types that NumPy does not have. They are passed as
    float32, as the build does (`importers.onnx.half.ends`).
    """
    inputs = session.get_inputs()

    def value_of(kind: str, array: Array) -> OrtValue:
        if kind not in _SMALL_REALS:
            return OrtValue.ortvalue_from_numpy(array)
        number, dtype = _SMALL_REALS[kind]
        bits = np.ascontiguousarray(array.astype(dtype)).view(f"u{np.dtype(dtype).itemsize}")
        return OrtValue.ortvalue_from_numpy_with_onnx_type(bits, number)

    def array_of(value: OrtValue) -> Array:
        if value.data_type() not in _SMALL_REALS:
            return np.asarray(value.numpy())
        dtype = np.dtype(_SMALL_REALS[value.data_type()][1])
        count = math.prod(value.shape())
        memory = (ctypes.c_uint8 * (count * dtype.itemsize)).from_address(value.data_ptr())
        stored = np.frombuffer(bytes(memory), dtype).reshape(value.shape())
        return stored.astype(np.float32)

    def answer(sample: Sequence[Array]) -> list[Array]:
        given = {end.name: value_of(end.type, array) for end, array in zip(inputs, sample, strict=True)}
        return [array_of(value) for value in session.run_with_ort_values(None, given)]

    return answer


def _model_in(source: Path) -> str:
    """Returns the path of the model file. An archive is first extracted to a folder in the working directory."""
    with source.open("rb") as file:
        if detect_format(file.read(HEAD_BYTES)) != ZIP:
            return str(source)
    archive, model = archive_of(source.read_bytes()), source
    for name in archive:  # the names were checked, so none leads out of the folder
        path = Path.cwd() / "source" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(archive.read(name))
        model = path if path.suffix == SUFFIX else model
    return str(model)

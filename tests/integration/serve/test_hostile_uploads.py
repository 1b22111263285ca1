"""Hostile uploads to a real server. Each is rejected with a message and has no other effect."""

from __future__ import annotations

import io
import json
import os
import pickle
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tflite

from service.compiler.importers.mxnet.package import pack
from tests.support.exported import FIXTURES as PROGRAMS
from tests.support.exported import document, meta, program, quantize
from tests.support.mxnet_models import packed, params_of, symbol_of
from tests.support.onnx_builder import OnnxBuilder
from tests.support.serving import INT8, Served, model
from tests.support.torchscript import FIXTURES as SCRIPTS
from tests.support.torchscript import archive, script

ONNX = SCRIPTS[0].parents[1] / "onnx" / "bert.qdq.onnx"
ARCHIVES: dict[str, bytes] = {
    "torchscript": SCRIPTS[0].read_bytes(),
    "pt2": PROGRAMS[0].read_bytes(),
    "mxnet": packed("sg_residual"),
}
WHOLE = {**ARCHIVES, "tflite": model(INT8), "onnx": ONNX.read_bytes()}
LARGE = 1 << 31
REFUSALS = {"malformed_model", "unsupported", "unsupported_format"}


def refusal(served: Served, data: bytes) -> dict[str, Any]:
    """Pushes `data`, and returns the error of the request or of its build. Checks that nothing else has happened."""
    response = served.client.put("/api/v1/models", params={"name": "hostile"}, content=data)
    error: dict[str, Any] = response.json()
    if response.status_code == 202:
        build = served.ended(error["id"])
        assert build["state"] == "failed", build
        error = build["error"]
        assert error["stage"] == "import", error
    else:
        assert 400 <= response.status_code < 500, error
    assert error["code"] in REFUSALS, error
    return error


class System:
    """An object that is pickled as a call of `os.system`."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> Any:
        return os.system, (f"touch {self.marker}",)


def evil_script(marker: Path) -> bytes:
    return script(["return x"], data__pkl=pickle.dumps(System(marker)))


def evil_program(marker: Path) -> bytes:
    entry = {"path_name": "weight_0", "is_param": True, "use_pickle": True, "tensor_meta": meta("int8", 2, 3)}
    evil = pickle.dumps(System(marker))
    records: dict[str, bytes | str] = {"data/weights/weight_0": evil, "data/sample_inputs/model.pt": evil}
    return with_weights(entry, records)


def with_weights(entry: dict[str, Any], records: dict[str, bytes | str]) -> bytes:
    whole = document([quantize("x", "y")])
    spec = {"parameter": {"arg": {"name": "p_weight"}, "parameter_name": "weight"}}
    whole["graph_module"]["signature"]["input_specs"].append(spec)
    config = f'{{"config": {{"weight": {json.dumps(entry)}}}}}'
    return program(whole, {"data/weights/model_weights_config.json": config, **records})


@pytest.mark.parametrize("evil", [evil_script, evil_program])
def test_a_pickle_that_calls_the_shell_is_not_executed(
    served: Served, tmp_path: Path, evil: Callable[[Path], bytes]
) -> None:
    marker = tmp_path / "executed"
    assert "pickle" in refusal(served, evil(marker))["message"]
    assert not marker.exists()


@pytest.mark.parametrize("kind", ARCHIVES)
def test_a_zip_bomb_is_not_unpacked(served: Served, kind: str) -> None:
    with zipfile.ZipFile(io.BytesIO(ARCHIVES[kind])) as whole:
        first = next(name for name in whole.namelist() if name.endswith((".pkl", "model.json", "-symbol.json")))
        others = {name: whole.read(name) for name in whole.namelist() if name != first}
    bomb = archive({first: b" " * (1 << 26), **others}, folder="", method=zipfile.ZIP_DEFLATED)
    assert len(bomb) < 1 << 19
    assert f"{1 << 26} bytes" in refusal(served, bomb)["message"]


@pytest.mark.parametrize("name", ["../evil", "/tmp/octet-evil", "net/../../evil"])
@pytest.mark.parametrize("kind", ARCHIVES)
def test_a_path_outside_of_the_archive_is_not_followed(served: Served, folder: Path, kind: str, name: str) -> None:
    file = io.BytesIO(ARCHIVES[kind])
    with zipfile.ZipFile(file, "a") as written:
        written.writestr(zipfile.ZipInfo(name), b"evil")
    assert "outside of its folder" in refusal(served, file.getvalue())["message"]
    assert not [*folder.rglob("*evil*"), *Path("/tmp").glob("octet-evil")]


@pytest.mark.parametrize("kind", WHOLE)
def test_a_truncated_file_is_reported_as_damaged(served: Served, kind: str) -> None:
    error = refusal(served, WHOLE[kind][: len(WHOLE[kind]) // 2])
    if kind in ARCHIVES:
        assert error["code"] == "unsupported_format"
        assert "whose end is damaged" in error["detail"]
    else:
        assert error["code"] == "malformed_model"


def large_script() -> bytes:
    """Returns TorchScript whose constants include a tensor with more elements than the file contains."""
    count = b"\x8a\x05" + LARGE.to_bytes(5, "little")
    storage = b"(X\x07\0\0\0storagectorch\nFloatStorage\nX\x01\0\0\0" + b"0X\x03\0\0\0cpu" + count + b"tQ"
    shape = b"K\0" + count + b"\x85K\x01\x85\x89ccollections\nOrderedDict\n)R"
    tensors = b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\n(" + storage + shape + b"tR\x85."
    return script(["return CONSTANTS.c0"], constants__pkl=tensors, **{"constants/0": bytes(4)})


def large_onnx() -> bytes:
    onnx = OnnxBuilder()
    x = onnx.dequantized(onnx.input("x", "uint8", (LARGE, 4)), 0.5, 3, "uint8")
    onnx.output(onnx.quantized(onnx.node("Relu", [x]), 0.5, 3, "uint8"), "uint8")
    return onnx.build()


def large_tflite() -> bytes:
    """Returns a file with a table that declares 2 ** 31 tensors."""
    data = model(INT8)
    table = tflite.Model.GetRootAs(data).Subgraphs(0)._tab
    # `tensors` is SubGraph's first field; its length is stored before its elements
    position = table.Vector(table.Offset(4)) - 4
    return data[:position] + struct.pack("<I", LARGE) + data[position + 4 :]


def large_params() -> bytes:
    """Changes the first array in MXNet's parameters (NDArray::Save: magic, storage type, rank, sizes)."""
    params = params_of("sg_residual")
    sizes = params.index(struct.pack("<I", 0xF993FAC9)) + 12
    return params[:sizes] + struct.pack("<q", LARGE) + params[sizes + 8 :]


def large_program() -> bytes:
    weights = {"path_name": "w", "is_param": True, "use_pickle": False, "tensor_meta": meta("int8", LARGE)}
    return with_weights(weights, {"data/weights/w": bytes(6)})


def large_mxnet() -> bytes:
    return pack(json.dumps(symbol_of("sg_residual")).encode(), large_params())


# (the file, the expected message, the tensor in the message)
LARGER: dict[str, tuple[Callable[[], bytes], str, str | None]] = {
    "tflite": (large_tflite, "at Model.subgraphs[0].tensors, the vector of 2147483648 items lies outside", None),
    "onnx": (large_onnx, "Relu #1 computes a tensor of shape [2147483648, 4]", "t4_stored"),
    "torchscript": (large_script, "2147483648 elements of float32 in 'constants/0'", None),
    "pt2": (large_program, "a tensor that extends beyond its elements", "weight"),
    "mxnet": (large_mxnet, "the parameters end in the middle", "params[0]"),
}


@pytest.mark.parametrize("kind", LARGER)
def test_a_false_size_of_two_billion_is_rejected(served: Served, kind: str) -> None:
    make, message, tensor = LARGER[kind]
    error = refusal(served, make())
    assert message in error["message"]
    assert error.get("tensor") == tensor


def test_the_server_is_unaffected(served: Served) -> None:
    assert served.label(2) == 2

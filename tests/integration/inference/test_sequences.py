"""Compiled models that keep state. Unmodified clients send interleaved sequences to them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from tritonclient import grpc, http

from service.cache import OciLayout
from service.cli.client import Client
from service.compiler.importers.tflite import import_model
from service.core.builds.build import BuildState
from service.workers.inference.artifacts import StoredArtifacts
from tests.support import litert
from tests.support.compiled import compile_file
from tests.support.data_plane import DataPlane, serving
from tests.support.tables import Tables
from tests.support.tflite_recurrent import MODELS
from tests.support.waiting import GIVE_UP_S

STEPS = 6
STATEFUL = {"lstm": MODELS["lstm, projected"], "variable": MODELS["variable"]}

SIGNATURES = {name: import_model(model()).signature for name, model in STATEFUL.items()}


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> tuple[Tables, OciLayout]:
    root, tables = tmp_path_factory.mktemp("stateful"), Tables()
    layout = OciLayout(root / "store")
    for name, model in STATEFUL.items():
        source = Path(root, f"{name}.tflite")
        source.write_bytes(model())
        artifact = compile_file(source, layout, root / name)
        tables.build(name, tables.push(name), BuildState.SUCCEEDED, artifact=artifact)
    return tables, layout


@pytest.fixture
def plane(stored: tuple[Tables, OciLayout]) -> DataPlane:
    return DataPlane(stored[0], artifacts=StoredArtifacts(stored[1]), reads=[stored[1].root])


@pytest.mark.parametrize("protocol", [http, grpc])
@pytest.mark.parametrize(("name", "model"), STATEFUL.items())
def test_two_interleaved_sequences_give_the_outputs_of_two_interpreters(
    plane: DataPlane, name: str, model: Callable[[], bytes], protocol: Any
) -> None:
    interpreters = {id_: litert.interpreter(model()) for id_ in (7, "left")}
    rng = np.random.default_rng(0)
    with serving(plane) as address:
        client = protocol.InferenceServerClient(address if protocol is http else plane.grpc)
        (spec,), (output,) = SIGNATURES[name].inputs, SIGNATURES[name].outputs
        for step in range(STEPS):
            for id_, interpreter in interpreters.items():
                x = rng.integers(-128, 128, spec.shape, np.int8)
                tensor = protocol.InferInput(spec.name, list(spec.shape), spec.datatype)
                tensor.set_data_from_numpy(x)
                result = client.infer(
                    name, [tensor], sequence_id=id_, sequence_start=step == 0, sequence_end=step == STEPS - 1
                )
                (wanted,) = litert.run(interpreter, [x])
                np.testing.assert_array_equal(result.as_numpy(output.name), wanted)
        client.close()


def test_the_command_line_starts_a_new_sequence(plane: DataPlane) -> None:
    x = np.random.default_rng(0).integers(-128, 128, (1, 5), np.int8)
    (wanted,) = litert.run(litert.interpreter(STATEFUL["variable"]()), [x])
    with serving(plane) as address, Client(f"http://{address}") as client:
        for _ in range(2):
            _, outputs = client.infer("variable", ["x"], [x])
            np.testing.assert_array_equal(outputs["y"], wanted)


def test_a_request_without_a_sequence_is_rejected_with_an_explanation(plane: DataPlane) -> None:
    body = {"inputs": [{"name": "x", "datatype": "INT8", "shape": [1, 5], "data": [0] * 5}]}
    with serving(plane) as address:
        url = f"http://{address}/v2/models/variable/infer"
        refused = httpx.post(url, json=body, timeout=GIVE_UP_S)
        unknown = httpx.post(url, json={**body, "parameters": {"sequence_id": 3}}, timeout=GIVE_UP_S)
    assert refused.status_code == 400
    assert "sequence_id" in refused.json()["hint"]
    assert (unknown.status_code, unknown.json()["code"]) == (409, "unknown_sequence")

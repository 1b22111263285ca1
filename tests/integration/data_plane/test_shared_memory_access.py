"""Only clients on the same machine, with a key, pass tensors in /dev/shm, and only if the setting is on."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from tritonclient import grpc as triton_grpc
from tritonclient import http as triton_http
from tritonclient.utils import InferenceServerException

from tests.support.plane_models import bare_plane, wide
from tests.support.plane_process import plane
from tests.support.shared_memory import SHARING, address_of, connected


def test_shared_memory_is_off_by_default(digits: Path, triton: Any) -> None:
    with plane([f"digits={digits}"]) as served:
        _is_refused(triton, address_of(triton, served), "shared memory is disabled", "digits", "image")


def test_an_option_turns_it_on(digits: Path, triton: Any, key: str) -> None:
    with plane([f"digits={digits}"], OCTET_SHARED_MEMORY="true") as served, connected(triton, served) as client:
        about = client.get_server_metadata()
        assert "system_shared_memory" in (about["extensions"] if triton is triton_http else about.extensions)
        client.register_system_shared_memory("region", key, 256)
        tensor = triton.InferInput("image", [1, 16, 16, 1], "UINT8")
        tensor.set_shared_memory("region", 256)
        assert client.infer("digits", [tensor]).as_numpy("probabilities").shape == (1, 10)


def test_it_is_only_for_clients_on_this_machine(tmp_path: Path, triton: Any) -> None:
    with socket.socket(type=socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # nothing is sent
        except OSError:
            pytest.skip("this machine has no other address")
        host = probe.getsockname()[0]
    with bare_plane(tmp_path, [wide(tmp_path, 1)], *SHARING, host="0.0.0.0", auth="off", shared_memory=True) as served:
        port = address_of(triton, served).rsplit(":", 1)[1]
        _is_refused(triton, f"{host}:{port}", "only clients on the server's machine", "wide", "in0")


def test_it_requires_a_key_that_may_predict(tmp_path: Path) -> None:
    keys = {"predict": f"octet_predicts_{'a' * 32}", "read": f"octet_reads_{'b' * 32}"}
    with bare_plane(tmp_path, [wide(tmp_path, 1)], *SHARING, keys=keys, shared_memory=True) as served:
        url = f"{served.url}/v2/systemsharedmemory/status"
        answers = [httpx.get(url, headers={"authorization": f"Bearer {key}"}) for key in keys.values()]
        assert [answer.status_code for answer in answers] == [200, 403]
        assert httpx.get(url).status_code == 401
        with triton_grpc.InferenceServerClient(served.grpc) as client:
            client.get_system_shared_memory_status(headers={"authorization": f"Bearer {keys['predict']}"})
            with pytest.raises(InferenceServerException, match="PERMISSION_DENIED"):
                client.get_system_shared_memory_status(headers={"authorization": f"Bearer {keys['read']}"})


def _is_refused(triton: Any, address: str, message: str, model: str, name: str) -> None:
    client = triton.InferenceServerClient(address)
    about = client.get_model_metadata(model)
    spec = about["inputs"][0] if triton is triton_http else about.inputs[0]
    shape = spec["shape"] if triton is triton_http else list(spec.shape)
    datatype = spec["datatype"] if triton is triton_http else spec.datatype
    tensor = triton.InferInput(name, shape, datatype)
    tensor.set_shared_memory("region", int(np.prod(shape)) * (4 if datatype == "INT32" else 1))
    for act in (
        client.get_system_shared_memory_status,
        lambda: client.register_system_shared_memory("region", "key", 1),
        client.unregister_system_shared_memory,
        lambda: client.infer(model, [tensor]),
    ):
        with pytest.raises(InferenceServerException, match=message):
            act()
    client.close()

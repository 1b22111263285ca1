"""Clients on the same machine pass tensors in /dev/shm, with Triton's own client and with plain requests."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import numpy as np
import pytest
from tritonclient import http as triton_http
from tritonclient.utils import InferenceServerException

from tests.support.gates import Gate
from tests.support.plane_models import LENGTH, WIDE, bare_plane, held, wide
from tests.support.plane_process import PlaneProcess
from tests.support.shared_memory import BYTES, SHARING, VALUES, connected
from tests.support.waiting import GIVE_UP_S


@pytest.fixture(scope="module")
def gate() -> Gate:
    """The gate of the model `held`: a call stops until the test opens the gate."""
    return Gate()


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory, gate: Gate) -> Iterator[PlaneProcess]:
    folder = tmp_path_factory.mktemp("shared")
    with bare_plane(folder, [wide(folder, 1), held(folder, 2, gate)], *SHARING, shared_memory=True) as process:
        yield process


@pytest.fixture
def client(triton: Any, served: PlaneProcess) -> Iterator[Any]:
    with connected(triton, served) as opened:
        yield opened


def stored(key: str, count: int = WIDE, at: int = BYTES) -> list[int]:
    values: list[int] = np.fromfile(f"/dev/shm/{key}", np.int32, count, offset=at).tolist()
    return values


def shared_input(triton: Any, **index: Any) -> Any:
    tensor = triton.InferInput("in0", [1, WIDE], "INT32")
    tensor.set_shared_memory("region", **({"byte_size": BYTES} | index))
    return tensor


def shared_output(triton: Any, **index: Any) -> Any:
    output = triton.InferRequestedOutput("out0")
    output.set_shared_memory("region", **({"byte_size": BYTES, "offset": BYTES} | index))
    return output


def test_inputs_and_outputs_use_shared_memory(client: Any, triton: Any, key: str) -> None:
    client.register_system_shared_memory("region", f"/{key}", 2 * BYTES)
    answer = client.infer("wide", [shared_input(triton)], outputs=[shared_output(triton)])
    assert stored(key) == (2 * VALUES).ravel().tolist()
    output = answer.get_output("out0")
    if triton is triton_http:
        where = output["parameters"]
    else:
        where = {name: value.string_param or value.int64_param for name, value in output.parameters.items()}
    assert where == {
        "shared_memory_region": "region",
        "shared_memory_offset": BYTES,
        "shared_memory_byte_size": BYTES,
    }


def test_only_the_input_or_only_the_output_may_be_shared(client: Any, triton: Any, key: str) -> None:
    client.register_system_shared_memory("region", key, 2 * BYTES)
    answer = client.infer("wide", [shared_input(triton)])
    assert answer.as_numpy("out0").tolist() == (2 * VALUES).tolist()
    tensor = triton.InferInput("in0", [1, WIDE], "INT32")
    tensor.set_data_from_numpy(VALUES + 1)
    client.infer("wide", [tensor], outputs=[shared_output(triton)])
    assert stored(key) == (2 * VALUES + 2).ravel().tolist()


def test_regions_begin_at_their_offset(client: Any, triton: Any, key: str) -> None:
    client.register_system_shared_memory("region", key, BYTES + 4, offset=BYTES - 4)
    np.memmap(f"/dev/shm/{key}", np.int32, "r+")[:] = 5
    client.infer("wide", [shared_input(triton, offset=4)], outputs=[shared_output(triton, offset=4)])
    assert stored(key, 2 * WIDE, 0) == [5] * WIDE + [10] * WIDE


def test_the_registered_regions_are_listed(client: Any, triton: Any, key: str) -> None:
    client.register_system_shared_memory("one", f"/{key}", BYTES, offset=8)
    client.register_system_shared_memory("other one", key, 7)
    one = {"name": "one", "key": f"/{key}", "offset": 8, "byte_size": BYTES}
    other = {"name": "other one", "key": key, "offset": 0, "byte_size": 7}
    assert regions(client, triton) == [one, other]
    assert regions(client, triton, "other one") == [other]
    client.unregister_system_shared_memory("one")
    assert regions(client, triton) == [other]
    with pytest.raises(InferenceServerException, match="unknown region 'one'"):
        client.get_system_shared_memory_status("one")
    client.unregister_system_shared_memory("one")
    client.unregister_system_shared_memory()
    assert regions(client, triton) == []


def regions(client: Any, triton: Any, name: str = "") -> list[dict[str, Any]]:
    status = client.get_system_shared_memory_status(name)
    if triton is triton_http:
        return list(status)
    return [
        {"name": each.name, "key": each.key, "offset": each.offset, "byte_size": each.byte_size}
        for _, each in sorted(status.regions.items())
    ]


@pytest.mark.parametrize(
    ("key_", "offset", "size", "message"),
    [
        ("", 0, 1, "is not a valid name of shared memory"),
        (".", 0, 1, "is not a valid name of shared memory"),
        ("..", 0, 1, "is not a valid name of shared memory"),
        ("//octet", 0, 1, "is not a valid name of shared memory"),
        ("../../etc/passwd", 0, 1, "is not a valid name of shared memory"),
        ("a/b", 0, 1, "is not a valid name of shared memory"),
        ("x" * 256, 0, 1, "is not a valid name of shared memory"),
        ("octet-nothing", 0, 1, "cannot be opened: No such file"),
        ("LINK", 0, 1, "cannot be opened: Too many levels of symbolic links"),
        ("PIPE", 0, 1, "does not refer to shared memory"),
        ("FOLDER", 0, 1, "cannot be opened: Is a directory"),
        ("KEY", 0, 0, "invalid region: 0 bytes"),
        ("KEY", 0, 2 * BYTES + 1, f"has {2 * BYTES} bytes, but the region ends at offset {2 * BYTES + 1}"),
        ("KEY", 1, 2 * BYTES, "but the region ends at"),
        ("KEY", 2**63 - 1, 2**63 - 1, "invalid region: "),
    ],
)
def test_invalid_shared_memory_is_rejected(
    client: Any, key: str, key_: str, offset: int, size: int, message: str, tmp_path: Path
) -> None:
    odd = Path("/dev/shm", f"octet-{uuid4().hex}")
    secret = tmp_path / "secret"
    secret.write_text("it")
    makers: dict[str, Callable[[], Any]] = {
        "LINK": lambda: odd.symlink_to(secret),
        "PIPE": lambda: os.mkfifo(odd),
        "FOLDER": odd.mkdir,
    }
    if maker := makers.get(key_):
        maker()
    try:
        name = odd.name if maker else key_.replace("KEY", key)
        with pytest.raises(InferenceServerException, match=message):
            client.register_system_shared_memory("region", name, size, offset=offset)
    finally:
        if maker:
            odd.rmdir() if key_ == "FOLDER" else odd.unlink()


def test_a_name_in_use_is_rejected(client: Any, key: str) -> None:
    client.register_system_shared_memory("region", key, BYTES)
    with pytest.raises(InferenceServerException, match="the region 'region' is already registered"):
        client.register_system_shared_memory("region", key, BYTES)


def test_the_number_of_regions_is_limited(client: Any, key: str) -> None:
    for index in range(256):
        client.register_system_shared_memory(f"r{index}", key, 1)
    with pytest.raises(InferenceServerException, match="256 regions are already registered"):
        client.register_system_shared_memory("another", key, 1)


@pytest.mark.parametrize(
    ("given", "wanted", "message"),
    [
        ({"byte_size": BYTES - 4}, {}, f"declares {BYTES - 4} bytes"),
        ({"offset": BYTES + 4}, {}, "ends after the region"),
        ({"offset": 2**62}, {}, "ends after the region"),
        ({}, {"offset": BYTES + 4}, "ends after the region"),
        ({}, {"byte_size": BYTES - 4}, f"output 'out0' has {BYTES} bytes, but its range .* has only {BYTES - 4}"),
    ],
)
def test_ranges_that_do_not_fit_are_rejected(
    served: PlaneProcess,
    client: Any,
    triton: Any,
    key: str,
    given: dict[str, int],
    wanted: dict[str, int],
    message: str,
) -> None:
    client.register_system_shared_memory("region", key, 2 * BYTES)
    before = executions(served)
    with pytest.raises(InferenceServerException, match=message):
        client.infer("wide", [shared_input(triton, **given)], outputs=[shared_output(triton, **wanted)])
    assert stored(key) == [0] * WIDE
    assert executions(served) == before


def executions(served: PlaneProcess) -> int:
    (stats,) = httpx.get(f"{served.url}/v2/models/wide/stats").json()["model_stats"]
    count: int = stats["execution_count"]
    return count


def test_an_unregistered_region_is_rejected(client: Any, triton: Any) -> None:
    with pytest.raises(InferenceServerException, match="'in0' is in the region 'region', which is not registered"):
        client.infer("wide", [shared_input(triton)])
    tensor = triton.InferInput("in0", [1, WIDE], "INT32")
    tensor.set_data_from_numpy(VALUES)
    with pytest.raises(InferenceServerException, match="'out0' is in the region 'region', which is not registered"):
        client.infer("wide", [tensor], outputs=[shared_output(triton)])


def test_a_truncated_file_ends_no_process_and_is_not_extended(client: Any, triton: Any, key: str) -> None:
    """Without a check, reading the mapped file would end the server with SIGBUS."""
    client.register_system_shared_memory("region", key, 2 * BYTES)
    os.truncate(f"/dev/shm/{key}", BYTES)
    with pytest.raises(InferenceServerException, match="which has become shorter"):
        client.infer("wide", [shared_input(triton)], outputs=[shared_output(triton)])
    os.truncate(f"/dev/shm/{key}", 100)
    with pytest.raises(InferenceServerException, match="which has become shorter"):
        client.infer("wide", [shared_input(triton)])
    assert Path("/dev/shm", key).stat().st_size == 100
    assert client.is_server_live()


def into_region(first: int) -> dict[str, Any]:
    """Returns a request whose response is written to the second half of the region."""
    position = {"shared_memory_region": "region", "shared_memory_byte_size": BYTES, "shared_memory_offset": BYTES}
    return {
        "inputs": [{"name": "in0", "datatype": "INT32", "shape": [1, LENGTH], "data": [first] * LENGTH}],
        "outputs": [{"name": "out0", "parameters": position}],
    }


@contextmanager
def holding(gate: Gate) -> Iterator[Callable[[], None]]:
    """Closes the gate. Yields a function that waits until a call has stopped at it."""
    gate.close()
    before = gate.entered
    try:
        yield lambda: gate.wait_running(before + 1)
    finally:
        gate.open()


def test_a_request_in_progress_keeps_its_region(served: PlaneProcess, client: Any, key: str, gate: Gate) -> None:
    client.register_system_shared_memory("region", key, 2 * BYTES)
    with ThreadPoolExecutor() as pool, httpx.Client(base_url=served.url, timeout=GIVE_UP_S) as other:
        with holding(gate) as is_held:
            asking = pool.submit(other.post, "/v2/models/held/infer", json=into_region(-300))
            is_held()
            client.unregister_system_shared_memory("region")
        assert asking.result().status_code == 200
    assert stored(key, LENGTH) == [-600] * LENGTH


def test_nothing_is_written_for_a_client_that_left(served: PlaneProcess, client: Any, key: str, gate: Gate) -> None:
    """At that time, the memory may contain another client's tensor."""
    client.register_system_shared_memory("region", key, 2 * BYTES)
    url = f"{served.url}/v2/models/held/infer"
    with holding(gate) as is_held:
        with pytest.raises(httpx.ReadTimeout):
            httpx.post(url, json=into_region(-300), timeout=httpx.Timeout(GIVE_UP_S, read=0.1))
        is_held()
        for _ in range(10):
            # the server handles events in turn, so it has now handled the earlier end of the connection
            assert client.is_server_live()
    short = {"inputs": [{"name": "in0", "datatype": "INT32", "shape": [1, LENGTH], "data": [0] * LENGTH}]}
    httpx.post(
        url, json=short, timeout=GIVE_UP_S
    ).raise_for_status()  # runs after the call that was held, on the same instance
    assert stored(key, LENGTH) == [0] * LENGTH


REFUSED = [
    ({"shared_memory_region": 7, "shared_memory_byte_size": BYTES}, {}, "without the name of a region"),
    ({"shared_memory_region": "region"}, {}, "without the name of a region"),
    ({"shared_memory_region": "region", "shared_memory_byte_size": -1}, {}, "'shared_memory_byte_size' is -1"),
    (
        {"shared_memory_region": "region", "shared_memory_byte_size": BYTES},
        {"data": [1]},
        "but the request contains its elements too",
    ),
    (
        {"shared_memory_region": "region", "shared_memory_byte_size": BYTES, "binary_data_size": BYTES},
        {},
        "but the request contains its elements too",
    ),
]


@pytest.mark.parametrize(("parameters", "members", "message"), REFUSED, ids=range(len(REFUSED)))
def test_incomplete_or_contradictory_parameters_are_rejected(
    served: PlaneProcess, parameters: dict[str, Any], members: dict[str, Any], message: str
) -> None:
    entry = {"name": "in0", "datatype": "INT32", "shape": [1, WIDE], "parameters": parameters, **members}
    answer = httpx.post(f"{served.url}/v2/models/wide/infer", json={"inputs": [entry]})
    assert answer.status_code == 400
    assert message in answer.json()["detail"]


@pytest.mark.parametrize("body", [b"", b"[]", b'{"key": "x", "offset": -1}', b'{"offset": 1.5}', b"\xff", b" " * 5000])
def test_an_invalid_registration_is_rejected(served: PlaneProcess, body: bytes) -> None:
    answer = httpx.post(f"{served.url}/v2/systemsharedmemory/region/r/register", content=body)
    assert answer.status_code in (400, 413)

"""The path from a model file to a prediction, over real sockets and with real processes."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import numpy as np
import pytest
from numpy.typing import NDArray
from tritonclient import grpc as triton
from tritonclient.utils import InferenceServerException

from tests.support.compiled import expected
from tests.support.control_plane import problem
from tests.support.serving import INT8, OTHERS, UINT8, Served, children_of, command, environment, model
from tests.support.waiting import GIVE_UP_S, WORK_TIMEOUT_S, eventually


def raw(served: Served) -> socket.socket:
    url = urlsplit(served.url)
    assert url.hostname
    assert url.port
    return socket.create_connection((url.hostname, url.port), timeout=GIVE_UP_S)


def uploads(folder: Path) -> list[Path]:
    directory = folder / "data" / "store" / "uploads"
    return list(directory.iterdir()) if directory.exists() else []


@pytest.mark.parametrize("digit", range(10))
def test_a_picture_gets_the_right_label(served: Served, digit: int) -> None:
    assert served.label(digit) == expected(INT8)[digit].argmax()


def test_the_second_push_is_answered_without_compiling(served: Served) -> None:
    before = datetime.now(UTC)
    build = served.push()
    assert build["state"] == "succeeded"
    assert datetime.fromisoformat(build["finished_at"]) < before


def test_a_batch_variant_is_added_to_a_served_model(served: Served) -> None:
    assert served.push(batch="1,3")["options"] == {}
    variant = next(
        build
        for build in served.client.get("/api/v1/builds", params={"model": "digits"}).json()["builds"]
        if build["options"] == {"batch": 3}
    )
    assert served.ended(variant["id"])["state"] == "succeeded"
    spec = served.client.get("/v2/models/digits").json()["inputs"][0]
    pictures = np.random.default_rng(0).integers(-128, 128, (3, *spec["shape"][1:]), np.int8)

    def scores(x: NDArray[np.int8]) -> list[int]:
        entry = {"name": spec["name"], "datatype": "INT8", "shape": list(x.shape), "data": x.reshape(-1).tolist()}
        response = served.client.post("/v2/models/digits/infer", json={"inputs": [entry]})
        return list(response.json()["outputs"][0]["data"]) if response.status_code == 200 else []

    eventually(lambda: bool(scores(pictures)))
    assert scores(pictures) == [score for index in range(3) for score in scores(pictures[index : index + 1])]


@pytest.mark.slow
def test_tuning_continues_while_the_untuned_build_is_served(served: Served) -> None:
    plain = served.push(tune="1s")
    assert plain["state"] == "succeeded"
    builds = served.client.get("/api/v1/builds", params={"model": "digits"}).json()["builds"]
    tuned = served.ended(next(build["id"] for build in builds if build["options"] == {"tune_s": 1.0}))
    assert tuned["state"] == "succeeded"
    log = served.client.get(f"/api/v1/builds/{tuned['id']}/log").text
    assert ("no gain" in log) == (tuned["artifact"] == plain["artifact"])
    assert ("promoted" in log) == (tuned["artifact"] != plain["artifact"])
    assert served.label(3) == expected(INT8)[3].argmax()


def test_both_workers_are_listed(served: Served) -> None:
    pids = {served.control_plane(), served.compile_worker()}
    workers = served.client.get("/api/v1/workers").json()["workers"]
    assert sorted(worker["kind"] for worker in workers) == ["compile", "inference"]
    assert {worker["pid"] for worker in workers} == pids <= set(children_of(served.process.pid))


def test_the_data_plane_contains_neither_python_nor_the_compiler(served: Served) -> None:
    served.label(0)
    mapped = Path(f"/proc/{served.data_plane()}/maps").read_text()
    assert "liboctet_runtime" in mapped
    assert "python" not in mapped
    assert "libtvm" not in mapped
    assert "libtvm_" not in Path(f"/proc/{served.control_plane()}/maps").read_text().replace("libtvm_ffi", "")


def test_the_events_of_a_build_can_be_followed(served: Served) -> None:
    build = served.push(target=OTHERS[0])
    events = list(served.events(build["id"]))
    stages = [event.data["stage"] for event in events if event.kind == "stage"]
    assert stages == ["fetch", "import", "select", "legalize", "canonicalize", "codegen", "link", "verify", "publish"]
    assert events[-1].data["state"] == "succeeded"
    log = served.client.get(f"/api/v1/builds/{build['id']}/log").text
    assert "not verified: this host lacks" in log


def test_a_build_that_is_canceled_stops(served: Served) -> None:
    build = served.push(target=OTHERS[1])
    served.reaches(build["id"], "import")
    served.client.post(f"/api/v1/builds/{build['id']}/cancel")
    assert served.ended(build["id"])["state"] == "canceled"
    eventually(lambda: served.compiler_children() == [])


def test_a_file_with_invalid_content_fails_only_its_build(served: Served) -> None:
    broken = model(UINT8)
    response = served.client.put("/api/v1/models?name=broken", content=broken[: len(broken) // 2])
    build = served.ended(response.json()["id"])
    assert (build["state"], build["error"]["stage"]) == ("failed", "import")
    assert served.label(3) == 3


def test_an_abandoned_upload_leaves_nothing_behind(served: Served, folder: Path) -> None:
    with raw(served) as connection:
        head = b"PUT /api/v1/models?name=half HTTP/1.1\r\nHost: localhost\r\nContent-Length: 900000\r\n\r\n"
        connection.sendall(head + model(INT8)[:1000])
        eventually(lambda: len(uploads(folder)) == 1)
    eventually(lambda: uploads(folder) == [])
    problem(served.client.get("/api/v1/models/half"), 404, "not_found")


def test_a_body_that_announces_too_many_bytes_is_refused_before_it_is_sent(served: Served) -> None:
    with raw(served) as connection:
        connection.sendall(
            b"PUT /api/v1/models?name=big HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000001\r\n"
            b"Expect: 100-continue\r\n\r\n"
        )
        assert connection.recv(100).startswith(b"HTTP/1.1 413")


def test_a_client_that_sends_too_much_anyway_gets_the_response(served: Served) -> None:
    response = served.client.put("/api/v1/models?name=big", content=bytes(3_000_000))
    problem(response, 413, "too_large")


def test_a_body_of_unknown_length_is_cut_off_at_the_limit(served: Served, folder: Path) -> None:
    chunks = (model(INT8)[:1000] + bytes(99_000) for _ in range(11))
    problem(served.client.put("/api/v1/models?name=big", content=chunks), 413, "too_large")
    assert uploads(folder) == []


def test_a_file_of_another_format_is_rejected_while_it_is_sent(served: Served) -> None:
    response = served.client.put("/api/v1/models?name=zip", content=b"PK\x03\x04" + bytes(900_000))
    problem(response, 415, "unsupported_format")


def test_the_metrics_count_it(served: Served) -> None:
    served.label(1)
    text = served.client.get("/metrics").text
    for metric in (
        'octet_requests_total{code="200",model="digits"',
        'octet_request_duration_seconds_bucket{code="200",le="5e-05"',
        "octet_queue_duration_seconds_count",
        "octet_compute_duration_seconds_count",
        'octet_builds_total{outcome="succeeded"',
        "octet_build_duration_seconds_count",
        "octet_cache_bytes",
        "octet_artifact_info",
    ):
        assert metric in text


def test_a_second_server_on_the_same_port_reports_it_and_ends(served: Served, tmp_path: Path) -> None:
    port = urlsplit(served.url).port
    assert port
    done = subprocess.run(
        command(tmp_path, port), env=environment(), capture_output=True, text=True, timeout=WORK_TIMEOUT_S, cwd=tmp_path
    )
    assert done.returncode == 1
    assert "conflict" in done.stdout
    assert not (tmp_path / "data").exists()


def test_a_connection_stays_open_between_requests(served: Served) -> None:
    with httpx.Client(
        base_url=served.url, limits=httpx.Limits(max_connections=1), timeout=WORK_TIMEOUT_S, trust_env=False
    ) as client:
        ports = set()
        for path in ("/v2/health/live", "/api/v1/nothing", "/api/v1/models"):
            stream = client.get(path).extensions["network_stream"]
            ports.add(stream.get_extra_info("client_addr"))
    assert len(ports) == 1


def test_grpc_gives_the_same_outputs_even_after_a_crash(served: Served) -> None:
    spec = served.client.get("/v2/models/digits").json()["inputs"][0]
    shape = [1, *spec["shape"][1:]]  # the model may have a batch variant by now
    pixels = np.random.default_rng(0).integers(-128, 128, shape, np.int8)
    image = triton.InferInput(spec["name"], shape, spec["datatype"])
    image.set_data_from_numpy(pixels)
    raw = {"Inference-Header-Content-Length": "0"}
    response = served.client.post("/v2/models/digits/infer", content=pixels.tobytes(), headers=raw)
    over_http = response.json()["outputs"][0]["data"]

    with triton.InferenceServerClient(served.grpc) as client:

        def same() -> bool:
            try:
                answer = client.infer("digits", [image]).as_numpy("probabilities")
            except InferenceServerException:
                return False
            assert answer.reshape(-1).tolist() == over_http
            return True

        assert same()
        os.kill(served.data_plane(), signal.SIGKILL)
        eventually(same)

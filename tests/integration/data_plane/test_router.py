"""A router's data plane forwards requests over HTTP to the data planes of workers."""

from __future__ import annotations

import gzip
import json
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import httpx
import numpy as np
import pytest

from service.workers.data_plane import orders
from tests.support import runners
from tests.support.gates import Gate
from tests.support.routed import KEY, Cluster, cluster, request, vector
from tests.support.waiting import GIVE_UP_S, eventually

LARGE = (1, 150_000)


def echo() -> runners.FunctionRunner:
    return runners.identity("UINT8", 1, 16)


@pytest.fixture
def routed(tmp_path: Path) -> Iterator[Cluster]:
    with cluster(tmp_path) as made:
        yield made


def infer(routed: Cluster, content: bytes, model: str = "echo", **headers: str) -> httpx.Response:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    url = f"{routed.url}/v2/models/{model}/infer"
    return httpx.post(url, content=content, headers=named, timeout=GIVE_UP_S)


def test_a_prediction_is_answered_by_a_worker(routed: Cluster) -> None:
    worker = routed.worker({"echo": echo()})
    routed.tell()
    for seed in range(5):
        answer = infer(routed, request(vector(seed), id=f"mine-{seed}"), X_Request_Id=f"n{seed}")
        assert answer.status_code == 200
        assert answer.json()["outputs"][0]["data"] == vector(seed).reshape(-1).tolist()
        assert answer.json()["id"] == f"mine-{seed}"
        assert answer.headers["x-request-id"] == f"n{seed}"
        assert "total;dur=" in answer.headers["server-timing"]
        assert not {"octet-hop-id", "octet-cluster-key"} & set(answer.headers)
    assert routed.forwards() == {worker.id: {"forwarded": 5, "retried": 0, "failed": 0}}
    forwards = [each for report in routed.reports for each in report["forwards"]]
    # a report may arrive between request and response
    hops = [each["hop"]["counts"] for each in forwards if "hop" in each]
    assert sum(map(sum, hops)) == 5


def test_large_bodies_and_responses_are_forwarded_completely(routed: Cluster) -> None:
    routed.worker({"large": runners.identity("UINT8", *LARGE)})
    routed.tell()
    values = np.random.default_rng(1).integers(0, 256, LARGE, np.uint8)
    entry = {"name": "x", "datatype": "UINT8", "shape": list(LARGE), "parameters": {"binary_data_size": values.size}}
    text = json.dumps({"inputs": [entry], "parameters": {"binary_data_output": True}}).encode()
    with httpx.Client(timeout=GIVE_UP_S) as client:
        for _ in range(20):
            answer = client.post(
                f"{routed.url}/v2/models/large/infer",
                content=text + values.tobytes(),
                headers={"Inference-Header-Content-Length": str(len(text))},
            )
            length = int(answer.headers["inference-header-content-length"])
            assert answer.content[length:] == values.tobytes()


def test_chunked_and_compressed_bodies_are_forwarded(routed: Cluster) -> None:
    routed.worker({"echo": echo()})
    routed.tell()
    wanted = vector(3).reshape(-1).tolist()
    text = request(vector(3))

    def pieces() -> Iterator[bytes]:
        for at in range(0, len(text), 10):
            yield text[at : at + 10]

    answer = httpx.post(f"{routed.url}/v2/models/echo/infer", content=pieces(), timeout=GIVE_UP_S)
    assert answer.json()["outputs"][0]["data"] == wanted
    answer = infer(routed, gzip.compress(text), Content_Encoding="gzip")
    assert answer.json()["outputs"][0]["data"] == wanted


def test_the_error_of_a_worker_is_forwarded(routed: Cluster) -> None:
    routed.worker({"echo": echo()})
    routed.tell()
    answer = infer(routed, b'{"inputs": []}', X_Request_Id="this-one")
    assert (answer.status_code, answer.headers["content-type"]) == (400, "application/problem+json")
    assert answer.json()["detail"] == "input 'x' is missing"
    assert (answer.json()["request_id"], answer.json()["instance"]) == ("this-one", "/v2/models/echo/infer")


def test_the_metadata_of_a_model_comes_from_a_worker(routed: Cluster) -> None:
    routed.worker({"echo": echo()})
    routed.tell()
    infer(routed, request(vector(0)))
    about = httpx.get(f"{routed.url}/v2/models/echo").json()
    assert about["inputs"][0]["shape"] == [1, 16]
    assert httpx.get(f"{routed.url}/v2/models/echo/ready").json() == {"name": "echo", "ready": True}
    assert httpx.get(f"{routed.url}/v2/models/echo/config").json()["backend"] == "octet"
    stats = httpx.get(f"{routed.url}/v2/models/echo/stats").json()["model_stats"][0]
    assert stats["inference_count"] == 1
    answer = httpx.head(f"{routed.url}/v2/models/echo")
    assert (answer.status_code, int(answer.headers["content-length"]) > 0) == (200, True)


def test_the_least_busy_worker_for_its_capacity_is_chosen(routed: Cluster) -> None:
    gate = Gate()
    small = routed.worker({"held": runners.held(gate, "UINT8", 1, 16)}, capacity=1)
    large = routed.worker({"held": runners.held(gate, "UINT8", 1, 16)}, capacity=3)
    routed.tell()
    threads = [
        threading.Thread(target=infer, args=(routed, request(np.full((1, 16), 7, np.uint8)), "held")) for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    eventually(lambda: sum(each["forwarded"] for each in routed.forwards().values()) == 8)
    assert {name: each["forwarded"] for name, each in routed.forwards().items()} == {small.id: 2, large.id: 6}
    gate.open()
    for thread in threads:
        thread.join()


def test_a_worker_without_the_model_is_used_if_its_pool_can_serve_it(routed: Cluster) -> None:
    first = routed.worker({"echo": echo()}, pool="p")
    other = routed.worker({"echo": echo()}, pool="q")
    first.loaded.clear()
    other.loaded.clear()
    routed.models.append(orders.Servable("echo", "", ["q"]))
    routed.tell()
    assert infer(routed, request(vector(1))).status_code == 200
    assert set(routed.forwards()) == {other.id}


def test_the_error_explains_why_no_worker_can_answer(routed: Cluster) -> None:
    worker = routed.worker({"echo": echo()})
    worker.state = "draining"
    routed.models += [
        orders.Servable("echo", "", ["p"]),
        orders.Servable("new", "", [], "no artifact of it is verified for pool p"),
    ]
    routed.tell()
    answer = infer(routed, request(vector(1)))
    assert (answer.status_code, answer.json()["code"]) == (503, "not_ready")
    assert answer.json()["detail"] == "no worker is ready in the pools that can serve it: p"
    assert infer(routed, request(vector(1)), "new").json()["detail"] == "no artifact of it is verified for pool p"
    assert infer(routed, request(vector(1)), "cats").status_code == 404
    assert routed.asked[-1]["kind"] == "resolve"


def test_an_unknown_name_is_resolved_once(routed: Cluster) -> None:
    worker = routed.worker({"echo": echo()})
    worker.loaded.clear()
    routed.tell()

    def resolve(model: str, version: str) -> None:
        worker.loaded.append((model, version))
        members = [orders.Worker(worker.id, "p", 1, "ready", tuple(worker.loaded))]
        routed.say(orders.workers(KEY, members, ()))

    routed.resolve = resolve
    for _ in range(3):
        assert infer(routed, request(vector(1))).status_code == 200
    assert [each["kind"] for each in routed.asked].count("resolve") == 1


def test_if_the_only_loaded_worker_drains_the_name_is_resolved_again(routed: Cluster) -> None:
    leaving, other = (routed.worker({"echo": echo()}, pool=pool) for pool in ("old", "new"))
    other.loaded.clear()
    routed.tell()
    assert infer(routed, request(vector(1))).status_code == 200
    leaving.state = "draining"
    routed.tell()

    def resolve(model: str, version: str) -> None:
        routed.say(orders.workers(KEY, (), [orders.Servable(model, version, ("new", "old"))], resets=False))

    routed.resolve = resolve
    assert infer(routed, request(vector(1))).status_code == 200
    assert routed.forwards()[other.id]["forwarded"] == 1


def test_a_worker_that_does_not_have_the_model_is_skipped(routed: Cluster) -> None:
    empty = routed.worker({})
    routed.worker({"echo": echo()})
    empty.loaded = [("echo", "")]
    routed.tell()
    for seed in range(12):
        assert infer(routed, request(vector(seed))).status_code == 200
    assert routed.forwards()[empty.id]["retried"] > 0


def test_without_the_cluster_key_a_worker_requires_an_api_key(routed: Cluster) -> None:
    worker = routed.worker({"echo": echo()})
    url = f"http://127.0.0.1:{worker.started.http}"
    for headers in ({}, {"octet-cluster-key": "wrong"}):
        answer = httpx.post(f"{url}/v2/models/echo/infer", content=request(vector(1)), headers=headers)
        assert answer.status_code == 401
        answer = httpx.post(f"{url}/inference.GRPCInferenceService/ModelInfer", content=b"", headers=headers)
        assert answer.status_code == 404


def test_a_cluster_key_of_a_client_is_not_forwarded(routed: Cluster) -> None:
    routed.worker({"echo": echo()})
    routed.tell()
    answer = infer(routed, request(vector(1)), octet_cluster_key="wrong", octet_hop_id="7", authorization="Bearer x")
    assert answer.status_code == 200


def test_a_deadline_is_forwarded(routed: Cluster) -> None:
    gate = Gate()
    routed.worker({"held": runners.held(gate, "UINT8", 1, 16)})
    routed.tell()
    body = request(np.full((1, 16), 7, np.uint8))
    first = threading.Thread(target=infer, args=(routed, body, "held"))
    first.start()
    eventually(lambda: sum(each["forwarded"] for each in routed.forwards().values()) == 1)
    answer = infer(routed, body, "held", Octet_Timeout_Ms="100")
    assert (answer.status_code, answer.json()["code"]) == (504, "deadline_passed")
    gate.open()
    first.join()


def test_a_killed_worker_loses_no_request(routed: Cluster) -> None:
    doomed, other = routed.worker({"echo": echo()}), routed.worker({"echo": echo()})
    routed.tell()
    outcomes: Counter[str] = Counter()
    is_over = threading.Event()

    def ask(number: int) -> None:
        with httpx.Client(timeout=GIVE_UP_S) as client:
            seed = number
            while not is_over.is_set():
                seed += 8
                answer = client.post(f"{routed.url}/v2/models/echo/infer", content=request(vector(seed)))
                is_right = answer.status_code == 200 and (
                    answer.json()["outputs"][0]["data"] == vector(seed).reshape(-1).tolist()
                )
                outcomes["right" if is_right else answer.text] += 1

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    eventually(lambda: outcomes["right"] > 100)
    doomed.kill()
    at_the_kill = outcomes["right"]
    eventually(lambda: outcomes["right"] > at_the_kill + 200)
    routed.workers.remove(doomed)  # simulates the report of its missing heartbeat
    routed.tell()
    eventually(lambda: outcomes["right"] > at_the_kill + 300)
    is_over.set()
    for thread in threads:
        thread.join()
    assert set(outcomes) == {"right"}
    assert routed.forwards()[other.id]["forwarded"] > 100


def test_a_stopped_worker_loses_its_requests_when_it_is_removed(routed: Cluster) -> None:
    import signal

    stopped, other = routed.worker({"echo": echo()}), routed.worker({"echo": echo()})
    routed.workers.remove(other)
    routed.tell()
    assert infer(routed, request(vector(0))).status_code == 200
    stopped.started.process.send_signal(signal.SIGSTOP)
    answers: list[httpx.Response] = []
    threads = [
        threading.Thread(target=lambda seed=seed: answers.append(infer(routed, request(vector(seed)))))
        for seed in range(4)
    ]
    for thread in threads:
        thread.start()
    eventually(lambda: routed.forwards()[stopped.id]["forwarded"] >= 2)
    routed.workers[:] = [other]
    routed.tell()
    for thread in threads:
        thread.join(GIVE_UP_S)
    stopped.kill()
    assert [each.status_code for each in answers] == [200] * 4


def test_a_draining_worker_answers_its_requests(routed: Cluster) -> None:
    gate = Gate()
    leaving = routed.worker({"held": runners.held(gate, "UINT8", 1, 16)})
    routed.tell()
    answers: list[httpx.Response] = []
    body = request(np.full((1, 16), 7, np.uint8))
    thread = threading.Thread(target=lambda: answers.append(infer(routed, body, "held")))
    thread.start()
    eventually(lambda: routed.forwards().get(leaving.id, {}).get("forwarded") == 1)
    leaving.state = "draining"
    other = routed.worker({"held": runners.held(gate, "UINT8", 1, 16)})
    routed.tell()
    leaving.started.process.terminate()
    time.sleep(0.2)
    gate.open()
    thread.join()
    assert answers[0].status_code == 200
    assert leaving.started.process.wait(GIVE_UP_S) == 0
    assert infer(routed, body, "held").status_code == 200
    assert routed.forwards()[other.id]["forwarded"] == 1

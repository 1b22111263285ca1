"""Tests of traces as a collector receives them."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
from grpc import StatusCode
from grpc.aio import AioRpcError
from opentelemetry.proto.trace.v1.trace_pb2 import Span
from opentelemetry.proto.trace.v1.trace_pb2 import Status as SpanStatus

from service.api.grpc import inference_pb2 as pb
from service.api.ops.traced import start_tracing
from service.api.ops.tracing import Tracing
from service.core.settings import Settings
from tests.support.data_plane import DataPlane, as_json, channel, connect
from tests.support.otlp_collector import Collected, attributes, collector
from tests.support.runners import digits
from tests.support.tables import TARGET, Tables
from tests.support.waiting import WORK_TIMEOUT_S

pytestmark = pytest.mark.anyio
NAME = pb.DESCRIPTOR.services_by_name["GRPCInferenceService"].full_name

IMAGE = np.zeros((1, 8, 8, 1), np.uint8)
REQUEST = as_json(IMAGE, "image")
PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
TRACE, PARENT_SPAN = (bytes.fromhex(part) for part in PARENT.split("-")[1:3])
STAGES = {"input", "queue", "batch", "run", "output"}


@pytest.fixture
def tables() -> Tables:
    tables = Tables()
    tables.model("digits", digits)
    return tables


@contextmanager
def tracing(ratio: float | None = 1.0) -> Iterator[tuple[Collected, Tracing]]:
    """When the block ends, everything that was traced in it has been collected."""
    with collector() as collected:
        tracing = Tracing(collected.endpoint, ratio)
        try:
            yield collected, tracing
        finally:
            tracing.close()


def check_tree(collected: Collected, root: Span) -> None:
    """Asserts that the spans of the stages are within the root span, one after the other, and that `run` is within
    `batch`.
    """
    assert {span.name for span in collected.spans} == {root.name, *STAGES}
    stages = {name: collected.one(name) for name in STAGES}
    assert {span.trace_id for span in collected.spans} == {root.trace_id}
    assert {name: span.parent_span_id for name, span in stages.items()} == dict.fromkeys(STAGES, root.span_id) | {
        "run": stages["batch"].span_id
    }
    in_order = [stages[name] for name in ("input", "queue", "batch", "output")]
    times = [root.start_time_unix_nano]
    for span in in_order:
        times += [span.start_time_unix_nano, span.end_time_unix_nano]
    times.append(root.end_time_unix_nano)
    steps = np.diff(np.array(times, np.int64))
    assert (steps >= -1000).all(), steps  # tolerates the rounding of float64 seconds, less than a microsecond
    batch, run = stages["batch"], stages["run"]
    assert batch.start_time_unix_nano <= run.start_time_unix_nano <= run.end_time_unix_nano
    assert run.end_time_unix_nano <= batch.end_time_unix_nano + 1000
    assert abs(root.start_time_unix_nano - time.time_ns()) < 60e9


async def test_a_prediction_over_http_is_part_of_the_clients_trace(tables: Tables) -> None:
    with tracing() as (collected, traces):
        async with connect(tables, tracing=traces) as client:
            headers = {"traceparent": PARENT, "X-Request-Id": "mine"}
            response = await client.post("/v2/models/digits/infer", json=REQUEST, headers=headers)
            assert response.status_code == 200
    root = collected.one("POST /v2/models/{model}/infer")
    assert (root.trace_id, root.parent_span_id, root.kind) == (TRACE, PARENT_SPAN, Span.SPAN_KIND_SERVER)
    check_tree(collected, root)
    assert attributes(root) == {
        "http.request.method": "POST",
        "http.route": "/v2/models/{model}/infer",
        "http.response.status_code": 200,
        "url.path": "/v2/models/digits/infer",
        "url.scheme": "http",
        "octet.request_id": "mine",
        "octet.model": "digits",
        "octet.version": 1,
        "octet.target": TARGET,
    }
    assert attributes(collected.one("batch")) == {"octet.batch.requests": 1, "octet.batch.samples": 1}
    assert collected.resource["service.name"] == "octet"


async def test_a_prediction_over_grpc_is_part_of_the_clients_trace(tables: Tables) -> None:
    request = pb.ModelInferRequest(model_name="digits", raw_input_contents=[IMAGE.tobytes()])
    request.inputs.add(name="image", datatype="UINT8", shape=IMAGE.shape)
    with tracing() as (collected, traces):
        async with channel(DataPlane(tables, tracing=traces)) as opened:
            call = opened.unary_unary(f"/{NAME}/ModelInfer")
            await call(request.SerializeToString(), metadata=(("traceparent", PARENT),))
    root = collected.one("inference.GRPCInferenceService/ModelInfer")
    assert (root.trace_id, root.parent_span_id, root.kind) == (TRACE, PARENT_SPAN, Span.SPAN_KIND_SERVER)
    check_tree(collected, root)
    assert attributes(root)["rpc.grpc.status_code"] == 0
    assert attributes(root)["octet.model"] == "digits"


async def test_a_refusal_has_its_code_and_no_stages(tables: Tables) -> None:
    with tracing() as (collected, traces):
        async with connect(tables, tracing=traces) as client:
            await client.post("/v2/models/cats/infer", json=REQUEST)
            await client.post("/v2/models/digits/infer", json={})
        async with channel(DataPlane(tables, tracing=traces)) as opened:
            with pytest.raises(AioRpcError) as refused:
                await opened.unary_unary(f"/{NAME}/ModelInfer")(b"\xff")
    assert refused.value.code() is StatusCode.INVALID_ARGUMENT
    found = [attributes(span) for span in collected.spans]
    assert [each.get("http.response.status_code") for each in found] == [404, 400, None]
    assert [each.get("rpc.grpc.status_code") for each in found] == [None, None, 3]
    assert all(
        span.status.code == SpanStatus.STATUS_CODE_UNSET for span in collected.spans
    )  # the span of a client's error has not failed


async def test_sampling_follows_the_client_or_else_the_ratio(tables: Tables) -> None:
    with tracing(ratio=0.0) as (collected, traces):
        async with connect(tables, tracing=traces) as client:
            for headers in ({}, {"traceparent": PARENT[:-1] + "0"}, {"traceparent": "nonsense"}):
                await client.post("/v2/models/digits/infer", json=REQUEST, headers=headers)
            await client.post("/v2/models/digits/infer", json=REQUEST, headers={"traceparent": PARENT})
    assert {span.trace_id for span in collected.spans} == {TRACE}
    assert len(collected.spans) == 1 + len(STAGES)


def report_request(request_id: str, **members: Any) -> Any:
    """Returns the data plane's report on a request over HTTP."""
    now_s = time.monotonic()
    times = {name: now_s + 0.001 * at for at, name in enumerate(("began_s", "arrived_s", "prepared_s", "submitted_s"))}
    computed = {"taken_s": now_s + 0.005, "computed_s": now_s + 0.01, "run_s": 0.002, "ran_s": now_s + 0.011}
    return {
        **{"protocol": "rest", "path": "/v2/models/digits/infer", "route": "/v2/models/{model}/infer"},
        **{"scheme": "http", "traceparent": "", "tracestate": "", "request_id": request_id, "code": "200"},
        **{"model": "digits", "version": "1", "target": TARGET, "key": 1, "call": 7, "requests": 3, "samples": 3},
        **{"now_s": now_s + 0.012, "ended_s": now_s + 0.012, **times, **computed, **members},
    }


def test_a_batch_is_linked_to_its_other_requests() -> None:
    with tracing() as (collected, made):
        made.note(report_request("a"))
        made.note(report_request("b"))
        made.note(report_request("c", call=8))
        made.note(report_request("d", key=2))
    roots = {attributes(span)["octet.request_id"]: span for span in collected.named("POST /v2/models/{model}/infer")}
    batches = {span.parent_span_id: span for span in collected.named("batch")}
    links = {name: [link.span_id for link in batches[root.span_id].links] for name, root in roots.items()}
    assert links == {"a": [roots["b"].span_id], "b": [roots["a"].span_id], "c": [], "d": []}
    # one of the three requests is not traced
    assert attributes(batches[roots["a"].span_id])["octet.batch.requests"] == 3


async def test_traces_are_sent_while_the_server_runs(tables: Tables, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "10")  # milliseconds
    with tracing() as (collected, traces):
        async with connect(tables, tracing=traces) as client:
            await client.post("/v2/models/digits/infer", json=REQUEST)
            await asyncio.to_thread(collected.wait, 1 + len(STAGES))


async def test_a_missing_collector_delays_neither_responses_nor_the_end(
    tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("service.api.ops.tracing._PATIENCE_S", 0.2)
    traces = Tracing("http://127.0.0.1:9", 1.0)
    async with connect(tables, tracing=traces) as client:
        assert (await client.post("/v2/models/digits/infer", json=REQUEST)).status_code == 200
    traces.close()
    # the thread tries to send for ten seconds
    assert "octet-traces" in [thread.name for thread in threading.enumerate()]


@pytest.mark.parametrize(
    ("settings", "variables", "is_on"),
    [
        ({}, {}, False),
        ({"trace_endpoint": "http://127.0.0.1:9"}, {}, True),
        ({}, {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9"}, True),
        ({}, {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://127.0.0.1:9/v1/traces"}, True),
        ({"trace_endpoint": "http://127.0.0.1:9"}, {"OTEL_SDK_DISABLED": "true"}, False),
        ({}, {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9", "OTEL_TRACES_EXPORTER": "none"}, False),
    ],
)
def test_traces_are_recorded_if_an_endpoint_is_set(
    settings: dict[str, Any], variables: dict[str, str], is_on: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    started = start_tracing(Settings(**settings))
    assert (started is not None) == is_on
    if started is not None:
        started.close()


def test_without_traces_the_library_is_not_loaded() -> None:
    program = """
import sys
import service.api.ops.server
from service.api.ops.traced import start_tracing
from service.core.settings import Settings
assert start_tracing(Settings()) is None
# FastAPI itself loads the API, which does nothing alone.
print([name for name in sys.modules if name.startswith(("opentelemetry.sdk", "opentelemetry.exporter", "requests"))])
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=WORK_TIMEOUT_S)
    assert done.stdout.strip() == "[]", done.stderr

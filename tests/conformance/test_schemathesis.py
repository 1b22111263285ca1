"""Whatever is asked of an operation, its answer is one that the OpenAPI document describes, and no 5xx but one.

Requests are drawn from the document: well-formed ones and others. They go through a real socket.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from schemathesis import checks
from schemathesis.core.result import Ok
from schemathesis.generation import GenerationMode

from service.api.app import control_plane as described
from service.api.app import create_app
from service.api.assembly import assemble
from service.core.settings import Auth, Settings
from service.workers.data_plane import plane
from tests.support.control_plane import HOST, NOBODY, ControlPlane
from tests.support.data_plane import DataPlane, sample_tables, serving
from tests.support.uvicorn_thread import listening
from tests.support.waiting import WORK_TIMEOUT_S


def no_unplanned_error(context: Any, response: Any, case: Any) -> None:
    """The one 5xx that is part of the bargain: what stands in for an artifact here cannot be loaded."""
    assert response.status_code < 500 or response.json()["code"] == "not_ready", response.text


CHECKS = [
    no_unplanned_error,
    checks.status_code_conformance,
    checks.content_type_conformance,
    checks.response_headers_conformance,
    checks.response_schema_conformance,
]
schemathesis.serializer.alias("application/x-tar", "application/octet-stream")  # bytes, as they are drawn
SCHEMA = schemathesis.openapi.from_dict(described().openapi())


def operations() -> Iterator[tuple[str, Any]]:
    for each in SCHEMA.get_all_operations():
        assert isinstance(each, Ok), each
        yield f"{each.ok().method.upper()} {each.ok().path}", each.ok()


OPERATIONS = dict(operations())


@pytest.fixture(scope="module")
def known(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """Where both planes listen, and path parameters of what is there."""
    chosen = Settings(data_dir=tmp_path_factory.mktemp("data"), auth=Auth.OFF)  # keys are made
    with assemble(chosen, HOST, plane.DataPlane(NOBODY)) as services:
        app = create_app(services)
        with listening(app) as control, serving(DataPlane(sample_tables())) as data:
            import httpx

            with httpx.Client(base_url=f"http://{control}", timeout=WORK_TIMEOUT_S) as client:
                pushed = ControlPlane(services, client)
                build = pushed.push().json()
                artifact = pushed.succeed()
            yield {
                "/v2": f"http://{data}",
                "/": f"http://{control}",
                "model": "digits",
                "name": "digits",
                "version": 1,
                "id": build["id"],
                "digest": str(artifact),
            }


def try_out(operation: Any, known: dict[str, Any], examples: int) -> None:
    base = known["/v2" if operation.path.startswith("/v2") else "/"]

    @given(
        st.one_of([operation.as_strategy(generation_mode=mode) for mode in GenerationMode]),
        st.booleans(),
    )
    @settings(
        max_examples=examples,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large],
    )
    def ask(case: Any, of_what_is_there: bool) -> None:
        if of_what_is_there:
            for name in case.path_parameters or {}:
                case.path_parameters[name] = known.get(name, case.path_parameters[name])
        case.call_and_validate(base_url=base, checks=CHECKS, timeout=WORK_TIMEOUT_S)

    ask()


@pytest.mark.parametrize("operation", OPERATIONS)
def test_a_few_requests(known: dict[str, Any], operation: str) -> None:
    try_out(OPERATIONS[operation], known, 5)


@pytest.mark.slow
@pytest.mark.parametrize("operation", OPERATIONS)
def test_many_requests(known: dict[str, Any], operation: str) -> None:
    try_out(OPERATIONS[operation], known, 30)

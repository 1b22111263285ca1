"""`/api/v1/models/{name}/compare`: compares the bytes with which all pools of a cluster answer one request."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request
from starlette.concurrency import run_in_threadpool

from service.api.control import paths, wire
from service.api.control.body import small_body
from service.api.injected import ServicesOf
from service.api.services import Services
from service.core.cluster.settings import Role
from service.core.cluster.worker import Worker, WorkerState
from service.core.errors import NotReady, Unsupported
from service.workers.routing.comparing import Answer, ask_all, differences
from service.workers.routing.security import security_of

router = APIRouter(prefix=f"{paths.PREFIX}/models", tags=["models"])

_PASSED = "content-type", "inference-header-content-length"
_BINARY = {"type": "string", "format": "binary"}


@router.post(
    "/{name}/compare",
    summary="Compare the answers of all pools",
    response_model=wire.Comparison,
    openapi_extra={"requestBody": {"content": {"application/octet-stream": {"schema": _BINARY}}}},
    responses={
        413: {"description": "The request is larger than the server accepts."},
        422: {"description": "This server is not the API of a cluster."},
        503: {"description": "No worker is running."},
    },
)
async def compare(
    name: wire.PathName,
    request: Request,
    services: ServicesOf,
    version: Annotated[int | None, Query(ge=1, le=10**9, description="The version; by default the newest.")] = None,
) -> wire.Comparison:
    """The body, with its headers, is that of a prediction: `POST /v2/models/{name}/infer`. The request is sent to one
    ready worker of each pool, preferably to a worker that has the version in memory. A pool that does not answer is
    listed with the reason, and does not count as a difference.
    """
    if services.settings.role is not Role.API:
        raise Unsupported("only the API of a cluster has pools to compare", hint="octet verify checks one artifact")
    limit_bytes = services.settings.max_predict_bytes
    body = await small_body(request, limit_bytes, "OCTET_MAX_PREDICT_BYTES raises the limit")
    headers = {header: request.headers[header] for header in _PASSED if header in request.headers}
    return await run_in_threadpool(_compare, services, name, version, headers, body)


def _compare(
    services: Services, name: str, version: int | None, headers: dict[str, str], body: bytes
) -> wire.Comparison:
    found = services.version(name, version)
    settings = services.settings
    workers = _one_of_each_pool(services, name, str(found.number))
    if not workers:
        raise NotReady("no worker is running", hint="octet worker starts one")
    path = f"/v2/models/{name}/versions/{found.number}/infer"
    answers = ask_all(workers, path, headers, body, security_of(settings), settings.max_predict_bytes)
    answered = [each for each in answers if each.outputs is not None]
    shown = [_to_wire(each, answered[0] if answered else each) for each in answers]
    return wire.Comparison(
        name=name,
        version=found.number,
        equal=not any(each.differences for each in shown) if len(answered) > 1 else None,
        reference=answered[0].worker.pool if answered else None,
        answers=shown,
    )


def _one_of_each_pool(services: Services, model: str, version: str) -> list[Worker]:
    """Returns one ready worker for each pool and target."""
    chosen: dict[tuple[str, str], Worker] = {}
    for worker in sorted(services.members(), key=lambda each: ((model, version) not in each.loaded, each.id)):
        if worker.state is WorkerState.READY and worker.pool and worker.target:
            chosen.setdefault((worker.pool, worker.target), worker)
    return [chosen[each] for each in sorted(chosen)]


def _to_wire(answer: Answer, reference: Answer) -> wire.PoolAnswer:
    found = [] if answer.outputs is None else differences(reference.outputs or {}, answer.outputs)
    return wire.PoolAnswer(
        pool=answer.worker.pool or "",
        target=answer.worker.target or "",
        worker=answer.worker.id,
        problem=answer.problem or None,
        differences=[wire.Different(output=each.output, different=each.different, first=each.first) for each in found],
    )

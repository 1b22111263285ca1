"""`/api/v1/jobs`: predictions with `Prefer: respond-async`, whose results clients fetch later."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Header, Request, Response
from starlette.concurrency import run_in_threadpool

from service.api.access.audit import caller
from service.api.access.tenants import shorten_names, tenant
from service.api.control import paths, wire
from service.api.control.preferences import MAX_WAIT_S, wait_of
from service.api.control.waiting import wait_until
from service.api.injected import JobsOf, ServicesOf
from service.core.models.job import JobOwner, PredictionJob

router = APIRouter(prefix=f"{paths.PREFIX}/jobs", tags=["jobs"])

_RETRY_AFTER_S = 1


@router.get("", summary="List the prediction jobs", response_model=wire.PredictionJobs)
def list_jobs(services: ServicesOf) -> wire.PredictionJobs:
    """Returns the jobs of the caller's key."""
    return wire.PredictionJobs(jobs=[job_view(each) for each in services.jobs.list(owner_of_request())])


@router.get("/{id}", summary="Get a prediction job", response_model=wire.PredictionJob)
async def get_job(
    id: wire.PathJob,
    request: Request,
    services: ServicesOf,
    prefer: Annotated[
        str | None,
        Header(
            description=f"`wait=30` delays the response until the job has ended, or for 30 s (at most {MAX_WAIT_S})."
        ),
    ] = None,
) -> Response:
    """Returns the state of a job and, if it has ended, its result or its error. A job that failed is returned with
    status 200. Only the key that started a job sees it. A job is deleted an hour after its end (`jobs_kept_s`).
    """
    owner = owner_of_request()

    def look() -> PredictionJob:
        return services.jobs.get(id, owner, with_result=False)

    wait_s = wait_of(prefer)
    job = await wait_until(look, lambda job: job.state.is_final, wait_s or 0, services, request)
    headers = {"cache-control": "no-store"}
    if wait_s is not None:
        headers["preference-applied"] = f"wait={wait_s}"
    if not job.state.is_final:
        headers["retry-after"] = str(_RETRY_AFTER_S)
    else:
        job = await run_in_threadpool(services.jobs.get, id, owner)
    return Response(job_document(job), headers=headers, media_type="application/json")


@router.delete("/{id}", summary="Delete a prediction job", status_code=204)
async def delete_job(id: wire.PathJob, jobs: JobsOf) -> Response:
    """Deletes a job with its result. A running job is canceled."""
    await jobs.delete(id, owner_of_request())
    return Response(status_code=204)


def owner_of_request() -> JobOwner:
    """Returns the owner of the jobs that the current request may start and see."""
    who = caller.get()
    return JobOwner(tenant.get(), "" if who is None else who[0])


def job_view(job: PredictionJob) -> wire.PredictionJob:
    """Returns the schema of a job without its result."""
    error: dict[str, Any] | None = job.error
    if error is not None:
        error = {name: shorten_names(value) for name, value in error.items() if name in wire.JobError.model_fields}
    return wire.PredictionJob(
        id=job.id,
        model=job.model,
        state=job.state,
        samples=job.samples,
        completed=job.completed,
        created_at=job.created_at,
        ended_at=job.ended_at,
        error=None if error is None else wire.JobError(**error),
    )


def job_document(job: PredictionJob) -> str:
    """Returns a job as JSON. The result is inserted as the text that it is, because parsing it would take time."""
    shown = job_view(job).model_dump_json(exclude_none=True)
    return shown if job.result is None else f'{shown[:-1]},"result":{job.result}}}'

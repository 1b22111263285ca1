"""`/api/v1/workers`: processes that compile models or run predictions."""

from __future__ import annotations

from fastapi import APIRouter

from service.api.control import paths, wire
from service.api.injected import ServicesOf

router = APIRouter(prefix=f"{paths.PREFIX}/workers", tags=["workers"])


@router.get("", summary="List the workers", response_model=wire.Workers)
def list_workers(services: ServicesOf) -> wire.Workers:
    """Returns the workers with a recent heartbeat. A worker that was killed is listed until its lease ends."""
    alive = services.workers.list(services.settings.lease_s)
    return wire.Workers(
        workers=[
            wire.Worker(
                id=worker.id,
                kind=worker.kind,
                host=worker.host,
                pid=worker.pid,
                target=worker.target,
                build=worker.build,
                started_at=worker.started_at,
                seen_at=worker.seen_at,
                state=worker.state,
                release=worker.release,
                pool=worker.pool,
                address=worker.address,
                refused=services.routing and services.routing.refusal(worker.id),
                features=list(worker.features),
                capacity=worker.capacity,
                loaded=[wire.LoadedModel(model=model, versions=names) for model, names in worker.models.items()],
            )
            for worker in alive
        ]
    )

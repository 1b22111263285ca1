"""`/api/v1/targets`: the targets that can be compiled for, and those that run here."""

from __future__ import annotations

from fastapi import APIRouter

from service.api.control import paths, wire
from service.api.injected import ServicesOf
from service.core.target import TARGETS

router = APIRouter(prefix=f"{paths.PREFIX}/targets", tags=["targets"])


@router.get("", summary="List the targets", response_model=wire.Targets)
async def list_targets(services: ServicesOf) -> wire.Targets:
    """Models can be compiled for every target. An artifact for a target that does not run here is neither verified nor
    served.
    """
    host = services.host
    return wire.Targets(
        architecture=host.architecture,
        cpu=host.model_name,
        targets=[
            wire.TargetInfo(
                name=target.name,
                architecture=target.architecture,
                features=sorted(target.features),
                reason=target.reason,
                runs_here=target.runs_on(host),
                missing=sorted(target.missing_on(host)),
                host=target is host.best,
            )
            for target in TARGETS
        ],
    )

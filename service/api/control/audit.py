"""`/api/v1/audit`: what was changed, and by whom."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from service.api.control import paths, wire
from service.api.services import ServicesOf

router = APIRouter(prefix=f"{paths.PREFIX}/audit", tags=["keys"])


@router.get("", summary="The audit log", response_model=wire.Audit)
def get_audit(
    services: ServicesOf, limit: Annotated[int, Query(ge=1, le=1000, description="How many entries.")] = 50
) -> wire.Audit:
    """Pushes, builds, promotions, rollbacks, loads, unloads and changes of keys; the newest first."""
    return wire.Audit(entries=services.audit.last(limit))

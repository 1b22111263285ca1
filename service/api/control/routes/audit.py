"""`/api/v1/audit`: the log of changes, and who made them."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from service.api.access.tenants import entry_for_tenant, tenant
from service.api.control import paths, wire
from service.api.injected import ServicesOf

router = APIRouter(prefix=f"{paths.PREFIX}/audit", tags=["keys"])


@router.get("", summary="Read the audit log", response_model=wire.Audit)
def get_audit(
    services: ServicesOf, limit: Annotated[int, Query(ge=1, le=1000, description="The number of entries.")] = 50
) -> wire.Audit:
    """Returns pushes, builds, promotions, rollbacks, loads, unloads and changes of keys, newest first."""
    return wire.Audit(entries=[entry_for_tenant(entry) for entry in services.audit.last(limit, tenant.get() or None)])

"""`/api/v1/keys`: API keys."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.concurrency import run_in_threadpool

from service.api.access.key_orders import apply_key_change
from service.api.access.tenants import tenant
from service.api.control import paths, views, wire
from service.api.control.bounded import BoundedRoute
from service.api.injected import ServicesOf
from service.core.access.key import Limits
from service.core.errors import Forbidden, NotFound

router = APIRouter(prefix=f"{paths.PREFIX}/keys", tags=["keys"], route_class=BoundedRoute)


@router.get("", summary="List the API keys", response_model=wire.Keys)
def list_keys(services: ServicesOf) -> wire.Keys:
    """Returns the keys in the order of their creation, including revoked ones. The key of `OCTET_ADMIN_KEY` is not
    listed.
    """
    keys = services.access.keys.read().values()
    return wire.Keys(keys=[views.key(key) for key in keys if tenant.get() in ("", key.tenant)])


@router.post("", summary="Create an API key", status_code=201, response_model=wire.NewKey)
async def create_key(request: wire.KeyRequest, services: ServicesOf) -> wire.NewKey:
    """Creates a key. The key itself is only in this response. If you lose it, create another.

    The first key of a server that requires none must have the scope `admin`.
    """
    limits = Limits(request.requests_per_s, request.requests_per_day)
    whose = tenant.get() or request.tenant
    if whose != request.tenant and request.tenant:
        raise Forbidden("a tenant's key can create keys only for the same tenant", hint="leave out the tenant")
    key, text = await run_in_threadpool(services.access.create, request.name, request.scopes, limits, whose)
    await apply_key_change(services)
    return wire.NewKey(key=text, **views.key(key).model_dump())


@router.delete("/{id}", summary="Revoke an API key", response_model=wire.Key)
async def revoke_key(id: wire.PathKey, services: ServicesOf) -> wire.Key:
    """Revokes a key. This server rejects the key from now on. Other servers that use the same data reject it within a
    second. Revoking a key twice changes nothing.
    """
    if tenant.get() and getattr(services.access.keys.read().get(id), "tenant", None) != tenant.get():
        raise NotFound(f"there is no key {id!r}", hint="octet keys list shows the keys")
    key = await run_in_threadpool(services.access.keys.revoke, id)
    await apply_key_change(services)
    return views.key(key)

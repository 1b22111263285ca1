"""The tenant of the current request, and access checks for ids and digests.

A model's name gets its tenant's prefix when a request's parameters are read (`control/wire/parameters.py`), and loses
the prefix when a response is written (`control/wire/base.py`). Digests and ids have no such prefix, so their models'
owners are looked up here.

"""

from __future__ import annotations

import re
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from service.core.access.tenant import SEPARATOR, local_name, owner_of, prefix_of
from service.core.builds.build import Build
from service.core.digest import Digest
from service.core.errors import Forbidden, InvalidInput, NotFound

if TYPE_CHECKING:  # importing these modules loads SQLAlchemy
    from service.db import BuildStore

tenant: ContextVar[str] = ContextVar("tenant", default="")
"""The tenant of the current request's key, set when the request is admitted. Empty for the operator, or if no keys are
used.
"""

_OPEN = re.compile(
    r"""
    /v2 (/.*)?
    | /api/v1/models (/[^/]+ (/versions(/[^/]+(/tokenizer)?)? | /aliases(/[^/]+)? | /builds | /promote | /rollback
        | /predict | /quantizations(/[^/]+(/file)?)?)? )?
    | /api/v1/builds (/[^/]+ (/events | /log | /cancel)? )?
    | /api/v1/(keys | jobs) (/[^/]+)?
    | /api/v1/(targets | audit | updates)
    | /v1/(models (/.+)? | rerank)
    """,
    re.VERBOSE,
)
_OPEN_TO_READ = ("/api/v1/artifacts/", "/api/v1/quarantine", "/api/v1/blobs/")


def check_route(method: str, path: str) -> None:
    """Checks a tenant's access to a route. A route that is not listed is only for the operator.

    Raises:
        Forbidden: tenants' keys have no access to the route.
    """
    reads = method in ("GET", "HEAD")
    if _OPEN.fullmatch(path) or (reads and path.startswith(_OPEN_TO_READ)):
        return
    raise Forbidden(f"a tenant's key has no access to {method} {path}", hint="ask the operator of this server")


def qualified(model: str) -> str:
    """Returns the full name of the model that the request calls `model`. Raises `NotFound` for an impossible name."""
    if tenant.get() and SEPARATOR in model:
        raise NotFound(f"there is no model {model!r}")
    return prefix_of(tenant.get()) + model


def short_name(model: str) -> str:
    """Returns a model's name without the prefix of the request's tenant; for the operator, the full name."""
    return local_name(tenant.get(), model)


def shorten_names(text: str) -> str:
    """Removes the prefix of the request's tenant from all model names in a text."""
    return text.replace(prefix_of(tenant.get()), "") if tenant.get() else text


def entry_for_tenant(entry: dict[str, Any]) -> dict[str, Any]:
    """Returns an audit log entry for the request's tenant: short model names, and no details about the operation."""
    if not tenant.get():
        return entry
    kept = {name: value for name, value in entry.items() if name not in ("tenant", "replica")}
    return {name: short_name(value) if name == "model" else value for name, value in kept.items()}


def is_visible(model: str) -> bool:
    """Returns true if the request may see a model, by its full name."""
    return not tenant.get() or owner_of(model) == tenant.get()


def build_of(builds: BuildStore, id: str) -> Build:
    """Returns a build as `BuildStore.get` does. For another tenant's build, raises the same error as for a build that
    does not exist.
    """
    missing = NotFound(f"there is no build {id!r}")
    try:
        build = builds.get(id)
    except InvalidInput:
        if tenant.get():
            raise missing from None
        raise
    if not is_visible(build.model):
        raise missing
    return build


def check_artifact(builds: BuildStore, artifact: Digest) -> None:
    """Raises `NotFound` if no build of a model that the request may see produced the artifact."""
    if tenant.get() and not any(is_visible(build.model) for build in builds.with_artifact(artifact)):
        raise NotFound(f"there is no artifact {artifact}")

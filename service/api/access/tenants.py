"""Whose request is answered, by tenant; and what it may see of what has no name of a model.

A name of a model is qualified where a request's parameters are read (`control/wire/parameters.py`) and stripped where
an answer is written (`control/wire/base.py`). Digests and ids belong to nobody by themselves: they are looked up here.
"""

from __future__ import annotations

import re
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from service.core.build import Build
from service.core.digest import Digest
from service.core.errors import Forbidden, InvalidInput, NotFound
from service.core.tenant import SEPARATOR, owner_of, prefix_of, shown

if TYPE_CHECKING:  # they load SQLAlchemy
    from service.db import BuildStore

tenant: ContextVar[str] = ContextVar("tenant", default="")
"""Of the key of the request that is answered, set where it is admitted; empty: the operator's, or none is asked for."""

_OPEN = re.compile(
    r"""
    /v2 (/.*)?
    | /api/v1/models (/[^/]+ (/versions(/[^/]+)? | /aliases(/[^/]+)? | /builds | /promote | /rollback
        | /quantizations(/[^/]+(/file)?)?)? )?
    | /api/v1/builds (/[^/]+ (/events | /log | /cancel)? )?
    | /api/v1/keys (/[^/]+)?
    | /api/v1/(targets | audit)
    """,
    re.VERBOSE,
)
_OPEN_TO_READ = ("/api/v1/artifacts/", "/api/v1/quarantine", "/api/v1/blobs/")


def check_route(method: str, path: str) -> None:
    """What is not listed here is the operator's: a route that was forgotten is closed.

    Raises:
        Forbidden: no key of a tenant opens it.
    """
    reads = method in ("GET", "HEAD")
    if _OPEN.fullmatch(path) or (reads and path.startswith(_OPEN_TO_READ)):
        return
    raise Forbidden(f"a tenant's key does not open {method} {path}", hint="ask who runs this server")


def qualified(model: str) -> str:
    """The name here of what the request calls `model`. Raises `NotFound`: a tenant can have no such model."""
    if tenant.get() and SEPARATOR in model:
        raise NotFound(f"there is no model {model!r}")
    return prefix_of(tenant.get()) + model


def told(model: str) -> str:
    """What the request's tenant calls a model; of the operator, its name here."""
    return shown(tenant.get(), model)


def told_text(text: str) -> str:
    """A message, likewise."""
    return text.replace(prefix_of(tenant.get()), "") if tenant.get() else text


def told_entry(entry: dict[str, Any]) -> dict[str, Any]:
    """An entry of the audit log, likewise; without what says how the server is run."""
    if not tenant.get():
        return entry
    kept = {name: value for name, value in entry.items() if name not in ("tenant", "replica")}
    return {name: told(value) if name == "model" else value for name, value in kept.items()}


def is_own(model: str) -> bool:
    """Whether the request may see a model, by its name here."""
    return not tenant.get() or owner_of(model) == tenant.get()


def build_of(builds: BuildStore, id: str) -> Build:
    """`BuildStore.get`, of a build that the request may see. Another's is not told from one that is not there."""
    missing = NotFound(f"there is no build {id!r}")
    try:
        build = builds.get(id)
    except InvalidInput:
        if tenant.get():
            raise missing from None
        raise
    if not is_own(build.model):
        raise missing
    return build


def check_artifact(builds: BuildStore, artifact: Digest) -> None:
    """Raises `NotFound`: no build of a model that the request may see has made it."""
    if tenant.get() and not any(is_own(build.model) for build in builds.answering(artifact)):
        raise NotFound(f"there is no artifact {artifact}")

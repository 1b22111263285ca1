"""Rejects unknown query parameters. Otherwise a misspelled option would silently have no effect."""

from __future__ import annotations

from collections.abc import Iterator
from difflib import get_close_matches

from fastapi import Request
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute

from service.api.control.paths import PREFIX
from service.core.errors import InvalidInput


def check_query(request: Request) -> None:
    """Raises `InvalidInput` if the query has a parameter that its route does not have."""
    route = request.scope["route"]
    # other paths are not checked, because scrapers may add their own parameters
    if not isinstance(route, APIRoute) or not route.path.startswith(PREFIX):
        return
    known = sorted(set(_parameter_names(route.dependant)))
    for name in request.query_params:
        if name not in known:
            close = get_close_matches(name, known, 1)
            takes = f"it takes {', '.join(known)}" if known else "it takes none"
            raise InvalidInput(
                f"{request.method} {request.url.path} has no parameter {name!r}",
                hint=f"did you mean {close[0]}?" if close else takes,
            )


def _parameter_names(dependant: Dependant) -> Iterator[str]:
    """Yields the names of the query parameters of a dependant and its dependencies."""
    for field in dependant.query_params:
        members = getattr(field.field_info.annotation, "model_fields", None)
        if members is None:
            yield field.alias
        else:
            yield from (member.alias or name for name, member in members.items())
    for each in dependant.dependencies:
        yield from _parameter_names(each)

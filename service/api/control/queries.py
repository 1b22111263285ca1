"""Parameters of queries that nothing takes: refused, as members of bodies are, or a misspelled option would be none."""

from __future__ import annotations

from collections.abc import Iterator
from difflib import get_close_matches

from fastapi import Request
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute

from service.api.control.paths import PREFIX
from service.core.errors import InvalidInput


def check_query(request: Request) -> None:
    """Raises `InvalidInput`: the query has a parameter that its route does not take."""
    route = request.scope["route"]
    if not isinstance(route, APIRoute) or not route.path.startswith(PREFIX):  # who scrapes may send what they like
        return
    known = sorted(set(_taken(route.dependant)))
    for name in request.query_params:
        if name not in known:
            close = get_close_matches(name, known, 1)
            takes = f"it takes {', '.join(known)}" if known else "it takes none"
            raise InvalidInput(
                f"{request.method} {request.url.path} has no parameter {name!r}",
                hint=f"{close[0]} is meant?" if close else takes,
            )


def _taken(dependant: Dependant) -> Iterator[str]:
    """The names of the parameters that it, or what it depends on, takes of the query."""
    for field in dependant.query_params:
        members = getattr(field.field_info.annotation, "model_fields", None)
        if members is None:
            yield field.alias
        else:
            yield from (member.alias or name for name, member in members.items())
    for each in dependant.dependencies:
        yield from _taken(each)

"""The busiest routes pass by what lies before the router, and nothing else does."""

from __future__ import annotations

from typing import Any

import pytest
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from service.api.shortcut import Shortcut

pytestmark = pytest.mark.anyio


class Endpoint:
    """A bare application that remembers what reached it."""

    def __init__(self) -> None:
        self.scopes: list[Scope] = []

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.scopes.append(scope)


async def nothing(*_: Any) -> Any:
    raise AssertionError("nobody answers here")


@pytest.mark.parametrize(
    ("kind", "method", "path", "parameters"),
    [
        ("http", "POST", "/models/a/run", {"model": "a"}),
        ("http", "GET", "/models/a/run", None),
        ("http", "POST", "/models/a", None),
        ("http", "POST", "/models/a/b/run", None),
        ("websocket", "", "/models/a/run", None),
    ],
)
async def test_only_the_method_and_path_of_a_route_take_it(
    kind: str, method: str, path: str, parameters: dict[str, str] | None
) -> None:
    direct, framework = Endpoint(), Endpoint()
    shortcut = Shortcut(framework, [Route("/models/{model}/run", direct, methods=["POST"])])
    await shortcut({"type": kind, "method": method, "path": path}, nothing, nothing)
    reached, other = (framework, direct) if parameters is None else (direct, framework)
    assert [scope.get("path_params") for scope in reached.scopes] == [parameters]
    assert not other.scopes

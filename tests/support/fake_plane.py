"""An in-memory twin of the data plane, as the registry sees it: it keeps what it is told, and has no code to run."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from time import monotonic
from typing import Any

from service.core.digest import Digest
from service.core.errors import OctetError, Restarting
from service.core.signature import ModelSignature
from service.workers.data_plane import orders
from service.workers.inference import Reference, Registry

Members = dict[str, Any]


class Blank:
    """A model of which nothing is there but its signature."""

    def __init__(self, signature: ModelSignature) -> None:
        self.signature = signature

    def part(self, batch: int, artifact: Digest) -> Members:
        return {"batch": batch, "artifact": str(artifact)}


class FakePlane:
    """Satisfies `Plane`.

    Attributes:
        models: what is loaded: orders by their keys.
        loads: the artifacts of one sample that were ever loaded, in order.
        described: what is known of models.
        failures: why artifacts cannot be loaded.
        may_load: cleared, it makes every load wait.
        report: called with what a data plane reports of its models.
    """

    def __init__(self) -> None:
        self.models: dict[int, Members] = {}
        self.loads: list[Digest] = []
        self.described: dict[int, Members] = {}
        self.failures: dict[Digest, OctetError] = {}
        self.may_load = asyncio.Event()
        self.may_load.set()
        self.is_there = True
        self.report: Callable[[Members], None] = lambda report: None
        self._own: set[int] = set()
        self._routes: dict[tuple[str, str], Members] = {}
        self._uses: Counter[int] = Counter()
        self._used_s: dict[int, float] = {}
        self._released = asyncio.Condition()

    # What the registry asks.

    async def load(self, order: Mapping[str, Any]) -> int:
        if not self.is_there:
            raise Restarting("the data plane is not running")
        await self.may_load.wait()
        for part in order["parts"]:
            if (failure := self.failures.get(part["artifact"])) is not None:
                raise failure
        left = (key for key, each in self.models.items() if each == order and key not in self._own)
        key = next(left, len(self.loads) + 1)
        if key not in self.models:
            self.loads.append(order["parts"][0]["artifact"])
        self.models[key] = dict(order)
        self._own.add(key)
        return key

    def describe(self, key: int, members: Members) -> None:
        assert key in self.models
        self.described[key] = members

    async def unload(self, key: int) -> None:
        if key not in self.models:
            return
        del self.models[key]
        self._own.discard(key)
        self._routes = {name: each for name, each in self._routes.items() if key not in (each["main"], each["canary"])}
        async with self._released:
            await self._released.wait_for(lambda: not self._uses[key])

    def leftovers(self) -> Collection[int]:
        return self.models.keys() - self._own

    async def gather(self) -> None:
        self.report(
            {
                "models": [
                    {"key": key, "admitted": self._uses[key], "queued": 0, "used_s": self._used_s.get(key, 0.0)}
                    for key in {*self.models, *self._uses}
                ]
            }
        )

    def order(self, members: Members) -> None:
        assert members["type"] == "routes"
        self._routes = {
            (each["model"], each["version"]): each for each in members["routes"] if each["main"] in self.models
        }

    # What a test does.

    def routed(self, model: str, reference: Reference = None) -> Members | None:
        """Who answers for a name, as it was said last."""
        return self._routes.get((model, "" if reference is None else str(reference)))

    def artifact(self, key: int) -> Digest:
        """Of one sample, of what is loaded under that key."""
        artifact: Digest = self.models[key]["parts"][0]["artifact"]
        return artifact

    @contextmanager
    def using(self, key: int) -> Iterator[None]:
        """A request is under way with a model. In the end its event loop has to go on."""
        self._uses[key] += 1
        self._used_s[key] = monotonic()
        try:
            yield
        finally:
            self._uses[key] -= 1
            self._told = asyncio.ensure_future(self._tell())

    def end(self) -> None:
        """It dies, with all that it has."""
        self.models.clear()
        self._own.clear()
        self._routes.clear()
        self.described.clear()

    def left_by_another(self) -> dict[tuple[str, Reference], orders.Named]:
        """The control plane is another from now on; who answers, by what the last one said."""
        self._own.clear()
        return {
            (model, int(version) if version.isdigit() else version or None): orders.Named(**each)
            for (model, version), each in self._routes.items()
        }

    async def _tell(self) -> None:
        async with self._released:
            self._released.notify_all()


async def answerer(registry: Registry, plane: FakePlane, model: str, reference: Reference = None) -> Members:
    """Who answers a request, as a data plane finds out: it asks for a name that it does not know."""
    if (route := plane.routed(model, reference)) is None:
        await registry.resolve(model, reference)
        route = plane.routed(model, reference)
    assert route is not None
    with plane.using(route["main"]):
        return route

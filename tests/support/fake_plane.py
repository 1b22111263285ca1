"""A data plane in memory, for tests of the registry. It stores the orders that it receives, and runs no code."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from time import monotonic
from typing import Any

from service.core.digest import Digest
from service.core.errors import OctetError, Restarting
from service.core.models.signature import ModelSignature
from service.workers.data_plane import orders
from service.workers.data_plane.messages import ModelReport, Report
from service.workers.inference import Reference, Registry

Members = dict[str, Any]


class Blank:
    """A model that consists only of its signature."""

    def __init__(self, signature: ModelSignature) -> None:
        self.signature = signature

    def part(self, batch: int, artifact: Digest) -> Members:
        return {"batch": batch, "artifact": str(artifact)}


class FakePlane:
    """Implements `Plane` for tests.

    Attributes:
        models: the loaded models: key -> order.
        loads: the artifacts (for one sample) that were loaded so far, in order.
        described: the descriptions of models that the registry has sent.
        failures: artifact -> the error with which loading it fails.
        may_load: an event. While it is cleared, every load waits.
        report: the function that the data plane calls to report its models.
    """

    def __init__(self) -> None:
        self.models: dict[int, Members] = {}
        self.loads: list[Digest] = []
        self.described: dict[int, Members] = {}
        self.failures: dict[Digest, OctetError] = {}
        self.may_load = asyncio.Event()
        self.may_load.set()
        self.is_there = True
        self.report: Callable[[Report], None] = lambda report: None
        self._own: set[int] = set()
        self._routes: dict[tuple[str, str], Members] = {}
        self._uses: Counter[int] = Counter()
        self._used_s: dict[int, float] = {}
        self._released = asyncio.Condition()

    # The methods that the registry calls.

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
                "models": [self._model_report(key) for key in {*self.models, *self._uses}],
                "gather": 0,
                "rejected": {},
                "not_allowed": {},
                "used": {},
            }
        )

    def _model_report(self, key: int) -> ModelReport:
        return {
            "key": key,
            "model": "",
            "version": "",
            "target": "",
            "admitted": self._uses[key],
            "queued": 0,
            "used_s": self._used_s.get(key, 0.0),
            "changes": {"answers": []},
        }

    def order(self, members: Members) -> None:
        assert members["type"] == "routes"
        self._routes = {
            (each["model"], each["version"]): each for each in members["routes"] if each["main"] in self.models
        }

    # The methods that tests call.

    def routed(self, model: str, reference: Reference = None) -> Members | None:
        """Returns the route of a name in the last order, or None if it has none."""
        return self._routes.get((model, "" if reference is None else str(reference)))

    def artifact(self, key: int) -> Digest:
        """Returns the artifact for one sample of the model with this key."""
        artifact: Digest = self.models[key]["parts"][0]["artifact"]
        return artifact

    @contextmanager
    def using(self, key: int) -> Iterator[None]:
        """Simulates a running request of a model. Afterwards, the event loop must run for it to take effect."""
        self._uses[key] += 1
        self._used_s[key] = monotonic()
        try:
            yield
        finally:
            self._uses[key] -= 1
            self._told = asyncio.ensure_future(self._tell())

    def end(self) -> None:
        """Simulates the end of the process, which loses all its state."""
        self.models.clear()
        self._own.clear()
        self._routes.clear()
        self.described.clear()

    def left_by_another(self) -> dict[tuple[str, Reference], orders.Named]:
        """Simulates a new control plane, and returns the routes that the previous one sent."""
        self._own.clear()
        return {
            (model, int(version) if version.isdigit() else version or None): orders.Named(**each)
            for (model, version), each in self._routes.items()
        }

    async def _tell(self) -> None:
        async with self._released:
            self._released.notify_all()


async def answerer(registry: Registry, plane: FakePlane, model: str, reference: Reference = None) -> Members:
    """Returns the route of a request in the same way as a data plane: if the name is unknown, it requests it from the
    registry.
    """
    if (route := plane.routed(model, reference)) is None:
        await registry.resolve(model, reference)
        route = plane.routed(model, reference)
    assert route is not None
    with plane.using(route["main"]):
        return route

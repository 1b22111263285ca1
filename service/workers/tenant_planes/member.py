"""One tenant's data plane, as the control plane sees it, which believes it of that tenant's models alone.

Its process runs what was compiled from the tenant's uploads. What it says of others' models is passed over, its counts
of keys are nobody's, and it hands over no connections: who comes to the control plane by one says by headers who it is.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from service.core.tenant import owner_of
from service.workers.data_plane.plane import Answer, DataPlane, Found, Unheard
from service.workers.tenant_planes.places import said
from service.workers.tenant_planes.reports import Model, cards_in, rejected_in, uses_in

_logger = logging.getLogger(__name__)
_MOST_QUESTIONS = 64  # at a time
_PAGE_BYTES = 4096
_NOT_THERE = {
    "code": "not_found",
    "title": "There is no such thing.",
    "http": 404,
    "grpc": 5,
    "detail": "It is not there.",
}
_TOO_MANY = {
    **{"code": "queue_full", "title": "Too many requests are waiting.", "http": 429, "grpc": 8},
    **{"detail": "Too many questions of this data plane are open.", "may_be_retried": True, "retry_after_s": 1},
}

Members = dict[str, Any]


class Member(Unheard):
    """The data plane of one tenant.

    Attributes:
        tenant: empty for the operator's models.
        models: by the keys of what was loaded by it.
        generation: which process it is, from 1; 0 before the first was reached.
        uses: what it said last of its models.
    """

    def __init__(self, tenant: str, address: bytes, all: Heard) -> None:
        """
        Args:
            all: who hears of it.
        """
        self.tenant, self._all = tenant, all
        self.plane = DataPlane(address, f"data plane of {said(tenant)}")
        self.plane.listener = self
        self.models: dict[int, Model] = {}
        self.generation = 0
        self.uses: Mapping[int, Members] = {}
        self.cards: list[Members] = []
        self._busy = self._questions = self._pid = 0
        self._has_complained = False
        self._running = asyncio.create_task(self.plane.run())

    @property
    def id(self) -> str:
        """Another for each process."""
        return f"{self.tenant or '~'}/{self.generation}"

    @property
    def is_idle(self) -> bool:
        """Whether nothing of the tenant is loaded, or about to be."""
        return not self.models and not self.plane.present and not self._busy

    def resident_bytes(self) -> int:
        """What its process has in memory, shared or not; 0 where there is none. From any thread."""
        with suppress(OSError, ValueError):
            return int(Path(f"/proc/{self._pid}/statm").read_text().split()[1]) * _PAGE_BYTES if self._pid else 0
        return 0

    async def close(self) -> None:
        self._running.cancel()
        with suppress(asyncio.CancelledError):
            await self._running

    def begin(self) -> None:
        """It is wanted until as many calls of `end`, whatever is loaded."""
        self._busy += 1

    def end(self) -> None:
        self._busy -= 1

    async def found(self, found: Found) -> None:
        self.generation += 1
        self._pid, self._has_complained = int(found.pid), False
        self.models = {key: each for key, each in self.models.items() if key in found.models}
        routes = [each for each in found.routes if owner_of(each.model) == self.tenant]
        self.begin()
        try:
            await self._all.member_found(self, Found(found.models, routes))
        finally:
            self.end()
            self._all.member_rests(self)

    def lost(self) -> None:
        self._pid, self.uses, self.cards = 0, {}, []
        self._all.member_lost(self)

    def reported(self, report: Members) -> None:
        try:
            self._all.member_reported(self, self._own(report))
        except Exception:  # whatever it says: the others' reports are heard
            if not self._has_complained:
                _logger.exception("the data plane of %s reports what makes no sense", said(self.tenant))
            self._has_complained = True

    def traced(self, trace: Members) -> None:
        if owner_of(str(trace.get("model", self.tenant and f"{self.tenant}~"))) == self.tenant:
            self._all.member_traced(trace)

    async def asked(self, question: Members, data: bytes) -> Answer:
        if self._questions >= _MOST_QUESTIONS:
            return Answer({"problem": _TOO_MANY})
        if not self._may_ask(question):
            return Answer({"problem": _NOT_THERE})
        self._questions += 1
        try:
            return await self._all.member_asked(question, data)
        finally:
            self._questions -= 1

    def _may_ask(self, question: Members) -> bool:
        match question:
            case {"kind": "resolve", "model": str(model), "version": str()}:
                return owner_of(model) == self.tenant
            case {"kind": "picture", "key": int(key), "input": int()}:
                return key in self.models
        return False

    def _own(self, report: Members) -> Members:
        """What of a report is believed, but for its models: these are `uses`."""
        self.uses, self.cards = uses_in(report, self.models), cards_in(report)
        return {"gather": 0, "rejected": rejected_in(report), "not_allowed": {}, "forwards": [], "used": {}}


class Heard:
    """Who hears of members."""

    async def member_found(self, member: Member, found: Found) -> None:
        raise NotImplementedError

    def member_rests(self, member: Member) -> None:
        raise NotImplementedError

    def member_lost(self, member: Member) -> None:
        raise NotImplementedError

    def member_reported(self, member: Member, report: Members) -> None:
        raise NotImplementedError

    def member_traced(self, trace: Members) -> None:
        raise NotImplementedError

    async def member_asked(self, question: Members, data: bytes) -> Answer:
        raise NotImplementedError


def quiet(uses: Collection[Members]) -> list[Members]:
    """The same models, of which nothing was counted."""
    return [{**each, "changes": {"answers": []}} for each in uses]

"""One tenant's data plane, as seen from the control plane. Only its reports about that tenant's models are accepted.

The process of a tenant's data plane runs code that was compiled from the tenant's uploads, so the process is not
trusted. Its reports about other tenants' models and its counts of keys are ignored. The process cannot hand over
connections to the control plane, because the headers of such a connection state who the client is.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Mapping
from contextlib import suppress
from pathlib import Path

from service.core.access.tenant import owner_of
from service.workers.data_plane.messages import GpuMemory, ModelReport, Question, Report, Sample, Trace
from service.workers.data_plane.plane import Answer, DataPlane, Found, PlaneListener
from service.workers.tenant_planes.addresses import display_name
from service.workers.tenant_planes.reports import Model, cards_in, rejected_in, uses_in

_logger = logging.getLogger(__name__)
_MOST_QUESTIONS = 64  # questions that may be open at the same time
_PAGE_BYTES = 4096
_NOT_THERE = {
    "code": "not_found",
    "title": "There is no such resource.",
    "http": 404,
    "grpc": 5,
    "detail": "There is no such model or worker.",
}
_TOO_MANY = {
    **{"code": "queue_full", "title": "Too many requests are waiting.", "http": 429, "grpc": 8},
    **{"detail": "Too many questions of this data plane are open.", "may_be_retried": True, "retry_after_s": 1},
}


class Member(PlaneListener):
    """The data plane of one tenant.

    Attributes:
        tenant: the tenant's name; empty for the operator's models.
        models: the models that the data plane loaded, by key.
        generation: the number of processes of the data plane so far, including the current one; 0 before the first
            process was reached.
        uses: the data plane's last report about its models.
    """

    def __init__(self, tenant: str, address: bytes, all: MemberListener) -> None:
        """
        Args:
            all: receives the events of this member.
        """
        self.tenant, self._all = tenant, all
        self.plane = DataPlane(address, f"data plane of {display_name(tenant)}")
        self.plane.listener = self
        self.models: dict[int, Model] = {}
        self.generation = 0
        self.uses: Mapping[int, ModelReport] = {}
        self.cards: list[GpuMemory] = []
        self._busy = self._questions = self._pid = 0
        self._has_logged = False
        self._running = asyncio.create_task(self.plane.run())

    @property
    def id(self) -> str:
        """An id that changes with each process."""
        return f"{self.tenant or '~'}/{self.generation}"

    @property
    def is_idle(self) -> bool:
        """Returns true if no model of the tenant is loaded or about to be loaded."""
        return not self.models and not self.plane.present and not self._busy

    def resident_bytes(self) -> int:
        """Returns the memory of the data plane's process, including shared pages; 0 if no process runs.

        May be called from any thread.
        """
        with suppress(OSError, ValueError):
            return int(Path(f"/proc/{self._pid}/statm").read_text().split()[1]) * _PAGE_BYTES if self._pid else 0
        return 0

    async def close(self) -> None:
        self._running.cancel()
        with suppress(asyncio.CancelledError):
            await self._running

    def begin(self) -> None:
        """Keeps this member from counting as idle until `end` was called as often as `begin`."""
        self._busy += 1

    def end(self) -> None:
        self._busy -= 1

    async def found(self, found: Found) -> None:
        self.generation += 1
        self._pid, self._has_logged = int(found.pid), False
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

    def reported(self, report: Report) -> None:
        try:
            self._all.member_reported(self, self._accepted(report))
        except Exception:  # a bad report must not keep the reports of other members from being processed
            if not self._has_logged:
                _logger.exception("the data plane of %s sent an invalid report", display_name(self.tenant))
            self._has_logged = True

    def traced(self, trace: Trace) -> None:
        if owner_of(str(trace.get("model", self.tenant and f"{self.tenant}~"))) == self.tenant:
            self._all.member_traced(trace)

    def sampled(self, sample: Sample, data: bytes) -> None:
        if isinstance(sample.get("key"), int) and sample["key"] in self.models:
            self._all.member_sampled(sample, data)

    async def answer(self, question: Question, data: bytes) -> Answer:
        if self._questions >= _MOST_QUESTIONS:
            return Answer({"problem": _TOO_MANY})
        if not self._may_ask(question):
            return Answer({"problem": _NOT_THERE})
        self._questions += 1
        try:
            return await self._all.answer_member(question, data)
        finally:
            self._questions -= 1

    def _may_ask(self, question: Question) -> bool:
        match question:
            case {"kind": "resolve", "model": str(model), "version": str()}:
                return owner_of(model) == self.tenant
        return False

    def _accepted(self, report: Report) -> Report:
        """Returns the accepted part of a report. The figures of its models are in `uses`."""
        self.uses, self.cards = uses_in(report, self.models), cards_in(report)
        return {
            "gather": 0,
            "models": [],
            "rejected": rejected_in(report),
            "not_allowed": {},
            "forwards": [],
            "used": {},
        }


class MemberListener:
    """Receives the events of members."""

    async def member_found(self, member: Member, found: Found) -> None:
        raise NotImplementedError

    def member_rests(self, member: Member) -> None:
        raise NotImplementedError

    def member_lost(self, member: Member) -> None:
        raise NotImplementedError

    def member_reported(self, member: Member, report: Report) -> None:
        raise NotImplementedError

    def member_traced(self, trace: Trace) -> None:
        raise NotImplementedError

    def member_sampled(self, sample: Sample, data: bytes) -> None:
        raise NotImplementedError

    async def answer_member(self, question: Question, data: bytes) -> Answer:
        raise NotImplementedError


def quiet(uses: Collection[ModelReport]) -> list[ModelReport]:
    """Returns entries for the same models with empty counts."""
    return [{**each, "changes": {"answers": []}} for each in uses]

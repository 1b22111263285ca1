"""The state of the server at one time, in the form of the API."""

from __future__ import annotations

import json
import time
from collections import defaultdict
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

from starlette.concurrency import run_in_threadpool

from service.api.access.tenants import is_visible, short_name, tenant
from service.api.control import views, wire
from service.api.control.routes.models import list_page
from service.api.control.routes.quarantine import list_quarantine
from service.api.control.updates.changes import State
from service.api.oip.repository import Repository
from service.api.services import Services
from service.core.builds.build import Build, BuildState

_FRESH_S = 0.9  # the streams of several pages share a snapshot of at most this age
_MOST_MODELS, _MOST_BUILDS, _MOST_OPEN = 1000, 50, 200
_JUST_ENDED = timedelta(seconds=20)  # the stages of a build are sent for this long after its end
_STAGES = ("stage", "progress")
_REFUSALS = ("queue_full", "deadline", "no_worker", "canceled")  # not "invalid": the request itself was wrong
_SUCCESS = ("200", "OK", "0")

Parts = dict[str, dict[str, Any]]


class Snapshots:
    """Takes snapshots of the state, and reuses each for a moment."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._repository = Repository(services.registry, services.audit, services.routing)
        self._latest: dict[tuple[str, bool], tuple[float, State]] = {}

    async def take(self, reads: bool) -> State:
        """Returns the state that the request's tenant may see.

        Args:
            reads: true to include what a key with the scope `read` shows: models, builds, the quarantine and load;
                otherwise the state contains only which versions answer.
        """
        key, now_s = (tenant.get(), reads), time.monotonic()
        if key in self._latest and now_s - self._latest[key][0] < _FRESH_S:
            return self._latest[key][1]
        state: Parts = {"index": {f"{each['name']}/{each['version']}": each for each in await self._index()}}
        if reads:
            await self._services.plane.gather()
            state |= _load(self._services)
            state |= await run_in_threadpool(_stored, self._services)
        self._latest[key] = now_s, state
        return state

    async def _index(self) -> list[dict[str, Any]]:
        return await self._repository.index(False)


def _load(services: Services) -> Parts:
    """Returns the counts of requests, in total and for each version of a model."""
    durations: dict[str, list[int]] = {}
    failures: dict[str, int] = defaultdict(int)
    for labels, counts in services.metrics.request_duration.each():
        model, version, *_, code = labels
        if not is_visible(model):
            continue
        key = f"{short_name(model)}/{version}"
        durations[key] = [one + other for one, other in zip(durations.get(key, [0] * len(counts)), counts, strict=True)]
        if code not in _SUCCESS:
            failures[key] += sum(counts)
    served = [each for each in services.registry.in_memory() if is_visible(each.identity.model)]
    rejected = {} if tenant.get() else services.metrics.rejections()
    load = {
        "answered": sum(map(sum, durations.values())),
        "refused": sum(int(rejected.get(reason, 0)) for reason in _REFUSALS),
        "invalid": int(rejected.get("invalid", 0)),
        "waiting": sum(each.queued for each in served),
        "running": sum(each.admitted - each.queued for each in served),
    }
    latency = {key: {"counts": counts, "failed": failures.get(key, 0)} for key, counts in durations.items()}
    return {"load": load, "latency": latency}


def _stored(services: Services) -> Parts:
    """Returns the models, builds and quarantined artifacts."""
    models = list_page(services, _MOST_MODELS, None)[0]
    builds = _builds(services)
    broken = {each.file: each.reason for each in models.broken_files}
    quarantine = list_quarantine(services).artifacts
    return {
        "models": {each.name: _without_metadata(_json(each)) for each in models.models},
        "builds": {each["id"]: each for each in builds},
        "broken": broken,
        "quarantine": {each.artifact: _json(each) for each in quarantine},
    }


def _builds(services: Services) -> list[dict[str, Any]]:
    """Returns the newest builds, the open ones, and the latest ones of every listed model."""
    store, whose = services.builds, tenant.get()
    newest, _ = store.list(limit=_MOST_BUILDS, tenant=whose)
    states = (BuildState.QUEUED, BuildState.RUNNING)
    open_ones = [each for state in states for each in store.list(None, state, _MOST_OPEN, None, whose)[0]]
    chosen = {each.id: each for each in (*newest, *open_ones, *_of_models(services))}
    shown = views.builds(list(chosen.values()), store)
    return [_json(each) | _course(services, chosen[each.id]) for each in shown]


def _of_models(services: Services) -> Iterable[Build]:
    """Returns the builds of the newest version of each model, and of the versions that an alias names."""
    newest, _ = services.models.list(_MOST_MODELS, None, tenant.get())
    wanted = {(each.name, each.number) for each in newest}
    for alias in services.aliases.list():
        wanted |= {(alias.model, alias.version), (alias.model, alias.canary or alias.version)}
    found = services.builds.requested_by({each.name for each in newest})
    return [each for each in found if (each.model, each.version) in wanted]


def _course(services: Services, build: Build) -> dict[str, Any]:
    """Returns the stages of a build that is running or has just ended, each with the time of its begin."""
    ended = build.finished_at
    if build.state is BuildState.QUEUED or (ended is not None and datetime.now(UTC) - ended > _JUST_ENDED):
        return {"course": None}
    stages: dict[str, str] = {}
    for event in services.builds.events(build.id):
        if event.kind == "state" and event.data.get("state") == BuildState.RUNNING:
            stages.clear()  # another attempt
        elif event.kind in _STAGES:
            stages.setdefault(event.data["stage"], event.at.isoformat())
    return {"course": stages}


def _without_metadata(model: dict[str, Any]) -> dict[str, Any]:
    """Leaves out the metadata, which may contain thousands of labels; `/api/v1/models/{name}` has them."""
    return {name: member for name, member in model.items() if name not in ("metadata", "facts")}


def _json(of: wire.Wire) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(of.model_dump_json())
    return document

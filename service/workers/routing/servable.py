"""Finds the pools of a cluster that have a build for a model, or explains why none has."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from service.core.cluster.worker import Worker, WorkerState
from service.core.errors import NotBuilt, NotFound, NotReady, NotVerified, OctetError
from service.core.target import TARGETS
from service.workers.inference import ModelState
from service.workers.inference.explain import why_not_ready
from service.workers.inference.inventory import Indexed, not_loaded
from service.workers.inference.ports import Aliases, Builds, Models
from service.workers.inference.routes import Reference
from service.workers.inference.tables import Tables

_EVERY_TARGET = [target.name for target in TARGETS]


class Servable:
    """Reads the tables of models, builds and aliases. All methods block."""

    def __init__(self, builds: Builds, models: Models, aliases: Aliases) -> None:
        self._builds, self._models = builds, models
        self._tables = Tables(builds, models, aliases, ())

    def pools(self, model: str, reference: Reference, targets: Mapping[str, Collection[str]]) -> list[str]:
        """Returns the pools that have a verified build of the model versions that a name refers to. Returns at least
        one.

        Args:
            targets: the targets of the running pools.

        Raises:
            NotFound: the model, version or alias does not exist.
            NotReady: no pool has such a build; the message contains the targets of the existing builds and of the
                running workers.
        """
        version = self._tables.plan(model, reference).version
        serving = self._builds.serving(model, version, _EVERY_TARGET)
        refused = self._builds.refusing([build.artifact for build in serving if build.artifact])
        built = {build.target for build in serving}
        found = {
            pool
            for build in serving
            for pool, of_pool in targets.items()
            if build.target in of_pool and (build.artifact, pool) not in refused
        }
        if found:
            return sorted(found)
        if refused:
            pool = min(pool for _, pool in refused)
            raise NotVerified(f"{_what(model, version)} computes wrong outputs on pool {pool}")
        raise self._why_none(
            model, version, sorted(built), sorted({each for pool in targets.values() for each in pool})
        )

    def check_exists(self, model: str) -> None:
        """Raises `NotFound` if the model does not exist."""
        self._tables.check_exists(model, None)

    def index(self, workers: Collection[Worker]) -> list[Indexed]:
        """Returns every version of every model, sorted by name, oldest version first. A version is ready if a worker
        has it in memory or loads it at the first request.
        """
        ready = {
            (model, version)
            for model, name, target in {(*name, each.target) for each in workers for name in each.loaded}
            if (version := self.version(model, name, target or "")) is not None
        }
        targets = targets_of(workers)
        return [
            Indexed(each.name, each.number, ModelState.READY)
            if (each.name, each.number) in ready
            else not_loaded(each.name, each.number, self._why_not(each.name, each.number, targets))
            for each in self._models.all_versions()
        ]

    def version(self, model: str, name: str, target: str) -> int | None:
        """Returns the version that a name refers to on a worker of a target, or None if the tables no longer contain
        the name.
        """
        try:
            wanted = self._tables.plan(model, int(name) if name.isdigit() else name or None).version
        except NotFound:
            return None
        if wanted is not None:
            return wanted
        return next((build.version for build in self._builds.serving(model, None, [target])), None)

    def _why_not(self, model: str, version: int, targets: Mapping[str, Collection[str]]) -> str:
        try:
            self.pools(model, version, targets)
        except OctetError as error:
            return error.message
        return ""

    def _why_none(self, model: str, version: int | None, built: list[str], running: list[str]) -> OctetError:
        targets = [*built, *running] if built else _EVERY_TARGET
        error = why_not_ready(self._builds, self._models, model, version, targets)
        if isinstance(error, NotFound) or not built:
            return error
        if not running:
            return NotReady(
                f"no running worker supports {_or(built)}", hint=f"octet worker --target {built[0]} starts one"
            )
        is_running = not isinstance(error, NotBuilt)
        if is_running or isinstance(error, NotVerified):
            return error
        return NotBuilt(
            f"{_what(model, version)} has no build for any running pool: it is built for {_or(built)}, but the running "
            f"workers support {_or(running)}",
            hint=f"POST /api/v1/models/{model}/builds builds it for {running[0]}, or octet worker --target {built[0]} "
            "starts a worker",
        )


def targets_of(workers: Collection[Worker]) -> dict[str, set[str]]:
    """Returns the targets of the ready workers of each pool."""
    found: dict[str, set[str]] = {}
    for worker in workers:
        if worker.state is WorkerState.READY and worker.pool and worker.target:
            found.setdefault(worker.pool, set()).add(worker.target)
    return found


def _what(model: str, version: int | None) -> str:
    return model if version is None else f"{model} {version}"


def _or(names: list[str]) -> str:
    *others, last = names
    return f"{', '.join(others)} or {last}" if others else last

"""`/api/v1/models/{name}/matrix`: a model's builds on each pool, their speed and their cost."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Annotated

from fastapi import APIRouter, Query

from service.api.control import paths, wire
from service.api.injected import ServicesOf
from service.api.services import Services
from service.core.cluster.queueing import scheduling_of
from service.core.cluster.settings import Role
from service.core.cluster.worker import Worker, WorkerState
from service.core.target import TARGETS
from service.workers.routing import Cell, CellState, Pool, Servable
from service.workers.routing.matrix import cell, cost_per_million, targets_of

router = APIRouter(prefix=f"{paths.PREFIX}/models", tags=["models"])

_Version = tuple[str, int]


@router.get("/{name}/matrix", summary="Compare the pools that serve a model", response_model=wire.Matrix)
def get_matrix(
    name: wire.PathName,
    services: ServicesOf,
    version: Annotated[int | None, Query(ge=1, le=10**9, description="The version; by default the newest.")] = None,
) -> wire.Matrix:
    """Returns a row for each pool of the cluster, and for each target that the model is built for but no pool serves.

    A server that is not part of a cluster is a single pool, `host`, with a row for each of its targets that the model
    is built for.
    """
    found = services.version(name, version)
    of = found.name, found.number
    return wire.Matrix(name=name, version=found.number, rows=[_row(services, *row) for row in _rows(services, of)])


@router.post("/{name}/matrix", summary="Measure a model on all pools", status_code=202, response_model=wire.Matrix)
def measure(
    name: wire.PathName,
    services: ServicesOf,
    version: Annotated[int | None, Query(ge=1, le=10**9, description="The version; by default the newest.")] = None,
) -> wire.Matrix:
    """On each pool that has not measured the version yet, a worker runs the version's artifact, compares the outputs
    with those of the build, and measures the speed. Returns the matrix. Until the worker of a pool is done, `measuring`
    is true for the pool.

    A pool whose outputs differ no longer receives requests for the artifact.
    """
    found = services.version(name, version)
    of = found.name, found.number
    for pool, cell_of in _rows(services, of):
        artifact = cell_of.build.artifact if cell_of.build else None
        if pool.name and artifact and cell_of.state is CellState.READY and not cell_of.is_measured_by(pool):
            services.verifications.submit(artifact, pool.target, pool.name)
    return wire.Matrix(name=name, version=found.number, rows=[_row(services, *row) for row in _rows(services, of)])


def _rows(services: Services, of: _Version) -> list[tuple[Pool, Cell]]:
    wanted, held = services.builds.requested_by({of[0]}), services.crashes.quarantined()
    built = targets_of(wanted, of)
    pools = list(_host(services, of, built) if services.settings.role is Role.EMBEDDED else _pools(services, of))
    there = {pool.target for pool in pools}
    pools += [Pool(None, target) for target in built if target not in there]
    cells = {
        target: cell(wanted, services.builds, services.verifications, services.layout, held, of, target)
        for target in {pool.target for pool in pools}
    }
    return [(pool, cells[pool.target].for_pool(pool)) for pool in pools]


def _pools(services: Services, of: _Version) -> Iterator[Pool]:
    """Yields the pools in the table of workers, sorted by name."""
    servable = Servable(services.builds, services.models, services.aliases)
    meant: dict[tuple[str, str], int | None] = {}
    workers = services.members()

    def has_loaded(worker: Worker, target: str) -> bool:
        for name in worker.models.get(of[0], ()):
            if (name, target) not in meant:
                meant[name, target] = servable.version(of[0], name, target)
            if meant[name, target] == of[1]:
                return True
        return False

    for pool, target in sorted({(each.pool, each.target) for each in workers if each.pool and each.target}):
        members = [each for each in workers if (each.pool, each.target) == (pool, target)]
        ready = [each for each in members if each.state is WorkerState.READY]
        loaded = sum(has_loaded(each, target) for each in ready)
        yield Pool(pool, target, len(ready), sum(each.capacity for each in ready), loaded)


def _host(services: Services, of: _Version, built: Collection[str]) -> Iterator[Pool]:
    """Yields this server once for each of its targets that the model is built for. Without such a target, yields this
    server once, for its best target.
    """
    here = services.registry.targets
    scheduling = scheduling_of(services.settings.serving(of[0]))
    in_memory = [each.identity for each in services.registry.in_memory()]
    loaded = {each.target for each in in_memory if (each.model, each.version) == of}
    best = services.host.best
    for target in [each for each in here if each in built] or ([best.name] if best else []):
        (device,) = {each.device for each in TARGETS if each.name == target}
        yield Pool(services.pool, target, 1, scheduling.instances_on(device), int(target in loaded))


def _row(services: Services, pool: Pool, of: Cell) -> wire.MatrixRow:
    price, figures, build = services.settings.pool_prices.get(pool.name or ""), of.figures, of.build
    return wire.MatrixRow(
        pool=pool.name,
        target=pool.target,
        workers=pool.workers,
        capacity=pool.capacity,
        loaded=pool.loaded,
        state=of.state,
        build=build.id if build else None,
        error=str(build.error["code"]) if build and build.error else None,
        artifact=build.artifact if build else None,
        numerics=build.numerics if build else None,
        verified=of.verified,
        outcome=of.outcome,
        accepted=of.accepted,
        checked=of.checked or None,
        machine=figures.machine,
        threads=figures.threads,
        measuring=of.is_to_be_measured_by(pool),
        measured=pool.name is not None and of.is_measured_by(pool),
        p50_s=figures.p50_s,
        p99_s=figures.p99_s,
        per_s=figures.per_s,
        peak_percent=figures.peak_percent,
        memory_bytes=of.memory_bytes,
        cost_per_million=None if price is None else cost_per_million(price, figures, pool),
    )

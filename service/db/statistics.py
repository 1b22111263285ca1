"""Counts for the metrics. The counts come from the tables, so they never decrease, even across restarts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import sqlalchemy as sa

from service.core.builds.build import BuildState
from service.db.tables import build_stages, builds


@dataclass(frozen=True)
class StageDurations:
    """The durations of one stage on one target, as a histogram.

    Attributes:
        buckets: for each requested bound, the number of durations up to the bound; cumulative, without infinity.
    """

    target: str
    stage: str
    count: int
    sum_s: float
    buckets: tuple[int, ...]


@dataclass(frozen=True)
class Statistics:
    """Statistics of the builds table, for the metrics.

    Attributes:
        outcomes: the number of ended builds, by (target, state).
        queued: the number of builds that wait for a worker, by target.
        running: the number of builds that workers hold, by target.
        durations: the durations of finished stages, by target and stage.
    """

    outcomes: Mapping[tuple[str, str], int]
    queued: Mapping[str, int]
    running: Mapping[str, int]
    durations: tuple[StageDurations, ...]


def statistics(connection: sa.Connection, buckets_s: Sequence[float]) -> Statistics:
    states = connection.execute(
        sa.select(builds.c.target, builds.c.state, sa.func.count()).group_by(builds.c.target, builds.c.state)
    ).all()
    counts = {(target, BuildState(state)): count for target, state, count in states}
    return Statistics(
        outcomes={(target, state.value): count for (target, state), count in counts.items() if state.is_final},
        queued=_of(counts, BuildState.QUEUED),
        running=_of(counts, BuildState.RUNNING),
        durations=_durations(connection, buckets_s),
    )


def _of(counts: Mapping[tuple[str, BuildState], int], wanted: BuildState) -> dict[str, int]:
    return {target: count for (target, state), count in counts.items() if state is wanted}


def _durations(connection: sa.Connection, buckets_s: Sequence[float]) -> tuple[StageDurations, ...]:
    bounds = [
        sa.func.sum(sa.case((build_stages.c.duration_s <= bound_s, 1), else_=0)).label(f"bucket_{number}")
        for number, bound_s in enumerate(buckets_s)
    ]
    query = (
        sa.select(
            build_stages.c.target,
            build_stages.c.stage,
            sa.func.count(),
            sa.func.sum(build_stages.c.duration_s),
            *bounds,
        )
        .group_by(build_stages.c.target, build_stages.c.stage)
        .order_by(build_stages.c.target, build_stages.c.stage)
    )
    return tuple(
        StageDurations(target, stage, count, sum_s, tuple(map(int, buckets)))
        for target, stage, count, sum_s, *buckets in connection.execute(query)
    )

"""Tests of the simulation of a cluster, on a small one."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from benchmarks.scaling.cluster import Holdings, Models, Shape
from benchmarks.scaling.simulation import Simulation

SMALL = Shape(workers=10, models=200, requests_per_s=2_000, routers=2, seconds=20.0)


def test_with_enough_memory_nothing_is_loaded_again() -> None:
    tally = Simulation(SMALL).run()
    assert tally.requests > 0
    assert (tally.missed, tally.events["eviction"], tally.events["fetch"]) == (0, 0, 0)


def test_with_too_little_memory_models_are_loaded_again_and_again() -> None:
    need = Models(SMALL, np.random.default_rng(1)).sizes.sum()
    tally = Simulation(replace(SMALL, memory_bytes=0.7 * need / SMALL.workers)).run()
    assert tally.events["eviction"] > 0
    assert 0 < tally.missed < tally.requests


def test_a_model_that_needs_more_than_one_worker_gets_several() -> None:
    simulation = Simulation(replace(SMALL, requests_per_s=20_000, zipf=1.5))
    assert simulation.models.rates[0] * simulation.models.call_s[0] > SMALL.cores
    tally = simulation.run()
    assert len(simulation.holdings.of(0)) > 1
    assert tally.full == 0


def test_other_workers_load_the_models_of_dead_workers() -> None:
    simulation = Simulation(SMALL, deaths=((12.0, 3),))
    tally = simulation.run()
    assert tally.events["fetch"] > 0
    models, _ = simulation.holdings.pairs()
    assert len(set(models.tolist())) > 0.95 * SMALL.models


def test_the_least_recently_used_model_is_evicted() -> None:
    models = Models(SMALL, np.random.default_rng(1))
    models.sizes[:] = 1.0
    holdings = Holdings(replace(SMALL, memory_bytes=2.0), models)
    assert holdings.add(0, 0, 0.0) == holdings.add(1, 0, 1.0) == []
    holdings.use(np.array([0]), np.array([0]), 2.0)
    assert holdings.add(2, 0, 3.0) == [1]
    assert (holdings.of(0), holdings.of(1), holdings.of(2)) == ([0], [], [0])
    assert sorted(holdings.lose(0)) == [0, 2]
    assert holdings.used_bytes[0] == 0

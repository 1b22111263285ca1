"""Tests which worker gets a request (tests/native/plane/choice_probe.cc)."""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

from service.workers.data_plane import orders
from tests.support.native import built_program


@pytest.fixture(scope="module")
def probe() -> Path:
    return built_program("choice_probe")


def order(workers: Sequence[orders.Worker], models: Sequence[orders.Servable] = ()) -> str:
    return json.dumps(orders.workers("key", workers, models))


def worker(number: int, capacity: float = 1, state: str = "ready", pool: str = "p", has: bool = True) -> orders.Worker:
    return orders.Worker(f"w{number}", pool, capacity, state, [("m", ""), ("m", "1")] if has else [])


def run_probe(probe: Path, *lines: str) -> list[str]:
    text = "\n".join(lines) + "\n"
    run = subprocess.run([probe], input=text, capture_output=True, text=True, check=True)
    return [line for line in run.stdout.splitlines() if not line.startswith("gone")]


def test_equally_busy_workers_are_chosen_at_random(probe: Path) -> None:
    table = order([worker(number) for number in range(4)])
    counts = Counter(run_probe(probe, table, *["choose m - -"] * 4000))
    assert all(850 < counts[f"w{number}"] < 1150 for number in range(4))  # five standard deviations


def test_the_worker_that_is_least_busy_relative_to_its_capacity_is_chosen(probe: Path) -> None:
    table = order([worker(0, capacity=2), worker(1, capacity=8)])
    assert run_probe(probe, table, "give w0", "give w1", "give w1", "choose m 1 -") == ["w1"]
    assert run_probe(probe, table, "give w0", *["give w1"] * 5, "choose m 1 -") == ["w0"]


def test_draining_tried_and_unsuitable_workers_are_skipped(probe: Path) -> None:
    table = order([worker(0), worker(1, state="draining"), worker(2, has=False), worker(3)])
    assert set(run_probe(probe, table, *["choose m - - w3"] * 50)) == {"w0"}
    assert run_probe(probe, table, "choose m - - w3 w0") == [
        "none: no other worker that could serve the request is ready"
    ]


def test_a_worker_whose_connection_failed_is_chosen_last(probe: Path) -> None:
    table = order([worker(0), worker(1)])
    assert set(run_probe(probe, table, "avoid w0", *["give w1"] * 9, *["choose m - -"] * 50)) == {"w1"}
    assert run_probe(probe, order([worker(0)]), "avoid w0", "choose m - -") == ["w0"]


def test_an_unloaded_model_goes_to_a_pool_that_can_serve_it(probe: Path) -> None:
    table = order([worker(0, pool="p"), worker(1, pool="q")], [orders.Servable("n", "", ["q"])])
    assert set(run_probe(probe, table, *["choose n - -"] * 20)) == {"w1"}


def test_a_model_with_full_workers_uses_as_many_more_of_their_pools(probe: Path) -> None:
    table = order([*(worker(number, has=number == 0) for number in range(6)), worker(6, pool="q", has=False)])
    # while the only worker that has the model has free capacity, it is chosen
    assert set(run_probe(probe, table, *["choose m - -"] * 50)) == {"w0"}
    (another,) = set(run_probe(probe, table, "give w0", *["choose m - -"] * 50))
    assert another in {"w1", "w2", "w3", "w4", "w5"}  # a worker of another pool may not support the model
    assert set(run_probe(probe, table, "give w0", f"give {another}", *["choose m - -"] * 50)) == {"w0"}
    (third,) = set(run_probe(probe, table, "give w0", f"avoid {another}", *["choose m - -"] * 50))
    assert third not in {"w0", another}


def test_two_full_workers_get_two_more_but_sequences_none(probe: Path) -> None:
    table = order([worker(number, has=number < 2) for number in range(9)])
    full = ["give w0", "give w1"]
    more = set(run_probe(probe, table, *full, *["choose m - -"] * 200))
    assert len(more) == 2
    assert more.isdisjoint({"w0", "w1"})
    assert set(run_probe(probe, table, *full, *[f"choose m - {sequence}" for sequence in range(50)])) == {"w0", "w1"}


def test_an_unservable_model_is_refused_with_the_reason(probe: Path) -> None:
    models = [orders.Servable("n", "", ["q", "r"]), orders.Servable("o", "", [], "it was never verified")]
    table = order([worker(0, state="draining")], models)
    assert run_probe(probe, table, "choose n - -", "choose o - -", "choose m - -", "choose x - -") == [
        "none: no worker is ready in the pools that can serve it: q, r",
        "none: it was never verified",
        "none: no worker that has loaded the model is ready",
        "none: No verified artifact of the model is loaded here.",
    ]


def test_sequences_are_spread_and_stay(probe: Path) -> None:
    table = order([worker(number) for number in range(4)])
    choices = [f"choose m - {sequence}" for sequence in range(2000)]
    first, again = run_probe(probe, table, *choices), run_probe(probe, table, "avoid w1", *["give w2"] * 9, *choices)
    assert first == again
    assert all(400 < count < 600 for count in Counter(first).values())
    fewer = run_probe(probe, order([worker(number) for number in range(3)]), *choices)
    assert all(before in ("w3", after) for before, after in zip(first, fewer, strict=True))


def test_a_workers_state_outlives_an_order(probe: Path) -> None:
    table, without = order([worker(0), worker(1)]), order([worker(1)])
    assert set(run_probe(probe, table, "give w0", table, *["choose m - -"] * 30)) == {"w1"}
    run = subprocess.run([probe], input=f"{table}\n{without}\n", capture_output=True, text=True, check=True)
    assert run.stdout.splitlines() == ["gone", "gone w0"]

"""Which worker gets a request (tests/native/plane/choice_probe.cc)."""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

from service.workers.data_plane import orders
from tests.support.native import compile_plane

PROBE = Path(__file__).parents[3] / "native" / "plane" / "choice_probe.cc"
SOURCES = (
    *("control/cluster", "control/names", "control/order_reader"),
    *("request/problem", "request/signature", "text/json_reader", "text/json_writer"),
)


@pytest.fixture(scope="module")
def probe(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_plane(PROBE, tmp_path_factory.mktemp("choice"), SOURCES)


def order(workers: Sequence[orders.Worker], models: Sequence[orders.Servable] = ()) -> str:
    return json.dumps(orders.workers("key", workers, models))


def worker(number: int, capacity: float = 1, state: str = "ready", pool: str = "p", has: bool = True) -> orders.Worker:
    return orders.Worker(f"w{number}", pool, capacity, state, [("m", ""), ("m", "1")] if has else [])


def said(probe: Path, *lines: str) -> list[str]:
    text = "\n".join(lines) + "\n"
    run = subprocess.run([probe], input=text, capture_output=True, text=True, check=True)
    return [line for line in run.stdout.splitlines() if not line.startswith("gone")]


def test_equals_are_chosen_by_chance(probe: Path) -> None:
    told = order([worker(number) for number in range(4)])
    counts = Counter(said(probe, told, *["choose m - -"] * 4000))
    assert all(850 < counts[f"w{number}"] < 1150 for number in range(4))  # five standard deviations


def test_the_least_busy_for_its_capacity_is_chosen(probe: Path) -> None:
    told = order([worker(0, capacity=2), worker(1, capacity=8)])
    assert said(probe, told, "give w0", "give w1", "give w1", "choose m 1 -") == ["w1"]
    assert said(probe, told, "give w0", *["give w1"] * 5, "choose m 1 -") == ["w0"]


def test_those_that_drain_were_tried_or_have_it_not_are_left_out(probe: Path) -> None:
    told = order([worker(0), worker(1, state="draining"), worker(2, has=False), worker(3)])
    assert set(said(probe, told, *["choose m - - w3"] * 50)) == {"w0"}
    assert said(probe, told, "choose m - - w3 w0") == ["none: no other worker that could answer is ready"]


def test_one_whose_connection_failed_comes_last(probe: Path) -> None:
    told = order([worker(0), worker(1)])
    assert set(said(probe, told, "avoid w0", *["give w1"] * 9, *["choose m - -"] * 50)) == {"w1"}
    assert said(probe, order([worker(0)]), "avoid w0", "choose m - -") == ["w0"]


def test_where_nobody_has_it_a_pool_that_can_serve_it_is_asked(probe: Path) -> None:
    told = order([worker(0, pool="p"), worker(1, pool="q")], [orders.Servable("n", "", ["q"])])
    assert set(said(probe, told, *["choose n - -"] * 20)) == {"w1"}


def test_a_model_whose_workers_are_full_goes_to_as_many_more_of_their_pools(probe: Path) -> None:
    told = order([*(worker(number, has=number == 0) for number in range(6)), worker(6, pool="q", has=False)])
    assert set(said(probe, told, *["choose m - -"] * 50)) == {"w0"}  # while there is room
    (another,) = set(said(probe, told, "give w0", *["choose m - -"] * 50))
    assert another in {"w1", "w2", "w3", "w4", "w5"}  # of another pool it is not known that it can
    assert set(said(probe, told, "give w0", f"give {another}", *["choose m - -"] * 50)) == {"w0"}
    (third,) = set(said(probe, told, "give w0", f"avoid {another}", *["choose m - -"] * 50))
    assert third not in {"w0", another}


def test_two_that_are_full_get_two_more_and_a_sequence_none(probe: Path) -> None:
    told = order([worker(number, has=number < 2) for number in range(9)])
    full = ["give w0", "give w1"]
    more = set(said(probe, told, *full, *["choose m - -"] * 200))
    assert len(more) == 2
    assert more.isdisjoint({"w0", "w1"})
    assert set(said(probe, told, *full, *[f"choose m - {sequence}" for sequence in range(50)])) == {"w0", "w1"}


def test_what_nobody_can_serve_is_refused_with_the_reason(probe: Path) -> None:
    models = [orders.Servable("n", "", ["q", "r"]), orders.Servable("o", "", [], "it was never verified")]
    told = order([worker(0, state="draining")], models)
    assert said(probe, told, "choose n - -", "choose o - -", "choose m - -", "choose x - -") == [
        "none: no worker is ready in the pools that can serve it: q, r",
        "none: it was never verified",
        "none: no worker that has it is ready",
        "none: No verified artifact of the model is loaded here.",
    ]


def test_sequences_are_spread_and_stay(probe: Path) -> None:
    told = order([worker(number) for number in range(4)])
    asked = [f"choose m - {sequence}" for sequence in range(2000)]
    first, again = said(probe, told, *asked), said(probe, told, "avoid w1", *["give w2"] * 9, *asked)
    assert first == again
    assert all(400 < count < 600 for count in Counter(first).values())
    fewer = said(probe, order([worker(number) for number in range(3)]), *asked)
    assert all(before in ("w3", after) for before, after in zip(first, fewer, strict=True))


def test_what_is_known_of_a_worker_lasts_beyond_an_order(probe: Path) -> None:
    told, without = order([worker(0), worker(1)]), order([worker(1)])
    assert set(said(probe, told, "give w0", told, *["choose m - -"] * 30)) == {"w1"}
    run = subprocess.run([probe], input=f"{told}\n{without}\n", capture_output=True, text=True, check=True)
    assert run.stdout.splitlines() == ["gone", "gone w0"]

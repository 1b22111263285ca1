"""Checks that a table of workers that is transferred as changes equals one that is transferred as a whole, on both
sides.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.workers.data_plane import orders
from service.workers.data_plane.table import Table
from tests.support.native import built_program
from tests.support.worker_table import WorkerTable

NAMES = [(model, version) for model in ("m", "n") for version in ("", "1")]
Step = Callable[[Table], None]

pools = st.sampled_from(["p", "q"])
names = st.sampled_from(NAMES)
loaded = st.lists(names, max_size=3).map(tuple)  # may contain duplicates
workers = st.builds(
    orders.Worker,
    id=st.sampled_from(["w1", "w2", "w3", "w4"]),
    pool=pools,
    capacity=st.sampled_from([1, 4]),
    state=st.sampled_from(["ready", "ready", "draining"]),
    loaded=loaded,
    key=st.sampled_from(["", "its own"]),
)
models = st.builds(
    lambda name, pools, reason: orders.Servable(name[0], name[1], tuple(pools), reason),
    names,
    st.lists(pools, max_size=2, unique=True),
    st.sampled_from(["", "none was built"]),
)
steps: st.SearchStrategy[Step] = st.one_of(
    st.lists(workers, max_size=4).map(lambda these: lambda table: table.set_workers(these)),
    st.lists(models, max_size=3).map(lambda these: lambda table: table.set_models(these)),
    models.map(lambda one: lambda table: table.put_model(one)),
    names.map(lambda name: lambda table: table.drop_model(*name)),
    st.sampled_from(["one key", "another"]).map(lambda key: lambda table: table.set_key(key)),
)


@pytest.fixture(scope="module")
def probe() -> Path:
    return built_program("choice_probe")


def rank_workers(probe: Path, *batches: Sequence[dict[str, Any]]) -> list[list[str]]:
    """Executes the lists of orders in one process; returns, after each list, which workers can serve each model."""
    queries = [f"rank {model} {version or '-'}" for model, version in NAMES]
    text = "\n".join(line for each in batches for line in [*map(json.dumps, each), *queries]) + "\n"
    run = subprocess.run([probe], input=text, capture_output=True, text=True, check=True)
    lines = [line for line in run.stdout.splitlines() if not line.startswith("gone")]
    return [lines[at : at + len(NAMES)] for at in range(0, len(lines), len(NAMES))]


@given(batches=st.lists(st.lists(steps, max_size=3), max_size=8))
def test_changes_build_the_same_table_as_a_reset(probe: Path, batches: list[list[Step]]) -> None:
    table, mirror, whole = Table(), WorkerTable(), WorkerTable()
    messages = [table.whole()]
    for each in batches:
        for step in each:
            step(table)
        messages.append(table.changes())
    for order in messages:
        mirror.apply(order)
    whole.apply(table.whole())
    assert mirror == whole
    changed, replaced = rank_workers(probe, messages, [table.whole()])
    (fresh,) = rank_workers(probe, [table.whole()])
    assert changed == replaced == fresh


def test_unchanged_rows_are_not_sent() -> None:
    table = Table()
    rows = [orders.Worker(f"w{each}", "p", 1, "ready", (("m", ""),)) for each in range(3)]
    table.set_workers(rows)
    table.put_model(orders.Servable("m", "", ("p",)))
    assert len(table.changes()["workers"]) == 3
    assert not table.has_changed
    table.set_workers([rows[0], orders.Worker("w1", "p", 1, "draining", ())])
    table.put_model(orders.Servable("m", "", ("p",)))
    assert table.has_changed
    changed = [orders.Worker("w1", "p", 1, "draining", ())]
    assert table.changes() == orders.workers("", changed, (), ["w2"], resets=False)

"""`octet matrix`: compares a model's builds, speed and cost between the pools of a cluster."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Annotated, Any

import typer
from rich.text import Text

from service.cli.connection import connect
from service.cli.following import short_id
from service.cli.options import JsonOption, KeyOption, ServerOption
from service.cli.output import reporting
from service.cli.quantities import duration
from service.cli.tables import Table, number, whole
from service.cli.versions import ModelArgument, resolve_model
from service.core.verification.agreement import Outcome

_WAITS, _FAILED = ("queued", "building", "unverified"), ("failed", "refused", "different")
_STYLE = {"ready": "green", **dict.fromkeys(_WAITS, "yellow"), **dict.fromkeys(_FAILED, "bold red")}
_LOOK_S = 0.5
# Outcome in the numerics report -> text. If the artifact could not run where it was built, a worker has verified it,
# and the text is "verified".
_WORDS = {Outcome.EQUAL: "equal", Outcome.DOCUMENTED: "within bounds", Outcome.OWN_ONLY: "own form only"}


def matrix(
    model: ModelArgument,
    measure: Annotated[
        bool,
        typer.Option(
            "--measure", help="First let a worker of each pool verify and measure the model, and wait for the results."
        ),
    ] = False,
    server: ServerOption = None,
    key: KeyOption = None,
    as_json: JsonOption = False,
) -> None:
    """Compare the pools of a cluster that serve a model: builds, exactness, speed and cost."""
    with reporting(as_json) as output, connect(server, key) as client:
        name, version = resolve_model(client, model)
        found = client.measure(name, version) if measure else client.matrix(name, version)
        while measure and any(row["measuring"] and row["workers"] for row in found["rows"]):
            time.sleep(_LOOK_S)
            found = client.matrix(name, version)
        if as_json:
            output.document(found)
            return
        rows = found["rows"]
        output.show(Text(f"{found['name']} version {found['version']}", style="bold"))
        if not rows:
            output.show("No worker pool is running, and no build was requested.")
            return
        output.show(_table(rows), *_notes(rows))


def _table(rows: list[dict[str, Any]]) -> Table:
    table = Table(
        whole("pool"),
        whole("target"),
        whole("state"),
        whole("numerics", leave=3),
        whole("checked", leave=7),
        number("workers", leave=5),
        number("loaded", leave=2),
        number("p50"),
        number("p99", leave=6),
        number("per second"),
        number("of peak", leave=1),
        number("memory", leave=4),
        number("cost per million", leave=8),
    )
    for row in rows:
        state = Text(row["state"], style=_STYLE.get(row["state"], "dim"))
        checked = _checked(row)
        there = (str(row["workers"]), str(row["loaded"])) if row["pool"] else ("none", "")
        about = row["pool"] or "", row["target"], state, row["numerics"] or "", checked
        table.add(*about, *there, *_figures(row))
    return table


def _checked(row: dict[str, Any]) -> str:
    """Returns the result of the comparison with the reference runtime, in a word or two."""
    if row["outcome"] == Outcome.DIFFERENT:
        return "different, accepted" if row["accepted"] else "different"
    if not row["verified"]:
        return "" if row["verified"] is None else "not verified"
    return _WORDS.get(row["outcome"], "verified")


def _figures(row: dict[str, Any]) -> Iterator[str]:
    """Yields the measured figures of a row; each is empty if it was not measured."""
    yield duration(row["p50_s"]) if row["p50_s"] is not None else ""
    yield duration(row["p99_s"]) if row["p99_s"] is not None else ""
    yield f"{row['per_s']:.4g}" if row["per_s"] is not None else ""
    yield f"{row['peak_percent']:.1f} %" if row["peak_percent"] is not None else ""
    yield f"{row['memory_bytes'] / 1e6:.1f} MB" if row["memory_bytes"] is not None else ""
    yield f"{row['cost_per_million']:.4g}" if row["cost_per_million"] is not None else ""


def _notes(rows: list[dict[str, Any]]) -> Iterator[Text]:
    """Yields the comparison, the machine of the measurement, and why builds failed; each distinct line once."""
    shown: set[str] = set()
    for row in rows:
        notes = [row["checked"]] if row["checked"] else []
        if row["p50_s"] is not None:
            threads = f"{row['threads']} thread{'s' * (row['threads'] != 1)}"
            notes.append(f"measured on {row['machine'] or 'an unnamed machine'}, {threads}")
        if row["error"]:
            notes.append(f"{row['error']}: octet builds {short_id(row['build'])}")
        if row["measuring"]:
            notes.append("a worker is about to measure it")
        lines = [f"{row['target']}  {note}" for note in notes]
        yield from (Text(line, style="dim") for line in lines if line not in shown)
        shown.update(lines)

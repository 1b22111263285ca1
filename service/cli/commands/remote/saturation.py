"""`octet saturation`: shows which values a model clips in production."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

import typer
from rich.text import Text

from service.cli.connection import connect
from service.cli.options import JsonOption, KeyOption, ServerOption
from service.cli.output import reporting
from service.cli.tables import Table, number, text, whole
from service.cli.versions import ModelArgument, resolve_model

_STYLE = {"within": "green", "outside": "bold red"}


def saturation(
    model: ModelArgument,
    days: Annotated[
        int, typer.Option("--days", min=1, max=30, help="Show the counts of this many days, including today.")
    ] = 2,
    server: ServerOption = None,
    key: KeyOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show which values a model clips in production, beside the ranges that calibration chose.

    Exit status 3: live data leaves the calibrated range of at least one tensor.
    """
    with reporting(as_json) as output, connect(server, key) as client:
        name, version = resolve_model(client, model)
        found = client.saturation(name, version, days)
        outside = [each["tensor"] for each in found["tensors"] if each["state"] == "outside"]
        if as_json:
            output.document(found)
        else:
            output.show(*_described(found))
        if outside:
            raise typer.Exit(_OUTSIDE)


_OUTSIDE = 3


def _described(found: dict[str, Any]) -> Iterator[Any]:
    yield Text(f"{found['name']} version {found['version']}", style="bold")
    if not found["tensors"]:
        yield f"{found['state']}: {found['reason']}"
        return
    dropped = f", {found['dropped']:,} more were dropped" if found["dropped"] else ""
    yield f"{found['samples']:,} requests of {found['days']} days were counted{dropped}"
    yield _table(found["tensors"])
    for each in found["tensors"]:
        if each["state"] == "outside":
            yield Text(f"{each['tensor']}: {_percent(each['clipped'])} of the values are clipped", style="bold red")


def _table(tensors: list[dict[str, Any]]) -> Table:
    table = Table(text("tensor"), number("calibrated"), number("live"), number("clipped"), whole("state"))
    for each in tensors:
        state = Text(each["state"], style=_STYLE[each["state"]])
        ranges = (_range(each[which]) for which in ("stored", "live"))
        table.add(Text(each["tensor"]), *ranges, _percent(each["clipped"]), state)
    return table


def _range(of: dict[str, float]) -> str:
    return f"{of['low']:.4g} … {of['high']:.4g}"


def _percent(share: float) -> str:
    return f"{100 * share:.3g} %"

"""`octet doctor`: checks this machine, the installation, the store and the server."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from service.cli.configuration import load_checked, server_url
from service.cli.options import DataDirOption, JsonOption, KeyOption, ServerOption
from service.cli.output import FAILURE, reporting
from service.cli.tables import Table, text, whole

if TYPE_CHECKING:
    from service.cli.commands.local.checks import Check
    from service.core.settings import Settings


# State of a check -> the mark and its style.
_MARKS = {
    "ok": ("✓", "green"),
    "note": ("·", "dim"),
    "warning": ("!", "yellow"),
    "problem": ("✗", "bold red"),
}


def doctor(
    data_dir: DataDirOption = None,
    server: ServerOption = None,
    key: KeyOption = None,
    repair: Annotated[
        bool,
        typer.Option(
            "--repair",
            help="Rebuild a damaged database from the store, or a damaged index of the store from the database. The "
            "damaged file is kept under another name.",
        ),
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Check this machine, the installation, the store and the server; exit status 1 if there is a problem."""
    from service.cli.commands.local.checks import State, check_all

    with reporting(as_json) as output:
        settings = load_checked({"data_dir": data_dir})
        done = _repair(settings) if repair else []
        checks = [*done, *check_all(settings, server_url(server), key)]
        if as_json:
            output.document([check.to_json() for check in checks])
        else:
            output.show(_table(checks))
    if any(check.state is State.PROBLEM for check in checks):
        raise typer.Exit(FAILURE)


def _repair(settings: Settings) -> list[Check]:
    from service.cli.commands.local.checks import Check, State
    from service.workers.repair import repair  # imported here because it needs the database packages

    done = repair(settings) or ["neither the database nor the index of the store is damaged"]
    return [Check("repair", State.NOTE, each) for each in done]


def _table(checks: list[Check]) -> Table:
    table = Table(whole(), whole(), text())
    for check in checks:
        mark, style = _MARKS[check.state]
        table.add(Text(mark, style=style), Text(check.name, style="dim"), check.detail)
        if check.hint:
            table.add("", "", Text(f"→ {check.hint}", style="italic"))
    return table

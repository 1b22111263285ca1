"""`octet worker`: one part of `octet serve` as a process of its own."""

from __future__ import annotations

import typer

app = typer.Typer(help="Run one part of octet serve as a process of its own.", no_args_is_help=True)


@app.callback()
def _worker() -> None:
    """Keeps `compile` a command of its own for as long as it is the only one."""

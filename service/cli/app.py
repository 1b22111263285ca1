"""The command line: `octet COMMAND`. Each command is a module of this folder; this one hangs them up."""

from __future__ import annotations

import importlib.metadata
from typing import Annotated

import typer

from service.cli import keys, local, models, predict, promote, push, quarantine, serve
from service.cli.bench import bench
from service.cli.doctor import doctor
from service.cli.explain import explain
from service.cli.gc import gc
from service.cli.health import health
from service.cli.inspect import inspect

app = typer.Typer(
    name="octet",
    help="Serve models that are already quantized to 8 bits, exactly and at the speed of the hardware.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

_SERVING, _FILES, _MACHINE = "With a server", "Without a server", "This machine"

app.command(rich_help_panel=_SERVING)(serve.serve)
app.command(rich_help_panel=_SERVING)(push.push)
app.command(rich_help_panel=_SERVING)(predict.predict)
app.command(rich_help_panel=_SERVING)(models.models)
app.command(rich_help_panel=_SERVING)(models.builds)
app.command(rich_help_panel=_SERVING)(promote.promote)
app.command(rich_help_panel=_SERVING)(promote.rollback)
app.command(rich_help_panel=_SERVING)(quarantine.quarantine)
app.add_typer(keys.keys, name="keys", rich_help_panel=_SERVING)
app.command(rich_help_panel=_SERVING)(keys.audit)
app.command(rich_help_panel=_FILES)(inspect)
app.command(rich_help_panel=_FILES)(local.compile)
app.command(rich_help_panel=_FILES)(local.run)
app.command(rich_help_panel=_FILES)(local.verify)
app.command(rich_help_panel=_MACHINE)(explain)
app.command(rich_help_panel=_MACHINE)(bench)
app.command(rich_help_panel=_MACHINE)(doctor)
app.command(rich_help_panel=_MACHINE)(health)
app.command(rich_help_panel=_MACHINE)(gc)
app.add_typer(serve.worker, name="worker", rich_help_panel=_MACHINE)


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"octet {importlib.metadata.version('octet')}")
        raise typer.Exit


@app.callback()
def _octet(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


def main() -> None:
    app(prog_name="octet")

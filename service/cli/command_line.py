"""The command line: `octet COMMAND`. Each command is a module of `commands`; this module registers them."""

from __future__ import annotations

import importlib
import importlib.metadata
import sys
from collections.abc import Mapping
from typing import Annotated

import typer
from typer.exceptions import TyperException

from service.cli.output import FAILURE, Output
from service.core.errors import InvalidInput

_SERVING, _FILES, _MACHINE = "With a server", "Without a server", "This machine"
_CLUSTER = "Clusters"

# Command name -> (the heading under which --help lists it, its module in `service.cli.commands`, the function or Typer
# group in that module).
_COMMANDS: Mapping[str, tuple[str, str, str]] = {
    "serve": (_SERVING, "servers.serve", "serve"),
    "push": (_SERVING, "remote.push", "push"),
    "pull": (_SERVING, "remote.pull", "pull"),
    "predict": (_SERVING, "remote.predict", "predict"),
    "models": (_SERVING, "remote.models", "models"),
    "rm": (_SERVING, "remote.rm", "rm"),
    "builds": (_SERVING, "remote.models", "builds"),
    "matrix": (_SERVING, "remote.matrix", "matrix"),
    "compare": (_SERVING, "remote.compare", "compare"),
    "saturation": (_SERVING, "remote.saturation", "saturation"),
    "promote": (_SERVING, "remote.promote", "promote"),
    "rollback": (_SERVING, "remote.promote", "rollback"),
    "quarantine": (_SERVING, "remote.quarantine", "quarantine"),
    "keys": (_SERVING, "remote.keys", "keys"),
    "audit": (_SERVING, "remote.keys", "audit"),
    "inspect": (_FILES, "local.inspect", "inspect"),
    "compile": (_FILES, "local.compile_and_run", "compile"),
    "quantize": (_FILES, "local.quantize", "quantize"),
    "evaluate": (_FILES, "local.evaluate", "evaluate"),
    "run": (_FILES, "local.compile_and_run", "run"),
    "verify": (_FILES, "local.verify", "verify"),
    "dialect": (_FILES, "local.dialect", "dialect"),
    "explain": (_MACHINE, "local.explain", "explain"),
    "bench": (_MACHINE, "local.bench", "bench"),
    "targets": (_MACHINE, "local.targets", "targets"),
    "doctor": (_MACHINE, "local.doctor", "doctor"),
    "health": (_MACHINE, "remote.health", "health"),
    "gc": (_MACHINE, "local.gc", "gc"),
    "api": (_CLUSTER, "servers.serve", "api"),
    "compile-worker": (_CLUSTER, "servers.compile_worker", "compile_worker"),
    "worker": (_CLUSTER, "servers.worker", "worker"),
}


def main() -> None:
    """Runs the command line. Imports only the requested command's module, because imported modules take memory as long
    as a server runs.
    """
    command = sys.argv[1] if len(sys.argv) > 1 else None
    app = command_line(command if command in _COMMANDS else None)
    if "--json" in sys.argv:
        sys.exit(_in_json(app))
    app(prog_name="octet")


def _in_json(app: typer.Typer) -> int:
    """Runs a command with --json. A usage error is printed as a JSON document too, like every other output."""
    try:
        status: int | None = app(prog_name="octet", standalone_mode=False)
    except TyperException as error:
        Output(as_json=True).error(InvalidInput(error.format_message(), hint="octet COMMAND --help"))
        return error.exit_code
    except typer.Abort:
        return FAILURE
    return status or 0


def command_line(only: str | None = None) -> typer.Typer:
    """Returns the application with all commands, or with the command `only`."""
    app = typer.Typer(
        name="octet",
        help="Serve models that are already quantized to 8 bits, exactly and as fast as the hardware allows.",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_octet)
    for name in [only] if only else _COMMANDS:
        heading, module, attribute = _COMMANDS[name]
        command = getattr(importlib.import_module(f"service.cli.commands.{module}"), attribute)
        if isinstance(command, typer.Typer):
            app.add_typer(command, name=name, rich_help_panel=heading)
        else:
            app.command(name, rich_help_panel=heading)(command)
    return app


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"octet {importlib.metadata.version('octet-serve')}")
        raise typer.Exit


def _octet(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass

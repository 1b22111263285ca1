"""The command line: `octet COMMAND`. Each command is a module of this folder; this module registers them."""

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

# Command name -> (the heading under which --help lists it, its module, the function or Typer group in that module).
_COMMANDS: Mapping[str, tuple[str, str, str]] = {
    "serve": (_SERVING, "serve", "serve"),
    "push": (_SERVING, "push", "push"),
    "pull": (_SERVING, "pull", "pull"),
    "predict": (_SERVING, "predict", "predict"),
    "models": (_SERVING, "models", "models"),
    "rm": (_SERVING, "rm", "rm"),
    "builds": (_SERVING, "models", "builds"),
    "matrix": (_SERVING, "matrix", "matrix"),
    "compare": (_SERVING, "compare", "compare"),
    "promote": (_SERVING, "promote", "promote"),
    "rollback": (_SERVING, "promote", "rollback"),
    "quarantine": (_SERVING, "quarantine", "quarantine"),
    "keys": (_SERVING, "keys", "keys"),
    "audit": (_SERVING, "keys", "audit"),
    "inspect": (_FILES, "inspect", "inspect"),
    "compile": (_FILES, "local", "compile"),
    "quantize": (_FILES, "quantize", "quantize"),
    "run": (_FILES, "local", "run"),
    "verify": (_FILES, "verify", "verify"),
    "explain": (_MACHINE, "explain", "explain"),
    "bench": (_MACHINE, "bench", "bench"),
    "targets": (_MACHINE, "targets", "targets"),
    "doctor": (_MACHINE, "doctor", "doctor"),
    "health": (_MACHINE, "health", "health"),
    "gc": (_MACHINE, "gc", "gc"),
    "api": (_CLUSTER, "serve", "api"),
    "compile-worker": (_CLUSTER, "compile_worker", "compile_worker"),
    "worker": (_CLUSTER, "worker", "worker"),
}


def main() -> None:
    """Runs the command line. Imports only the requested command's module: a server keeps all that it imports."""
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
        command = getattr(importlib.import_module(f"service.cli.{module}"), attribute)
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

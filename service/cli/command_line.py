"""The command line: `octet COMMAND`. Each command is a module of `commands`; this module registers them."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping
from typing import Annotated, Any, NamedTuple

import typer
import typer.main
from typer.core import TyperGroup
from typer.exceptions import TyperException

from service.cli.output import FAILURE, Output
from service.core.errors import InvalidInput, Unsupported

_SERVING, _FILES, _MACHINE = "With a server", "Without a server", "This machine"
_CLUSTER = "Clusters"
_ELSEWHERE = "run it in a container, or on Windows in WSL 2 (docs/install.md)"


class _Command(NamedTuple):
    """How `octet --help` lists a command, and where its code is.

    Attributes:
        heading: the heading under which it is listed.
        module: the module in `service.cli.commands`.
        attribute: the function or Typer group in that module.
        summary: the first sentence of its help. It is repeated here, so that listing the commands imports no module.
    """

    heading: str
    module: str
    attribute: str
    summary: str


_COMMANDS: Mapping[str, _Command] = {
    "serve": _Command(
        _SERVING,
        "servers.serve",
        "serve",
        "Serve models: the API, predictions and, while builds are queued, a compile worker.",
    ),
    "push": _Command(
        _SERVING,
        "remote.push",
        "push",
        "Upload a model, compile it, and show the checks of the result. A compiled folder is verified instead "
        "of compiled.",
    ),
    "pull": _Command(_SERVING, "remote.pull", "pull", "Download the artifact of a model, as a folder for octet run."),
    "predict": _Command(_SERVING, "remote.predict", "predict", "Run a served model on texts, pictures or tensors."),
    "models": _Command(
        _SERVING,
        "remote.models",
        "models",
        "List the models, and whether each version is served; newest versions first.",
    ),
    "rm": _Command(_SERVING, "remote.rm", "rm", "Delete a model with all its versions, or one version of it."),
    "builds": _Command(
        _SERVING,
        "remote.models",
        "builds",
        "List the builds, newest first; or show, follow or cancel one.",
    ),
    "matrix": _Command(
        _SERVING,
        "remote.matrix",
        "matrix",
        "Compare the pools of a cluster that serve a model: builds, exactness, speed and cost.",
    ),
    "compare": _Command(
        _SERVING,
        "remote.compare",
        "compare",
        "Run one input on every pool of a cluster, and compare the outputs. The exit status is 1 if any two differ.",
    ),
    "saturation": _Command(
        _SERVING,
        "remote.saturation",
        "saturation",
        "Show which values a model clips in production, beside the ranges that calibration chose.",
    ),
    "promote": _Command(
        _SERVING,
        "remote.promote",
        "promote",
        "Send all or part of the requests for a model to this version.",
    ),
    "rollback": _Command(
        _SERVING,
        "remote.promote",
        "rollback",
        "Return to the previous version: end a canary, or undo a promotion.",
    ),
    "quarantine": _Command(
        _SERVING,
        "remote.quarantine",
        "quarantine",
        "List the artifacts that are quarantined because they crashed the server, or release one.",
    ),
    "keys": _Command(_SERVING, "remote.keys", "keys", "Create, list and revoke API keys."),
    "audit": _Command(
        _SERVING,
        "remote.keys",
        "audit",
        "List the changes to models and keys, with the key that made each; newest first.",
    ),
    "inspect": _Command(
        _FILES,
        "local.inspect",
        "inspect",
        "Show a model file's signature, operators and quantization.",
    ),
    "compile": _Command(_FILES, "local.compile_and_run", "compile", "Compile a model into a folder."),
    "quantize": _Command(
        _FILES,
        "local.quantize",
        "quantize",
        "Quantize a float model, calibrated with sample inputs, and show the loss of accuracy.",
    ),
    "evaluate": _Command(
        _FILES,
        "local.evaluate",
        "evaluate",
        "Score a quantized model on a data set, and compare it with its reference runtime.",
    ),
    "run": _Command(_FILES, "local.compile_and_run", "run", "Run a compiled folder on a picture or a tensor."),
    "verify": _Command(
        _FILES,
        "local.verify",
        "verify",
        "Check who built an artifact, and that the artifact computes the same outputs here as on the machine "
        "that compiled it.",
    ),
    "dialect": _Command(_FILES, "local.dialect", "dialect", "Show and prove what a Python file adds to the compiler."),
    "explain": _Command(
        _MACHINE,
        "local.explain",
        "explain",
        "Show each layer's kernel, its time on this machine, and why a layer has no kernel.",
    ),
    "bench": _Command(
        _MACHINE,
        "local.bench",
        "bench",
        "Measure the latency of a model on this machine, with different numbers of threads.",
    ),
    "targets": _Command(
        _MACHINE,
        "local.targets",
        "targets",
        "List the targets, and for each whether this machine can compile, run and verify models, or what it lacks.",
    ),
    "doctor": _Command(
        _MACHINE,
        "local.doctor",
        "doctor",
        "Check this machine, the installation, the store and the server; exit status 1 if there is a problem.",
    ),
    "health": _Command(
        _MACHINE,
        "remote.health",
        "health",
        "Check that a server is alive, over HTTP or HTTPS as configured; exit status 1 if it is not.",
    ),
    "gc": _Command(
        _MACHINE,
        "local.gc",
        "gc",
        "Delete stored files that no model, build or artifact needs. octet serve does this every hour.",
    ),
    "api": _Command(
        _CLUSTER,
        "servers.serve",
        "api",
        "Run the API of a cluster: forwards predictions to the workers, loads no models and builds nothing.",
    ),
    "compile-worker": _Command(
        _CLUSTER,
        "servers.compile_worker",
        "compile_worker",
        "Run queued builds of all servers that use the same database or data folder.",
    ),
    "worker": _Command(
        _CLUSTER,
        "servers.worker",
        "worker",
        "Run predictions for a cluster, with the artifacts of one target; octet api forwards requests to it.",
    ),
}


class _Headed(TyperGroup):
    """Lists its commands under headings, with their whole summaries."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        sections: dict[str, list[tuple[str, str]]] = {}
        for name in self.commands:
            sections.setdefault(_COMMANDS[name].heading, []).append((name, _COMMANDS[name].summary))
        for heading, rows in sections.items():
            with formatter.section(heading):
                formatter.write_dl(rows)


class _Commands(_Headed):
    """Imports the module of a command when the command is called: imported modules take time, and take memory as long
    as a server runs. The members of `commands` only have what `--help` lists.
    """

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        name, command, rest = super().resolve_command(ctx, args)
        return name, command if name is None else load_command(name), rest


def _is_available(name: str) -> bool:
    """Returns true if the command runs on this system. Systems other than Linux have the commands of a client, except
    `pull`, which writes a folder that only Linux runs.
    """
    return sys.platform == "linux" or (_COMMANDS[name].module.startswith("remote.") and name != "pull")


def main() -> None:
    """Runs the command line."""
    requested = sys.argv[1] if len(sys.argv) > 1 else ""
    if requested in _COMMANDS and not _is_available(requested):
        error = Unsupported(f"octet {requested} needs Linux: on this system, Octet is a client", hint=_ELSEWHERE)
        Output(as_json="--json" in sys.argv).error(error)
        sys.exit(FAILURE)
    app = _application(cls=_Commands)
    for name in filter(_is_available, _COMMANDS):
        app.command(name, help=_COMMANDS[name].summary)(_not_imported)
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


def command_line() -> typer.Typer:
    """Returns the application with all commands, imported."""
    app = _application()
    for name in _COMMANDS:
        _add(app, name)
    return app


def load_command(name: str) -> Any:
    """Returns the command `name`, whose module is imported."""
    app = _application()
    _add(app, name)
    return typer.main.get_group(app).commands[name]


def _application(cls: type[TyperGroup] = _Headed) -> typer.Typer:
    app = typer.Typer(
        name="octet",
        cls=cls,
        help="Serve models that are already quantized to 8 bits, exactly and as fast as the hardware allows.",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,  # rich would cut names of options at 80 columns
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_octet)
    return app


def _add(app: typer.Typer, name: str) -> None:
    module = importlib.import_module(f"service.cli.commands.{_COMMANDS[name].module}")
    command = getattr(module, _COMMANDS[name].attribute)
    if isinstance(command, typer.Typer):
        app.add_typer(command, name=name)
    else:
        app.command(name)(command)


def _not_imported() -> None:
    """Replaces a command that is listed and not imported. `_Commands` replaces it before a call."""


def _print_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        print(f"octet {version('octet-serve')}")
        raise typer.Exit


def _octet(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass

"""Tests that commands are listed and described without loading what they only need when they run."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import typer.main
from typer.testing import CliRunner

from service.cli.app import app
from service.cli.command_line import _COMMANDS

# Packages that take at least 20 ms to load. What --help shows needs none of them.
SLOW = {"PIL", "asyncio", "httpx", "multiprocessing", "numpy", "pydantic", "sqlalchemy", "tvm"}
MOST_MODULES = 60  # Octet's own modules that the declarations of one command may load


def modules_of(*arguments: str) -> set[str]:
    """Returns the modules that `octet ARGUMENTS` loads in a process of its own."""
    code = (
        "import contextlib, io, json, sys\n"
        f"sys.argv = {['octet', *arguments]!r}\n"
        "from service.cli import main\n"
        "with contextlib.suppress(SystemExit), contextlib.redirect_stdout(io.StringIO()):\n"
        "    main()\n"
        "print(json.dumps(list(sys.modules)))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    return set(json.loads(done.stdout))


@pytest.mark.parametrize("argument", ["--help", "--version"])
def test_listing_the_commands_loads_no_command(argument: str) -> None:
    loaded = modules_of(argument)
    assert "service.cli.command_line" in loaded
    assert not {name for name in loaded if name.startswith("service.cli.commands.")}
    assert not SLOW & loaded


def test_declarations_of_commands_load_no_slow_package() -> None:
    """All commands are declared in one process, which loads as much as the help of each of them together."""
    code = (
        "import json, sys\n"
        "import service.cli\n"
        "from service.cli.command_line import _COMMANDS, load_command\n"
        "found = {name: (load_command(name), sorted(sys.modules))[1] for name in _COMMANDS}\n"
        "print(json.dumps(found))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    loaded = json.loads(done.stdout)
    assert loaded.keys() == _COMMANDS.keys()
    assert {name: SLOW & set(modules) for name, modules in loaded.items() if SLOW & set(modules)} == {}


def test_help_of_a_command_loads_few_modules_of_octet() -> None:
    loaded = {name for name in modules_of("push", "--help") if name.startswith("service.")}
    assert "service.cli.commands.remote.push" in loaded
    assert len(loaded) <= MOST_MODULES


def test_summaries_are_those_of_the_commands() -> None:
    commands = typer.main.get_group(app).commands
    summaries = {name: " ".join((command.help or "").split("\n\n")[0].split()) for name, command in commands.items()}
    assert {name: listed.summary for name, listed in _COMMANDS.items()} == summaries


def _all_commands(command: Any, *path: str) -> Iterator[tuple[tuple[str, ...], Any]]:
    yield path, command
    for name, inner in getattr(command, "commands", {}).items():
        yield from _all_commands(inner, *path, name)


def test_help_names_every_option_and_argument_in_full_at_80_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    for path, command in _all_commands(typer.main.get_group(app)):
        lines = CliRunner().invoke(app, [*path, "--help"]).stdout.splitlines()
        words = set(" ".join(lines).replace(",", " ").split())
        names = {name for option in command.params if not option.hidden for name in option.opts if name[:2] == "--"}
        assert names <= words | {"--install-completion", "--show-completion"}, path


def test_commands_are_listed_under_headings_with_whole_summaries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    shown = " ".join(CliRunner().invoke(app, ["--help"]).stdout.split())
    for name, listed in _COMMANDS.items():
        assert f"{name} {listed.summary}" in shown
        assert f"{listed.heading}:" in shown

"""The Typer application with all commands, for the generated reference and for tests."""

from __future__ import annotations

from service.cli.command_line import command_line

app = command_line()

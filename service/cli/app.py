"""All commands at once, for the reference and for tests."""

from __future__ import annotations

from service.cli.commands import command_line

app = command_line()

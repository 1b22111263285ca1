"""All commands at once, for whoever wants to look at them: the reference, and tests."""

from __future__ import annotations

from service.cli.commands import command_line

app = command_line()

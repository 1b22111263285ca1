"""Logs warnings about the names of models: each once, and again if the problem returns after it was solved."""

from __future__ import annotations

import logging

from service.workers.inference.routes import Name

_logger = logging.getLogger(__name__)


class NameWarnings:
    """Remembers the current warning of each name. For one event loop."""

    def __init__(self) -> None:
        self._current: dict[Name, str] = {}

    def report(self, name: Name, warning: str) -> None:
        """Logs `warning` if it is new for `name`; an empty string removes it."""
        previous = self._current.pop(name, "")
        if warning:
            self._current[name] = warning
            if warning != previous:
                _logger.warning("%s: %s", display_name(name), warning)


def display_name(name: Name) -> str:
    """Returns the name in the form for messages."""
    model, reference = name
    return f"model {model}" if reference is None else f"model {model}@{reference}"

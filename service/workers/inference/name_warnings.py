"""Warnings about the names of models: each logged once, and again where it comes back after it was solved."""

from __future__ import annotations

import logging

from service.workers.inference.routes import Name

_logger = logging.getLogger(__name__)


class NameWarnings:
    """For one event loop."""

    def __init__(self) -> None:
        self._said: dict[Name, str] = {}

    def report(self, name: Name, warning: str) -> None:
        """`warning` is what is wrong with `name` now; empty for nothing."""
        said = self._said.pop(name, "")
        if warning:
            self._said[name] = warning
            if warning != said:
                _logger.warning("%s: %s", spoken(name), warning)


def spoken(name: Name) -> str:
    """As a person would say it."""
    model, reference = name
    return f"model {model}" if reference is None else f"model {model}@{reference}"

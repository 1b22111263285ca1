"""What is wrong with the names of models, for the log: said once, and again when it was mended and is back."""

from __future__ import annotations

import logging

from service.workers.inference.routes import Name

_logger = logging.getLogger(__name__)


class Complaints:
    """For one event loop."""

    def __init__(self) -> None:
        self._said: dict[Name, str] = {}

    def say(self, name: Name, complaint: str) -> None:
        """`complaint` is what is wrong with `name` now; empty for nothing."""
        said = self._said.pop(name, "")
        if complaint:
            self._said[name] = complaint
            if complaint != said:
                _logger.warning("%s: %s", spoken(name), complaint)


def spoken(name: Name) -> str:
    """As a person would say it."""
    model, reference = name
    return f"model {model}" if reference is None else f"model {model}@{reference}"

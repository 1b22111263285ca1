"""Loads the binding of the runtime."""

from __future__ import annotations

import sys

import pytest

from service.core.errors import Unsupported
from service.runtime import python_library


def test_free_threaded_builds_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "abiflags", "t")
    python_library.library.cache_clear()
    with pytest.raises(Unsupported, match="not on free-threaded builds"):
        python_library.library()

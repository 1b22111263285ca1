"""The record of the use of keys."""

from __future__ import annotations

from pathlib import Path

from service.core.access.key import Limits, Scope
from tests.support.api_keys import Make, bearer


def test_a_damaged_record_of_usage_is_ignored(make: Make, tmp_path: Path) -> None:
    (tmp_path / "usage.json").write_text('{"day": "2026-01-01", "keys": {"a": 3}}')
    access = make(auth="on")
    key, text = access.keys.create("a", [Scope.PREDICT], Limits(requests_per_day=1))
    access.changed()
    assert access.admit(bearer(text), Scope.PREDICT) == key.id

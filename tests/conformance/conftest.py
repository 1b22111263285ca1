"""After the tests: what they saw, where `make tables` wants it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.support.evidence import LEDGER, tables


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    path = os.environ.get("OCTET_TABLES")
    if path and exitstatus == pytest.ExitCode.OK:
        Path(path).write_text(tables(LEDGER))

"""After the tests, writes the tables of `docs/reference`, if `make tables` sets the path."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import pytest

from benchmarks.harness.kept import write_page
from tests.conformance.onnx_backend.table import HEADING, replaced
from tests.support.evidence import LEDGER, Incomplete, Ledger, function_of, merged, tables

_OUTCOMES: dict[str, set[str]] = defaultdict(set)  # the outcomes of each test function's cases


def pytest_deselected(items: Sequence[pytest.Item]) -> None:
    for item in items:
        _OUTCOMES[function_of(item.nodeid)].add("deselected")


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.when == "call" or report.outcome != "passed":
        _OUTCOMES[function_of(report.nodeid)].add(report.outcome)


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    path = os.environ.get("OCTET_TABLES")
    if path and exitstatus == pytest.ExitCode.OK:
        _write(Path(path), session)


def _write(path: Path, session: pytest.Session) -> None:
    """Writes the tables to `path`. The results of each test function are recorded in a second file.

    Raises:
        Incomplete: the tests ran in several processes.
    """
    if session.config.pluginmanager.hasplugin("dsession") or hasattr(session.config, "workerinput"):
        raise Incomplete("the tables were not written: the tests ran in several processes, of which none has seen all")
    record = path.with_suffix(".json")
    before = Ledger.from_json(record.read_text()) if record.exists() else Ledger()
    complete = {test for test, outcomes in _OUTCOMES.items() if outcomes == {"passed"}}
    existing = {test for test in before.tests if _exists(session.config.rootpath, test)} | set(_OUTCOMES)
    after = merged(before, LEDGER, complete, existing)
    record.write_text(after.to_json())
    before_section = path.read_text() if path.exists() else ""
    write_page(path, tables(after))
    if HEADING in before_section:  # another program writes this section
        path.write_text(replaced(path.read_text(), HEADING + before_section.partition(HEADING)[2]))


def _exists(root: Path, test: str) -> bool:
    file, _, function = test.partition("::")
    source = root / file
    return source.is_file() and f"def {function.rpartition('::')[2]}(" in source.read_text()

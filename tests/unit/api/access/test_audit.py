"""Tests of the audit log in a file."""

from __future__ import annotations

import logging
import threading
from pathlib import Path

import pytest

from service.api.access import AuditLog
from service.api.access.audit import AuditFile, caller
from tests.support.manual_clock import ManualClock


def test_the_newest_entries_come_first(tmp_path: Path) -> None:
    log = AuditLog(AuditFile(tmp_path / "folder" / "audit.jsonl"), ManualClock())
    assert log.last(5) == []
    for number in range(4):
        log.note("push", model="ä\n", version=number)
    assert [entry["version"] for entry in log.last(3)] == [3, 2, 1]
    assert log.last(1)[0]["model"] == "ä\n"
    assert log.last(1)[0]["at"] == "2026-01-01T00:00:00+00:00"


def test_an_entry_names_the_caller(tmp_path: Path) -> None:
    log = AuditLog(AuditFile(tmp_path / "audit.jsonl"))
    token = caller.set(("camera", "r-1"))
    try:
        log.note("push", model="digits")
    finally:
        caller.reset(token)
    (entry,) = log.last(5)
    assert (entry["who"], entry["request_id"]) == ("camera", "r-1")


def test_an_incomplete_line_damages_no_other(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    log = AuditLog(AuditFile(path))
    log.note("one")
    path.write_bytes(path.read_bytes() + b'{"action": "to')
    log.note("three")
    assert [entry["action"] for entry in log.last(5)] == ["three", "one"]


def test_lines_of_several_writers_are_not_mixed(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"

    def write() -> None:
        for _ in range(20):
            AuditLog(AuditFile(path)).note("push", model=1000 * "x")

    writers = [threading.Thread(target=write) for _ in range(4)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert len(AuditLog(AuditFile(path)).last(1000)) == 80


def test_an_entry_that_cannot_be_written_is_in_the_servers_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.ERROR):
        AuditLog(AuditFile(tmp_path)).note("push", model="digits")
    assert '"model": "digits"' in caplog.text

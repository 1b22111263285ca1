"""Tests of the formats of log lines."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from service.core.system.logs import without_secrets
from tests.support.waiting import WORK_TIMEOUT_S

_PROGRAM = """
import logging, warnings
from service.core.system import logs
logs.configure(logs.LogFormat({form!r}), logging.INFO)
logger = logging.getLogger("room")
{body}
"""


def logged(form: str, body: str) -> list[str]:
    """Runs `body` in a process that logs in the format `form`. Returns the lines of its standard error."""
    program = _PROGRAM.format(form=form, body=body)
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=WORK_TIMEOUT_S, check=True
    )
    return done.stderr.splitlines()


def test_a_line_is_one_json_object() -> None:
    (line,) = logged("json", "logger.warning('two %s: %s', 'lines\\nof \"text\"', 'ü')")
    found: dict[str, Any] = json.loads(line)
    time, pid = datetime.fromisoformat(found.pop("time")), found.pop("pid")
    assert datetime.now(UTC) - time < timedelta(minutes=1)
    assert isinstance(pid, int)
    assert found == {"level": "warning", "logger": "room", "message": 'two lines\nof "text": ü'}


def test_a_traceback_is_a_member_and_a_warning_a_line() -> None:
    body = """
try:
    1 / 0
except ZeroDivisionError:
    logger.exception("it failed")
warnings.warn("old")
"""
    failure, warning = map(json.loads, logged("json", body))
    assert (failure["message"], failure["level"]) == ("it failed", "error")
    assert failure["exception"].endswith("ZeroDivisionError: division by zero")
    assert "UserWarning: old" in warning["message"]


@pytest.mark.parametrize("form", ["json", "text"])
def test_secrets_are_left_out_of_lines_and_of_tracebacks(form: str) -> None:
    key = "octet_abcd1234_" + "S3cret" * 8
    body = f"""
try:
    raise ValueError("postgresql://octet:hunter2hunter2@db/octet")
except ValueError:
    logger.exception("Authorization: Bearer abcdef0123456789, {key}")
"""
    text = "\n".join(logged(form, body))
    assert "octet_abcd1234_…" in text
    assert "Bearer …" in text
    assert "postgresql://…@db/octet" in text
    assert not any(secret in text for secret in ("S3cret", "abcdef0123456789", "hunter2"))


def test_other_text_is_not_removed() -> None:
    text = "loading mobilenet version 3: sha256:" + "ab" * 32 + " from http://127.0.0.1:8080/v2, octet_requests_total"
    assert without_secrets(text) == text


def test_the_text_format() -> None:
    (line,) = logged("text", "logger.info('ready')")
    assert line.endswith(" INFO room: ready")


def test_frequent_warnings_are_limited_and_counted() -> None:
    body = """
now_s = 0.0
logs.monotonic = lambda: now_s
logger.addFilter(logs.Seldom())
for _ in range(100):
    logger.warning("nonsense")
    logger.warning("other %s", "nonsense")
    logger.error("failed")
now_s += 1
logger.warning("nonsense")
logger.info("other %s", "words")
"""
    found = [line.partition(" room: ")[2] for line in logged("text", body)]
    assert [line for line in found if line != "failed"] == [
        "nonsense",
        "other nonsense",
        "nonsense (99 more such in the 1 s before)",
        "other words (99 more such in the 1 s before)",
    ]
    assert found.count("failed") == 100

from __future__ import annotations

import logging

import pytest

from service.core.errors import DatabaseBusy, DatabaseUnreachable
from service.core.system.outage import Outage, log_trouble

_logger = logging.getLogger(__name__)


def test_the_beginning_and_the_end_of_an_outage_are_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    outage = Outage(_logger)
    outage.ended("the database")
    assert caplog.messages == []
    for _ in range(2):
        for why in ("refused", "refused", "stalled"):
            outage.began(why)
        for _ in range(3):
            outage.ended("the database")
    gone, back, gone_again, back_again = caplog.messages
    assert gone == gone_again == "refused; retrying until it responds"
    assert back.startswith("the database responds again, after 0.")
    assert back_again.startswith("the database responds again")


def test_only_errors_other_than_an_outage_are_logged_with_a_traceback(caplog: pytest.LogCaptureFixture) -> None:
    log_trouble(_logger, DatabaseUnreachable(), "no sign of %s", "life")
    assert caplog.records == []
    log_trouble(_logger, DatabaseBusy("locked"), "no sign of %s", "life")
    (record,) = caplog.records
    assert record.getMessage() == "no sign of life"
    assert record.exc_info

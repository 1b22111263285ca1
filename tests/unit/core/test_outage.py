from __future__ import annotations

import logging

import pytest

from service.core.errors import DatabaseBusy, DatabaseUnreachable
from service.core.outage import Outage, log_trouble

_logger = logging.getLogger(__name__)


def test_it_is_said_once_that_it_is_gone_and_once_that_it_is_back(caplog: pytest.LogCaptureFixture) -> None:
    outage = Outage(_logger)
    outage.ended("the database")
    assert caplog.messages == []
    for _ in range(2):
        for why in ("refused", "refused", "stalled"):
            outage.began(why)
        for _ in range(3):
            outage.ended("the database")
    gone, back, gone_again, back_again = caplog.messages
    assert gone == gone_again == "refused; it is asked again until it answers"
    assert back.startswith("the database answers again, after 0.")
    assert back_again.startswith("the database answers again")


def test_of_work_that_is_tried_again_only_other_trouble_has_a_traceback(caplog: pytest.LogCaptureFixture) -> None:
    log_trouble(_logger, DatabaseUnreachable(), "no sign of %s", "life")
    assert caplog.records == []
    log_trouble(_logger, DatabaseBusy("locked"), "no sign of %s", "life")
    (record,) = caplog.records
    assert record.getMessage() == "no sign of life"
    assert record.exc_info

"""Tests of the control plane's periodic tasks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from service.api.ops import housekeeping
from service.api.ops.housekeeping import Housekeeping
from service.workers.garbage import Collector
from tests.support.control_plane import ControlPlane, control_plane
from tests.support.waiting import eventually_async


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[ControlPlane]:
    with control_plane(tmp_path) as plane:
        yield plane


async def count_requests(plane: ControlPlane, until: Callable[[int], bool] | None = None) -> int:
    """Returns how often a compiler was requested in half a second, or until `until(number)` is true."""
    wanted = [0]

    def want() -> None:
        wanted[0] += 1

    keeping = asyncio.create_task(Housekeeping(plane.services, want).keep())
    await (asyncio.sleep(0.5) if until is None else eventually_async(lambda: until(wanted[0])))
    keeping.cancel()
    return wanted[0]


def test_a_compiler_is_requested_while_a_build_waits(plane: ControlPlane) -> None:
    assert asyncio.run(count_requests(plane)) == 0
    plane.push()
    asyncio.run(count_requests(plane, lambda wanted: wanted > 1))
    plane.services.builds.claim("worker", 30)
    assert asyncio.run(count_requests(plane)) == 0


def test_a_failed_check_is_logged_and_repeated(
    plane: ControlPlane, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    looks = [0]

    def fail(collector: Collector) -> None:
        looks[0] += 1
        raise OSError("the disk is full")

    monkeypatch.setattr(Collector, "collect_if_due", fail)
    monkeypatch.setattr(housekeeping, "_TROUBLE_S", 0.01)
    asyncio.run(count_requests(plane, lambda _: looks[0] > 1))
    assert "the disk is full" in caplog.text

"""What the control plane looks after beside its requests."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from service.api.ops import housekeeping
from service.api.ops.housekeeping import Housekeeping
from service.workers.garbage import Collector
from tests.support.control_plane import ControlPlane, control_plane


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[ControlPlane]:
    with control_plane(tmp_path) as plane:
        yield plane


async def kept(plane: ControlPlane) -> int:
    """How often a compiler was wanted in half a second."""
    wanted = [0]

    def want() -> None:
        wanted[0] += 1

    keeping = asyncio.create_task(Housekeeping(plane.services, want).keep())
    await asyncio.sleep(0.5)
    keeping.cancel()
    return wanted[0]


def test_a_compiler_is_wanted_as_long_as_a_build_waits(plane: ControlPlane) -> None:
    assert asyncio.run(kept(plane)) == 0
    plane.push()
    assert asyncio.run(kept(plane)) > 1
    plane.services.builds.claim("worker", 30)
    assert asyncio.run(kept(plane)) == 0


def test_a_look_that_fails_is_logged_and_not_the_last(
    plane: ControlPlane, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    looks = [0]

    def fail(collector: Collector) -> None:
        looks[0] += 1
        raise OSError("the disk is full")

    monkeypatch.setattr(Collector, "collect_if_due", fail)
    monkeypatch.setattr(housekeeping, "_TROUBLE_S", 0.01)
    asyncio.run(kept(plane))
    assert looks[0] > 1
    assert "the disk is full" in caplog.text

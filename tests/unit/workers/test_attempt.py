"""One attempt of a build."""

from __future__ import annotations

from pathlib import Path

import pytest

from service.core.builds.build import BuildState
from service.workers.attempt import Stopping
from tests.support.building import CompileSetup, Endless
from tests.support.waiting import GIVE_UP_S


@pytest.fixture
def workshop(tmp_path: Path) -> CompileSetup:
    return CompileSetup(tmp_path)


def test_a_worker_that_stops_releases_its_build(workshop: CompileSetup) -> None:
    submitted, compile = workshop.ask(), Endless()
    with workshop.working(compile) as thread:
        workshop.stop.set()
        thread.join(GIVE_UP_S)
        assert not thread.is_alive()
    build = workshop.builds.get(submitted.id)
    assert (build.state, build.attempt) == (BuildState.QUEUED, 0)
    assert type(compile.ended_by) is Stopping
    workshop.stop.clear()
    workshop.work()
    assert workshop.builds.get(submitted.id).state is BuildState.SUCCEEDED

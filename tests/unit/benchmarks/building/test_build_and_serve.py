import pytest

from benchmarks.building.build_and_serve import stages_s
from service.cli.events import Event


def at(seconds: float) -> str:
    return f"2026-01-01T00:00:{seconds:06.3f}+00:00"


def test_a_stage_lasts_until_the_next_one_begins() -> None:
    pushed_at_s = 1767225600.0  # 2026-01-01T00:00:00Z
    events = [
        Event("1", "state", {"state": "running", "at": at(2)}),
        Event("2", "stage", {"stage": "import", "at": at(2)}),
        Event("3", "stage", {"stage": "codegen", "fraction": 0.0, "at": at(3)}),
        Event("4", "log", {"line": "a line", "at": at(4)}),
        Event("5", "progress", {"stage": "codegen", "fraction": 0.5, "at": at(5)}),
        Event("6", "state", {"state": "succeeded", "at": at(8)}),
    ]
    build = {"created_at": at(0.5), "finished_at": at(8)}
    assert stages_s(pushed_at_s, build, events) == pytest.approx(
        {"upload": 0.5, "queue": 1.5, "import": 1.0, "codegen": 5.0}
    )

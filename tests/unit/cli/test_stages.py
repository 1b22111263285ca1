"""Tests of the list of stages without a terminal that shows it live."""

import io

import pytest
from rich.console import Console

from service.cli.stages import StageView
from service.core.builds.build import Stage


def test_each_stage_is_shown_with_its_time_when_it_ends() -> None:
    console = _console()
    with StageView(console) as view:
        view.enter(Stage.IMPORT, 0.0, at_s=100.0)
        view.enter(Stage.IMPORT, 0.5, at_s=100.5)
        view.enter(Stage.LINK, 0.0, at_s=101.0)
        view.finish(101.25)
    assert _lines(console) == ["✓ import 1.00 s", "✓ link 0.25 s"]


def test_the_stage_in_which_a_build_fails_is_marked() -> None:
    console = _console()

    def build() -> None:
        with StageView(console) as view:
            view.enter(Stage.IMPORT, 0.0, at_s=0.0)
            view.enter(Stage.CODEGEN, 0.0, at_s=1.0)
            raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        build()
    assert _lines(console) == ["✓ import 1.00 s", "✗ codegen"]


def test_log_lines_are_shown_as_they_are() -> None:
    console = _console()
    with StageView(console) as view:
        view.log("[bold]not markup[/bold]")
    assert _lines(console) == ["[bold]not markup[/bold]"]


def test_a_build_that_ended_earlier_shows_no_stages() -> None:
    console = _console()
    with StageView(console) as view:
        view.finish(5.0)
    assert _lines(console) == []


def _console() -> Console:
    return Console(file=io.StringIO(), width=100, color_system=None)


def _lines(console: Console) -> list[str]:
    return [" ".join(line.split()) for line in console.file.getvalue().splitlines()]  # type: ignore[attr-defined]

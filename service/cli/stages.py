"""Shows a build's stages as they happen: as a live list on a terminal, elsewhere as one line for each stage."""

from __future__ import annotations

import time
from types import TracebackType
from typing import Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.markup import escape
from rich.spinner import Spinner
from rich.text import Text

from service.core.builds.build import Stage


class StageView:
    """Implements `core.builds.build.Progress`, so that a local build and a build on a server look the same."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._finished: list[Text] = []
        self._current: Stage | None = None
        self._started_s = self._fraction = 0.0
        self._spinner = Spinner("dots")
        self._live = Live(console=console, get_renderable=self._render, refresh_per_second=10, auto_refresh=True)

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            self.finish(succeeded=False)
        if self._console.is_terminal:
            self._live.stop()

    def stage(self, stage: Stage, fraction: float = 0.0) -> None:
        self.enter(stage, fraction, time.monotonic())

    def log(self, line: str) -> None:
        self._console.print(Text(f"    {line}", style="dim"))

    def enter(self, stage: Stage, fraction: float, at_s: float) -> None:
        """Records that the build entered `stage` at `at_s`, in seconds of the clock that the caller uses throughout."""
        if stage is not self._current:
            self.finish(at_s)
            self._current, self._started_s = stage, at_s
        self._fraction = fraction

    def finish(self, at_s: float | None = None, succeeded: bool = True) -> None:
        """Records the end of the current stage. This stage was the last one of the build if `enter` is not called
        again.
        """
        if self._current is None:
            return
        mark, style = ("✓", "green") if succeeded else ("✗", "bold red")
        took = "" if at_s is None else f"{at_s - self._started_s:8.2f} s"
        line = Text.assemble("  ", (mark, style), f" {self._current.value:<13}", (took, "dim"))
        self._current = None
        self._finished.append(line)
        if not self._console.is_terminal:
            self._console.print(line)

    def _render(self) -> RenderableType:
        if self._current is None:
            return Group(*self._finished)
        share = f"{self._fraction:4.0%}" if self._fraction else ""
        self._spinner.update(text=f"{escape(self._current.value):<13} {share}")
        return Group(*self._finished, self._spinner)

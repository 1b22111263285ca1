"""Output of commands: results go to stdout, progress and errors go to stderr, so that stdout can be piped.

All output of a command passes through here, where control characters are escaped (`core.printable`): names and texts
may come from untrusted files and servers.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

import typer
from rich.console import Console, RenderableType
from rich.markup import escape
from rich.segment import Segment

from service.core.errors import Different, InternalError, InvalidInput, OctetError
from service.core.printable import json_text, printable, printable_text
from service.core.system.installed import not_installed

FAILURE = 1
# The exit status if outputs differ from the reference runtime's and no user has accepted this. Typer uses 2 for wrong
# usage.
DIFFERENT = 3
_FILE_COLUMNS = 200  # files and pipes have no width; wide enough that tables are not cut


@dataclass(frozen=True)
class Output:
    """A command's two streams. With `as_json`, stdout carries only JSON documents, one per line."""

    as_json: bool
    answers: Console = field(default_factory=lambda: _console(stderr=False))
    progress: Console = field(default_factory=lambda: _console(stderr=True))

    def document(self, value: Any) -> None:
        print(json_text(value), flush=True)

    def text(self, text: str) -> None:
        """Writes text without styles, wrapping or a final line break. Control characters are escaped."""
        print(printable_text(text), end="")

    def show(self, *renderables: RenderableType) -> None:
        for renderable in renderables:
            self.answers.print(renderable)

    def next_command(self, command: str) -> None:
        self.answers.print(f"\nNext: [bold]{escape(command)}[/bold]")

    def note(self, text: str) -> None:
        """Writes a sentence to stderr, so that it is not part of the result."""
        self.progress.print(f"[bold yellow]note[/bold yellow]: {escape(printable(text))}")

    def refuse(self, different: Different) -> NoReturn:
        """Ends the command after it has shown its result, because the result differs from the reference.

        Raises:
            typer.Exit: always.
        """
        if not self.as_json:
            self.progress.print(f"[bold red]different[/bold red]: it is not served; {escape(different.hint or '')}")
        raise typer.Exit(DIFFERENT)

    def error(self, error: OctetError) -> None:
        if self.as_json:
            self.document({"error": error.to_json()})
            return
        written = _write_report(error)
        self.progress.print(f"[bold red]error[/bold red] ({error.code}): {escape(error.message)}")
        for label, text in where(error.to_json()).items():
            self.progress.print(f"  {label}: {escape(printable(text))}")
        if written is not None:
            self.progress.print(
                f"  report: {escape(str(written))}, without weights or names: safe to attach to an issue"
            )


def _write_report(error: OctetError) -> Path | None:
    """Writes an internal error's report to the working directory. Returns its path, or None if the error has no report
    or the file cannot be written.
    """
    if not isinstance(error, InternalError) or not error.report:
        return None
    text = json.dumps(error.report, indent=1) + "\n"
    path = Path(f"octet-report-{hashlib.sha256(text.encode()).hexdigest()[:12]}.json")
    try:
        path.write_text(text)
    except OSError:
        return None
    return path.absolute()


def where(error: Mapping[str, Any]) -> dict[str, str]:
    """Returns the parts of an error document that show where it happened and what to do, in reading order."""
    labels = {"stage": "stage", "op": "operator", "tensor": "tensor", "hint": "hint", "request_id": "request"}
    return {label: str(error[name]) for name, label in labels.items() if error.get(name)}


@contextmanager
def reporting(as_json: bool) -> Iterator[Output]:
    """Runs a command's body. Shows an error to the user and exits with status 1, or `DIFFERENT`.

    A `ModuleNotFoundError` is reported as a missing package, because a runtime-only installation lacks some packages.
    An `OSError` is reported as a problem with a file that the user named, such as a folder without write permission.
    """
    output = Output(as_json)
    try:
        yield output
    except OctetError as error:
        output.error(error)
        raise typer.Exit(DIFFERENT if isinstance(error, Different) else FAILURE) from error
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("service"):
            raise
        output.error(not_installed(error))
        raise typer.Exit(FAILURE) from error
    except OSError as error:
        if error.filename is None:
            raise
        output.error(InvalidInput(f"{error.filename}: {error.strerror}"))
        raise typer.Exit(FAILURE) from error


class _SafeConsole(Console):
    """A console that writes no control characters except those of its own styles, line breaks and tabs."""

    def _render_buffer(self, buffer: Iterable[Segment]) -> str:
        return super()._render_buffer(
            each if each.control else Segment(printable_text(each.text), each.style) for each in buffer
        )


def _console(stderr: bool) -> Console:
    console = _SafeConsole(stderr=stderr, highlight=False, soft_wrap=True)
    if not console.is_terminal:
        console.width = _FILE_COLUMNS
    return console

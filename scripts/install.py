"""Installs locked requirements, or compiles the C++ code, and shows the progress: `make` runs it.

`python scripts/install.py requirements/serve.lock` runs pip, and `python scripts/install.py --native` runs setup.py.
Their output is shown if they fail. It runs before anything is installed, so it imports only the standard library.
"""

from __future__ import annotations

import queue
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TextIO

_TICK_S = 1.0
_LINE_EVERY_S = 10.0  # without a terminal
_COLUMNS = 79
_REQUIREMENT = re.compile(r"^[A-Za-z0-9._-]+(\[[^]]*])?==", re.MULTILINE)
# "Collecting NAME==VERSION", or "Processing FOLDER/NAME-VERSION-….whl" for a local file.
_COLLECTED = re.compile(r"(?:Collecting|Processing) (?:\S*/)?([A-Za-z0-9._]+(?:-[A-Za-z][A-Za-z0-9._]*)*)")
_INSTALLED = re.compile(r"Installing collected packages: (.*)")
_COMPILED = re.compile(r"\[(\d+)/(\d+)\] ")

# Returns the step that a line of output reports, or None.
Describe = Callable[[str], str | None]


class Progress:
    """Shows the current step and the time since the start: on a terminal in one line, elsewhere in a line from time to
    time.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream, self._is_terminal = stream, stream.isatty()
        self._started_s = time.monotonic()
        self._shown_s = self._started_s
        self._step = "starting"

    def tick(self, step: str | None = None) -> None:
        self._step = step or self._step
        now_s = time.monotonic()
        if not self._is_terminal and now_s - self._shown_s < _LINE_EVERY_S:
            return
        self._shown_s = now_s
        minutes, seconds = divmod(int(now_s - self._started_s), 60)
        line = f"  {minutes}:{seconds:02} {self._step}"[:_COLUMNS]
        self._stream.write(f"\r\x1b[K{line}" if self._is_terminal else f"{line}\n")
        self._stream.flush()

    def end(self) -> None:
        """Removes the line from a terminal."""
        if self._is_terminal:
            self._stream.write("\r\x1b[K")
            self._stream.flush()


def run(command: Sequence[str], describe: Describe, progress: Progress) -> int:
    """Runs a command and shows its steps. Returns its exit status, after writing its output if it failed."""
    output: list[str] = []
    lines: queue.Queue[str | None] = queue.Queue()
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
    ) as process:
        assert process.stdout is not None
        reader = threading.Thread(target=_read_lines, args=(process.stdout, lines))
        reader.start()
        while True:
            try:
                line = lines.get(timeout=_TICK_S)
            except queue.Empty:
                progress.tick()
                continue
            if line is None:
                break
            output.append(line)
            progress.tick(describe(line))
        reader.join()
    progress.end()
    if process.returncode:
        sys.stderr.writelines(output)
    return process.returncode


def _read_lines(stream: TextIO, lines: queue.Queue[str | None]) -> None:
    for line in stream:
        lines.put(line)
    lines.put(None)


def describe_pip(total: int) -> Describe:
    """Returns a function that describes the output of pip for at most `total` packages."""
    found = 0

    def describe(line: str) -> str | None:
        nonlocal found
        if match := _COLLECTED.match(line):
            found += 1
            return f"downloading {found} of at most {total} packages: {match[1]}"
        if match := _INSTALLED.match(line):
            return f"installing {match[1].count(',') + 1} packages"
        return None

    return describe


def describe_ninja(line: str) -> str | None:
    """Describes the output of a build with Ninja."""
    match = _COMPILED.match(line)
    return f"compiling {match[1]} of {match[2]}" if match else None


def main(arguments: Sequence[str]) -> int:
    progress = Progress(sys.stdout)
    if list(arguments) == ["--native"]:
        return run([sys.executable, "setup.py", "build_ext", "--inplace"], describe_ninja, progress)
    (lock,) = arguments
    total = len(_REQUIREMENT.findall(Path(lock).read_text()))
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--require-hashes", "-r", lock]
    return run(pip, describe_pip(total), progress)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

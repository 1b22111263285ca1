"""Checks C++ sources with clang-tidy: `.clang-tidy` lists the checks.

    python -m scripts.tidy           # sources that differ from origin/main; on it, those of the last commit
    python -m scripts.tidy --all     # every source: five minutes of processor time

The options are those of the last build, in `build/native/ARCHITECTURE/compile_commands.json`, with two changes. The
compiler is zig, which adds macros and folders of headers when it calls clang: these are added to the options here.
Headers of the compiler itself and precompiled headers are left out, since each version of clang needs its own. The
result is in `build/clang/compile_commands.json`, which editors use as well (`.clangd`).
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import shlex
import subprocess
import sys
import sysconfig
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from itertools import chain, pairwise
from pathlib import Path

from scripts.revisions import ROOT, base_revision, git

_BUILD = ROOT / "build" / "native" / platform.machine()
_DATABASES = ROOT / "build" / "clang"
_CLANG = f"clang++ -nostdlibinc --target={platform.machine()}-linux-gnu".split()
_ZIG = 4  # the first arguments of a command: zig c++ -target ARCHITECTURE


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--base", help="the revision to compare with")
    parser.add_argument("--all", action="store_true", help="every source, whatever has changed")
    options = parser.parse_args(arguments)
    sources = write_database()
    if not options.all:
        names = git("diff", "--name-only", options.base or base_revision(), "--", "*.cc", "*.h").splitlines()
        sources = sources_of([ROOT / name for name in names], sources)
    tidy: list[str | Path] = [Path(sysconfig.get_path("scripts"), "clang-tidy"), "-p", _DATABASES, "--quiet"]
    status = 0
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for run in pool.map(lambda path: _run(*tidy, path), sorted(sources)):
            print(run.stdout, end="")
            status |= run.returncode
    return status


def write_database() -> set[Path]:
    """Writes the options for clang to `build/clang/compile_commands.json`. Returns the sources in it."""
    entries = json.loads((_BUILD / "compile_commands.json").read_text())
    commands = [
        {"directory": entry["directory"], "file": entry["file"], "arguments": _translate(entry["command"])}
        for entry in entries
        if entry["file"].endswith(".cc") and Path(entry["file"]).is_file()
    ]
    _DATABASES.mkdir(parents=True, exist_ok=True)
    (_DATABASES / "compile_commands.json").write_text(json.dumps(commands, indent=1))
    return {Path(command["file"]) for command in commands}


def sources_of(changed: Iterable[Path], sources: Iterable[Path]) -> set[Path]:
    """Returns the sources whose check covers changed files. For a header this is the source of the same name, or the
    first that includes it.
    """
    found, every = set(), sorted(sources)
    for path in changed:
        own = path.with_suffix(".cc")
        including = (each for each in every if f'{path.name}"\n' in each.read_text())
        source = own if own in every else next(including, None)
        if source is not None and path.is_file():
            found.add(source)
    return found


def _translate(command: str) -> list[str]:
    """Returns the arguments with which clang compiles a source as zig does."""
    arguments = shlex.split(re.sub(r"-Xclang \S+", "", command))  # these arguments are for the precompiled header
    return [*_CLANG, *_added_by(*arguments[:_ZIG]), *arguments[_ZIG:]]


@cache
def _added_by(*zig: str) -> tuple[str, ...]:
    """Returns the macros and the folders of headers that zig passes to clang."""
    command = _run(*zig, "-###", "-c", "-x", "c++", os.devnull).stderr.splitlines()[-1]
    options = list(pairwise(shlex.split(command)))
    macros = [pair for pair in options if pair[0] == "-D"]
    folders = [("-isystem", str(ROOT / folder)) for option, folder in options if option == "-isystem"]
    return tuple(chain.from_iterable(macros + [pair for pair in folders if not pair[1].endswith("/lib/include")]))


def _run(*command: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True)


if __name__ == "__main__":
    sys.exit(main())

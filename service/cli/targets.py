"""`octet targets`: each target, and what can be done for it on this machine."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

from rich.markup import escape
from rich.table import Table
from rich.text import Text

from service.cli.options import JsonOption
from service.cli.output import reporting
from service.core.installed import CARDS, CARDS_MODULE, CARDS_PACKAGE, COMPILER, SERVER, is_installed
from service.core.target import TARGETS, Host, Target, detect_host


@dataclass(frozen=True)
class Abilities:
    """What each thing that is done for a target lacks here; empty where it can be done.

    Attributes:
        compile: packages, and parts of the sandbox.
        run: features of the CPU or of a card, or the architecture, and parts of the sandbox. What cannot run cannot be
            verified either.
    """

    target: Target
    compile: tuple[str, ...]
    run: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        able = {name: {"possible": not lacks, "missing": list(lacks)} for name, lacks in self._by_name().items()}
        features = sorted(self.target.features)
        return {"target": self.target.name, "architecture": self.target.architecture, "features": features, **able}

    def _by_name(self) -> dict[str, tuple[str, ...]]:
        return {"compile": self.compile, "run": self.run, "verify": self.run}


def abilities(host: Host) -> list[Abilities]:
    """Of each target, by what is installed and what this kernel has."""
    from service.compiler import sandbox

    packages = tuple(name for name, module in COMPILER.items() if find_spec(module) is None)
    locks = tuple(finding.name for finding in sandbox.check() if not finding.available)
    of_cards = () if is_installed(CARDS_MODULE) else (CARDS_PACKAGE,)
    return [
        Abilities(
            target,
            packages + (of_cards if target.device == "cuda" else ()) + locks,
            (*sorted(target.missing_on(host)), *locks),
        )
        for target in TARGETS
    ]


def targets(as_json: JsonOption = False) -> None:
    """List the targets, and whether this machine compiles for them, runs and verifies them, or what it lacks for it.

    A model is compiled for any of them on any machine that has the compiler. Running and verifying takes the CPU, or
    the card.
    """
    with reporting(as_json) as output:
        host = detect_host()
        found = abilities(host)
        if as_json:
            best = host.best.name if host.best else None
            output.document({"host": best, "targets": [each.to_json() for each in found]})
            return
        output.show(_table(found, host))
        lacking = {name for each in found for name in each.compile}
        if lacking & COMPILER.keys():
            output.show(f"\nThis is the runtime only. To compile: {escape(SERVER)}")
        elif CARDS_PACKAGE in lacking:
            output.show(f"\nTo compile for cards: {escape(CARDS)}")
        if lacking - COMPILER.keys() - {CARDS_PACKAGE}:
            output.show("\nWithout Landlock or seccomp commands refuse, unless --unsandboxed allows it.")


def _table(found: list[Abilities], host: Host) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for heading in ("", "target", "compile", "run, verify", "needs"):
        table.add_column(heading, overflow="fold")
    for each in found:
        needs = Text(f"{each.target.architecture}: {each.target.needs}", style="dim")
        mark = "*" if each.target is host.best else ""
        table.add_row(mark, each.target.name, _cell(each.compile), _cell(each.run), needs)
    table.caption = "* host" if host.best else None
    table.caption_justify = "left"
    return table


def _cell(missing: tuple[str, ...]) -> Text:
    return Text(f"no {', '.join(missing)}", style="yellow") if missing else Text("yes", style="green")

"""`octet targets`: lists the targets, and what this machine can do for each."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from rich.markup import escape
from rich.text import Text

from service.cli.options import JsonOption
from service.cli.output import reporting
from service.cli.tables import Table, text, whole
from service.core.system.installed import CARDS_MODULE, CARDS_PACKAGE, COMPILER, GPUS, SERVER, is_installed

if TYPE_CHECKING:
    from service.core.target import Host, Target


@dataclass(frozen=True)
class Abilities:
    """The reasons why this machine cannot compile or run artifacts for one target.

    Attributes:
        compile: missing packages and parts of the sandbox; empty if this machine can compile for the target.
        run: missing CPU or GPU features, or the architecture, and parts of the sandbox; empty if artifacts for the
            target run here. Verifying an artifact needs the same.
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
    """Returns the abilities for each target, from the installed packages and the kernel's features."""
    from service.compiler import sandbox
    from service.core.target import TARGETS

    packages = tuple(name for name, module in COMPILER.items() if find_spec(module) is None)
    locks = tuple(finding.name for finding in sandbox.check() if not finding.available)
    of_gpus = () if is_installed(CARDS_MODULE) else (CARDS_PACKAGE,)
    return [
        Abilities(
            target,
            packages + (of_gpus if target.device == "cuda" else ()) + locks,
            (*sorted(target.missing_on(host)), *locks),
        )
        for target in TARGETS
    ]


def targets(as_json: JsonOption = False) -> None:
    """List the targets, and for each whether this machine can compile, run and verify models, or what it lacks.

    Any machine with the compiler can compile for every target. Running and verifying need a machine with the target's
    CPU or GPU.
    """
    from service.core.target import detect_host

    with reporting(as_json) as output:
        host = detect_host()
        found = abilities(host)
        if as_json:
            best = host.best.name if host.best else None
            output.document({"host": best, "targets": [each.to_json() for each in found]})
            return
        output.show(_table(found, host), *(["* host"] if host.best else []))
        lacking = {name for each in found for name in each.compile}
        if lacking & COMPILER.keys():
            output.show(f"\nThis installation is runtime-only. To compile: {escape(SERVER)}")
        elif CARDS_PACKAGE in lacking:
            output.show(f"\nTo compile for GPUs: {escape(GPUS)}")
        if lacking - COMPILER.keys() - {CARDS_PACKAGE}:
            output.show("\nWithout Landlock or seccomp, these commands need --unsandboxed.")


def _table(found: list[Abilities], host: Host) -> Table:
    table = Table(whole(), whole("target"), whole("compile"), text("run, verify"), text("needs", leave=1))
    for each in found:
        needs = Text(f"{each.target.architecture}: {each.target.needs}", style="dim")
        mark = "*" if each.target is host.best else ""
        table.add(mark, each.target.name, _cell(each.compile), _cell(each.run), needs)
    return table


def _cell(missing: tuple[str, ...]) -> Text:
    return Text(f"no {', '.join(missing)}", style="yellow") if missing else Text("yes", style="green")

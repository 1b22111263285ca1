"""The hardware that an artifact is compiled for. A target is data: a canonical name and the CPU features that it needs.

Names are `architecture[-level][+feature…]`: `x86-64-v3`, `x86-64-v4+vnni`, `aarch64+dotprod`. What the compiler
does for a target (LLVM options, operand types, kernels) lives in `compiler/targets/`.
"""

from __future__ import annotations

import platform
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from service.core.errors import UnknownTarget

_CPUINFO = Path("/proc/cpuinfo")
_X86_V3 = frozenset({"avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "abm", "movbe"})
_X86_V4 = _X86_V3 | {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"}


@dataclass(frozen=True)
class Target:
    """A kind of hardware.

    Attributes:
        name: canonical, as it stands in build keys, metrics and URLs; never "host".
        architecture: `x86_64` or `aarch64`, as `uname -m` prints it.
        features: what the CPU must report, named as in Linux's /proc/cpuinfo.
        reason: the feature that sets the target apart, for people.
    """

    name: str
    architecture: str
    features: frozenset[str]
    reason: str

    def __str__(self) -> str:
        return self.name

    def missing_on(self, host: Host) -> frozenset[str]:
        """The features that `host` lacks to run artifacts of this target; empty where they run."""
        if host.architecture != self.architecture:
            return frozenset({self.architecture})
        return self.features - host.features

    def runs_on(self, host: Host) -> bool:
        return not self.missing_on(host)


# Best first within an architecture: `detect` takes the first that runs.
TARGETS: tuple[Target, ...] = (
    Target("x86-64-v4+amx", "x86_64", _X86_V4 | {"avx512_vnni", "amx_tile", "amx_int8"}, "amx_int8"),
    Target("x86-64-v4+vnni", "x86_64", _X86_V4 | {"avx512_vnni"}, "avx512_vnni"),
    Target("x86-64-v4", "x86_64", _X86_V4, "avx512bw"),
    Target("x86-64-v3+avxvnni", "x86_64", _X86_V3 | {"avx_vnni"}, "avx_vnni"),
    Target("x86-64-v3", "x86_64", _X86_V3, "avx2"),
    Target("aarch64+i8mm", "aarch64", frozenset({"asimd", "asimddp", "i8mm"}), "i8mm"),
    Target("aarch64+dotprod", "aarch64", frozenset({"asimd", "asimddp"}), "asimddp"),
    Target("aarch64", "aarch64", frozenset({"asimd"}), "asimd"),
)


@dataclass(frozen=True)
class Host:
    """The machine this process runs on, as its kernel reports it (features that are enabled, not only present)."""

    architecture: str
    features: frozenset[str]
    model_name: str = ""

    @property
    def best(self) -> Target | None:
        """The best target that runs here; None where none does: what is compiled here is then for other machines."""
        return next((target for target in TARGETS if target.runs_on(self)), None)

    @property
    def target(self) -> Target:
        """`best`, for callers that need one.

        Raises:
            UnknownTarget: none runs here; the message says what this CPU lacks.
        """
        if self.best is None:
            raise UnknownTarget(self.why_none, hint="name the target of the machine that will run it")
        return self.best

    @property
    def missing(self) -> frozenset[str]:
        """The features that this machine lacks for the target that it comes closest to; empty where a target runs."""
        return self._closest.missing_on(self)

    @property
    def why_none(self) -> str:
        """Says, where no target runs here, what this machine lacks."""
        lack = f"for {self._closest}, the closest, it lacks {', '.join(sorted(self.missing))}"
        return f"this {self.architecture} host can run none of the targets: {lack}"

    @property
    def _closest(self) -> Target:
        return min(TARGETS, key=lambda target: (target.architecture != self.architecture, len(target.missing_on(self))))


def parse_target(name: str) -> Target:
    """The target called `name`; "host" is the best one that runs on this machine.

    Raises:
        UnknownTarget: there is no such target.
    """
    if name == "host":
        return detect_host().target
    for target in TARGETS:
        if target.name == name:
            return target
    raise UnknownTarget(
        f"unknown target {name!r}", hint=f"use host or one of: {', '.join(target.name for target in TARGETS)}"
    )


@cache
def detect_host() -> Host:
    return parse_cpuinfo(_CPUINFO.read_text(), platform.machine())


def parse_cpuinfo(text: str, architecture: str) -> Host:
    """A host from the text of Linux's /proc/cpuinfo: `flags` on x86-64, `Features` on aarch64; the first CPU's."""
    fields: dict[str, str] = {}
    for line in text.splitlines():
        key, _, value = line.partition(":")
        fields.setdefault(key.strip(), value.strip())
    flags = fields.get("flags") or fields.get("Features") or ""
    return Host(architecture, frozenset(flags.split()), fields.get("model name", ""))

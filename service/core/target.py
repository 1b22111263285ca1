"""The hardware that an artifact is compiled for. A target is data: a canonical name and the CPU features that it needs.

Names are `architecture[-level][+feature…]`: `x86-64-v3`, `x86-64-v4+vnni`, `aarch64+dotprod`; for a card of NVIDIA's in
an x86-64 machine `cuda-` and its compute capability: `cuda-sm_80`; with code for several, one of which the machine has
to run, `cuda-sm_80+sm_90`. What the compiler does for a target (LLVM options,
operand types, kernels) lives in `compiler/targets/`.
"""

from __future__ import annotations

import ctypes
import platform
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Literal

from service.core.cards import Card, detect_cards
from service.core.errors import UnknownTarget

_CPUINFO = Path("/proc/cpuinfo")

# By architecture and entry of getauxval(3), AT_HWCAP and AT_HWCAP2: the names of its bits, from the lowest on, as
# arch/arm64/kernel/cpuinfo.c has them; RISC-V's are the letters of its extensions.
_HWCAP_FEATURES = {
    "aarch64": {
        16: "fp asimd evtstrm aes pmull sha1 sha2 crc32 atomics fphp asimdhp cpuid asimdrdm jscvt fcma lrcpc dcpop sha3"
        " sm3 sm4 asimddp sha512 sve asimdfhm dit uscat ilrcpc flagm ssbs sb paca pacg",
        26: "dcpodp sve2 sveaes svepmull svebitperm svesha3 svesm4 flagm2 frint svei8mm svef32mm svef64mm svebf16 i8mm"
        " bf16 dgh rng bti mte ecv afp rpres mte3 sme",
    },
    "riscv64": {16: "a b c d e f g h i j k l m n o p q r s t u v w x y z"},
}

_X86_V3 = frozenset({"avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "abm", "movbe"})
_X86_V4 = _X86_V3 | {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"}

Device = Literal["cpu", "cuda"]


@dataclass(frozen=True)
class Target:
    """A kind of hardware.

    Attributes:
        name: canonical, as it stands in build keys, metrics and URLs; never "host".
        architecture: `x86_64`, `aarch64` or `riscv64`, as `uname -m` prints it.
        features: what the CPU must report, as Linux names it; of cards, those that it has code for: one has to be.
        reason: the feature that sets the target apart, for people.
        device: what runs the model: "cpu", or "cuda" for a card.
    """

    name: str
    architecture: str
    features: frozenset[str]
    reason: str
    device: Device = "cpu"

    def __str__(self) -> str:
        return self.name

    @property
    def needs(self) -> str:
        """Its features, for people: all of a CPU's, or one of the cards'."""
        return (" " if self.device == "cpu" else " or ").join(sorted(self.features))

    def missing_on(self, host: Host) -> frozenset[str]:
        """The features that `host` lacks to run artifacts of this target; empty where they run."""
        if host.architecture != self.architecture:
            return frozenset({self.architecture})
        if self.device == "cuda" and self.features & host.features:
            return frozenset()
        return self.features - host.features

    def runs_on(self, host: Host) -> bool:
        return not self.missing_on(host)


def _cards(*capabilities: str) -> Target:
    """Rising."""
    name, reason = f"cuda-{'+'.join(capabilities)}", " or ".join(capabilities)
    return Target(name, "x86_64", frozenset(capabilities), reason, "cuda")


# Best first within an architecture: `Host.best` is the first of a CPU that runs.
TARGETS: tuple[Target, ...] = (
    Target("x86-64-v4+amx", "x86_64", _X86_V4 | {"avx512_vnni", "amx_tile", "amx_int8"}, "amx_int8"),
    Target("x86-64-v4+vnni", "x86_64", _X86_V4 | {"avx512_vnni"}, "avx512_vnni"),
    # Behind the one without: it gains nothing but for layers in bfloat16, and is built for where it is asked for.
    Target("x86-64-v4+vnni+bf16", "x86_64", _X86_V4 | {"avx512_vnni", "avx512_bf16"}, "avx512_bf16"),
    Target("x86-64-v4", "x86_64", _X86_V4, "avx512bw"),
    Target("x86-64-v3+avxvnni", "x86_64", _X86_V3 | {"avx_vnni"}, "avx_vnni"),
    Target("x86-64-v3", "x86_64", _X86_V3, "avx2"),
    Target("aarch64+i8mm", "aarch64", frozenset({"asimd", "asimddp", "i8mm"}), "i8mm"),
    Target("aarch64+dotprod", "aarch64", frozenset({"asimd", "asimddp"}), "asimddp"),
    Target("aarch64", "aarch64", frozenset({"asimd"}), "asimd"),
    Target("riscv64+v", "riscv64", frozenset("imafdcv"), "v"),
    *map(_cards, ("sm_90", "sm_89", "sm_86", "sm_80", "sm_75", "sm_61")),
    _cards("sm_80", "sm_90"),
    _cards("sm_75", "sm_80", "sm_90"),
)
_CPU_TARGETS = tuple(target for target in TARGETS if target.device == "cpu")


@dataclass(frozen=True)
class Host:
    """The machine this process runs on, as its kernel reports it (features that are enabled, not only present).

    `sm_XY` is among the features, where a card runs code of that compute capability.
    """

    architecture: str
    features: frozenset[str]
    model_name: str = ""

    @property
    def targets(self) -> list[Target]:
        """Those whose artifacts run here, in the order in which they are to be served: those for a card first, which
        somebody had built for it.
        """
        return sorted((target for target in TARGETS if target.runs_on(self)), key=lambda target: target.device == "cpu")

    @property
    def best(self) -> Target | None:
        """The best target that this CPU runs; None where there is none: what is compiled here is for other machines.

        Never a card's: the same bytes come from the CPU, and which of the two is to work is for the user to say.
        """
        return next((target for target in _CPU_TARGETS if target.runs_on(self)), None)

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
        return min(
            _CPU_TARGETS,
            key=lambda target: (target.architecture != self.architecture, len(target.missing_on(self))),
        )


ALL = "all"  # in place of a target's name: each that a cluster's workers serve


def parse_target(name: str) -> Target:
    """The target called `name`; "host" is the best one that this machine's CPU runs.

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
    """The features of an x86-64 CPU stand in /proc/cpuinfo alone. Elsewhere the kernel tells each process at its start,
    and an emulator does so, too: /proc/cpuinfo is then that of the emulator's machine.

    A card's are of the driver's saying, which is asked in a child: not in a process that may start none.
    """
    text, architecture = _CPUINFO.read_text(), platform.machine()
    if architecture not in _HWCAP_FEATURES:
        host = parse_cpuinfo(text, architecture)
        return replace(host, features=host.features | card_features(detect_cards().cards))
    return Host(architecture, hwcap_features(architecture, _auxiliary_value), _board(text))


def named_features(host: Host) -> tuple[str, ...]:
    """The features of a machine that some target needs."""
    return tuple(sorted(host.features & frozenset[str]().union(*(target.features for target in TARGETS))))


def machine_name(target: Target) -> str:
    """What runs artifacts for `target` here, for people: the CPU, or the first card that does."""
    if target.device == "cpu":
        return detect_host().model_name
    return next((card.name for card in detect_cards().cards if target.features & card_features([card])), "")


def card_features(cards: Iterable[Card]) -> frozenset[str]:
    """`sm_XY` of each target whose code one of the cards runs."""
    return frozenset(
        capability
        for card in cards
        for target in TARGETS
        if target.device == "cuda"
        for capability in target.features
        if card.runs(int(capability.removeprefix("sm_")))
    )


def parse_cpuinfo(text: str, architecture: str) -> Host:
    """A host from the text of Linux's /proc/cpuinfo on x86-64; the first CPU's."""
    fields = _cpuinfo_fields(text)
    return Host(architecture, frozenset(fields.get("flags", "").split()), fields.get("model name", ""))


def hwcap_features(architecture: str, auxiliary_value: Callable[[int], int]) -> frozenset[str]:
    """The features of a CPU of `aarch64` or `riscv64`, as Linux names them.

    Args:
        auxiliary_value: getauxval(3).
    """
    return frozenset(
        name
        for entry, names in _HWCAP_FEATURES[architecture].items()
        for bit, name in enumerate(names.split())
        if auxiliary_value(entry) >> bit & 1
    )


def _auxiliary_value(entry: int) -> int:
    getauxval = ctypes.CDLL(None).getauxval
    getauxval.argtypes, getauxval.restype = [ctypes.c_ulong], ctypes.c_ulong
    return int(getauxval(entry))


def _board(text: str) -> str:
    """What kernels of boards add to an aarch64 machine's /proc/cpuinfo: `Raspberry Pi 5 Model B Rev 1.0`."""
    return _cpuinfo_fields(text).get("Model", "")


def _cpuinfo_fields(text: str) -> dict[str, str]:
    fields: dict[str, str] = {}
    for line in text.splitlines():
        key, _, value = line.partition(":")
        fields.setdefault(key.strip(), value.strip())
    return fields

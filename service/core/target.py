"""Targets: the hardware that an artifact is compiled for. A target is a canonical name and the features that it needs.

The name of a CPU target is `architecture[-level][+feature…]`: `x86-64-v3`, `x86-64-v4+vnni`, `aarch64+dotprod`. The
name of a target for an NVIDIA GPU in an x86-64 machine is `cuda-` and the compute capability: `cuda-sm_80`. An artifact
can contain code for several capabilities, of which the machine's GPU has to run one: `cuda-sm_80+sm_90`. What the
compiler does for a target (LLVM options, operand types, kernels) is in `compiler/targets/`.
"""

from __future__ import annotations

import ctypes
import platform
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Literal

from service.core.errors import UnknownTarget
from service.core.system.gpus import Gpu, detect_gpus

_CPUINFO = Path("/proc/cpuinfo")

# By architecture and entry of getauxval(3), AT_HWCAP (16) and AT_HWCAP2 (26): the names of the bits, from the lowest
# on. The names for AArch64 are from arch/arm64/kernel/cpuinfo.c; the names for RISC-V are the letters of the
# extensions.
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
    """A type of hardware.

    Attributes:
        name: the canonical name, used in build keys, metrics and URLs; never "host".
        architecture: `x86_64`, `aarch64` or `riscv64`, as `uname -m` prints it.
        features: for a CPU target, the features that the CPU must have, by their names in Linux. For a GPU target, the
            compute capabilities that the artifact contains code for; the machine must run one of them.
        reason: the feature that distinguishes the target from others, for people.
        device: the device that runs the model: "cpu", or "cuda" for a GPU.
    """

    name: str
    architecture: str
    features: frozenset[str]
    reason: str
    device: Device = "cpu"

    def __str__(self) -> str:
        return self.name

    @property
    def binds(self) -> bool:
        """True if code for the target accepts the length of inputs when it is called (`qnn.lengths`)."""
        return self.device == "cpu"

    @property
    def needs(self) -> str:
        """The features as text: all that a CPU needs, or the capabilities of which a GPU needs one, joined by "or"."""
        return (" " if self.device == "cpu" else " or ").join(sorted(self.features))

    def missing_on(self, host: Host) -> frozenset[str]:
        """Returns the features that `host` lacks to run artifacts of this target; empty if it can run them."""
        if host.architecture != self.architecture:
            return frozenset({self.architecture})
        if self.device == "cuda" and self.features & host.features:
            return frozenset()
        return self.features - host.features

    def runs_on(self, host: Host) -> bool:
        return not self.missing_on(host)


def _cards(*capabilities: str) -> Target:
    """Returns the target with code for these compute capabilities, given in ascending order."""
    name, reason = f"cuda-{'+'.join(capabilities)}", " or ".join(capabilities)
    return Target(name, "x86_64", frozenset(capabilities), reason, "cuda")


# Within an architecture, the best target comes first: `Host.best` is the first CPU target that the host can run.
TARGETS: tuple[Target, ...] = (
    Target("x86-64-v4+amx", "x86_64", _X86_V4 | {"avx512_vnni", "amx_tile", "amx_int8"}, "amx_int8"),
    Target("x86-64-v4+vnni", "x86_64", _X86_V4 | {"avx512_vnni"}, "avx512_vnni"),
    # The target with bf16 is second, because bf16 makes only layers in bfloat16 faster, and models are
    # built for it only on request.
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
    """The machine that this process runs on, as its kernel reports it.

    `features` contains the features that are enabled, not only present, and `sm_XY` for every compute capability of a
    target whose code one of the GPUs can run.
    """

    architecture: str
    features: frozenset[str]
    model_name: str = ""

    @property
    def targets(self) -> list[Target]:
        """The targets whose artifacts run here, in the order of preference for serving.

        GPU targets come first, because artifacts for them exist only if a user requested them.
        """
        return sorted((target for target in TARGETS if target.runs_on(self)), key=lambda target: target.device == "cpu")

    @property
    def best(self) -> Target | None:
        """The best target that this CPU can run; None if it runs none, and can only compile for other machines.

        The best target is never a GPU target: a CPU computes the same results, and the user decides which device to
        use.
        """
        return next((target for target in _CPU_TARGETS if target.runs_on(self)), None)

    @property
    def target(self) -> Target:
        """The target `best`, for callers that cannot work without a target.

        Raises:
            UnknownTarget: this machine runs no target; the message lists the missing features.
        """
        if self.best is None:
            raise UnknownTarget(self.why_none, hint="name the target of the machine that will run it")
        return self.best

    @property
    def missing(self) -> frozenset[str]:
        """The features that this machine lacks for the CPU target for which it lacks the fewest; empty if this machine
        runs a target.
        """
        return self._closest.missing_on(self)

    @property
    def why_none(self) -> str:
        """An error message for a machine that runs no target, with the features that it lacks."""
        lack = f"for {self._closest}, the closest, it lacks {', '.join(sorted(self.missing))}"
        return f"this {self.architecture} host can run none of the targets: {lack}"

    @property
    def _closest(self) -> Target:
        return min(
            _CPU_TARGETS,
            key=lambda target: (target.architecture != self.architecture, len(target.missing_on(self))),
        )


ALL = "all"  # instead of a target's name: every target that the workers of the cluster serve


def parse_target(name: str) -> Target:
    """Returns the target called `name`; "host" is the best one that this machine's CPU runs.

    Raises:
        UnknownTarget: no target has this name.
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
    """Detects the features of this machine.

    Linux lists the features of an x86-64 CPU in /proc/cpuinfo alone. On other architectures it passes them to each
    process in its auxiliary vector. An emulator does so too, while /proc/cpuinfo describes the machine it runs on.

    On x86-64, the driver's GPUs are queried in a child process, so the first call must come from a process that may
    start one.
    """
    text, architecture = _CPUINFO.read_text(), platform.machine()
    if architecture not in _HWCAP_FEATURES:
        host = parse_cpuinfo(text, architecture)
        return replace(host, features=host.features | gpu_features(detect_gpus().cards))
    return Host(architecture, hwcap_features(architecture, _auxiliary_value), _board(text))


def named_features(host: Host) -> tuple[str, ...]:
    """Returns those features of a machine that at least one target needs, in alphabetical order."""
    return tuple(sorted(host.features & frozenset[str]().union(*(target.features for target in TARGETS))))


def machine_name(target: Target) -> str:
    """Returns the model name of the CPU, or of the first GPU, that runs artifacts for `target` here."""
    if target.device == "cpu":
        return detect_host().model_name
    return next((gpu.name for gpu in detect_gpus().cards if target.features & gpu_features([gpu])), "")


def gpu_features(gpus: Iterable[Gpu]) -> frozenset[str]:
    """Returns `sm_XY` for every compute capability of a target whose code one of the GPUs can run."""
    return frozenset(
        capability
        for gpu in gpus
        for target in TARGETS
        if target.device == "cuda"
        for capability in target.features
        if gpu.runs(int(capability.removeprefix("sm_")))
    )


def parse_cpuinfo(text: str, architecture: str) -> Host:
    """Parses the text of Linux's /proc/cpuinfo on x86-64, and returns the first CPU in it."""
    fields = _cpuinfo_fields(text)
    return Host(architecture, frozenset(fields.get("flags", "").split()), fields.get("model name", ""))


def hwcap_features(architecture: str, auxiliary_value: Callable[[int], int]) -> frozenset[str]:
    """Returns the features of an `aarch64` or `riscv64` CPU, by their names in Linux.

    Args:
        auxiliary_value: the function getauxval(3).
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
    """Returns the board's name, such as `Raspberry Pi 5 Model B Rev 1.0`, if the kernel adds it to /proc/cpuinfo."""
    return _cpuinfo_fields(text).get("Model", "")


def _cpuinfo_fields(text: str) -> dict[str, str]:
    fields: dict[str, str] = {}
    for line in text.splitlines():
        key, _, value = line.partition(":")
        fields.setdefault(key.strip(), value.strip())
    return fields

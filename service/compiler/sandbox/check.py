"""The sandbox features of this kernel. `octet doctor`, the start-up message and the child itself use this check."""

from __future__ import annotations

from dataclasses import dataclass

from service.compiler.sandbox import landlock, seccomp
from service.compiler.sandbox.kernel import architecture, is_known_architecture
from service.core.errors import SandboxUnavailable


@dataclass(frozen=True)
class Finding:
    """One kernel feature that the sandbox needs.

    Attributes:
        name: `landlock` or `seccomp`.
        available: true if this kernel has the feature. If the kernel lacks it, builds are rejected.
        detail: the version, or the reason why the feature is missing.
        lost: what a malicious model file could do without the feature; empty if the feature is available.
    """

    name: str
    available: bool
    detail: str
    lost: str = ""


def check() -> list[Finding]:
    """Checks the features of the running kernel. Starts no process and changes nothing."""
    if not is_known_architecture():
        reason = f"no system call table for {architecture()}"
        return [
            Finding("landlock", False, reason, "it could read and write every file of this user"),
            Finding("seccomp", False, reason, "it could open sockets, start programs and signal other processes"),
        ]
    return [_landlock(), _seccomp()]


def require(*, allow_unsandboxed: bool = False) -> None:
    """Checks that the kernel has every feature that the sandbox needs.

    Raises:
        SandboxUnavailable: a feature is missing, and `allow_unsandboxed` is False.
    """
    missing = [finding for finding in check() if not finding.available]
    if missing and not allow_unsandboxed:
        raise SandboxUnavailable(
            "this kernel cannot sandbox the process that reads or runs a model: "
            + "; ".join(f"no {finding.name} ({finding.detail}), so {finding.lost}" for finding in missing),
            hint="use Linux 5.13 or newer with landlock in /sys/kernel/security/lsm; or, if every model file and "
            "artifact comes from people you trust, allow it with OCTET_ALLOW_UNSANDBOXED=1",
        )


def _landlock() -> Finding:
    version = landlock.abi()
    if version == 0:
        return Finding(
            "landlock",
            False,
            "not built into this kernel, switched off at boot, or hidden by the container's own filter",
            "a malicious model file could read and write every file of this user",
        )
    # Any Landlock version is enough. The seccomp filter denies what newer versions restrict in addition: truncation,
    # TCP, abstract sockets and signals.
    return Finding("landlock", True, f"ABI {version}")


def _seccomp() -> Finding:
    if not seccomp.is_available():
        return Finding(
            "seccomp",
            False,
            "not built into this kernel, or hidden by the container's own filter",
            "a malicious model file could open sockets, start programs and signal other processes",
        )
    return Finding("seccomp", True, f"filter with an allow list for {architecture()}")

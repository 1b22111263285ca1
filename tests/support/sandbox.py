"""Runs the roles of `escapes` and `mischief` in the sandbox."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from service.compiler.sandbox import Access, Limits, run_child
from tests.support import escapes, mischief
from tests.support.waiting import WORK_TIMEOUT_S

LIMITS = Limits(wall_s=WORK_TIMEOUT_S, cpu_s=30, memory_bytes=512 << 20, file_bytes=64 << 20)
# The files of /proc that a child may read besides its own, and keeps open.
ALLOWED_PROC_FILES = ("/proc/cpuinfo", "/proc/meminfo", "/proc/stat", "/proc/sys/vm/overcommit_memory")


def handlers(role: str) -> Path:
    """Returns the file that defines `role`."""
    return next(Path(module.__file__ or "") for module in (escapes, mischief) if hasattr(module, role))


def limited(**changes: Any) -> Limits:
    return replace(LIMITS, **changes)


def attempt(
    scratch: Path,
    role: str,
    request: Mapping[str, Any] | None = None,
    *,
    readable: tuple[Path, ...] = (),
    limits: Limits = LIMITS,
    **options: Any,
) -> dict[str, Any]:
    """Runs `role` with `run_child`. The role may write to `scratch` and read `readable`."""
    file = handlers(role)
    access = Access((file, *readable), (scratch,))
    return run_child(role, request or {}, access=access, limits=limits, handlers=file, **options)

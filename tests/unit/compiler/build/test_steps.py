"""Tests of how a build runs its children."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from service.compiler.build import steps
from service.compiler.build.steps import CompileRequest, Steps
from service.compiler.messages.message import Message
from service.compiler.messages.role import Empty, Role
from service.compiler.sandbox import Access, check, run_child
from service.core.digest import digest_of
from service.core.settings import Settings
from service.core.target import TARGETS
from tests.support import escapes
from tests.support.compiling import Quiet

pytestmark = pytest.mark.skipif(
    not all(finding.available for finding in check()), reason="this kernel cannot sandbox anything"
)


@dataclass(frozen=True)
class _Scheduling(Message):
    nice: int
    policy: int
    processors: tuple[int, ...]


@pytest.mark.parametrize("nice", [0, 4])
def test_children_have_the_configured_priority_and_processors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, nice: int
) -> None:
    """The child itself reports how it is scheduled."""
    handlers = Path(escapes.__file__)

    def run(role: str, request: Mapping[str, Any], *, access: Access, **options: Any) -> Any:
        return run_child(role, request, access=Access((handlers,), access.writable), handlers=handlers, **options)

    monkeypatch.setattr(steps, "run_child", run)
    request = CompileRequest(tmp_path / "model", digest_of(b"model"), TARGETS[0], "litert-reference")
    settings = Settings(data_dir=tmp_path, build_nice=nice, build_cores=1)
    found = Steps(request, tmp_path, Quiet(), settings).run(Role("scheduling", Empty, _Scheduling), Empty(), [])
    assert found.nice == max(nice, os.getpriority(os.PRIO_PROCESS, 0))
    assert found.policy == (os.SCHED_BATCH if nice else os.sched_getscheduler(0))
    assert max(os.sched_getaffinity(0)) in found.processors
    assert len(found.processors) < len(os.sched_getaffinity(0)) or len(os.sched_getaffinity(0)) == 1


def test_builds_have_a_lower_priority_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OCTET_BUILD_NICE", raising=False)
    assert Settings().build_nice == 10

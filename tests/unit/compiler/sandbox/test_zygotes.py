"""Children that a zygote forks are sandboxed like children that are new processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from service.compiler.sandbox import check, process, run, zygotes
from service.core.builds.build import BuildCanceled
from service.core.errors import BuildCrashed
from tests.support.sandbox import attempt
from tests.unit.compiler.sandbox import test_lockdown, test_watch

pytestmark = pytest.mark.skipif(
    not all(finding.available for finding in check()), reason="this kernel cannot sandbox anything"
)
ROLES = frozenset({"echo", "descriptors", "hang", "harm_processes", "read_files", "use_threads", "die", "scheduling"})


@pytest.fixture(scope="module")
def own_zygotes() -> Iterator[zygotes.ZygoteSupervisor]:
    """A zygote that imports very little, so that it can be restarted quickly."""
    made = zygotes.ZygoteSupervisor(["service.compiler.children.checking_roles"], zygotes.ENVIRONMENT)
    yield made
    made.close()


@pytest.fixture(autouse=True)
def forked(monkeypatch: pytest.MonkeyPatch, own_zygotes: zygotes.ZygoteSupervisor) -> zygotes.ZygoteSupervisor:
    """Runs the roles of the tests in forked processes."""
    monkeypatch.setattr(process, "FORKED", ROLES)
    monkeypatch.setattr(run, "FORKED", ROLES)
    monkeypatch.setattr(process, "ZYGOTES", own_zygotes)
    monkeypatch.setattr(run, "ZYGOTES", own_zygotes)
    return own_zygotes


def test_it_inherits_nothing(scratch: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    test_lockdown.test_a_child_inherits_nothing(scratch, monkeypatch)


def test_it_has_no_files_of_its_parent_or_of_the_zygote(scratch: Path, tmp_path: Path) -> None:
    test_lockdown.test_a_child_has_no_files_of_its_parent(scratch, tmp_path)


def test_it_cannot_harm_other_processes(scratch: Path) -> None:
    test_lockdown.test_no_other_process_can_be_harmed(scratch)


def test_it_lowers_its_priority_in_the_session_of_its_parent(scratch: Path) -> None:
    test_watch.test_a_child_lowers_its_priority_and_stays_on_its_processors(scratch)


def test_it_may_start_threads(scratch: Path) -> None:
    test_lockdown.test_a_child_may_start_threads(scratch)


def test_it_is_a_direct_child_and_ends_when_it_is_canceled(scratch: Path) -> None:
    children: list[str] = []

    def poll() -> None:
        children.extend(Path(f"/proc/{os.getpid()}/task/{threading.get_native_id()}/children").read_text().split())
        raise BuildCanceled

    with pytest.raises(BuildCanceled):
        attempt(scratch, "hang", poll=poll)
    assert children
    with pytest.raises(ChildProcessError):
        os.waitpid(int(children[-1]), os.WNOHANG)  # the process was waited for already


def test_a_build_may_be_canceled_while_the_zygote_still_imports(
    scratch: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "endless.py").write_text("import time; time.sleep(1000)")
    importing = zygotes.ZygoteSupervisor(["endless"], {**zygotes.ENVIRONMENT, "PYTHONPATH": str(tmp_path)})
    monkeypatch.setattr(process, "ZYGOTES", importing)
    monkeypatch.setattr(run, "ZYGOTES", importing)

    def poll() -> None:
        raise BuildCanceled

    try:
        with pytest.raises(BuildCanceled):
            attempt(scratch, "echo", poll=poll)
    finally:
        importing.warm()._process.kill()
        importing.close()


def test_a_lost_zygote_is_replaced(scratch: Path, forked: zygotes.ZygoteSupervisor) -> None:
    first = forked.warm()
    os.kill(first._process.pid, signal.SIGKILL)
    first._process.wait()
    assert attempt(scratch, "echo")["request"] == {}
    assert forked.warm() is not first


def test_a_released_zygote_is_replaced_on_demand(scratch: Path, forked: zygotes.ZygoteSupervisor) -> None:
    first = forked.warm()
    forked.close()
    assert first._process.returncode is not None
    assert attempt(scratch, "echo")["request"] == {}


def test_a_zygote_ends_when_a_child_has_crashed(scratch: Path, forked: zygotes.ZygoteSupervisor) -> None:
    """The next zygote has a different memory layout."""
    first = forked.warm()
    with pytest.raises(BuildCrashed):
        attempt(scratch, "die", {"how": "segfault"})
    assert first._process.returncode is not None
    assert forked.warm() is not first


def test_orphans_of_others_are_not_adopted(scratch: Path) -> None:
    """Orphans of other processes would stay zombies, because this process does not wait for them."""
    assert attempt(scratch, "echo")["request"] == {}
    orphaning = "import os, sys; pid = os.fork(); pid or os.execvp('sleep', ['sleep', '0.2']); print(pid)"
    orphan = subprocess.run([sys.executable, "-c", orphaning], stdout=subprocess.PIPE, text=True, check=True).stdout
    children = Path(f"/proc/{os.getpid()}/task/{threading.get_native_id()}/children").read_text().split()
    assert orphan.strip() not in children

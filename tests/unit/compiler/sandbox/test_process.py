"""Children that crash, send garbage, or do not end."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest

from service.compiler.sandbox import check, process
from service.core.builds.build import BuildCanceled
from service.core.errors import (
    BuildCrashed,
    BuildFailed,
    BuildTimedOut,
    InternalError,
    MalformedModel,
    OctetError,
    OutOfMemory,
)
from tests.support.child_process import is_running
from tests.support.sandbox import attempt, limited

pytestmark = pytest.mark.skipif(
    not all(finding.available for finding in check()), reason="this kernel cannot sandbox anything"
)


# -- dying


@pytest.mark.parametrize(
    ("how", "expected"),
    [
        ({"how": "segfault"}, "died of SIGSEGV"),
        ({"how": "abort"}, "died of SIGABRT"),
        ({"how": "kill", "signal": signal.SIGKILL}, "died of SIGKILL: .*last words"),
        ({"how": "kill", "signal": signal.SIGRTMIN + 1}, "died of signal 35: .*last words"),
        ({"how": "exit", "status": 3}, "exited with status 3: .*last words"),
        ({"how": "exit", "status": 0}, "ended without a result: .*last words"),
    ],
)
def test_a_crash_is_reported_with_signal_and_location(scratch: Path, how: dict[str, Any], expected: str) -> None:
    with pytest.raises(BuildCrashed, match=f"the die process {expected}") as caught:
        attempt(scratch, "die", how)
    assert (caught.value.stage, caught.value.op, caught.value.tensor) == ("codegen", "conv2d", "x")
    assert "\x1b" not in caught.value.message
    assert caught.value.hint


@pytest.mark.parametrize(
    ("what", "kind", "message"),
    [
        ("ours", MalformedModel, "the offset lies outside the file"),
        ("server", BuildFailed, "the server is down"),
        ("python", InternalError, "Octet failed on a model that may be valid: ZeroDivisionError: division by zero"),
        ("tvm", InternalError, r"RuntimeError: Check failed: a == b \(1 vs. 2\)"),
        ("memory", OutOfMemory, "the fail process needed more than"),
        ("bad_alloc", OutOfMemory, "the fail process needed more than"),
    ],
)
def test_an_exception_becomes_an_error_with_its_location(
    scratch: Path, what: str, kind: type[OctetError], message: str
) -> None:
    with pytest.raises(kind, match=message) as caught:
        attempt(scratch, "fail", {"what": what})
    assert type(caught.value) is kind
    assert (caught.value.stage, caught.value.op, caught.value.tensor) == ("import", "CONV_2D", "x")


def test_the_traceback_of_a_bug_is_in_the_build_log(scratch: Path) -> None:
    messages: list[dict[str, Any]] = []
    with pytest.raises(InternalError) as caught:
        attempt(scratch, "fail", {"what": "python"}, on_message=messages.append)
    assert "the traceback in the build's log" in str(caught.value.hint)
    log = [each["log"] for each in messages if "log" in each]
    assert log[0] == "Traceback (most recent call last):"
    assert any(line.startswith('  File "') and line.endswith("in fail") for line in log)
    assert log[-1] == "ZeroDivisionError: division by zero"


def test_a_crash_has_a_traceback_in_the_log_and_an_invalid_file_has_none(scratch: Path) -> None:
    messages: list[dict[str, Any]] = []
    with pytest.raises(BuildCrashed):
        attempt(scratch, "die", {"how": "segfault"}, on_message=messages.append)
    assert any("Fatal Python error: Segmentation fault" in each.get("log", "") for each in messages)
    messages.clear()
    with pytest.raises(MalformedModel):
        attempt(scratch, "fail", {"what": "ours"}, on_message=messages.append)
    assert not any("log" in each for each in messages)


def test_without_a_build_the_traceback_is_logged(scratch: Path, caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(BuildFailed):
        attempt(scratch, "fail", {"what": "python"})
    assert "ZeroDivisionError: division by zero" in caplog.messages


@pytest.mark.parametrize(("large", "message"), [(True, "is larger than"), (False, "not JSON serializable")])
def test_a_result_that_cannot_be_sent_is_an_error(scratch: Path, large: bool, message: str) -> None:
    with pytest.raises(BuildFailed, match=message):
        attempt(scratch, "unsendable", {"large": large})


# -- sending garbage


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"data": b"garbage\n"}, "sent something that is not JSON"),
        ({"data": b"[", "size": 100_000, "times": 100}, "sent a message of more than"),
        ({"data": b"x", "size": 1 << 20, "times": 1000}, "sent a message of more than"),
        ({"data": b'{"log":""}\n', "size": 1000, "times": 1000}, "sent more than 100000 messages"),
        ({"data": b'{"result":{}}\n', "times": 2}, "sent a message after its last one"),
    ],
)
def test_garbage_fails_the_build(scratch: Path, content: dict[str, Any], message: str) -> None:
    with pytest.raises(BuildFailed, match=message):
        attempt(scratch, "say", {**content, "data": content["data"].hex()})


@pytest.mark.parametrize("then", ["close and hang", "hang"])
def test_a_child_that_does_not_exit_after_its_last_message_is_killed(
    scratch: Path, then: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "_EXIT_GRACE_S", 0.2)
    with pytest.raises(BuildFailed, match="did not exit after its last message"):
        attempt(scratch, "say", {"data": b'{"result":{}}\n'.hex(), "then": then})


def test_a_child_that_closes_its_pipe_without_exiting_is_killed(scratch: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "_EXIT_GRACE_S", 0.2)
    with pytest.raises(BuildFailed, match="did not exit after its last message"):
        attempt(scratch, "say", {"data": "", "then": "close and hang"})


def test_a_result_before_a_crash_is_discarded(scratch: Path) -> None:
    with pytest.raises(BuildCrashed, match="died of SIGABRT"):
        attempt(scratch, "say", {"data": b'{"result":{}}\n'.hex(), "then": "crash"})


def test_an_incomplete_message_is_not_a_result(scratch: Path) -> None:
    with pytest.raises(BuildCrashed, match="ended without a result"):
        attempt(scratch, "say", {"data": b'{"result":{}}'.hex(), "then": "exit"})


def test_too_much_log_output_stops_the_child(scratch: Path) -> None:
    with pytest.raises(BuildFailed, match="wrote more than 67108864 bytes to its log"):
        attempt(scratch, "flood_log")


# -- the parent


def test_poll_is_called_and_may_end_the_child(scratch: Path) -> None:
    pids: list[int] = []
    calls_after_message = iter(range(5))

    def poll() -> None:
        if pids and next(calls_after_message, None) is None:
            raise BuildCanceled

    with pytest.raises(BuildCanceled):
        attempt(scratch, "hang", poll=poll, on_message=lambda message: pids.append(int(message["log"])))
    assert not is_running(pids[0])


def test_on_message_may_end_the_child(scratch: Path) -> None:
    pids: list[int] = []

    def on_message(message: dict[str, Any]) -> None:
        pids.append(int(message["log"]))
        raise BuildCanceled

    with pytest.raises(BuildCanceled):
        attempt(scratch, "hang", on_message=on_message)
    assert not is_running(pids[0])


def test_no_descriptors_leak(scratch: Path) -> None:
    before = _descriptors()
    attempt(scratch, "echo")
    with pytest.raises(BuildTimedOut):
        attempt(scratch, "hang", limits=limited(wall_s=0.3))
    assert _descriptors() == before


def _descriptors() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())

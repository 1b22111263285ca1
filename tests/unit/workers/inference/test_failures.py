from __future__ import annotations

import pytest

from service.core.digest import digest_of
from service.core.errors import NotReady
from service.workers.inference import failures
from service.workers.inference.failures import Failures

ARTIFACT = digest_of(b"an artifact")


def test_a_failed_artifact_is_not_retried_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = 100.0
    monkeypatch.setattr(failures, "monotonic", lambda: now_s)
    known = Failures()
    known.check(ARTIFACT)
    assert known.note(ARTIFACT, RuntimeError("undefined symbol")).message == "RuntimeError: undefined symbol"
    with pytest.raises(NotReady, match="undefined symbol"):
        known.check(ARTIFACT)
    now_s += 10.1
    known.check(ARTIFACT)
    assert ARTIFACT in known
    known.forget(ARTIFACT)
    assert known.of(ARTIFACT) is None
    assert ARTIFACT not in known


def test_only_the_latest_failures_are_remembered() -> None:
    known = Failures()
    artifacts = [digest_of(str(index).encode()) for index in range(failures._MOST + 1)]
    for artifact in artifacts[:-1]:
        known.note(artifact, NotReady("no"))
    known.note(artifacts[0], NotReady("again"))
    known.note(artifacts[-1], NotReady("no"))
    assert [artifact in known for artifact in (artifacts[0], artifacts[1], artifacts[2], artifacts[-1])] == [
        True,
        False,
        True,
        True,
    ]

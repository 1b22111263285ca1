"""The keys of a server: their file, and its changes."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from service.api.access import ANYBODY, AuditLog
from service.api.access.audit import AuditFile
from service.api.access.keys import KeyFile, KeyRing
from service.core.access.key import Scope
from service.core.errors import Conflict, InvalidInput, NotFound, Unauthorized
from tests.support.api_keys import Make, bearer
from tests.support.manual_clock import ManualClock


def test_changes_by_another_process_apply_within_a_second(make: Make, clock: ManualClock, tmp_path: Path) -> None:
    access = make(auth="on")
    elsewhere = KeyRing(KeyFile(tmp_path / "keys.json"), AuditLog(AuditFile(tmp_path / "audit.jsonl")))
    key, text = elsewhere.create("a", [Scope.PREDICT])
    clock.advance(1)
    assert access.admit(bearer(text), Scope.PREDICT) == key.id
    elsewhere.revoke(key.id)
    clock.advance(1)
    with pytest.raises(Unauthorized):
        access.admit(bearer(text), Scope.PREDICT)


def test_keys_remain_required_after_the_file_is_deleted(make: Make, clock: ManualClock, tmp_path: Path) -> None:
    access = make()
    access.keys.create("a", [Scope.ADMIN])
    clock.advance(1)
    with pytest.raises(Unauthorized):
        access.admit(None, Scope.PREDICT)
    (tmp_path / "keys.json").unlink()
    clock.advance(1)
    with pytest.raises(Unauthorized):
        access.admit(None, Scope.PREDICT)
    make().keys.create("b", [Scope.ADMIN])
    for known in make().keys.read():
        make().keys.revoke(known)
    assert make().requires_key  # revoking the last key does not open the server


def test_a_damaged_file_leaves_the_known_keys_in_force(make: Make, clock: ManualClock, tmp_path: Path) -> None:
    access = make(auth="on")
    key, text = access.keys.create("a", [Scope.PREDICT])
    access.changed()
    assert access.admit(bearer(text), Scope.PREDICT) == key.id
    (tmp_path / "keys.json").write_text('{"broken": ')
    clock.advance(1)
    assert access.admit(bearer(text), Scope.PREDICT) == key.id
    with pytest.raises(InvalidInput, match="cannot be read"):
        make()


def test_a_damaged_file_makes_keys_required(make: Make, clock: ManualClock, tmp_path: Path) -> None:
    access = make()
    assert access.admit(None, Scope.ADMIN) == ANYBODY
    (tmp_path / "keys.json").write_text("[]")
    clock.advance(1)
    with pytest.raises(Unauthorized):
        access.admit(None, Scope.PREDICT)


def test_a_missing_key_cannot_be_revoked(make: Make) -> None:
    with pytest.raises(NotFound, match="'nobody'"):
        make().keys.revoke("nobody")


def test_a_file_mounted_read_only_is_not_changed(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(path: Path, data: bytes) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr("service.api.access.keys.replace_file", fail)
    access = make(auth="on")
    with pytest.raises(Conflict, match="cannot be written: Read-only"):
        access.keys.create("a", [Scope.ADMIN])
    assert access.keys.read() == {}

"""Tests which requests are admitted, and when a key is required."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from service.api.access import ANYBODY, Access, AuditLog, check_exposure
from service.api.access.access import is_loopback
from service.api.access.audit import AuditFile
from service.api.access.keys import KeyFile, KeyRing
from service.core.access.key import Limits, Scope
from service.core.errors import Conflict, Forbidden, InvalidInput, NotFound, QuotaExceeded, RateLimited, Unauthorized
from service.core.settings import Settings
from tests.support.manual_clock import ManualClock

ADMIN_KEY = "octet_cluster_" + 48 * "x"
PUBLIC = "0.0.0.0"
Make = Callable[..., Access]


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def make(tmp_path: Path, clock: ManualClock) -> Make:
    return lambda **settings: Access(Settings(data_dir=tmp_path, **settings), clock)


def bearer(text: str) -> bytes:
    return f"Bearer {text}".encode()


@pytest.mark.parametrize(
    ("settings", "has_key", "requires_key"),
    [
        ({}, False, False),
        ({}, True, True),
        ({"host": "localhost"}, False, False),
        ({"host": PUBLIC}, False, True),
        ({"auth": "on"}, False, True),
        ({"auth": "off", "host": PUBLIC}, True, False),
        ({"admin_key": ADMIN_KEY}, False, True),
    ],
)
def test_a_key_is_required_if_one_exists_or_the_address_is_public(
    make: Make, settings: dict[str, Any], has_key: bool, requires_key: bool
) -> None:
    if has_key:
        make().keys.create("a", [Scope.ADMIN])
    access = make(**settings)
    assert access.requires_key is requires_key
    if requires_key:
        with pytest.raises(Unauthorized):
            access.admit(None, Scope.PREDICT)
    else:
        assert access.admit(None, Scope.ADMIN) == ANYBODY


def test_a_key_allows_what_its_scopes_say(make: Make) -> None:
    access = make(auth="on")
    key, text = access.keys.create("a", [Scope.PREDICT])
    access.changed()
    assert access.admit(bearer(text), Scope.PREDICT) == key.id
    assert access.admit(b"bEARER  " + text.encode() + b" ", Scope.PREDICT) == key.id
    with pytest.raises(Forbidden, match=f"{key.id} lacks the scope push"):
        access.admit(bearer(text), Scope.PUSH)


@pytest.mark.parametrize(
    "header", [None, b"", b"Basic eDp5", b"Bearer", b"Bearer ", b"Bearer x", b"Bearer \xff\xfe", b"Bearer octet_a_b"]
)
def test_other_headers_allow_nothing(make: Make, header: bytes | None) -> None:
    with pytest.raises(Unauthorized):
        make(admin_key=ADMIN_KEY).admit(header, Scope.PREDICT)


def test_a_wrong_secret_gives_the_same_error_as_an_unknown_key(make: Make) -> None:
    access = make(admin_key=ADMIN_KEY)
    messages = []
    for wrong in (ADMIN_KEY[:-1] + "y", ADMIN_KEY.replace("cluster", "another")):
        with pytest.raises(Unauthorized) as caught:
            access.admit(bearer(wrong), Scope.PREDICT)
        messages.append(caught.value.message)
        assert wrong not in str(caught.value.to_json())
    assert messages[0] == messages[1]
    assert access.admit(bearer(ADMIN_KEY), Scope.ADMIN) == "cluster"


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


def test_requests_per_second_are_limited(make: Make, clock: ManualClock) -> None:
    access = make(auth="on")
    _, text = access.keys.create("a", [Scope.PREDICT], Limits(requests_per_s=2))
    access.changed()
    for _ in range(2):
        access.admit(bearer(text), Scope.PREDICT)
    with pytest.raises(RateLimited) as caught:
        access.admit(bearer(text), Scope.PREDICT)
    assert caught.value.retry_after_s == pytest.approx(0.5)
    clock.advance(0.5)
    access.admit(bearer(text), Scope.PREDICT)
    with pytest.raises(RateLimited):
        access.admit(bearer(text), Scope.PREDICT)
    clock.advance(3600)  # after an hour without requests, the bucket holds only one second's tokens
    for _ in range(2):
        access.admit(bearer(text), Scope.PREDICT)
    with pytest.raises(RateLimited):
        access.admit(bearer(text), Scope.PREDICT)


def test_the_quota_of_a_day_survives_restarts(make: Make, clock: ManualClock) -> None:
    access = make(auth="on")
    key, text = access.keys.create("a", [Scope.PREDICT], Limits(requests_per_day=3))
    clock.advance(23 * 3600)
    for _ in range(2):
        access.admit(bearer(text), Scope.PREDICT)
    access.save()
    again = make(auth="on")
    again.admit(bearer(text), Scope.PREDICT)
    with pytest.raises(QuotaExceeded) as caught:
        again.admit(bearer(text), Scope.PREDICT)
    assert caught.value.retry_after_s == 3600
    with pytest.raises(Forbidden):  # if both errors apply, the permanent one is reported rather than the temporary one
        again.admit(bearer(text), Scope.PUSH)
    clock.advance(3600)
    assert again.admit(bearer(text), Scope.PREDICT) == key.id


def test_servers_that_share_a_folder_share_the_quota_of_a_day(make: Make, clock: ManualClock) -> None:
    one, other = make(auth="on"), make(auth="on")
    _, text = one.keys.create("a", [Scope.PREDICT], Limits(requests_per_day=6))
    clock.advance(1)

    def use(access: Access, times: int) -> None:
        for _ in range(times):
            access.admit(bearer(text), Scope.PREDICT)

    use(one, 2)
    use(other, 1)
    for access in (one, other, one, other, other):  # saving several times counts no request twice
        access.save()
    use(one, 2)
    one.save()
    other.save()
    use(other, 1)
    with pytest.raises(QuotaExceeded):
        use(other, 1)
    other.save()
    one.save()
    with pytest.raises(QuotaExceeded):
        use(one, 1)
    clock.advance(24 * 3600)
    use(one, 6)
    one.save()
    other.save()
    with pytest.raises(QuotaExceeded):
        use(other, 1)


def test_each_key_has_its_own_limits(make: Make) -> None:
    access = make(auth="on")
    texts = [access.keys.create(name, [Scope.PREDICT], Limits(requests_per_s=1))[1] for name in "ab"]
    access.changed()
    for text in texts:
        access.admit(bearer(text), Scope.PREDICT)
        with pytest.raises(RateLimited):
            access.admit(bearer(text), Scope.PREDICT)


def test_a_damaged_record_of_usage_is_ignored(make: Make, tmp_path: Path) -> None:
    (tmp_path / "usage.json").write_text('{"day": "2026-01-01", "keys": {"a": 3}}')
    access = make(auth="on")
    key, text = access.keys.create("a", [Scope.PREDICT], Limits(requests_per_day=1))
    access.changed()
    assert access.admit(bearer(text), Scope.PREDICT) == key.id


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


def test_each_change_of_a_key_is_in_the_audit_log(make: Make, tmp_path: Path) -> None:
    keys = make().keys
    key, text = keys.create("camera 7", [Scope.PREDICT])
    keys.revoke(key.id)
    entries = AuditFile(tmp_path / "audit.jsonl").last(10)
    assert [(each["action"], each["key"]) for each in entries] == [("revoke_key", key.id), ("create_key", key.id)]
    assert all(each["who"].startswith("local:") for each in entries)
    assert text not in (tmp_path / "audit.jsonl").read_text()


def test_a_public_address_needs_a_key_or_the_setting_to_go_without(tmp_path: Path, make: Make) -> None:
    def check(**settings: Any) -> None:
        check_exposure(Settings(data_dir=tmp_path, **{"host": PUBLIC, **settings}))

    with pytest.raises(InvalidInput, match=r"other machines can reach 0\.0\.0\.0") as caught:
        check()
    assert caught.value.hint is not None
    assert "octet keys create" in caught.value.hint
    assert "--no-auth" in caught.value.hint
    check(host="127.0.0.1")
    check(auth="off")
    check(admin_key=ADMIN_KEY)
    key, _ = make().keys.create("a", [Scope.ADMIN])
    check()
    make().keys.revoke(key.id)
    with pytest.raises(InvalidInput):
        check()


@pytest.mark.parametrize(
    ("host", "expected"),
    [("127.0.0.1", True), ("127.1.2.3", True), ("::1", True), ("0.0.0.0", False), ("::", False), ("no such", False)],
)
def test_addresses_that_only_this_machine_reaches(host: str, expected: bool) -> None:
    assert is_loopback(host) is expected

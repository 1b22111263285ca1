"""Tests which requests are admitted, and when a key is required."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from service.api.access import ANYBODY, check_exposure
from service.api.access.access import is_loopback
from service.api.access.audit import AuditFile
from service.core.access.key import Scope
from service.core.errors import Forbidden, InvalidInput, Unauthorized
from service.core.settings import Settings
from tests.support.api_keys import Make, bearer

ADMIN_KEY = "octet_cluster_" + 48 * "x"
PUBLIC = "0.0.0.0"


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


def test_a_key_allows_the_operations_of_its_scopes(make: Make) -> None:
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

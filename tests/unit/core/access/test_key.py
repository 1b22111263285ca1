"""Tests that API keys have a fixed format, and are stored as digests."""

from __future__ import annotations

import hashlib
import json
import re
from datetime import UTC, datetime

import pytest

from service.core.access.key import Limits, Scope, id_of, key_from_json, key_of, new_key
from service.core.errors import InvalidInput

AT = datetime(2026, 1, 1, tzinfo=UTC)


def test_a_key_has_256_random_bits_and_a_public_id() -> None:
    made = [new_key("a", [Scope.PREDICT], Limits(), AT) for _ in range(50)]
    texts = [text for _, text in made]
    assert all(re.fullmatch(r"octet_[0-9a-f]{12}_[0-9a-f]{64}", text) for text in texts)
    assert len({text.split("_")[2] for text in texts}) == 50
    assert all(id_of(text.encode()) == key.id for key, text in made)


def test_only_the_digest_of_a_key_is_stored() -> None:
    key, text = new_key("a", [Scope.PUSH, Scope.PREDICT], Limits(2.5, 10), AT)
    kept = json.dumps(key.to_json())
    assert text.split("_")[2] not in kept
    assert key.digest == hashlib.sha256(text.encode()).hexdigest()
    assert key_from_json(key.id, json.loads(kept)) == key


def test_only_the_exact_text_is_accepted() -> None:
    key, text = new_key("a", [Scope.PREDICT], Limits(), AT)
    assert key.is_key(text.encode())
    assert not key.is_key(text[:-1].encode())
    assert not key.is_key((text[:-1] + ("0" if text[-1] != "0" else "1")).encode())


def test_admin_includes_every_scope() -> None:
    admin, _ = new_key("a", [Scope.ADMIN], Limits(), AT)
    push, _ = new_key("a", [Scope.PUSH], Limits(), AT)
    assert all(admin.allows(scope) for scope in Scope)
    assert [scope for scope in Scope if push.allows(scope)] == [Scope.PUSH]
    assert push.allows(Scope.READ, Scope.PUSH)


@pytest.mark.parametrize(
    "text", ["", "secret", "octet_me_" + 40 * "a", "octet_mine_" + 31 * "a", "octet_mine_" + 40 * "!", "octet_mine"]
)
def test_malformed_keys_have_no_id(text: str) -> None:
    assert id_of(text.encode()) is None
    with pytest.raises(InvalidInput) as caught:
        key_of(text, "a", [Scope.ADMIN], Limits(), AT)
    assert not text or text not in str(caught.value)


def test_a_user_may_choose_a_key() -> None:
    text = "octet_cluster1_" + 48 * "x"
    assert key_of(text, "a", [Scope.ADMIN], Limits(), AT).id == "cluster1"


@pytest.mark.parametrize("name", ["", "a\nb", 64 * "a", " a"])
def test_a_name_fits_in_a_line(name: str) -> None:
    with pytest.raises(InvalidInput, match="name"):
        new_key(name, [Scope.ADMIN], Limits(), AT)


def test_a_key_needs_a_scope_and_positive_limits() -> None:
    with pytest.raises(InvalidInput, match="scope"):
        new_key("a", [], Limits(), AT)
    for per_s, per_day in ((0, None), (-1, None), (float("nan"), None), (None, 0)):
        with pytest.raises(InvalidInput, match="above 0"):
            Limits(per_s, per_day)

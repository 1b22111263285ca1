"""The limits and quotas of keys."""

from __future__ import annotations

import pytest

from service.api.access import Access
from service.core.access.key import Limits, Scope
from service.core.errors import Forbidden, QuotaExceeded, RateLimited
from tests.support.api_keys import Make, bearer
from tests.support.manual_clock import ManualClock


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

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from service.core.builds.build import Stage
from service.core.cluster.worker import Worker, WorkerKind
from service.core.digest import digest_of
from service.core.errors import BuildFailed, NotBuilt, NotFound, NotReady, NotVerified
from service.db import AliasStore, BuildStore, Database, ModelStore, VerificationStore
from service.workers.inference import ModelState
from service.workers.routing import Servable
from tests.support.build_inputs import inputs

START = datetime(2026, 1, 1, tzinfo=UTC)
V3, VNNI, ARM = "x86-64-v3", "x86-64-v4+vnni", "aarch64"


class Shop:
    """Models and builds."""

    def __init__(self, folder: Path) -> None:
        self.database = Database(f"sqlite:///{folder / 'octet.sqlite3'}")
        self.database.migrate()
        self.builds, self.models = BuildStore(self.database), ModelStore(self.database)
        self.aliases, self.verifications = AliasStore(self.database), VerificationStore(self.database)
        self.servable = Servable(self.builds, self.models, self.aliases)

    def push(self, *targets: str, source: str = "model", is_verified: bool = True) -> int:
        """Pushes a new version of digits, with a build for each target."""
        number = self.models.push("digits", digest_of(source.encode()), "tflite", 5).number
        for target in targets:
            self.builds.submit(inputs(source, target), "digits", number)
            claim = self.builds.claim("worker", 30)
            assert claim is not None
            self.builds.finish(claim, artifact=digest_of(f"{source} {target}".encode()), is_verified=is_verified)
        return number

    def verify(self, target: str, *, passed: bool, summary: str = "") -> None:
        claim = self.verifications.claim("worker", "p", 30, [target])
        assert claim is not None
        self.verifications.finish(claim, passed=passed, result={"summary": summary})

    def pools(self, reference: int | str | None = None, **pools: Sequence[str]) -> list[str]:
        return self.servable.pools("digits", reference, pools)


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    return Shop(tmp_path)


def test_a_pool_serves_builds_for_its_target(shop: Shop) -> None:
    shop.push(V3, VNNI)
    assert shop.pools(old=[V3], new=[VNNI], arm=[ARM]) == ["new", "old"]


def test_a_name_refers_to_the_version_of_its_alias(shop: Shop) -> None:
    shop.push(V3)
    shop.push(VNNI, source="another")
    shop.aliases.promote("digits", "stable", 1, 100)
    for reference, pools in ((None, ["old"]), ("stable", ["old"]), (2, ["new"]), ("latest", ["new", "old"])):
        assert shop.pools(reference, old=[V3], new=[VNNI]) == pools


def test_an_unknown_name_is_not_found(shop: Shop) -> None:
    with pytest.raises(NotFound):
        shop.pools(old=[V3])
    shop.push(V3)
    for reference in (2, "golden"):
        with pytest.raises(NotFound):
            shop.pools(reference, old=[V3])


def test_without_workers_the_error_names_the_needed_target(shop: Shop) -> None:
    shop.push(V3)
    with pytest.raises(NotReady, match=r"^no running worker supports x86-64-v3$"):
        shop.pools()


def test_if_no_pool_fits_the_error_names_the_available_targets(shop: Shop) -> None:
    shop.push(VNNI, ARM)
    expected = "digits 1 has no build for any running pool: it is built for aarch64 or x86-64-v4.vnni, but the running "
    with pytest.raises(NotBuilt, match=f"^{expected}workers support x86-64-v3$"):
        shop.pools(1, old=[V3])


def test_a_running_build_is_reported_as_the_reason(shop: Shop) -> None:
    shop.push(VNNI)
    shop.builds.submit(inputs("model", V3), "digits", 1)
    with pytest.raises(NotReady, match="is being built"):
        shop.pools(old=[V3])


def test_a_failed_build_is_reported_as_the_reason(shop: Shop) -> None:
    shop.push()
    shop.builds.submit(inputs("model", V3), "digits", 1)
    claim = shop.builds.claim("worker", 30)
    assert claim is not None
    shop.builds.finish(claim, error=BuildFailed("too deep", stage=Stage.IMPORT))
    with pytest.raises(NotBuilt, match="too deep"):
        shop.pools(old=[V3])


def test_an_unverified_build_is_not_served(shop: Shop) -> None:
    shop.push(V3, is_verified=False)
    expected = r"^no worker for x86-64-v3 has verified version 1 of model 'digits' yet$"
    for pools in ({"old": [V3]}, {"new": [VNNI]}, {}):
        with pytest.raises(NotReady, match=expected):
            shop.pools(1, **pools)
    shop.verify(V3, passed=True)
    assert shop.pools(1, old=[V3]) == ["old"]


def test_until_a_version_is_verified_the_previous_one_is_served(shop: Shop) -> None:
    shop.push(V3)
    shop.push(VNNI, source="another", is_verified=False)
    assert shop.pools(old=[V3], new=[VNNI]) == ["old"]
    shop.verify(VNNI, passed=True)
    assert shop.pools(old=[V3], new=[VNNI]) == ["new", "old"]


def test_a_failed_verification_is_reported_as_the_reason(shop: Shop) -> None:
    shop.push(V3, is_verified=False)
    shop.verify(V3, passed=False, summary="1 of 80 values differs")
    with pytest.raises(NotVerified, match="failed its verification on x86-64-v3: 1 of 80 values differs"):
        shop.pools(old=[V3])


def test_a_verified_build_without_a_worker_names_the_needed_target(shop: Shop) -> None:
    shop.push(VNNI)
    shop.push(V3, source="model", is_verified=False)
    with pytest.raises(NotReady, match=r"^no running worker supports x86-64-v4\+vnni$"):
        shop.pools()
    with pytest.raises(NotReady, match=r"^no worker for x86-64-v3 has verified model 'digits' yet$"):
        shop.pools(old=[V3])


def test_a_pool_on_which_the_outputs_are_wrong_gets_no_requests(shop: Shop) -> None:
    shop.push(V3)
    shop.verifications.submit(digest_of(f"model {V3}".encode()), V3, "bad")
    shop.verifications.submit(digest_of(f"model {V3}".encode()), V3, "good")
    assert shop.pools(bad=[V3], good=[V3]) == ["bad", "good"]
    claim = shop.verifications.claim("worker", "bad", 30, [V3])
    assert claim is not None
    shop.verifications.finish(claim, passed=False, result={})
    assert shop.pools(bad=[V3], good=[V3]) == ["good"]
    with pytest.raises(NotVerified, match=r"^digits 1 computes wrong outputs on pool bad$"):
        shop.pools(1, bad=[V3])


def test_a_version_is_ready_if_a_worker_has_it_in_memory_or_can_load_it(shop: Shop) -> None:
    shop.push(V3)
    shop.push(VNNI, source="another")
    shop.aliases.promote("digits", "stable", 2, 100)
    worker = Worker("w", WorkerKind.INFERENCE, "h", 1, V3, START, START, pool="old")
    ready, unavailable = (1, ModelState.READY), (2, ModelState.UNAVAILABLE)
    for loaded, expected in (
        ((), [ready, unavailable]),
        ((("digits", "1"),), [ready, unavailable]),
        ((("digits", "latest"), ("gone", "1")), [ready, unavailable]),
        ((("digits", "1"), ("digits", "stable")), [ready, (2, ModelState.READY)]),
    ):
        found = shop.servable.index([replace(worker, loaded=loaded)])
        assert [(each.version, each.state) for each in found] == expected
    assert [each.reason for each in shop.servable.index([worker])] == [
        "it is loaded by the first request for it",
        f"digits 2 has no build for any running pool: it is built for {VNNI}, but the running workers support {V3}",
    ]

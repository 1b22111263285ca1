"""The builds table as a queue: what a worker does with a build, from its claim to its end."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from datetime import datetime

import sqlalchemy as sa

from service.core.build import BuildState, Stage
from service.core.clock import Clock, SystemClock
from service.core.digest import Digest
from service.core.errors import Different, OctetError
from service.db import claims
from service.db.bell import Bell
from service.db.claims import Claim, Claimable
from service.db.database import Database, repeated, repeated_if_undone
from service.db.verifications import enqueue

_BUSY_S = 1.0  # after a claim: so long it is not looked first whether there is anything to claim


class BuildQueue:
    """Builds that wait for workers, and those that workers have.

    Times come from the machine of the database, so that workers of several machines agree on when a lease is over.

    A method whose connection breaks does its work again, where it is known that nothing was changed or where that does
    not matter.

    Args:
        clock: for tests; by default the database's.
        max_attempts: how many workers may die of a build before it is given up.
    """

    def __init__(self, database: Database, clock: Clock | None = None, max_attempts: int = 3) -> None:
        self._database = database
        self._clock = clock
        self._monotonic_s = (clock or SystemClock()).monotonic_s
        self._max_attempts = max_attempts
        self._busy_until_s = -math.inf
        self._leases: dict[int, tuple[datetime, float]] = {}  # of running builds, and since when they are the same

    @property
    def bell(self) -> Bell:
        """Rung when a build waits, ends or is to be canceled."""
        return self._database.bell

    def claim(self, owner: str, lease_s: float, targets: Collection[str] = (), passing: bool = False) -> Claim | None:
        """The oldest build that is queued or whose worker fell silent, if there is one; it is `owner`'s now.

        A build that too many workers died of fails with `BuildCrashed` instead.

        Args:
            targets: only builds for these are claimed; empty: for any.
            passing: the smallest instead of the oldest, and none in the background (`claims.Claimable`).
        """
        taken: list[Claim] = []

        def take() -> Claim | None:
            if taken and self._is_held(taken[-1]):  # the connection broke when it was committed
                return taken[-1]
            if self._monotonic_s() < self._busy_until_s and take_of(()):
                return taken[-1]
            waiting, silent = self._look(lease_s, targets)
            if not waiting or not take_of(silent):
                return None
            self._busy_until_s = self._monotonic_s() + _BUSY_S
            return taken[-1]

        def take_of(silent: Collection[int]) -> bool:
            with self._database.write() as connection:
                claimable = Claimable(self._now(connection), silent, targets, passing)
                claim = claims.claim(connection, owner, claimable, lease_s, self._max_attempts)
                taken.extend([claim] if claim else [])
                return claim is not None

        return self._database.again(take, is_idempotent=True)

    @repeated
    def any_to_claim(self, lease_s: float) -> bool:
        """Whether `claim` would find something to do; takes no lock."""
        return self._look(lease_s)[0]

    @repeated
    def heartbeat(self, claim: Claim, lease_s: float) -> None:
        """Keeps the build for another `lease_s`.

        Raises:
            LeaseLost: the build is no longer this worker's: stop, and report nothing.
            BuildCanceled: it was canceled; stop, and call `finish(claim, canceled=True)`.
        """
        with self._database.write() as connection:
            claims.heartbeat(connection, claim, self._now(connection), lease_s)

    @repeated
    def progress(self, claim: Claim, stage: Stage, fraction: float = 0.0) -> None:
        """The build is `fraction` (0 to 1) through `stage`. Raises as `heartbeat` does."""
        with self._database.write() as connection:
            claims.progress(connection, claim, self._now(connection), stage, fraction)

    @repeated_if_undone
    def log(self, claim: Claim, line: str) -> None:
        """Adds a line to the build's log, which is cut when it gets too long. Raises `LeaseLost`."""
        with self._database.write() as connection:
            claims.log(connection, claim, self._now(connection), line)

    def finish(
        self,
        claim: Claim,
        *,
        artifact: Digest | None = None,
        error: OctetError | None = None,
        canceled: bool = False,
        is_verified: bool = True,
        different: Different | None = None,
    ) -> None:
        """Ends the build in exactly one of three ways. Raises `LeaseLost`.

        A build that was asked for again after it was canceled does not end by `canceled`: it is queued again.

        Args:
            is_verified: whether the artifact was verified where it was built; if not, that is queued.
            different: why the artifact is not served, if it differs from its reference
                (`core.agreement.is_different`). No verification is queued then.
        """
        if (artifact is not None) + (error is not None) + canceled != 1:
            raise ValueError("a build ends with an artifact, with an error or canceled: give one")
        state = BuildState.CANCELED if canceled else BuildState.FAILED
        if artifact is not None:
            state = BuildState.DIFFERENT if different else BuildState.SUCCEEDED

        def end() -> None:
            with self._database.write() as connection:
                if tries and claims.has_ended(connection, claim, state, artifact):
                    return  # the connection broke when it was committed
                tries.append(connection)
                now = self._now(connection)
                claims.finish(connection, claim, now, artifact, different or error, canceled)
                if state is BuildState.SUCCEEDED and artifact is not None and not is_verified:
                    enqueue(connection, artifact, claim.build.target, now)

        tries: list[object] = []
        self._database.again(end, is_idempotent=True)

    @repeated
    def release(self, claim: Claim) -> None:
        """Gives the build back, because this worker stops; the next may take it at once. Raises `LeaseLost`."""
        with self._database.write() as connection:
            claims.release(connection, claim, self._now(connection))

    def _is_held(self, claim: Claim) -> bool:
        with self._database.write() as connection:
            return claims.is_held(connection, claim)

    def _look(self, lease_s: float, targets: Collection[str] = ()) -> tuple[bool, Collection[int]]:
        with self._database.read() as connection:
            now = self._now(connection)
            silent = self._silent(claims.leases(connection), lease_s)
            return claims.any_to_claim(connection, Claimable(now, silent, targets)), silent

    def _silent(self, leases: Mapping[int, datetime], lease_s: float) -> Collection[int]:
        """The builds whose leases have been the same for `lease_s`: a clock that was put back must not keep them."""
        now_s = self._monotonic_s()
        same = {build: seen for build, seen in self._leases.items() if leases.get(build) == seen[0]}
        self._leases = {build: (until, now_s) for build, until in leases.items()} | same
        return [build for build, (_, since_s) in same.items() if now_s - since_s > lease_s]

    def _now(self, connection: sa.Connection) -> datetime:
        return self._database.now(connection, self._clock)

"""The builds table as a queue: the operations of a worker on a build, from the claim to the end."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from datetime import datetime

import sqlalchemy as sa

from service.core.builds.build import BuildState, Stage
from service.core.clock import Clock, SystemClock
from service.core.digest import Digest
from service.core.errors import Different, OctetError
from service.db.builds import claims
from service.db.builds.claims import Claim, Claimable
from service.db.database import Database, repeated, repeated_if_undone
from service.db.engines.notifications import Notifications
from service.db.verifications import enqueue

_BUSY_S = 1.0  # for this long after a claim, the next claim skips the check whether any build is waiting


class BuildQueue:
    """The queue of builds that wait for workers or are held by workers.

    Times come from the machine of the database, so that workers on several machines agree on when a lease ends.

    If the connection breaks, a method is repeated if nothing was changed or if repeating it is harmless.

    Args:
        clock: a clock for tests; by default the database's.
        max_attempts: a build fails if this many workers die while they hold it.
    """

    def __init__(self, database: Database, clock: Clock | None = None, max_attempts: int = 3) -> None:
        self._database = database
        self._clock = clock
        self._monotonic_s = (clock or SystemClock()).monotonic_s
        self._max_attempts = max_attempts
        self._busy_until_s = -math.inf
        # Running build -> (end of its lease, monotonic time at which this end was first read).
        self._leases: dict[int, tuple[datetime, float]] = {}

    @property
    def notifications(self) -> Notifications:
        """The notifications that are sent when a build is queued, has ended, or should be canceled."""
        return self._database.notifications

    def claim(self, owner: str, lease_s: float, targets: Collection[str] = (), passing: bool = False) -> Claim | None:
        """Claims the oldest build that is queued or whose worker stopped its heartbeats; returns None if no such build
        exists.

        A build that already made too many workers die fails with `BuildCrashed` instead.

        Args:
            owner: the worker that claims the build.
            targets: the targets whose builds may be claimed; empty for all.
            passing: True to claim the smallest build instead of the oldest, and no background build
                (`claims.Claimable`).
        """
        taken: list[Claim] = []

        def take() -> Claim | None:
            if taken and self._is_held(taken[-1]):  # an earlier try was committed, although its connection broke
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
        """Returns true if `claim` would find a build. Takes no lock."""
        return self._look(lease_s)[0]

    @repeated
    def heartbeat(self, claim: Claim, lease_s: float) -> None:
        """Renews the lease of the build for another `lease_s`.

        Raises:
            LeaseLost: the worker no longer holds the build. The worker must stop and report nothing.
            BuildCanceled: the build was canceled. The worker must stop and call `finish(claim, canceled=True)`.
        """
        with self._database.write() as connection:
            claims.heartbeat(connection, claim, self._now(connection), lease_s)

    @repeated
    def progress(self, claim: Claim, stage: Stage, fraction: float = 0.0) -> None:
        """Records that `fraction` (0 to 1) of `stage` is done.

        Raises:
            LeaseLost, BuildCanceled: as in `heartbeat`.
        """
        with self._database.write() as connection:
            claims.progress(connection, claim, self._now(connection), stage, fraction)

    @repeated_if_undone
    def log(self, claim: Claim, line: str) -> None:
        """Adds a line to the build's log, which is cut when it gets too long.

        Raises:
            LeaseLost: as in `heartbeat`.
        """
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
        """Ends the build in exactly one of three ways: with `artifact`, with `error`, or `canceled`.

        A canceled build that was requested again meanwhile is queued again instead.

        Args:
            is_verified: True if the machine that built the artifact verified it. If false, a verification is queued.
            different: the reason why the artifact is not served, if it differs from its reference
                (`core.verification.agreement.is_different`). No verification is queued then.

        Raises:
            LeaseLost: as in `heartbeat`.
        """
        if (artifact is not None) + (error is not None) + canceled != 1:
            raise ValueError("a build ends with an artifact, with an error or canceled: give one")
        state = BuildState.CANCELED if canceled else BuildState.FAILED
        if artifact is not None:
            state = BuildState.DIFFERENT if different else BuildState.SUCCEEDED

        def end() -> None:
            with self._database.write() as connection:
                if tries and claims.has_ended(connection, claim, state, artifact):
                    return  # an earlier try was committed, although its connection broke
                tries.append(connection)
                now = self._now(connection)
                claims.finish(connection, claim, now, artifact, different or error, canceled)
                if state is BuildState.SUCCEEDED and artifact is not None and not is_verified:
                    enqueue(connection, artifact, claim.build.target, now)

        tries: list[object] = []
        self._database.again(end, is_idempotent=True)

    @repeated
    def release(self, claim: Claim) -> None:
        """Returns the build to the queue, because this worker stops. Another worker may claim it at once.

        Raises:
            LeaseLost: as in `heartbeat`.
        """
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
        """Returns the builds whose leases have not changed for `lease_s` by the monotonic clock.

        A worker that died must lose its build even if the clock of the database was set back.
        """
        now_s = self._monotonic_s()
        same = {build: seen for build, seen in self._leases.items() if leases.get(build) == seen[0]}
        self._leases = {build: (until, now_s) for build, until in leases.items()} | same
        return [build for build, (_, since_s) in same.items() if now_s - since_s > lease_s]

    def _now(self, connection: sa.Connection) -> datetime:
        return self._database.now(connection, self._clock)

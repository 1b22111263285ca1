"""Verifies artifacts that run on this machine, but could not run on the machine that built them.

A verification runs the artifact, compares its outputs, and measures its speed. The result is written to the database.
The artifact is not served before it has passed. The artifact runs in a child process that is locked down, has limits,
and has none of this process's secrets.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Any

from service.cache import OciLayout
from service.compiler.children.locked import LockedArtifact, Poll
from service.compiler.sandbox.check import require
from service.compiler.sandbox.policy import unlimited, working
from service.core.artifacts.artifact import Report
from service.core.artifacts.explanation import build_explanation
from service.core.builds.build import BuildCanceled, LeaseLost
from service.core.digest import Digest
from service.core.errors import (
    BuildCrashed,
    DatabaseBusy,
    DatabaseUnreachable,
    NotFound,
    OctetError,
    SandboxUnavailable,
    StoreUnreachable,
    UnsafeLibrary,
    Untrusted,
    VerificationFailed,
)
from service.core.settings import Settings
from service.core.system.outage import log_trouble
from service.core.target import machine_name
from service.db import VerificationClaim, VerificationStore
from service.runtime.verification import verdict

_logger = logging.getLogger(__name__)
_TROUBLE_S = 2.0
_MEASURE_S = 1.0  # the time of each of two measurements
# Errors that another attempt would not change. Other errors may pass: a process can be killed because other processes
# need the memory, and a file can be missing for a moment.
_FINAL = (VerificationFailed, Untrusted, UnsafeLibrary)
_NOT_ITS_FAULT = (DatabaseBusy, DatabaseUnreachable, StoreUnreachable, SandboxUnavailable)

Verify = Callable[[OciLayout, Digest, Settings, Poll], dict[str, Any]]


class _Stopping(BuildCanceled):
    """This process is stopping, so another worker has to do the verification."""


def verify_artifact(layout: OciLayout, artifact: Digest, settings: Settings, poll: Poll) -> dict[str, Any]:
    """Runs an artifact on its generated inputs, measures it, and returns `core.verification.jobs.Verification.result`.

    Args:
        poll: called about every 100 ms; may raise an exception to end the verification.

    Raises:
        VerificationFailed: the outputs differ from the expected outputs that are attached to the artifact.
        Untrusted: this machine requires signatures, and none of the trusted keys signed it. The artifact was not
            loaded.
        OctetError: the artifact is damaged or missing, cannot be loaded, or ended its process.
    """
    clock = working(settings.build_time_limit_s, settings.build_stall_limit_s, settings.build_memory_limit_bytes)
    limits = replace(
        unlimited(0),
        wall_s=clock.wall_s,
        cpu_s=clock.cpu_s,
        stall_s=clock.stall_s,
        memory_bytes=settings.build_memory_limit_bytes,
        nice=settings.build_nice,
    )
    model = LockedArtifact.read(layout, artifact, settings, limits=limits)
    vectors = layout.attached_file(artifact, Report.VECTORS)
    if vectors is None:
        raise NotFound(f"no expected outputs are attached to artifact {artifact}", hint="build the model again")
    report = verdict(model.compare(vectors, layout.attached_file(artifact, Report.PROBES), poll))
    if not report["verified"]:
        raise VerificationFailed(report["summary"])
    try:
        figures = _figures(model, layout.attached(artifact, Report.COVERAGE), poll)
    except BuildCrashed:
        raise
    except OctetError as error:  # the outputs were equal; a failed measurement does not change that
        _logger.warning("artifact %s was not measured: %s", artifact, error)
        figures = {}
    return {"summary": report["summary"], **figures}


def _figures(model: LockedArtifact, coverage: bytes | None, poll: Poll) -> dict[str, Any]:
    """Measures calls on one thread: the latency, the calls per second, and the rate as a fraction of the machine's
    peak.
    """
    latency = model.bench(1, _MEASURE_S, poll).to_json()
    figures = {name: latency[name] for name in ("p50_s", "p99_s", "per_s")}
    figures |= {"machine": machine_name(model.target), "threads": 1}
    try:
        described = json.loads(coverage or b"{}")
        profile = model.explain(1, _MEASURE_S, described.get("kernels", {}).get("peak"), poll)
        explanation = build_explanation(described, profile.to_json())
        figures["peak_percent"] = explanation.rates(explanation.macs, explanation.seconds)["peak_percent"]
    except (
        LookupError,
        TypeError,
        ValueError,
        AttributeError,
    ) as error:  # the report comes with the artifact, so it may be malformed
        _logger.warning("artifact %s has no profile: %s", model.digest, error)
    return figures


class Verifier:
    """Verifies the artifacts that are queued in the database, one at a time.

    Args:
        pool: the pool of this worker.
        targets: only artifacts for these targets are verified.
        verify: a replacement for `verify_artifact`, for tests.
    """

    def __init__(
        self,
        verifications: VerificationStore,
        layout: OciLayout,
        settings: Settings,
        owner: str,
        *,
        pool: str,
        targets: Collection[str],
        verify: Verify = verify_artifact,
    ) -> None:
        self._verifications, self._layout, self._settings = verifications, layout, settings
        self._owner, self._pool, self._targets, self._verify = owner, pool, targets, verify

    def run(self, stop: threading.Event) -> None:
        """Works until `stop` is set. A verification in progress is then released, so that another worker can do it."""
        try:
            require(allow_unsandboxed=self._settings.allow_unsandboxed)
        except SandboxUnavailable as error:
            _logger.warning("this process verifies no artifacts: %s", error)
            return
        while not stop.is_set():
            try:
                count = self._verifications.notifications.count()
                if not self.work_once(stop):
                    self._verifications.notifications.wait(count, stop)
            except Exception as error:  # the database may be unreachable or the disk full, perhaps only for a while
                log_trouble(_logger, error, "cannot look for queued verifications")
                stop.wait(_TROUBLE_S)

    def work_once(self, stop: threading.Event) -> bool:
        """Claims and finishes one verification. Returns false if no verification could be claimed."""
        if not self._verifications.any_to_claim(self._pool, self._targets):
            return False
        claim = self._verifications.claim(self._owner, self._pool, self._settings.lease_s, self._targets)
        if claim is None:
            return False
        try:
            self._work(claim, stop)
        except LeaseLost:  # another worker has claimed the verification, or it has ended: this result does not count
            _logger.warning("the verification of %s now belongs to another worker", claim.artifact)
        return True

    def _work(self, claim: VerificationClaim, stop: threading.Event) -> None:
        _logger.info("verifying artifact %s", claim.artifact)
        try:
            result = self._verify(self._layout, claim.artifact, self._settings, self._lease_renewer(claim, stop))
        except _Stopping:
            self._verifications.release(claim, counts=False)
        except _NOT_ITS_FAULT as error:
            _logger.warning("released the verification of %s for another attempt: %s", claim.artifact, error)
            self._verifications.release(claim, counts=False)
            stop.wait(_TROUBLE_S)
        except _FINAL as error:
            self._fail(claim, error)
        except OctetError as error:
            self._try_again(claim, error, stop)
        except LeaseLost:
            raise
        except Exception as error:
            _logger.exception("the verification of %s failed with an unexpected error", claim.artifact)
            self._try_again(claim, VerificationFailed(f"{type(error).__name__}: {error}"), stop)
        else:
            self._verifications.finish(claim, passed=True, result=result | {"pool": self._pool})
            _logger.info("artifact %s is verified: %s", claim.artifact, result["summary"])

    def _try_again(self, claim: VerificationClaim, error: OctetError, stop: threading.Event) -> None:
        if claim.verification.attempt >= self._verifications.max_attempts:
            self._fail(claim, error)
            return
        _logger.warning("artifact %s could not be verified: %s", claim.artifact, error)
        self._verifications.release(claim, counts=True)
        stop.wait(_TROUBLE_S)

    def _fail(self, claim: VerificationClaim, error: OctetError) -> None:
        _logger.error("artifact %s is not served: %s", claim.artifact, error)
        result = {"summary": error.message, "error": error.to_json(), "pool": self._pool}
        self._verifications.finish(claim, passed=False, result=result)

    def _lease_renewer(self, claim: VerificationClaim, stop: threading.Event) -> Poll:
        """Returns a callback that renews the claim's lease. The callback raises `LeaseLost`, or `_Stopping` if this
        process stops.
        """
        lease_s, beaten_s = self._settings.lease_s, time.monotonic()
        every_s = min(self._settings.heartbeat_s, lease_s / 3)

        def poll() -> None:
            nonlocal beaten_s
            if stop.is_set():
                raise _Stopping("this worker is stopping")
            if time.monotonic() - beaten_s >= every_s:
                beaten_s = time.monotonic()
                try:
                    self._verifications.heartbeat(claim, lease_s)
                # the lease may outlast the outage; if not, another worker may claim the verification
                except (DatabaseBusy, DatabaseUnreachable) as error:
                    log_trouble(_logger, error, "cannot renew the lease of the verification of %s", claim.artifact)

        return poll

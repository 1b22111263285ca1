"""The compile worker: claims builds and runs the compiler on them, one at a time, until it is stopped. If a build takes
long, a second thread runs smaller builds at the same time, also one at a time.

The process may be killed at any moment. When the lease of its build has expired, another worker repeats the build. That
worker finds the blobs that were already stored, because blobs are named by their content. The next worker that starts
also removes the scratch folders of the killed process.
"""

from __future__ import annotations

import json
import logging
import math
import signal
import threading
import time
from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from service.cache import OciLayout
from service.compiler.build import results
from service.compiler.build.object_cache import ObjectCache
from service.compiler.build.pipeline import CompileRequest
from service.compiler.build.tuning import build_artifact
from service.compiler.lowering import toolchain
from service.compiler.sandbox import shut_down, warm
from service.core.artifacts.artifact import Report
from service.core.builds.build import Build, BuildCanceled, LeaseLost, Progress, Stage
from service.core.builds.quantization import is_quantization
from service.core.cluster.roles import build_targets
from service.core.cluster.worker import WorkerKind
from service.core.digest import Digest
from service.core.errors import (
    BuildFailed,
    CorruptBlob,
    DatabaseBusy,
    DatabaseUnreachable,
    NotFound,
    OctetError,
    StoreUnreachable,
)
from service.core.settings import Settings
from service.core.system.notify import ServiceManager
from service.core.system.outage import log_trouble
from service.core.system.scheduling import lower_priority
from service.core.target import parse_target
from service.core.verification.agreement import different_from, may_serve
from service.db import BuildStore, Claim, Database, ModelStore, WorkerStore
from service.quantize.publishing import quantize_stored
from service.quantize.stored import build_inputs, versions
from service.workers.attempt import Attempt, Stopping
from service.workers.catalog import record_build
from service.workers.presence import Presence
from service.workers.quantized import add_for_all
from service.workers.scratch import attempt_directory, sweep
from service.workers.store import open_store
from service.workers.supervised import BEAT_EVERY_S

_logger = logging.getLogger(__name__)
_TROUBLE_S = 2.0

Compile = Callable[[CompileRequest, OciLayout, Path, Progress, Settings], Digest]


def quantize_or_compile(
    request: CompileRequest, layout: OciLayout, scratch: Path, progress: Progress, settings: Settings
) -> Digest:
    work = quantize_stored if is_quantization(request.options) else build_artifact
    return work(request, layout, scratch, progress, settings)


class CompileWorker:
    """Runs the builds that are queued in the database.

    Args:
        targets: the targets to build for; an empty list means all targets.
        compile: the function that compiles or quantizes; tests pass another function.
        on_quantized: called with a quantization and its result, before the quantization is marked as succeeded.
        on_build: called with the id of the build that this worker starts, and with None when it ends.
        on_idle: called when nothing was built for `settings.compiler_idle_s`. `on_idle` is called again only after
            another build.
        passes: another worker that this worker assists. This worker claims small builds, and only while the other
            worker runs a long build.
    """

    def __init__(
        self,
        builds: BuildStore,
        layout: OciLayout,
        settings: Settings,
        owner: str,
        *,
        targets: Collection[str] = (),
        compile: Compile = quantize_or_compile,
        on_quantized: Callable[[Build, Digest], None] = lambda build, result: None,
        on_build: Callable[[str | None], None] = lambda build: None,
        on_idle: Callable[[], None] = lambda: None,
        passes: CompileWorker | None = None,
    ) -> None:
        self._builds, self._layout, self._settings, self._owner = builds, layout, settings, owner
        self._targets, self._compile, self._on_build = targets, compile, on_build
        self._on_quantized = on_quantized
        self._on_idle, self._idle_since_s = on_idle, time.monotonic()
        self._passes = passes
        self._passed_by: CompileWorker | None = None
        if passes is not None:
            passes._passed_by = self
        self._began_s: float | None = None  # the time at which the current build was claimed

    def run(self, stop: threading.Event) -> None:
        """Works until `stop` is set. A build in progress is then released, so that another worker can do it."""
        while not stop.is_set():
            try:
                count = self._builds.notifications.count()
                if self.work_once(stop):
                    self._idle_since_s = time.monotonic()
                else:
                    self._idle()
                    self._builds.notifications.wait(count, stop)
            # the database may be unreachable or the disk full, perhaps only for a while, so this worker continues
            except Exception as error:
                log_trouble(_logger, error, "the compile worker cannot look for queued builds")
                stop.wait(_TROUBLE_S)

    def work_once(self, stop: threading.Event) -> bool:
        """Claims and finishes one build. Returns false if there was none to claim."""
        if self._passes is not None and not self._passes.has_long_build():
            return False
        claim = self._builds.claim(self._owner, self._settings.lease_s, self._targets, self._passes is not None)
        if claim is None:
            return False
        self._began_s = time.monotonic()
        self._on_build(claim.build.id)
        try:
            # another worker has the build, or the build has ended: this result does not count
            with suppress(LeaseLost):
                self._work(claim, stop)
        finally:
            self._began_s = None
            self._on_build(None)
        return True

    def has_long_build(self) -> bool:
        """Returns true if the current build has taken so long that smaller builds may overtake it. May be called from
        any thread.
        """
        began_s = self._began_s
        return began_s is not None and time.monotonic() - began_s >= self._settings.build_passing_s

    def _idle(self) -> None:
        if self._passed_by is not None and self._passed_by._began_s is not None:
            self._idle_since_s = time.monotonic()  # the other thread builds, so the process is not idle
        if time.monotonic() - self._idle_since_s >= self._settings.compiler_idle_s:
            self._idle_since_s = math.inf
            self._on_idle()

    def _work(self, claim: Claim, stop: threading.Event) -> None:
        build = claim.build
        attempt = Attempt(self._builds, claim, self._settings, stop)
        _logger.info("build %s: %s version %d for %s", build.id, build.model, build.version, build.target)
        try:
            with (
                attempt_directory(self._settings.scratch_dir, build.id) as scratch,
                attempt,
            ):
                attempt.stage(Stage.FETCH)
                request = self._request(claim)
                artifact = self._compile(request, self._layout, scratch, attempt, self._settings)
                if is_quantization(build.options):
                    self._on_quantized(build, artifact)
                report = {"verified": True} if is_quantization(build.options) else self._numerics_of(artifact)
        except LeaseLost:
            _logger.warning("build %s now belongs to another worker", build.id)
        except Stopping:
            self._builds.release(claim)
            _logger.info("released build %s for another worker", build.id)
        except (DatabaseBusy, DatabaseUnreachable, StoreUnreachable) as error:
            self._builds.release(claim)
            _logger.warning("released build %s for another attempt: %s", build.id, error)
            stop.wait(_TROUBLE_S)
        except BuildCanceled:
            self._builds.finish(claim, canceled=True)
            _logger.info("build %s was canceled", build.id)
        except OctetError as error:
            error.stage = error.stage or attempt.last_stage  # a child process may die before it has reported a stage
            self._builds.finish(claim, error=error)
            _logger.info("build %s failed: %s", build.id, error.message)
        except Exception as error:
            _logger.exception("build %s failed with an unexpected error", build.id)
            self._builds.finish(claim, error=_unexpected_error(error, attempt.last_stage))
        else:
            different = different_from(report)
            self._builds.finish(claim, artifact=artifact, is_verified=may_serve(report), different=different)
            if different is not None:
                _logger.warning(
                    "build %s is not served, because it differs from its reference: %s", build.id, different.message
                )
            else:
                _logger.info("build %s succeeded: %s", build.id, artifact)
            if not is_quantization(build.options):
                record_build(self._layout, self._builds, replace(build, artifact=artifact))

    def _numerics_of(self, artifact: Digest) -> dict[str, Any]:
        """Returns the numerics report of an artifact, or an empty dictionary if it has none."""
        report: dict[str, Any] = json.loads(self._layout.attached(artifact, Report.NUMERICS) or b"{}")
        return report

    def _request(self, claim: Claim) -> CompileRequest:
        inputs = claim.inputs
        if inputs.toolchain != versions(parse_target(inputs.target), inputs.options):
            raise BuildFailed(
                "the build was requested for a compiler version that is no longer installed",
                stage=Stage.FETCH,
                hint=f"build {self._resubmit(claim).id} replaces it",
            )
        try:
            source = self._layout.blobs.path(inputs.source)
        except (NotFound, CorruptBlob) as error:
            raise type(error)(
                f"the model file cannot be read: {error.message}", stage=Stage.FETCH, hint="push it again"
            ) from error
        return CompileRequest(source, inputs.source, parse_target(inputs.target), inputs.numerics, inputs.options)

    def _resubmit(self, claim: Claim) -> Build:
        """Submits a build for the installed compiler version, for every model version that requested the claimed
        build.
        """
        old = claim.inputs
        inputs = build_inputs(old.source, parse_target(old.target), old.numerics, old.options)
        requests = self._builds.requests(claim.build.id)
        return [self._builds.submit(inputs, model, version)[0] for model, version, _ in requests][-1]


def _unexpected_error(error: Exception, stage: Stage | None) -> BuildFailed:
    return BuildFailed(
        f"the compiler failed with an unexpected error: {type(error).__name__}",
        stage=stage,
        hint="see the compile worker's log for details",
    )


def run(
    settings: Settings,
    stop: threading.Event,
    on_started: Callable[[str], None] = lambda worker: None,
    is_lasting: bool = True,
) -> None:
    """Runs a compile worker on the database and the store of `settings` until `stop` is set.

    Args:
        on_started: called once with the worker's name, when it starts to claim builds.
        is_lasting: true to continue after `settings.compiler_idle_s` without a build, false to end then.

    Raises:
        OctetError: the database or the store cannot be opened; or a target is unknown.
    """
    targets = build_targets(settings)
    database = Database.of(settings, stop.set)
    database.migrate()
    layout = open_store(settings, database)
    sweep(settings.scratch_dir)
    ObjectCache(settings.objects_dir).sweep()
    results.sweep(settings.results_dir)
    toolchain.fingerprint()  # the first call is slow, so it is made before any build needs the result
    warm()
    builds = BuildStore(database, max_attempts=settings.max_build_attempts)
    with Presence(WorkerStore(database), WorkerKind.COMPILE, settings.heartbeat_s) as presence:
        worker = CompileWorker(
            builds,
            layout,
            settings,
            presence.id,
            targets=targets,
            on_quantized=partial(add_for_all, layout, builds, ModelStore(database)),
            on_build=presence.set_build,
            on_idle=shut_down if is_lasting else stop.set,
        )
        beside = CompileWorker(
            BuildStore(database, max_attempts=settings.max_build_attempts),
            layout,
            settings,
            f"{presence.id}-passing",
            targets=targets,
            on_quantized=partial(add_for_all, layout, builds, ModelStore(database)),
            passes=worker,
        )
        passing = threading.Thread(target=beside.run, args=(stop,), name="octet-passing")
        passing.start()
        on_started(presence.id)
        try:
            worker.run(stop)
        finally:
            stop.set()
            passing.join()
    database.close()


def run_until_signaled(
    settings: Settings,
    on_started: Callable[[str], None] = lambda worker: None,
    is_lasting: bool = True,
    beat: Callable[[], None] = lambda: None,
    systemd: ServiceManager | None = None,
) -> None:
    """Calls `run` until SIGTERM or SIGINT arrives. Sets the niceness of this process and of its children to
    `settings.build_nice`.

    Must be called in the main thread, which then only waits. A signal handler interrupts the code that the main thread
    runs. If that code held a lock which the handler needs, the handler would wait for ever.

    Args:
        beat: called repeatedly until `run` has returned.
        systemd: the service manager to notify, if systemd started this process.
    """
    manager = systemd or ServiceManager({})

    def notify_started(worker: str) -> None:
        manager.ready()
        on_started(worker)

    lower_priority(settings.build_nice)  # before any thread starts, because each thread has its own niceness
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    with ThreadPoolExecutor(1, "octet-compile") as executor:
        running = executor.submit(run, settings, stop, notify_started, is_lasting)
        is_stopping = False
        beat()
        while not wait([running], BEAT_EVERY_S).done:
            beat()
            manager.alive()
            if stop.is_set() and not is_stopping:
                is_stopping = True
                manager.stopping()
        running.result()

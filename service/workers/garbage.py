"""Deletes from the store the files that nothing refers to: uploads that were never used, and replaced reports.

This module also deletes data that are useful only for a while: damaged blobs, and the crash records of deleted
artifacts.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator

from service.cache import MIN_AGE_S, Collected, Descriptor, OciLayout
from service.core.artifacts.artifact import ARTIFACT_TYPE, models_in
from service.core.digest import Digest
from service.core.system.outage import log_trouble
from service.db import BuildStore, ModelStore, VerificationStore
from service.workers.crashes import Crashes

_logger = logging.getLogger(__name__)
_FIRST_S, _EVERY_S = 60.0, 3600.0
_DAMAGED_S = 7 * 86400.0  # damaged blobs are kept for this long, so that a person can examine them


def collect_garbage(
    layout: OciLayout,
    builds: BuildStore,
    models: ModelStore,
    crashes: Crashes,
    verifications: VerificationStore,
    min_age_s: float = MIN_AGE_S,
) -> Collected:
    """Deletes blobs, damaged blobs and records that are no longer needed:

    - every blob that was last put more than `min_age_s` ago and that is not reachable from the store's index, a model
    version or a build;
    - blobs that were found to be damaged a week ago;
    - crash records and verifications of artifacts that are gone;
    - artifacts that the index lists but that serve no model, because their models were deleted or because the build was
    canceled after the artifact had been stored.

    Other processes may push, build and predict at the same time, if each refers to a new blob within `min_age_s`.
    """
    layout.remove_unwanted(lambda entry: _is_orphan(entry, builds), min_age_s)
    collected = layout.collect_garbage(_needed(builds, models), min_age_s)
    layout.blobs.discard_damaged(_DAMAGED_S)
    crashes.forget(layout.blobs.exists)
    verifications.forget()
    return collected


class Collector:
    """Collects garbage at intervals, even if it is called more often."""

    def __init__(
        self,
        layout: OciLayout,
        builds: BuildStore,
        models: ModelStore,
        crashes: Crashes,
        verifications: VerificationStore,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._layout, self._builds, self._models, self._crashes = layout, builds, models, crashes
        self._verifications = verifications
        self._now_s = now_s
        self._due_s = now_s() + _FIRST_S

    def collect_if_due(self) -> None:
        if self._now_s() < self._due_s:
            return
        self._due_s = self._now_s() + _EVERY_S
        try:
            collected = collect_garbage(self._layout, self._builds, self._models, self._crashes, self._verifications)
        except Exception as error:  # a full store, or any other failure
            log_trouble(_logger, error, "cannot collect garbage")
            return
        if collected.digests:
            _logger.info(
                "deleted %d blobs, %d bytes, that nothing referred to", len(collected.digests), collected.size_bytes
            )


def _is_orphan(entry: Descriptor, builds: BuildStore) -> bool:
    """Returns true for the index entry of an artifact that no build and no model in the index refers to."""
    is_named = bool(models_in(entry.annotations))
    return entry.artifact_type == ARTIFACT_TYPE and not is_named and not builds.with_artifact(entry.digest)


def _needed(builds: BuildStore, models: ModelStore) -> Iterator[Digest]:
    """Yields the digests of the files that models and builds need.

    This function is a generator, because the tables must be read while the layout is locked. A blob that is referred to
    later is new enough to be kept.
    """
    yield from models.sources()
    yield from models.tokenizer_sizes()
    yield from builds.artifacts()
    yield from builds.calibration_sets()

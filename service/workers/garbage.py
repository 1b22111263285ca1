"""Deletes from the store what nothing refers to: uploads that were never used, and replaced reports.

And with it what is only of use for a while: what was found damaged, and what is held against artifacts that are gone.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator

from service.cache import MIN_AGE_S, Collected, Descriptor, OciLayout
from service.core.artifact import ARTIFACT_TYPE, models_in
from service.core.digest import Digest
from service.core.outage import log_trouble
from service.db import BuildStore, ModelStore, VerificationStore
from service.workers.crashes import Crashes

_logger = logging.getLogger(__name__)
_FIRST_S, _EVERY_S = 60.0, 3600.0
_DAMAGED_S = 7 * 86400.0  # for so long a person can look at what was found damaged


def collect_garbage(
    layout: OciLayout,
    builds: BuildStore,
    models: ModelStore,
    crashes: Crashes,
    verifications: VerificationStore,
    min_age_s: float = MIN_AGE_S,
) -> Collected:
    """Deletes every blob that was last put more than `min_age_s` ago and that neither the store's index, nor a model
    version, nor a build leads to; what was found damaged a week ago; and what is held against, or known of, artifacts
    that are gone.
    An artifact that the index lists goes too, if it answers for no model: of models that were deleted, of builds that
    were canceled when it was made already.

    Safe while others push, build and predict, as long as none of them takes `min_age_s` to name what it stored.
    """
    layout.remove_unwanted(lambda entry: _is_orphan(entry, builds), min_age_s)
    collected = layout.collect_garbage(_needed(builds, models), min_age_s)
    layout.blobs.discard_damaged(_DAMAGED_S)
    crashes.forget(layout.blobs.exists)
    verifications.forget()
    return collected


class Collector:
    """Collects garbage now and then, for a process that asks it to more often."""

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
        except Exception as error:  # a store full of garbage builds as well as another
            log_trouble(_logger, error, "no garbage was collected")
            return
        if collected.digests:
            _logger.info(
                "deleted %d blobs, %d bytes, that nothing needed", len(collected.digests), collected.size_bytes
            )


def _is_orphan(entry: Descriptor, builds: BuildStore) -> bool:
    """Whether an index entry is of an artifact that no model in the index and no build refers to."""
    is_named = bool(models_in(entry.annotations))
    return entry.artifact_type == ARTIFACT_TYPE and not is_named and not builds.answering(entry.digest)


def _needed(builds: BuildStore, models: ModelStore) -> Iterator[Digest]:
    """A generator, because it is to be asked when the layout is locked: what is named later was stored lately."""
    yield from models.sources()
    yield from builds.artifacts()
    yield from builds.calibration_sets()

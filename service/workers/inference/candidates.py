"""Finds the builds that may serve a model, in the order in which they are tried."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

from service.core.builds.build import Build
from service.core.builds.options import batch_of, bucket_index_of, buckets_of, tune_s_of
from service.core.digest import Digest
from service.workers.inference.identity import Identity
from service.workers.inference.ports import Builds

Candidate = tuple[Build, Identity]
_Group = tuple[int, str, str]
_Bucketed = tuple[int, str, str, str]
_Variants = dict[_Group, tuple[tuple[int, Digest], ...]]


def candidates(
    builds: Builds, targets: Sequence[str], model: str, version: int | None, is_usable: Callable[[Digest], bool]
) -> list[Candidate]:
    """Returns the builds that may serve a model, sorted by version (newest first), then by target (best first), then by
    build (newest first).

    A tuned build comes before the build that it was tuned from, even if the build without tuning was requested again
    later.

    Args:
        targets: the targets that run here, best first.
        version: None means every version.
        is_usable: returns true if an artifact may be used as a batch variant or a bucket of a model.
    """
    serving = [build for build in builds.serving(model, version, targets) if build.artifact and build.target in targets]
    variants, buckets = _variants(serving, is_usable), _buckets(serving, is_usable)
    found = []
    for build in serving:
        if build.artifact and batch_of(build.options) == 1:
            first, *larger = buckets.get(_bucketed(build), [build.artifact])
            if first == build.artifact:
                of = model, build.version, build.target, build.numerics
                is_partial = len(larger) + 1 < len(buckets_of(build.options))
                identity = Identity(*of, first, variants.get(_group(build), ()), tuple(larger), is_partial)
                found.append((build, identity))
    ranks = {_group(build): -rank for rank, (build, _) in reversed(list(enumerate(found)))}
    plain_at = {_group(build): build.created_at for build, _ in reversed(found) if not _is_tuned(build)}

    def order(candidate: Candidate) -> tuple[int, int, int, bool]:
        build, group = candidate[0], _group(candidate[0])
        is_better = _is_tuned(build) and build.created_at >= plain_at.get(group, build.created_at)
        return -build.version, targets.index(build.target), -ranks[group], not is_better

    return sorted(found, key=order)


def _variants(serving: Sequence[Build], is_usable: Callable[[Digest], bool]) -> _Variants:
    """Returns the batch variants of each group: for each batch size, the newest artifact that can be loaded."""
    found: dict[_Group, dict[int, Digest]] = {}
    for build in serving:
        batch = batch_of(build.options)
        if batch > 1 and build.artifact and is_usable(build.artifact):
            found.setdefault(_group(build), {}).setdefault(batch, build.artifact)
    return {group: tuple(sorted(sizes.items())) for group, sizes in found.items()}


def _buckets(serving: Sequence[Build], is_usable: Callable[[Digest], bool]) -> dict[_Bucketed, list[Digest]]:
    """Returns the buckets of each model that has buckets, smallest first: for each bucket, the newest artifact that can
    be loaded.
    """
    found: dict[_Bucketed, dict[int, Digest]] = {}
    for build in serving:
        if buckets_of(build.options) and build.artifact and is_usable(build.artifact):
            found.setdefault(_bucketed(build), {}).setdefault(bucket_index_of(build.options), build.artifact)
    return {group: [indexed[index] for index in sorted(indexed)] for group, indexed in found.items()}


def _bucketed(build: Build) -> _Bucketed:
    """Returns the key that all buckets of one model share."""
    return *_group(build), json.dumps(buckets_of(build.options))


def _group(build: Build) -> _Group:
    """Returns the key that all batch variants of one model share."""
    return build.version, build.target, build.numerics


def _is_tuned(build: Build) -> bool:
    return tune_s_of(build.options) is not None

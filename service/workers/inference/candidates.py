"""Which builds may answer for a model, and in which order they are tried."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

from service.core.build import Build
from service.core.digest import Digest
from service.core.options import batch_of, buckets_of, place_of, tune_s_of
from service.workers.inference.identity import Identity
from service.workers.inference.ports import Builds

Candidate = tuple[Build, Identity]
_Kind = tuple[int, str, str]
_Bucketed = tuple[int, str, str, str]
_Variants = dict[_Kind, tuple[tuple[int, Digest], ...]]


def candidates(
    builds: Builds, targets: Sequence[str], model: str, version: int | None, is_usable: Callable[[Digest], bool]
) -> list[Candidate]:
    """Builds that may answer: the newest version first, of it the best target, of that the newest build.

    One that was tuned comes before the build that it was tuned from, whichever was asked for last.

    Args:
        targets: that run here, the best first.
        version: None for every version.
        is_usable: whether an artifact may be one of a model's batch variants or buckets.
    """
    serving = [build for build in builds.serving(model, version, targets) if build.artifact and build.target in targets]
    variants, buckets = _variants(serving, is_usable), _buckets(serving, is_usable)
    found = []
    for build in serving:
        if build.artifact and batch_of(build.options) == 1:
            first, *larger = buckets.get(_bucketed(build), [build.artifact])
            if first == build.artifact:
                of = model, build.version, build.target, build.numerics
                identity = Identity(*of, first, variants.get(_kind(build), ()), tuple(larger))
                found.append((build, identity))
    places = {_kind(build): -place for place, (build, _) in reversed(list(enumerate(found)))}
    plain_at = {_kind(build): build.created_at for build, _ in reversed(found) if not _is_tuned(build)}

    def order(candidate: Candidate) -> tuple[int, int, int, bool]:
        build, kind = candidate[0], _kind(candidate[0])
        is_better = _is_tuned(build) and build.created_at >= plain_at.get(kind, build.created_at)
        return -build.version, targets.index(build.target), -places[kind], not is_better

    return sorted(found, key=order)


def _variants(serving: Sequence[Build], is_usable: Callable[[Digest], bool]) -> _Variants:
    """The batch variants of each kind: of each size the newest that can be loaded."""
    found: dict[_Kind, dict[int, Digest]] = {}
    for build in serving:
        batch = batch_of(build.options)
        if batch > 1 and build.artifact and is_usable(build.artifact):
            found.setdefault(_kind(build), {}).setdefault(batch, build.artifact)
    return {kind: tuple(sorted(sizes.items())) for kind, sizes in found.items()}


def _buckets(serving: Sequence[Build], is_usable: Callable[[Digest], bool]) -> dict[_Bucketed, list[Digest]]:
    """The buckets of each model that has some, the smallest first: of each the newest that can be loaded."""
    found: dict[_Bucketed, dict[int, Digest]] = {}
    for build in serving:
        if buckets_of(build.options) and build.artifact and is_usable(build.artifact):
            found.setdefault(_bucketed(build), {}).setdefault(place_of(build.options), build.artifact)
    return {kind: [places[place] for place in sorted(places)] for kind, places in found.items()}


def _bucketed(build: Build) -> _Bucketed:
    """What the buckets of a model have in common."""
    return *_kind(build), json.dumps(buckets_of(build.options))


def _kind(build: Build) -> _Kind:
    """What the batch variants of a model have in common."""
    return build.version, build.target, build.numerics


def _is_tuned(build: Build) -> bool:
    return tune_s_of(build.options) is not None

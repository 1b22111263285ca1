"""The gate of promotions: the scores that a version needs before an alias may point at it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from service.api.access.tenants import short_name
from service.api.services import Services
from service.core.builds.build import Build
from service.core.builds.options import accepts_differences
from service.core.digest import Digest
from service.core.errors import CorruptBlob, GateNotPassed, InvalidInput, Untrusted
from service.core.provenance import trusted_keys
from service.core.provenance.score import Gate
from service.runtime.scores import SignedScore, attached_score


def check_gate(
    services: Services, name: str, version: int, builds: Iterable[Build], least: Mapping[str, float]
) -> None:
    """Checks the scores of a version that is to be promoted.

    The score of one artifact counts for all artifacts of the version that have the same numerics mode, because their
    builds were checked against the same reference, bit for bit. An artifact whose differences were accepted needs a
    score of its own.

    Args:
        builds: the builds that serve the version.
        least: the least value of each metric, in addition to those that the settings require.

    Raises:
        GateNotPassed: a score is missing, is too low, or was not signed by a trusted key.
    """
    own = services.settings.serving(name)
    gate = Gate(own.promote_least, Digest(own.promote_data) if own.promote_data else None).raised(least)
    if not gate.least:
        return
    title = f"version {version} of model {short_name(name)!r} is not promoted"
    against = " --against RUNTIME --source FILE" if gate.needs_reference else ""
    hint = f"octet evaluate {short_name(name)}:{version} --data DIR --labels FILE{against} --attach"
    for group in _groups(builds):
        try:
            scores = _scores(services, (build.artifact for build in group if build.artifact))
        except (Untrusted, InvalidInput, CorruptBlob) as error:
            raise GateNotPassed(f"{title}: {error.message}", hint=hint) from error
        if not scores:
            artifact, target = group[0].artifact, group[0].target
            raise GateNotPassed(f"{title}: artifact {artifact} for {target} has no score, but needs {gate}", hint=hint)
        for each in scores:
            if problem := gate.why_refused(each.score):
                raise GateNotPassed(f"{title}: {problem}", hint=f"{hint} measures it again")


def _groups(builds: Iterable[Build]) -> list[list[Build]]:
    """Groups builds whose artifacts compute equal outputs."""
    groups: dict[tuple[str, Digest | None], list[Build]] = {}
    for build in builds:
        groups.setdefault((build.numerics, build.artifact if accepts_differences(build.options) else None), []).append(
            build
        )
    return list(groups.values())


def _scores(services: Services, artifacts: Iterable[Digest]) -> list[SignedScore]:
    keys = trusted_keys(services.settings)
    found = (attached_score(services.layout, artifact, keys) for artifact in dict.fromkeys(artifacts))
    return [each for each in found if each is not None]

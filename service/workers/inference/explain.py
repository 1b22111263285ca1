"""Explains why a model cannot answer, in the text of a 404 or 503 response."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from service.core.builds.build import Build, BuildState
from service.core.digest import Digest
from service.core.errors import Different, NotBuilt, NotFound, NotReady, NotVerified
from service.core.verification.jobs import Verification, VerificationState
from service.workers.inference.ports import Builds, Models


def why_not_ready(
    builds: Builds, models: Models, model: str, version: int | None, targets: Sequence[str]
) -> NotFound | NotReady:
    """Returns the error for a model, or one version of it, that has no succeeded build for `targets`."""
    try:
        models.get(model)
        if version is not None:
            models.version(model, version)
    except NotFound as error:
        return error
    found, _ = builds.list(model=model)
    relevant = [build for build in found if version in (None, build.version)]
    what = f"model {model!r}" if version is None else f"version {version} of model {model!r}"
    unverified = builds.unverified([build.artifact for build in relevant if build.artifact])
    return next(
        (explained for build in relevant if (explained := _explain(what, build, targets, unverified))),
        NotBuilt(f"{what} has not been built", hint=f"POST /api/v1/models/{model}/builds starts a build"),
    )


def why_unverified(what: str, verification: Verification) -> NotReady:
    """Returns the error for an artifact that waits for its verification, or failed it."""
    target = verification.target
    if verification.state is VerificationState.FAILED:
        return NotVerified(
            f"{what} failed its verification on {verification.pool or target}: {verification.summary}",
            hint=f"octet quarantine {verification.artifact} --forgive verifies it once more",
        )
    return NotReady(
        f"no worker for {target} has verified {what} yet",
        hint=f"octet worker --target {target} starts one; try again later",
    )


def _explain(
    what: str, build: Build, targets: Sequence[str], unverified: Mapping[Digest, Verification]
) -> NotReady | None:
    """Returns the error that one build explains, or None if it explains nothing. The caller tries the newest build
    first.
    """
    if not build.state.is_final:
        stage = build.stage.value if build.stage else build.state.value
        return NotReady(f"{what} is being built ({stage})", hint=f"wait for build {build.id}")
    if build.state is BuildState.FAILED:
        message = (build.error or {}).get("message", "no reason was recorded")
        return NotBuilt(f"{what} could not be built: {message}", hint=f"see build {build.id} for details")
    if build.state is BuildState.DIFFERENT:
        message = (build.error or {}).get("message", "no reason was recorded")
        return Different(f"{what} differs from its reference: {message}", hint=(build.error or {}).get("hint"))
    if build.state is BuildState.SUCCEEDED and build.target not in targets:
        hint = f"build it for {', '.join(targets)}" if targets else "no target runs here: octet doctor shows why"
        return NotBuilt(f"{what} is built for {build.target}, which does not run here", hint=hint)
    if build.artifact and (verification := unverified.get(build.artifact)):
        return why_unverified(what, verification)
    return None

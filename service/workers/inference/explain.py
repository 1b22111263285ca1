"""Why a model cannot answer: what a 404 or 503 tells its reader."""

from __future__ import annotations

from collections.abc import Sequence

from service.core.build import Build, BuildState
from service.core.errors import NotBuilt, NotFound, NotReady
from service.workers.inference.ports import Builds, Models


def why_not_ready(
    builds: Builds, models: Models, model: str, version: int | None, targets: Sequence[str]
) -> NotFound | NotReady:
    """The error for a model, or one version of it, that has no succeeded build for `targets`."""
    try:
        models.get(model)
        if version is not None:
            models.version(model, version)
    except NotFound as error:
        return error
    found, _ = builds.list(model=model)
    relevant = [build for build in found if version in (None, build.version)]
    what = f"model {model!r}" if version is None else f"version {version} of model {model!r}"
    return next(
        (explained for build in relevant if (explained := _explain(what, build, targets))),
        NotBuilt(f"{what} has not been built", hint=f"POST /api/v1/models/{model}/builds starts a build"),
    )


def _explain(what: str, build: Build, targets: Sequence[str]) -> NotReady | None:
    """What one build, the newest first, says about it; None if it says nothing."""
    if not build.state.is_final:
        stage = build.stage.value if build.stage else build.state.value
        return NotReady(f"{what} is being built ({stage})", hint=f"wait for build {build.id}")
    if build.state is BuildState.FAILED:
        message = (build.error or {}).get("message", "no reason was recorded")
        return NotBuilt(f"{what} could not be built: {message}", hint=f"build {build.id} says more")
    if build.state is BuildState.SUCCEEDED and build.target not in targets:
        hint = f"build it for {', '.join(targets)}" if targets else "no target runs here: octet doctor says why"
        return NotBuilt(f"{what} is built for {build.target}, which does not run here", hint=hint)
    return None

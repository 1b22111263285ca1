"""The model version that a URL names."""

from __future__ import annotations

from starlette.types import Scope

from service.core.errors import NotFound

_MAX_DIGITS = 9


def model_and_version(scope: Scope) -> tuple[str, int | None]:
    """From `/v2/models/{model}` or `/v2/models/{model}/versions/{version}`.

    Raises:
        NotFound: the version is not a number, as every version is.
    """
    parameters: dict[str, str] = scope["path_params"]
    version = parameters.get("version")
    if version is None:
        return parameters["model"], None
    if not (version.isascii() and version.isdigit()) or len(version) > _MAX_DIGITS:
        raise NotFound("there is no such version", hint="versions are numbers: 1, 2, ...")
    return parameters["model"], int(version)

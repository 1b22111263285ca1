"""Parameters of paths and queries."""

from __future__ import annotations

from typing import Annotated

from fastapi import Path, Query
from pydantic import AfterValidator

from service.api.access.tenants import qualified
from service.api.control.wire.base import DIGEST_PATTERN
from service.api.control.wire.builds import ACCEPT_DESCRIPTION
from service.core.models.alias import ALIAS_PATTERN, STABLE
from service.core.models.model import NAME_PATTERN

DEFAULT_ALIAS = STABLE

PathName = Annotated[
    str,
    Path(pattern=NAME_PATTERN, description="The model's name.", examples=["mobilenet"]),
    AfterValidator(qualified),
]
PathVersion = Annotated[int, Path(ge=1, le=10**9, description="A version: 1, 2, …")]
PathAlias = Annotated[str, Path(pattern=ALIAS_PATTERN, description="An alias, such as `stable`.")]
PathBuild = Annotated[str, Path(max_length=64, description="The id of a build, or its first characters.")]
PathJob = Annotated[str, Path(max_length=64, description="The id of a job.")]
PathDigest = Annotated[
    str, Path(pattern=DIGEST_PATTERN, description="A digest: `sha256:` and 64 lower-case hex digits.")
]
QueryName = Annotated[
    str,
    Query(pattern=NAME_PATTERN, description="The model's name.", examples=["mobilenet"]),
    AfterValidator(qualified),
]
QueryLimit = Annotated[int, Query(ge=1, le=200, description="The number of items on a page.")]
QueryCursor = Annotated[str | None, Query(description='The cursor of the next page, from `Link: <…>; rel="next"`.')]
QueryFix = Annotated[
    str,
    Query(
        max_length=10_000,
        description="Inputs that become constants, so that requests do not send them: `sr=16000`, or "
        "`sr=16000;mask=1,1,0`. One value fills an input of any shape.",
    ),
]
QueryAccept = Annotated[bool, Query(description=ACCEPT_DESCRIPTION)]
QueryNumerics = Annotated[
    str | None,
    Query(description="The numerics mode. The default depends on the file's format.", examples=["litert-reference"]),
]


PathKey = Annotated[str, Path(max_length=64, description="The id of an API key.")]

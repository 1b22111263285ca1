"""Schemas of models and their versions."""

from __future__ import annotations

from datetime import datetime

from pydantic import Field

from service.api.control.wire.aliases import Alias
from service.api.control.wire.base import Name, Wire
from service.api.control.wire.signatures import Facts, Metadata
from service.core.models.model import VersionState


class ModelVersion(Wire):
    """A file that was pushed under a name. Pushing the same bytes again returns the same version."""

    name: Name
    version: int
    source: str = Field(description="The digest of the model file.")
    format: str = Field(examples=["tflite"])
    size_bytes: int
    created_at: datetime
    url: str
    state: VersionState = Field(
        description="The state of the version on this server; it serves predictions if `ready`."
    )
    reason: str | None = Field(description="One line that explains why the version does not serve predictions.")
    build: str | None = Field(
        description="The id of the build that serves the version, or would; preferably one for this machine."
    )
    artifact: str | None = Field(
        description="The digest of that build's artifact; its reports and layers are under `/api/v1/artifacts`."
    )
    facts: Facts | None = Field(None, description="Facts about the file, once a build of it has succeeded.")
    metadata: Metadata | None = Field(
        None, description="Labels, task and preprocessing: those that were set, or else those from the file."
    )


class Deleted(Wire):
    """The result of a deletion."""

    name: Name
    versions: list[int]
    aliases: list[str] = Field(description="Aliases of the versions, which were deleted too.")
    builds: int = Field(description="The number of builds that were deleted, because no other model uses them.")


class ModelVersions(Wire):
    name: Name
    versions: list[ModelVersion] = Field(description="The versions, newest first.")
    aliases: list[Alias]


class Model(ModelVersion):
    """The newest version of a model."""

    aliases: list[Alias]


class BrokenFile(Wire):
    """A file of `octet serve --models` that is not served."""

    file: str
    reason: str


class Models(Wire):
    models: list[Model] = Field(description="The newest version of each model.")
    broken_files: list[BrokenFile] = Field([], description="Files of `octet serve --models` that are not served.")

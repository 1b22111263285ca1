"""Schemas of builds, and of requests for them."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from pydantic import Field

from service.api.control.wire.base import Name, Wire
from service.core.builds.build import BuildState, Stage
from service.core.builds.fixed import MOST_FIXED

ACCEPT_DESCRIPTION = (
    "Serve the result even if its outputs differ from the reference runtime's by more than the numerics mode "
    "documents. The build and the artifact record this as the option `accept_differences`."
)


class BuildError(Wire):
    """The reason why a build failed or differs from its reference, and the place in the build or the model."""

    code: str
    message: str
    stage: str | None = None
    op: str | None = None
    tensor: str | None = None
    hint: str | None = None
    report: dict[str, Any] | None = Field(
        None,
        description="For an `internal_error`: the failing part of the graph without weights or names, versions "
        "and a traceback, to attach to an issue.",
    )


class BuildLinks(Wire):
    self: str
    events: str
    log: str
    model: str
    artifact: str | None = None
    quantization: str | None = Field(None, description="The URL of the result, if the build quantizes.")


class AskedBy(Wire):
    """A version of a model that requested a build."""

    name: Name
    version: int


class PublishedFolder(Wire):
    """The contents of a published model's folder, and the chosen variant."""

    variant: str = Field(description="The chosen variant.")
    file: str = Field(description="Its file in the folder.")
    precision: str = Field(description="Its precision, by the convention of the file's name.")
    size_bytes: int = Field(description="The size of the file and its external data.")
    variants: list[str] = Field(description="The names of all variants.")
    has_layers: bool = Field(description="True if layers after the model were added to its file.")
    lacks_pooling: bool = Field(description="True if nothing defines how the vectors of the tokens become one vector.")
    input_shape: str = Field(description="The shapes that the model is built for, unless the request has some.")
    sources: list[str] = Field(description="The files that were read besides the model.")
    ignored: list[str] = Field(description="The remaining files.")
    notice: str = Field(description="A sentence on a part that cannot be used; usually empty.")


class Build(Wire):
    """The compilation of a model for a target in a numerics mode, and its progress."""

    id: str
    key: str = Field(description="The digest of everything that affects the result.")
    model: Name
    version: int
    models: list[AskedBy] = Field(
        description="All model versions that requested the build: a file with several names is built once. `model` "
        "and `version` are those of the request, or else the first of these."
    )
    source: str = Field(description="The digest of the model file.")
    target: str
    numerics: str
    options: dict[str, Any] = Field(
        description="Other options that affect the result, such as `batch`; usually empty. A build with "
        "`quantize` creates a quantized version of the model, and has no artifact."
    )
    state: BuildState = Field(
        description="`different`: the build has an artifact whose outputs differ from those of its reference runtime "
        "by more than the numerics mode documents. It is not served; `error` describes the difference."
    )
    stage: Stage | None = Field(description="The last stage that has begun.")
    progress: float = Field(ge=0, le=1, description="The share of the stage that is done.")
    attempt: int = Field(description="The number of attempts so far.")
    cancel_requested: bool
    invalidated: bool = Field(description="True if its artifact was lost or damaged, and is no longer used.")
    artifact: str | None = Field(description="The digest of the artifact, once the build has produced one.")
    error: BuildError | None = Field(description="The reason, if the build failed or is different.")
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    links: BuildLinks
    published: PublishedFolder | None = Field(
        None, description="The contents of the folder, in the response to the upload of a published model."
    )


class Builds(Wire):
    builds: list[Build]


class QuantizedModel(Wire):
    """A build that quantizes, and its result."""

    build: Build
    version: int | None = Field(None, description="The version that it created, once it has succeeded.")
    source: str | None = Field(None, description="The digest of the quantized file.")
    file: str | None = Field(None, description="The path of the quantized file on this server.")
    report: dict[str, Any] | None = Field(
        None,
        description="The report on the quantization; docs/how-to/quantize.md describes its members. "
        "`sensitivity.curve` is the accuracy by the layers in float.",
    )


class BuildOptions(Wire):
    numerics: str | None = Field(None, description="The numerics mode. The default depends on the file's format.")
    batch: list[int] = Field(
        [1],
        max_length=16,
        description="The batch sizes to build, besides 1, which is built first.",
        examples=[[1, 8, 16]],
    )
    tune_s: float | None = Field(
        None,
        description="After the build, search this long for faster tile sizes, in seconds. The search is a background "
        "build, which replaces the first.",
    )
    input_shapes: dict[str, list[int | list[int]]] = Field(
        {},
        max_length=16,
        description="The shapes of inputs by name, if the file leaves them open (TorchScript). With a list of "
        "sizes in place of a number, the model is built for each size. A list of 0 and a size stands for all sizes up "
        "to that size, for which there is one build.",
        examples=[{"x": [1, 3, 224, 224]}, {"ids": [1, [16, 32, 64]]}, {"ids": [1, [0, 512]]}],
    )
    fixed_inputs: dict[str, list[bool | int | float]] = Field(
        {},
        max_length=MOST_FIXED,
        description="Inputs that become constants, so that requests do not send them: the elements by input name, or "
        "one value for all elements.",
        examples=[{"sr": [16000]}],
    )
    accept_differences: bool = Field(False, description=ACCEPT_DESCRIPTION)


class BuildRequest(Wire):
    targets: list[str] = Field(min_length=1, max_length=32, examples=[["host", "x86-64-v3"]])
    version: int | None = Field(None, ge=1, le=10**9, description="The version; by default the newest.")
    options: BuildOptions = BuildOptions(
        numerics=None, batch=[1], tune_s=None, input_shapes={}, fixed_inputs={}, accept_differences=False
    )

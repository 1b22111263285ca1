"""The control plane's schemas. They are the source of the API reference, and the only use of pydantic at run time."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from fastapi import Path, Query
from pydantic import BaseModel, ConfigDict, Field

from service.core.alias import ALIAS_PATTERN, ALL_PERCENT, STABLE
from service.core.build import BuildState, Stage
from service.core.key import Scope
from service.core.metadata import MAX_LABELS, Layout, Resize
from service.core.model import VersionState
from service.core.worker import WorkerKind

NAME_PATTERN = r"^[a-z0-9][a-z0-9._-]{0,62}$"
DIGEST_PATTERN = r"^sha256:[0-9a-f]{64}$"
DEFAULT_ALIAS = STABLE

PathName = Annotated[str, Path(pattern=NAME_PATTERN, description="The model's name.", examples=["mobilenet"])]
PathVersion = Annotated[int, Path(ge=1, le=10**9, description="A version: 1, 2, …")]
PathAlias = Annotated[str, Path(pattern=ALIAS_PATTERN, description="An alias, such as `stable`.")]
PathBuild = Annotated[str, Path(max_length=64, description="The id of a build, or its first characters.")]
PathDigest = Annotated[
    str, Path(pattern=DIGEST_PATTERN, description="A digest: `sha256:` and 64 lower-case hex digits.")
]
QueryName = Annotated[str, Query(pattern=NAME_PATTERN, description="The model's name.", examples=["mobilenet"])]
QueryLimit = Annotated[int, Query(ge=1, le=200, description="The number of items on a page.")]
QueryCursor = Annotated[str | None, Query(description='The cursor of the next page, from `Link: <…>; rel="next"`.')]
QueryNumerics = Annotated[
    str | None,
    Query(description="The numerics mode. The default depends on the file's format.", examples=["litert-reference"]),
]


PathKey = Annotated[str, Path(max_length=64, description="The id of an API key.")]


class Wire(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Problem(BaseModel):
    """An RFC 9457 problem document."""

    type: str = Field(examples=["urn:octet:problem:unknown_target"])
    title: str = Field(description="The kind of problem; the same for every problem of its `type`.")
    status: int
    detail: str = Field(description="What was wrong with this request.")
    instance: str = Field(description="The path of the request.")
    code: str = Field(description="A stable name for the kind of problem.", examples=["unknown_target"])
    stage: str | None = Field(None, description="The stage of the build that failed.")
    op: str | None = Field(None, description="The operator of the model.")
    tensor: str | None = Field(None, description="The tensor of the model.")
    hint: str | None = Field(None, description="What to do next.")
    errors: list[dict[str, str]] | None = Field(None, description="The parts of the request that are not well formed.")
    request_id: str = Field(description="The request's id, as in the header `X-Request-Id` and in the server's log.")
    error: str = Field(description="The same text as `detail`, for clients of the Open Inference Protocol.")


class Blob(Wire):
    digest: str
    size_bytes: int


class Quantization(Wire):
    """real = scale * (stored - zero_point)."""

    scale: float
    zero_point: int


class Bounds(Wire):
    """The range of valid values, both ends included."""

    low: float
    high: float


class Tensor(Wire):
    name: str
    datatype: str = Field(description="A datatype of the Open Inference Protocol.", examples=["UINT8"])
    shape: list[int] = Field(description="The shape; -1 marks a dynamic dimension.")
    quantization: Quantization | None = None
    bounds: Bounds | None = Field(
        None, description="For an input: the range of valid ids, or of the real values that it was calibrated for."
    )


class State(Tensor):
    """A tensor that a model keeps from one call of a sequence to the next."""

    initial: bool | int | float | str = Field(
        description="The initial value of every element; in base64 where the elements differ."
    )


class Signature(Wire):
    inputs: list[Tensor]
    outputs: list[Tensor]
    states: list[State] = Field([], description="The states of a model whose calls form sequences.")


class Scheme(Wire):
    storage: list[str] = Field(examples=[["int8"]])
    granularity: list[str] = Field(examples=[["per-axis"]])
    symmetric: bool


class Metadata(Wire):
    """Labels and preprocessing. A member that is left out keeps its value, or the one from the model file."""

    labels: list[str] = Field([], max_length=MAX_LABELS, description="The names of the classes, from class 0.")
    mean: list[float] = Field(
        [],
        max_length=3,
        description="The mean of pixel / 255: one number for each channel, or one for all.",
        examples=[[0.485]],
    )
    std: list[float] = Field(
        [],
        max_length=3,
        description="The standard deviation of pixel / 255, likewise; the input is (pixel / 255 - mean) / std.",
    )
    resize: Resize | None = Field(
        None, description="How a picture is fitted: `stretch` (the default), or `crop`, which keeps the aspect ratio."
    )
    layout: Layout | None = Field(None, description="The layout of the image input, if its shape leaves it open.")


class Facts(Wire):
    """Facts about a model that are known before it is compiled."""

    format: str
    signature: Signature
    operators: dict[str, int] = Field(description="The number of occurrences of each operator.")
    macs: int = Field(description="Multiply-accumulates of one call.")
    parameters: int
    parameter_bytes: int
    weights: Scheme | None
    activations: Scheme | None
    metadata: Metadata | None = Field(None, description="Labels and preprocessing from the file.")
    notices: list[str] = Field([], description="Parts of the file that were left out, a sentence for each.")


class ModelVersion(Wire):
    """A file that was pushed under a name. Pushing the same bytes again gives the same version."""

    name: str
    version: int
    source: str = Field(description="The digest of the model file.")
    format: str = Field(examples=["tflite"])
    size_bytes: int
    created_at: datetime
    url: str
    state: VersionState = Field(description="Whether the version answers predictions on this server.")
    reason: str | None = Field(description="The reason that it does not, in one line.")
    build: str | None = Field(
        description="The id of the build that answers, or would answer; one for this machine if there is one."
    )
    artifact: str | None = Field(
        description="The digest of that build's artifact; its reports and layers are under `/api/v1/artifacts`."
    )
    facts: Facts | None = Field(None, description="Facts about the file, once a build of it has succeeded.")
    metadata: Metadata | None = Field(
        None, description="Labels and preprocessing: those that were set, or else those from the file."
    )


class Deleted(Wire):
    """The result of a deletion."""

    name: str
    versions: list[int]
    aliases: list[str] = Field(description="Aliases of the versions, which were deleted too.")
    builds: int = Field(description="The number of builds that were deleted, because no other model uses them.")


class Canary(Wire):
    """A version on trial."""

    version: int
    percent: int = Field(ge=1, lt=ALL_PERCENT, description="The percentage of requests that it answers.")


class Alias(Wire):
    """A name that stands for a version: in `/v2/models/NAME/versions/ALIAS`, or as `NAME@ALIAS`."""

    name: str = Field(examples=["stable"], description="The alias. `stable` answers requests that name no version.")
    version: int
    canary: Canary | None = Field(description="Another version that answers some of the requests.")
    previous: list[int] = Field(description="The versions that rollbacks return to, the most recent first.")
    changed_at: datetime


class Aliases(Wire):
    aliases: list[Alias] = Field(
        description="The aliases by name, without `latest`, which is the newest version that is ready."
    )


class Promotion(Wire):
    version: int = Field(ge=1, le=10**9)
    alias: str = Field(
        DEFAULT_ALIAS, max_length=63, description="The alias: lower case, not a number, and not `latest`."
    )
    percent: int = Field(
        ALL_PERCENT,
        ge=1,
        le=ALL_PERCENT,
        description="The percentage of requests that the version answers; less than 100 makes it a canary.",
    )


class Rollback(Wire):
    alias: str = Field(DEFAULT_ALIAS, max_length=63)
    away_from: int | None = Field(
        None,
        ge=1,
        le=10**9,
        description="The version to roll back from. If it does not answer, nothing changes, so that the request can "
        "be repeated.",
    )


class ModelVersions(Wire):
    name: str
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


class BuildError(Wire):
    """The reason for a failed build, and the place where it failed."""

    code: str
    message: str
    stage: str | None = None
    op: str | None = None
    tensor: str | None = None
    hint: str | None = None


class BuildLinks(Wire):
    self: str
    events: str
    log: str
    model: str
    artifact: str | None = None


class AskedBy(Wire):
    """A version of a model that asked for a build."""

    name: str
    version: int


class Build(Wire):
    """The compilation of a model for a target in a numerics mode, and its progress."""

    id: str
    key: str = Field(description="The digest of everything that affects the result.")
    model: str
    version: int
    models: list[AskedBy] = Field(
        description="All model versions that requested the build: a file with several names is built once. `model` "
        "and `version` are those of the request, or else the first of these."
    )
    source: str = Field(description="The digest of the model file.")
    target: str
    numerics: str
    options: dict[str, Any] = Field(description="Other options that affect the result, such as `batch`; usually empty.")
    state: BuildState
    stage: Stage | None = Field(description="The last stage that has begun.")
    progress: float = Field(ge=0, le=1, description="The share of the stage that is done.")
    attempt: int = Field(description="The number of attempts so far.")
    cancel_requested: bool
    invalidated: bool = Field(description="Whether its artifact was lost or damaged, and is no longer used.")
    artifact: str | None = Field(description="The digest of the artifact, once the build has succeeded.")
    error: BuildError | None = Field(description="The reason, if the build failed.")
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    links: BuildLinks


class Builds(Wire):
    builds: list[Build]


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
        description="After the build, search for faster tiles for this time, in seconds. The search is a build in "
        "the background, which replaces the first.",
    )
    input_shapes: dict[str, list[int | list[int]]] = Field(
        {},
        max_length=16,
        description="The shapes of inputs by name, for files that do not contain them (TorchScript). With a list of "
        "sizes in place of one, the model is built for each.",
        examples=[{"x": [1, 3, 224, 224]}, {"ids": [1, [16, 32, 64]]}],
    )


class BuildRequest(Wire):
    targets: list[str] = Field(min_length=1, max_length=32, examples=[["host", "x86-64-v3"]])
    version: int | None = Field(None, ge=1, le=10**9, description="The version; by default the newest.")
    options: BuildOptions = BuildOptions(numerics=None, batch=[1], tune_s=None, input_shapes={})


class TargetInfo(Wire):
    name: str
    architecture: str
    features: list[str] = Field(description="The CPU features that it needs, as Linux names them in /proc/cpuinfo.")
    reason: str = Field(description="The feature that sets the target apart.")
    runs_here: bool
    missing: list[str] = Field(description="The features that this host lacks; empty if the target runs here.")
    host: bool = Field(description='Whether this is the target that "host" stands for on this server.')


class Targets(Wire):
    architecture: str = Field(description="The architecture of this host.")
    cpu: str
    targets: list[TargetInfo] = Field(description="The targets, best first within an architecture.")


class Affected(Wire):
    """A version of a model, for one target."""

    name: str
    version: int
    target: str


class Quarantined(Wire):
    """An artifact in quarantine, which is no longer run."""

    artifact: str = Field(description="The digest of the artifact.")
    crashes: list[datetime] = Field(description="The times of the crashes while it ran, the earliest first.")
    how: str = Field(description="A description of the last crash.", examples=["signal 11: Segmentation fault"])
    models: list[Affected] = Field(description="The models that it would answer for.")


class Quarantine(Wire):
    artifacts: list[Quarantined]


class Worker(Wire):
    """A process that compiles, or that answers predictions."""

    id: str
    kind: WorkerKind
    host: str
    pid: int
    target: str | None = Field(description="The best target for its machine.")
    build: str | None = Field(description="The id of the build that it works on.")
    started_at: datetime
    seen_at: datetime = Field(description="The time of its last heartbeat.")


class Workers(Wire):
    workers: list[Worker] = Field(description="The workers with a heartbeat within the lease time.")


class Key(Wire):
    """An API key, without its secret."""

    id: str = Field(description="The key's id, its second part: `octet_ID_…`. It is not secret.")
    name: str
    scopes: list[Scope]
    requests_per_s: float | None
    requests_per_day: int | None = Field(description="The quota from midnight to midnight, UTC.")
    created_at: datetime
    revoked_at: datetime | None


class Keys(Wire):
    keys: list[Key]


class KeyRequest(Wire):
    name: str = Field(min_length=1, max_length=63, description="A name for people.", examples=["camera 7"])
    scopes: list[Scope] = Field(min_length=1, max_length=16, description="The scopes; `admin` includes all others.")
    requests_per_s: float | None = Field(None, gt=0, le=1e9, description="The rate limit; by default there is none.")
    requests_per_day: int | None = Field(None, gt=0, le=10**12)


class NewKey(Key):
    key: str = Field(description="The key to send as `Authorization: Bearer …`. It is shown only in this answer.")


class Audit(Wire):
    entries: list[dict[str, Any]] = Field(
        description="The entries. Each has `at`, `who` (the id of a key, `anybody` where no key is required, or "
        "`local:USER`), `action`, the object of the action, and the `request_id`."
    )

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
PathAlias = Annotated[str, Path(pattern=ALIAS_PATTERN, description="An alias, like `stable`.")]
PathBuild = Annotated[str, Path(max_length=64, description="The id of a build, or how it begins.")]
PathDigest = Annotated[str, Path(pattern=DIGEST_PATTERN, description="`sha256:` and 64 lower-case hex digits.")]
QueryName = Annotated[str, Query(pattern=NAME_PATTERN, description="The model's name.", examples=["mobilenet"])]
QueryLimit = Annotated[int, Query(ge=1, le=200, description="Items on one page.")]
QueryCursor = Annotated[str | None, Query(description='Where to go on: from `Link: <…>; rel="next"`.')]
QueryNumerics = Annotated[
    str | None,
    Query(description="The numerics mode; by default that of the file's format.", examples=["litert-reference"]),
]


PathKey = Annotated[str, Path(max_length=64, description="The id of an API key.")]


class Wire(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Problem(BaseModel):
    """An RFC 9457 problem document."""

    type: str = Field(examples=["urn:octet:problem:unknown_target"])
    title: str = Field(description="The kind of problem; the same for every problem of its `type`.")
    status: int
    detail: str = Field(description="What was wrong this time.")
    instance: str = Field(description="The path of the request.")
    code: str = Field(description="A stable name of the kind of problem.", examples=["unknown_target"])
    stage: str | None = Field(None, description="The stage of the build, where one failed.")
    op: str | None = Field(None, description="The operator of the model.")
    tensor: str | None = Field(None, description="The tensor of the model.")
    hint: str | None = Field(None, description="What to do next.")
    errors: list[dict[str, str]] | None = Field(None, description="Each part of the request that is not well formed.")
    request_id: str = Field(description="As in the header `X-Request-Id`, and in the server's log.")
    error: str = Field(description="`detail` again, for clients of the Open Inference Protocol.")


class Blob(Wire):
    digest: str
    size_bytes: int


class Quantization(Wire):
    """real = scale * (stored - zero_point)."""

    scale: float
    zero_point: int


class Bounds(Wire):
    """Both ends are among the values that are meant."""

    low: float
    high: float


class Tensor(Wire):
    name: str
    datatype: str = Field(description="Of the Open Inference Protocol.", examples=["UINT8"])
    shape: list[int] = Field(description="-1 where a dimension is dynamic.")
    quantization: Quantization | None = None
    bounds: Bounds | None = Field(
        None, description="Of an input: the ids that are valid, or the real values that it was calibrated for."
    )


class State(Tensor):
    """A tensor that a model keeps from one call of a sequence to the next."""

    initial: bool | int | float | str = Field(description="Of every element; in base64 where they differ.")


class Signature(Wire):
    inputs: list[Tensor]
    outputs: list[Tensor]
    states: list[State] = Field([], description="Of a model whose calls form sequences.")


class Scheme(Wire):
    storage: list[str] = Field(examples=[["int8"]])
    granularity: list[str] = Field(examples=[["per-axis"]])
    symmetric: bool


class Metadata(Wire):
    """Labels and preprocessing. What is left out stays what it was, or what the model file says."""

    labels: list[str] = Field([], max_length=MAX_LABELS, description="Of the classes, from 0.")
    mean: list[float] = Field(
        [], max_length=3, description="Of pixel / 255: one for each channel, or one for all.", examples=[[0.485]]
    )
    std: list[float] = Field([], max_length=3, description="Likewise; the input is (pixel / 255 - mean) / std.")
    resize: Resize | None = Field(None, description="`stretch` (the default), or `crop`, which keeps the aspect ratio.")
    layout: Layout | None = Field(None, description="Of the image input, where its shape leaves that open.")


class Facts(Wire):
    """Facts about a model that are known before it is compiled."""

    format: str
    signature: Signature
    operators: dict[str, int] = Field(description="How often each operator occurs.")
    macs: int = Field(description="Multiply-accumulates of one call.")
    parameters: int
    parameter_bytes: int
    weights: Scheme | None
    activations: Scheme | None
    metadata: Metadata | None = Field(None, description="Labels and preprocessing that the file says.")


class ModelVersion(Wire):
    """One file that was pushed under a name. The same bytes are the same version."""

    name: str
    version: int
    source: str = Field(description="The digest of the model file.")
    format: str = Field(examples=["tflite"])
    size_bytes: int
    created_at: datetime
    url: str
    state: VersionState = Field(description="Whether it answers predictions on this server.")
    reason: str | None = Field(description="Why it does not, in a line.")
    build: str | None = Field(
        description="The id of the build that answers, or would; for this machine if there is one."
    )
    artifact: str | None = Field(
        description="The digest of what that build made: its reports and layers are under `/api/v1/artifacts`."
    )
    facts: Facts | None = Field(None, description="What the file holds, once a build of it has succeeded.")
    metadata: Metadata | None = Field(None, description="Labels and preprocessing: what was said, or the file says.")


class Deleted(Wire):
    """The result of a deletion."""

    name: str
    versions: list[int]
    aliases: list[str] = Field(description="Names that stood for one of the versions, and are gone.")
    builds: int = Field(description="How many builds went with them, because nobody else asked for them.")


class Canary(Wire):
    """A version on trial."""

    version: int
    percent: int = Field(ge=1, lt=ALL_PERCENT, description="Of the requests.")


class Alias(Wire):
    """A name that stands for a version: in `/v2/models/NAME/versions/ALIAS`, or as `NAME@ALIAS`."""

    name: str = Field(examples=["stable"], description="`stable` answers those who name no version.")
    version: int
    canary: Canary | None = Field(description="Another version, which answers some of the requests.")
    previous: list[int] = Field(description="Where a rollback leads, and those before; the last first.")
    changed_at: datetime


class Aliases(Wire):
    aliases: list[Alias] = Field(description="By name; without `latest`, the newest version that is ready.")


class Promotion(Wire):
    version: int = Field(ge=1, le=10**9)
    alias: str = Field(DEFAULT_ALIAS, max_length=63, description="Lower case, not a number, and not `latest`.")
    percent: int = Field(
        ALL_PERCENT, ge=1, le=ALL_PERCENT, description="Of the requests; less than 100 makes it a canary."
    )


class Rollback(Wire):
    alias: str = Field(DEFAULT_ALIAS, max_length=63)
    away_from: int | None = Field(
        None,
        ge=1,
        le=10**9,
        description="The version that shall not answer any more. Where it does not, nothing changes: a rollback that "
        "names it can be repeated.",
    )


class ModelVersions(Wire):
    name: str
    versions: list[ModelVersion] = Field(description="Newest first.")
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
    """One question, "this model for this target in this numerics mode", and how far its answer is."""

    id: str
    key: str = Field(description="The digest of everything that decides the result.")
    model: str
    version: int
    models: list[AskedBy] = Field(
        description="All that asked for it: the same file under several names is built once. `model` and `version` are "
        "those that were asked about, or else the first."
    )
    source: str = Field(description="The digest of the model file.")
    target: str
    numerics: str
    options: dict[str, Any] = Field(description="What else decides the result, such as the `batch`; mostly nothing.")
    state: BuildState
    stage: Stage | None = Field(description="The last stage that was begun.")
    progress: float = Field(ge=0, le=1, description="How much of the stage is done.")
    attempt: int = Field(description="How often a worker has begun it.")
    cancel_requested: bool
    invalidated: bool = Field(description="Its artifact was lost or damaged, and is not used any more.")
    artifact: str | None = Field(description="The digest of the artifact, once the build has succeeded.")
    error: BuildError | None = Field(description="Why it failed, once it has.")
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    links: BuildLinks


class Builds(Wire):
    builds: list[Build]


class BuildOptions(Wire):
    numerics: str | None = Field(None, description="The numerics mode; by default that of the file's format.")
    batch: list[int] = Field(
        [1],
        max_length=16,
        description="Batch sizes to be built, besides 1, which is built first.",
        examples=[[1, 8, 16]],
    )
    tune_s: float | None = Field(
        None, description="Then look for faster tiles for so long, in the background: a build that replaces the first."
    )
    input_shapes: dict[str, list[int]] = Field(
        {},
        max_length=16,
        description="Shapes of inputs by name, for files that do not say them (TorchScript).",
        examples=[{"x": [1, 3, 224, 224]}],
    )


class BuildRequest(Wire):
    targets: list[str] = Field(min_length=1, max_length=32, examples=[["host", "x86-64-v3"]])
    version: int | None = Field(None, ge=1, le=10**9, description="By default the newest.")
    options: BuildOptions = BuildOptions(numerics=None, batch=[1], tune_s=None, input_shapes={})


class TargetInfo(Wire):
    name: str
    architecture: str
    features: list[str] = Field(description="What the CPU must report, in the words of Linux's /proc/cpuinfo.")
    reason: str = Field(description="The feature that sets the target apart.")
    runs_here: bool
    missing: list[str] = Field(description="What this host lacks; empty where the target runs.")
    host: bool = Field(description='Whether this is what "host" means here.')


class Targets(Wire):
    architecture: str = Field(description="This host's.")
    cpu: str
    targets: list[TargetInfo] = Field(description="Best first within an architecture.")


class Affected(Wire):
    """A version of a model, for one target."""

    name: str
    version: int
    target: str


class Quarantined(Wire):
    """An artifact that is not run any more."""

    artifact: str = Field(description="Its digest.")
    crashes: list[datetime] = Field(description="When the server crashed while it ran, the earliest first.")
    how: str = Field(description="The last crash.", examples=["signal 11: Segmentation fault"])
    models: list[Affected] = Field(description="What it would answer for.")


class Quarantine(Wire):
    artifacts: list[Quarantined]


class Worker(Wire):
    """A process that compiles, or that answers predictions."""

    id: str
    kind: WorkerKind
    host: str
    pid: int
    target: str | None = Field(description="The best target of its machine.")
    build: str | None = Field(description="The build that it works on.")
    started_at: datetime
    seen_at: datetime = Field(description="Its last sign of life.")


class Workers(Wire):
    workers: list[Worker] = Field(description="Those that gave a sign of life within the lease.")


class Key(Wire):
    """An API key, without its text."""

    id: str = Field(description="Its second part: `octet_ID_…`. No secret.")
    name: str
    scopes: list[Scope]
    requests_per_s: float | None
    requests_per_day: int | None = Field(description="From midnight to midnight, UTC.")
    created_at: datetime
    revoked_at: datetime | None


class Keys(Wire):
    keys: list[Key]


class KeyRequest(Wire):
    name: str = Field(min_length=1, max_length=63, description="For people.", examples=["camera 7"])
    scopes: list[Scope] = Field(min_length=1, max_length=16, description="`admin` is all of them.")
    requests_per_s: float | None = Field(None, gt=0, le=1e9, description="By default as many as may come.")
    requests_per_day: int | None = Field(None, gt=0, le=10**12)


class NewKey(Key):
    key: str = Field(description="What to send as `Authorization: Bearer …`. It is shown this once.")


class Audit(Wire):
    entries: list[dict[str, Any]] = Field(
        description="Each with `at`, `who` (the id of a key, `anybody` where none is asked for one, or `local:USER`), "
        "`action`, what it was done to, and the `request_id`."
    )

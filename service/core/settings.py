"""The settings of a deployment.

Flags override `OCTET_*` environment variables, which override `octet.toml`, which overrides the defaults.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import Field, SecretStr, field_validator, model_validator
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict, TomlConfigSettingsSource

from service.core.access.key import FORM, id_of
from service.core.access.origins import parse_origins
from service.core.access.quota import Quota
from service.core.access.tenant import PATTERN
from service.core.builds import dialects
from service.core.cluster.settings import ClusterSettings, Role
from service.core.data_dir import DataDir
from service.core.models.serving import Serving
from service.core.system.logs import LogFormat

_REFERENCE = r"([a-z0-9][a-z0-9-]{0,30}~)?[a-z0-9][a-z0-9._-]{0,62}(@[a-z0-9][a-z0-9._-]{0,62})?"


class Auth(StrEnum):
    """When a request needs an API key."""

    AUTO = "auto"  # if any API key exists, or if other machines can reach the address
    ON = "on"
    OFF = "off"


class PlainHttp(StrEnum):
    """The OCI registries that are reached over plain HTTP. All others are reached over TLS."""

    LOOPBACK = "loopback"
    ALWAYS = "always"
    NEVER = "never"


class Settings(BaseSettings, ClusterSettings, Serving, DataDir):
    """The settings of a deployment. Sizes are in bytes, times in seconds.

    The file is `$OCTET_CONFIG`, or `octet.toml` in the working directory, with these names as keys.
    """

    model_config = SettingsConfigDict(env_prefix="OCTET_", extra="forbid", frozen=True, hide_input_in_errors=True)

    host: str = Field("127.0.0.1", description="the address to listen on")
    port: int = Field(8080, ge=0, le=65535, description="the port for HTTP; 0 takes a free one")
    grpc: bool = Field(True, description="whether to serve gRPC, too")
    grpc_port: int | None = Field(
        None, ge=0, le=65535, description="by default the one after `port`; 0 takes a free one"
    )
    database_url: SecretStr | None = Field(
        None,
        description="`postgresql://USER:PASSWORD@HOST/DATABASE`, as libpq reads it; by default SQLite in the data "
        "directory",
    )
    store_url: str | None = Field(
        None,
        pattern=r"^(s3|gs|az)://[^/\s]+(/\S*)?$",
        description="the bucket of models and artifacts: `s3://BUCKET/PREFIX`, `gs://…`, `az://…`; by default a folder "
        "in the data directory",
    )
    store_cache_bytes: int = Field(
        20 << 30, gt=0, description="how much of a bucket is cached in the data directory, besides what is in use"
    )
    store_timeout_s: float = Field(30.0, gt=0, description="how long to retry a bucket that does not respond")
    database_connections: int = Field(
        10, gt=0, description="connections to PostgreSQL per process, besides two that listen and lock"
    )

    auth: Auth = Field(
        Auth.AUTO,
        description="whether requests need an API key: on, off, or auto: if any key exists, or if other machines can "
        "reach the address",
    )
    admin_key: SecretStr | None = Field(
        None, description="an API key with the scope `admin`, for example from a cluster's secret"
    )
    cors_origins: str = Field(
        "",
        description="the web sites whose pages may use this server from a browser: `https://app.example, "
        "http://localhost:5173`; `*` for all, which does not replace an API key; docs/how-to/http.md",
    )
    tls_cert: Path | None = Field(None, description="a PEM file of certificates for HTTPS and gRPC, the server's first")
    tls_key: Path | None = Field(None, description="a PEM file with the certificate's private key")

    signing_key: Path | None = Field(
        None,
        description="a PEM file with the private key that signs what is built here: Ed25519, or ECDSA on P-256",
    )
    trusted_keys: str = Field(
        "",
        description="PEM files of public keys, and folders of them, separated by colons: only artifacts that one of "
        "these keys signed are loaded; empty: signatures are not required",
    )
    builder_id: str = Field(
        "https://octet.dev/builder/unnamed",
        pattern=r"^[a-z][a-z0-9+.-]*:[!-~]{1,500}$",
        description="a URI that identifies this builder; it is recorded in the provenance of artifacts",
    )

    dialects: str = Field(
        "",
        description="Python files, and names of entry points of installed packages, separated by colons, with which "
        "this machine extends the compiler (docs/how-to/dialects.md); they run with its permissions",
    )

    registry_username: str | None = Field(
        None, description="a user of OCI registries; by default the one that `docker login` stored"
    )
    registry_password: SecretStr | None = Field(None, description="the user's password, or a token")
    registry_http: PlainHttp = Field(
        PlainHttp.LOOPBACK,
        description="which OCI registries are reached over plain HTTP: loopback (those of this machine), always, or "
        "never",
    )

    tenants: dict[Annotated[str, Field(pattern=PATTERN)], Quota] = Field(
        {},
        description="quotas of tenants, by name: `[tenants.acme]` with `requests_per_day`, `builds_per_day`, "
        "`stored_bytes`",
    )
    plane_per_tenant: bool = Field(
        False,
        description="run the models of each tenant in a separate process, which cannot read those of other tenants; "
        "for `octet serve` only; docs/how-to/keys.md describes the cost",
    )
    max_upload_bytes: int = Field(2 << 30, gt=0, description="size limit of an uploaded model, artifact or data set")
    max_predict_bytes: int = Field(64 << 20, gt=0, description="size limit of a prediction request")
    jobs_kept_s: float = Field(
        3600.0, gt=0, description="how long the result of a prediction with `Prefer: respond-async` can be fetched"
    )
    max_jobs: int = Field(1000, gt=0, description="the most such jobs that a tenant may have at a time, with results")
    max_jobs_bytes: int = Field(
        256 << 20, gt=0, description="the most bytes of the inputs and results of a tenant's jobs together"
    )
    models: dict[str, Serving] = Field({}, description="settings for single models, by name: `[models.mobilenet]`")

    model_files: tuple[Path, ...] = Field(
        (), description="model files, artifact folders and folders of them, which are served as long as they exist"
    )
    allow_unsandboxed: bool = Field(
        False, description="build, and run artifacts, even if the kernel cannot sandbox the processes"
    )
    accept_differences: bool = Field(
        False, description="serve every build, even if it differs from its reference by more than its mode documents"
    )
    build_time_limit_s: float = Field(
        1200.0,
        gt=0,
        description="the most processor time that a build may use, over all its processes; by the clock it may take "
        "longer",
    )
    build_stall_limit_s: float = Field(
        120.0, gt=0, description="a build's process that neither runs nor waits for a processor for this long is ended"
    )
    quantize_time_limit_s: float = Field(
        3600.0, gt=0, description="the longest that a quantization may take, with all its builds"
    )
    saturation_share: float = Field(
        0.001,
        ge=0,
        le=1,
        description="the fraction of answered requests that are computed again to count the values that the model "
        "clips; the first one requests a second build of the model, with counters; 0: none",
    )
    build_passing_s: float = Field(
        30.0,
        gt=0,
        description="while a build that has taken this long runs on, smaller waiting builds run beside it, one at a "
        "time, the smallest first",
    )
    build_memory_limit_bytes: int = Field(8 << 30, gt=0, description="memory limit of each process of a build")
    mxnet_python: Path | None = Field(
        None,
        description="the interpreter of a Python environment with MXNet 1.9.1, such as `/opt/mxnet/bin/python`; if it "
        "is set, builds of MXNet models are compared with MXNet",
    )
    openvino_python: Path | None = Field(
        None,
        description="the interpreter of a Python environment with OpenVINO, in which builds of OpenVINO models are "
        "compared with it; by default Octet's own environment",
    )
    executorch_python: Path | None = Field(
        None,
        description="the interpreter of a Python environment with ExecuTorch, in which builds of ExecuTorch programs "
        "are compared with it; by default Octet's own environment",
    )
    torch_python: Path | None = Field(
        None,
        description="the interpreter of a Python environment with PyTorch, in which builds of PyTorch models are "
        "compared with it; by default Octet's own environment",
    )
    build_nice: int = Field(10, ge=0, le=19, description="niceness of builds, as in nice(1)")
    build_cores: int = Field(
        0,
        ge=0,
        description="how many cores builds use, counted from the last; 0: half, or all if there are fewer than four",
    )
    results_max_bytes: int = Field(
        2 << 30, ge=0, description="cache size for imports and expected outputs of earlier builds"
    )
    compiler_idle_s: float = Field(
        300.0,
        gt=0,
        description="a compile worker that is idle for this long ends; one that runs alone frees the compiler's 0.2 GB "
        "instead",
    )
    build_targets: str = Field("", description="the targets that a compile worker builds for: NAME, …; by default all")
    lease_s: float = Field(30.0, gt=0, description="a worker without a heartbeat for this long loses its build")
    heartbeat_s: float = Field(
        10.0, gt=0, description="the interval between heartbeats of compile workers, and of servers outside a cluster"
    )
    max_build_attempts: int = Field(3, gt=0, description="a build whose workers end this many times fails")
    model_memory_bytes: int = Field(
        0, ge=0, description="memory for all loaded models; the least recently used are unloaded; 0: no limit"
    )
    card_memory_bytes: int = Field(
        0, ge=0, description="the same for the memory of NVIDIA GPUs; 0: nine tenths of what they have"
    )
    preload: str = Field(
        "",
        pattern=rf"^(\*|{_REFERENCE}(\s*,\s*{_REFERENCE})*)?$",
        description="models to load before the server is ready: NAME or NAME@VERSION, …; * for all",
    )
    grace_s: float = Field(30.0, gt=0, description="how long requests under way may take when the server stops")
    head_timeout_s: float = Field(
        10.0, gt=0, description="time limit for a request's head; then the connection is closed"
    )
    stall_timeout_s: float = Field(
        60.0, gt=0, description="a connection that sends nothing for this long within a body is closed"
    )
    min_body_bytes_per_s: int = Field(
        1000, ge=0, description="a body that stays slower than this for `stall_timeout_s` is refused"
    )
    shared_memory: bool = Field(
        False,
        description="let clients on this machine pass tensors in files of /dev/shm, which the server reads and writes "
        "as its own user",
    )
    max_connections: int = Field(
        0,
        ge=0,
        description="the most connections at a time, over HTTP and gRPC together; 0: three quarters of the files that "
        "the process may open, up to 100,000",
    )
    peer_share: float = Field(
        0.75,
        gt=0,
        le=1,
        description="the share that one client address may hold of the connections, gRPC calls and message memory that "
        "other addresses do not use; set 1 if all requests come through one proxy",
    )
    max_head_bytes: int = Field(64 << 10, gt=0, description="size limit of a request's head")
    database_timeout_s: float = Field(
        30.0, gt=0, description="how long to wait for a lock of the database, and for a database that does not respond"
    )
    watchdog_s: float = Field(
        10.0,
        ge=0,
        description="a process of the server that does not respond for this long is killed and restarted; 0: never",
    )
    max_crashes: int = Field(3, gt=0, description="an artifact that causes this many crashes is quarantined")
    log_format: LogFormat = Field(LogFormat.TEXT, description="`text`, or `json`: one object per line")
    trace_endpoint: str | None = Field(
        None,
        pattern=r"^https?://\S+$",
        description="an OTLP/HTTP collector; by default `OTEL_EXPORTER_OTLP_ENDPOINT`; with neither, tracing is off",
    )
    trace_ratio: float | None = Field(
        None, ge=0, le=1, description="the fraction of requests to trace; by default `OTEL_TRACES_SAMPLER`, or all"
    )
    crash_window_s: float = Field(3600.0, gt=0, description="how long a crash counts towards `max_crashes`")

    @field_validator("admin_key")
    @classmethod
    def _is_key(cls, key: SecretStr | None) -> SecretStr | None:
        if key is not None and id_of(key.get_secret_value().encode()) is None:
            raise ValueError(FORM)
        return key

    @field_validator("cors_origins")
    @classmethod
    def _lists_origins(cls, origins: str) -> str:
        parse_origins(origins)
        return origins

    @field_validator("database_url")
    @classmethod
    def _is_of_postgresql(cls, url: SecretStr | None) -> SecretStr | None:
        if url is not None and not url.get_secret_value().startswith("postgresql://"):
            raise ValueError("a database URL begins with postgresql://")
        return url

    @model_validator(mode="after")
    def _has_both(self) -> Self:
        if (self.tls_cert is None) != (self.tls_key is None):
            raise ValueError("tls_cert and tls_key must be set together")
        if self.cluster_key is not None and self.cluster_key_file is not None:
            raise ValueError("cluster_key and cluster_key_file are both set: set only one of them")
        if self.plane_per_tenant and self.role is not Role.EMBEDDED:
            raise ValueError("plane_per_tenant is a setting of octet serve: workers of a cluster serve all tenants")
        if self.plane_per_tenant and self.shared_memory:
            raise ValueError("shared_memory and plane_per_tenant exclude each other")
        if (self.registry_username is None) != (self.registry_password is None):
            raise ValueError("registry_username and registry_password must be set together")
        return self

    def serving(self, model: str) -> Serving:
        """Returns the settings of a model: those set for it, and the common values of all others."""
        own = self.models.get(model)
        return self if own is None else self.model_copy(update=own.model_dump(exclude_unset=True))

    @property
    def port_of_grpc(self) -> int:
        """The port for gRPC; 0 for any free port."""
        if self.grpc_port is not None:
            return self.grpc_port
        return self.port + 1 if self.port else 0

    @property
    def origins(self) -> tuple[str, ...]:
        """The web origins whose pages may read responses; `*` for all."""
        return parse_origins(self.cors_origins)

    @property
    def url_of_database(self) -> str:
        """The URL of the database. It may contain a password."""
        if self.database_url is not None:
            return self.database_url.get_secret_value()
        return f"sqlite:///{self.database_file}"

    @property
    def min_body_bytes(self) -> int:
        """The least number of bytes of a body that have to arrive within `stall_timeout_s`."""
        return max(1, round(self.min_body_bytes_per_s * self.stall_timeout_s))

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        file = Path(os.environ.get("OCTET_CONFIG", "octet.toml"))
        return init_settings, env_settings, TomlConfigSettingsSource(settings_cls, file)


def load_settings(flags: Mapping[str, Any] | None = None) -> Settings:
    """Loads the settings from `flags`, the environment and the file. The dialects become those of this process.

    Args:
        flags: values by name; None for a flag that is not given.

    Raises:
        pydantic.ValidationError: a value is invalid, or a name is unknown.
    """
    settings = Settings(**{name: value for name, value in (flags or {}).items() if value is not None})
    if settings.dialects:
        dialects.configure(settings.dialects.split(os.pathsep))
    return settings

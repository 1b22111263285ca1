"""The settings of a deployment.

Flags override `OCTET_*` environment variables, which override `octet.toml`, which overrides the defaults.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Field, SecretStr, field_validator, model_validator
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict, TomlConfigSettingsSource

from service.core.access.key import FORM, id_of
from service.core.access.tenant import PATTERN
from service.core.data_dir import DataDir
from service.core.errors import InvalidInput
from service.core.system.logs import LogFormat

_CLUSTER_KEY = re.compile(r"[!-~]{16,512}")  # the key is sent as the value of an HTTP header
_CLUSTER_KEY_FORM = "16 to 512 visible ASCII characters, without a space: openssl rand -hex 32 makes one"
_REFERENCE = r"([a-z0-9][a-z0-9-]{0,30}~)?[a-z0-9][a-z0-9._-]{0,62}(@[a-z0-9][a-z0-9._-]{0,62})?"


class Auth(StrEnum):
    """When a request needs an API key."""

    AUTO = "auto"  # if any API key exists, or if other machines can reach the address
    ON = "on"
    OFF = "off"


class Role(StrEnum):
    """The role of a process in a deployment."""

    EMBEDDED = "embedded"  # a single server that does everything
    API = "api"  # forwards predictions to workers
    WORKER = "worker"  # computes predictions with the artifacts of one target


class PlainHttp(StrEnum):
    """The OCI registries that are reached over plain HTTP. All others are reached over TLS."""

    LOOPBACK = "loopback"
    ALWAYS = "always"
    NEVER = "never"


class Serving(BaseModel):
    """Settings that can also be set for a single model: in the table `models` of the file, under the model's name."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    queue_size: int = Field(64, gt=0, description="how many requests may wait for a model; more are refused with 429")
    queue_wait_s: float = Field(
        0.5,
        gt=0,
        description="requests are also refused if they would probably wait longer than this; 8 may wait in any case",
    )
    instances: int = Field(0, ge=0, description="concurrent predictions per model; 0: one for each core, up to 8")
    threads: int = Field(0, ge=0, description="threads per prediction; 0: all the cores this process may use")
    priority_levels: int = Field(3, gt=0, le=16, description="number of priorities of requests; 1 is served first")
    predict_timeout_s: float | None = Field(
        None, gt=0, description="default deadline of a request that names none; by default it may wait forever"
    )
    call_limit_s: float = Field(
        1.0,
        ge=0,
        description="a call counts as hung if it takes longer than this, and twenty times longer than the model's "
        "calls usually take; the process that runs it is then restarted, as after a crash; 0: never",
    )
    max_batch: int = Field(0, ge=0, description="most samples to combine in one call; 0: the largest size built")
    max_delay_s: float = Field(0.0, ge=0, description="how long a call waits for more requests to combine")
    max_sequences: int = Field(
        128, gt=0, description="concurrent sequences of a model that keeps state; more are refused with 429"
    )
    sequence_idle_s: float = Field(60.0, gt=0, description="a sequence ends after this long without requests")


class Quota(BaseModel):
    """The limits on what all keys of one tenant may use together."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    requests_per_day: int | None = Field(
        None, gt=0, description="from midnight to midnight, UTC; by default any number"
    )
    builds_per_day: int | None = Field(
        None, gt=0, description="builds that are started, likewise; a quantization counts as two"
    )
    stored_bytes: int | None = Field(
        None, gt=0, description="total size of all model files and calibration sets; by default unlimited"
    )


class Settings(BaseSettings, Serving, DataDir):
    """The settings of a deployment. Sizes are in bytes, times in seconds.

    The file is `$OCTET_CONFIG`, or `octet.toml` in the working directory, with these names as keys.
    """

    model_config = SettingsConfigDict(env_prefix="OCTET_", extra="forbid", frozen=True, hide_input_in_errors=True)

    role: Role = Field(
        Role.EMBEDDED, description="role in a cluster, which the command sets: `embedded`, `api` or `worker`"
    )
    pool: str | None = Field(
        None,
        pattern=r"^[a-z0-9][a-z0-9._+-]{0,62}$",
        description="the name of the pool of interchangeable workers that a worker belongs to; by default the target",
    )
    target: str | None = Field(
        None, description="the target whose artifacts `octet worker` serves; by default the best that its CPU runs"
    )
    advertise: str | None = Field(
        None,
        pattern=r"^(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9][A-Za-z0-9._-]*)(:[0-9]{1,5})?$",
        description="`HOST` or `HOST:PORT` at which the API reaches a worker; by default the host's address and the "
        "port for HTTP",
    )
    cluster_key: SecretStr | None = Field(
        None, description="the secret that API and workers share: 16 or more characters, none of them a space"
    )
    cluster_key_file: Path | None = Field(None, description="a file that holds `cluster_key`")
    cluster_ca: Path | None = Field(
        None,
        description="a PEM file of the certificate authorities that the API trusts: it then connects to workers over "
        "TLS, and only to those that these authorities certified; by default it uses plain text",
    )
    cluster_tls_name: str | None = Field(
        None,
        pattern=r"^[A-Za-z0-9]([A-Za-z0-9.-]{0,252})$",
        description="the name that the certificates of workers are for; by default the host of each one's address",
    )
    worker_heartbeat_s: float = Field(
        2.0,
        gt=0,
        description="the interval between the heartbeats of a cluster's worker; a worker without a heartbeat for twice "
        "as long gets no requests",
    )
    takeover_s: float = Field(
        30.0,
        ge=0,
        description="how long a new worker of a cluster loads the models that other workers of its pool have in "
        "memory, before it accepts requests; 0: not at all",
    )

    pool_prices: dict[str, Annotated[float, Field(ge=0, allow_inf_nan=False)]] = Field(
        {},
        description="the price of a worker per hour, by the name of its pool, in any one currency: "
        '`{"vnni": 0.17}`; `octet matrix` computes the price of a million predictions from it',
    )

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
    build_passing_s: float = Field(
        30.0,
        gt=0,
        description="while a build that has taken this long runs on, smaller waiting builds run beside it, one at a "
        "time, the smallest first",
    )
    build_memory_limit_bytes: int = Field(8 << 30, gt=0, description="memory limit of each process of a build")
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

    @field_validator("cluster_key")
    @classmethod
    def _is_secret(cls, key: SecretStr | None) -> SecretStr | None:
        if key is not None and not _CLUSTER_KEY.fullmatch(key.get_secret_value()):
            raise ValueError(_CLUSTER_KEY_FORM)
        return key

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
    def key_of_cluster(self) -> str:
        """The secret that the API and the workers share; empty if none is set.

        Raises:
            InvalidInput: the file `cluster_key_file` cannot be read, or does not contain a valid key.
        """
        if self.cluster_key is not None:
            return self.cluster_key.get_secret_value()
        if self.cluster_key_file is None:
            return ""
        try:
            text = self.cluster_key_file.read_text(encoding="ascii").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise InvalidInput(f"the cluster's key cannot be read from {self.cluster_key_file}: {error}") from error
        if not _CLUSTER_KEY.fullmatch(text):
            raise InvalidInput(f"{self.cluster_key_file} does not contain a cluster key: {_CLUSTER_KEY_FORM}")
        return text

    @property
    def port_of_grpc(self) -> int:
        """The port for gRPC; 0 for any free port."""
        if self.grpc_port is not None:
            return self.grpc_port
        return self.port + 1 if self.port else 0

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
    """Loads the settings from `flags`, the environment and the file.

    Args:
        flags: values by name; None for a flag that is not given.

    Raises:
        pydantic.ValidationError: a value is invalid, or a name is unknown.
    """
    return Settings(**{name: value for name, value in (flags or {}).items() if value is not None})

"""The settings of a cluster: a process's role, its pool and the secret that authenticates the processes."""

from __future__ import annotations

import re
from enum import StrEnum
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, SecretStr, field_validator

from service.core.errors import InvalidInput

_CLUSTER_KEY = re.compile(r"[!-~]{16,512}")  # the key is sent as the value of an HTTP header
_CLUSTER_KEY_FORM = "16 to 512 visible ASCII characters, without a space: openssl rand -hex 32 makes one"


class Role(StrEnum):
    """The role of a process in a deployment."""

    EMBEDDED = "embedded"  # a single server that does everything
    API = "api"  # forwards predictions to workers
    WORKER = "worker"  # computes predictions with the artifacts of one target


class ClusterSettings(BaseModel):
    """The settings that only matter for the API and the workers of a cluster. Times are in seconds."""

    model_config = ConfigDict(extra="forbid", frozen=True)

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

    @field_validator("cluster_key")
    @classmethod
    def _is_secret(cls, key: SecretStr | None) -> SecretStr | None:
        if key is not None and not _CLUSTER_KEY.fullmatch(key.get_secret_value()):
            raise ValueError(_CLUSTER_KEY_FORM)
        return key

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

"""How an API speaks to its workers: by which secret they know it, and by which certificates it knows them."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from pathlib import Path

from service.core.certificate import authorities_in, trusting
from service.core.settings import Settings
from service.core.worker import Worker, place_of


@dataclass(frozen=True)
class Security:
    """What the settings of an API say.

    Attributes:
        key: the secret of the cluster, which workers are shown.
        ca: a PEM file of the authorities that certify workers; None: requests go to workers in plain text.
        name: what certificates of workers are for; None: each for the host of its worker's address.
    """

    key: str
    ca: Path | None = None
    name: str | None = None

    def refusal(self, worker: Worker) -> str | None:
        """Why a worker is sent nothing; None where it is. Plain text is never a way out."""
        is_encrypted = worker.address is not None and place_of(worker.address).is_encrypted
        if self.ca is not None and not is_encrypted:
            return "it takes requests in plain text, and cluster_ca asks for TLS: start it with --tls-cert"
        if self.ca is None and is_encrypted:
            return "it takes requests by TLS, and the API has no cluster_ca to know its certificate by"
        return None

    def server_name(self, worker: Worker) -> str:
        """What its certificate has to be for; empty: requests go to it in plain text."""
        if self.ca is None or worker.address is None:
            return ""
        return self.name or place_of(worker.address).host

    def authorities(self) -> bytes:
        """Their certificates, PEM; empty where none are asked for. Raises `InvalidInput`, as `authorities_in`."""
        return b"" if self.ca is None else authorities_in(self.ca)

    def context(self) -> ssl.SSLContext:
        """For connections to workers. Raises as `authorities`."""
        return trusting(self.authorities())


def security_of(settings: Settings) -> Security:
    """Raises `InvalidInput`: the key of the cluster cannot be read."""
    return Security(settings.key_of_cluster, settings.cluster_ca, settings.cluster_tls_name)

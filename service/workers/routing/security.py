"""Authentication between an API and its workers: the API sends the cluster's secret, and the workers have
certificates.
"""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from pathlib import Path

from service.core.cluster.certificate import client_context, read_authorities
from service.core.cluster.worker import Worker, parse_address
from service.core.settings import Settings


@dataclass(frozen=True)
class Security:
    """The settings of an API for connections to its workers.

    Attributes:
        key: the secret of the cluster, which is sent to workers.
        ca: a PEM file with the authorities that certify workers. None if requests go to workers in plain text.
        name: the name that the workers' certificates are for. None if each is for the host in its worker's address.
    """

    key: str
    ca: Path | None = None
    name: str | None = None

    def refusal(self, worker: Worker) -> str | None:
        """Returns why a worker gets no requests, or None if it gets them. Never falls back to plain text."""
        is_encrypted = worker.address is not None and parse_address(worker.address).is_encrypted
        if self.ca is not None and not is_encrypted:
            return "it accepts requests in plain text, but cluster_ca requires TLS: start it with --tls-cert"
        if self.ca is None and is_encrypted:
            return "it requires TLS, but the API has no cluster_ca to verify its certificate"
        return None

    def server_name(self, worker: Worker) -> str:
        """Returns the name that the worker's certificate must be for. An empty string means that requests go to it in
        plain text.
        """
        if self.ca is None or worker.address is None:
            return ""
        return self.name or parse_address(worker.address).host

    def authorities(self) -> bytes:
        """Returns the authorities' certificates in PEM format; empty if TLS is not used. Raises `InvalidInput`, like
        `read_authorities`.
        """
        return b"" if self.ca is None else read_authorities(self.ca)

    def context(self) -> ssl.SSLContext:
        """Returns the TLS context for connections to workers. Raises the same errors as `authorities`."""
        return client_context(self.authorities())


def security_of(settings: Settings) -> Security:
    """Returns the security settings. Raises `InvalidInput` if the key of the cluster cannot be read."""
    return Security(settings.key_of_cluster, settings.cluster_ca, settings.cluster_tls_name)

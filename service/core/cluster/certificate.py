"""The TLS certificate of the server, for HTTPS and gRPC. The certificate may be renewed while the server runs."""

from __future__ import annotations

import logging
import ssl
import threading
from dataclasses import dataclass
from pathlib import Path

from service.core.clock import Clock, SystemClock
from service.core.errors import InvalidInput
from service.core.settings import Settings

_logger = logging.getLogger(__name__)
_LOOK_S = 1.0  # the interval between two looks at the files: handshakes may use the old certificate for this long


@dataclass(frozen=True)
class Pair:
    """A certificate chain, the server's certificate first, and the private key of that certificate.

    Attributes:
        state: inode, modification time and size of both files when they were read.
        context: the TLS context for handshakes.
    """

    state: tuple[int, ...]
    cert_pem: bytes
    key_pem: bytes
    context: ssl.SSLContext


class Certificate:
    """The certificate and its key, in two files. A handshake reads changed files again. This class is thread-safe.

    If the changed files cannot be used, the error is logged and the old pair stays in use. This happens if a renewal
    failed, or has so far written only one of the two files. A forked process starts with the pair that was read before
    the fork.

    Attributes:
        context: the TLS context for HTTP connections, valid for the life of the server. Each handshake on it uses the
            pair that is current at that time.
    """

    def __init__(self, cert: Path, key: Path, clock: Clock | None = None) -> None:
        """
        Raises:
            InvalidInput: a file cannot be read, or key and certificate do not belong together.
        """
        self._cert, self._key, self._clock = cert, key, clock or SystemClock()
        self._lock = threading.Lock()
        self._look_at_s = self._clock.monotonic_s() + _LOOK_S
        self._pair = self._read()
        self._seen = self._pair.state
        self.context = self._pair.context
        self.context.sni_callback = self._choose

    def pair(self) -> Pair:
        """Returns the current pair. If `_LOOK_S` have passed since the last check, first reads the files again if they
        changed.
        """
        with self._lock:
            if self._clock.monotonic_s() >= self._look_at_s:
                self._look_at_s = self._clock.monotonic_s() + _LOOK_S
                self._look_again()
            return self._pair

    def _look_again(self) -> None:
        try:
            state = self._state()
        except OSError:
            state = ()
        if state == self._seen:
            return
        self._seen = state
        try:
            self._pair = self._read()
            _logger.warning("the certificate %s was renewed", self._cert)
        except InvalidInput as error:
            _logger.error("%s; the previous certificate stays in use", error.message)

    def _read(self) -> Pair:
        try:
            state = self._state()
            pair = Pair(state, self._cert.read_bytes(), self._key.read_bytes(), _context(self._cert, self._key))
            if self._state() != state:
                raise ValueError("the files were changed while they were read")
        except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
            raise InvalidInput(
                f"{self._cert} and {self._key} are not a certificate and its key: {error}",
                hint="use PEM files, the key without a password",
            ) from error
        return pair

    def _state(self) -> tuple[int, ...]:
        statuses = self._cert.stat(), self._key.stat()
        return tuple(part for status in statuses for part in (status.st_ino, status.st_mtime_ns, status.st_size))

    def _choose(self, connection: ssl.SSLObject, name: str | None, context: ssl.SSLContext) -> None:
        """Sets the current pair for a handshake. OpenSSL calls this for each handshake, even if the client sends no
        name.
        """
        connection.context = self.pair().context


def read_authorities(path: Path) -> bytes:
    """Returns the content of a PEM file of certificate authorities.

    Raises:
        InvalidInput: the file cannot be read, or contains no certificate.
    """
    try:
        pem = path.read_bytes()
        client_context(pem)
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
        raise InvalidInput(f"{path} contains no certificates of authorities: {error}", hint="use a PEM file") from error
    return pem


def client_context(authorities: bytes) -> ssl.SSLContext:
    """Returns a TLS context for clients that trust servers certified by `authorities` (PEM), and no others.

    Raises:
        ValueError, ssl.SSLError: `authorities` contains no usable certificate.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_verify_locations(cadata=authorities.decode("ascii"))
    return context


def certificate_of(settings: Settings) -> Certificate | None:
    """Returns the certificate that the settings name; None if they name none, for connections in plain text.

    Raises:
        InvalidInput: as in `Certificate`.
    """
    if settings.tls_cert is None or settings.tls_key is None:
        return None
    return Certificate(settings.tls_cert, settings.tls_key)


def _context(cert: Path, key: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)  # TLS 1.2 and later, with Python's choice of ciphers
    context.set_alpn_protocols(["http/1.1"])
    context.load_cert_chain(cert, key, password=_no_password)
    return context


def _no_password() -> str:
    """Fails if the key needs a password. Without this function, OpenSSL would prompt for one at the terminal."""
    raise ValueError("the key needs a password")

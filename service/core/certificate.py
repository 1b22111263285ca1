"""HTTPS and gRPC over TLS: the certificate of the server, which may be renewed while it runs."""

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
_LOOK_S = 1.0  # so long after a change of the files a handshake may still go by what they were


@dataclass(frozen=True)
class Pair:
    """Certificates, the server's first, and the private key to it.

    Attributes:
        state: of the files when they were read; others may have been written since.
        context: for handshakes.
    """

    state: tuple[int, ...]
    cert_pem: bytes
    key_pem: bytes
    context: ssl.SSLContext


class Certificate:
    """The pair of files, read again when a handshake finds them changed. Safe between threads.

    What is no pair is named in the log, and what was read before stays: a renewal that went wrong, or one of which only
    the first file is there yet. A fork has what was read before it, whatever the files have become.

    Attributes:
        context: for connections over HTTP, for as long as they are taken: a handshake takes the pair of its time.
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
        """The one to use now."""
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
            _logger.error("%s; the one from before stays", error.message)

    def _read(self) -> Pair:
        try:
            state = self._state()
            pair = Pair(state, self._cert.read_bytes(), self._key.read_bytes(), _context(self._cert, self._key))
            if self._state() != state:
                raise ValueError("they were changed while they were read")
        except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
            raise InvalidInput(
                f"{self._cert} and {self._key} are no certificate and its key: {error}",
                hint="PEM files, the key without a password",
            ) from error
        return pair

    def _state(self) -> tuple[int, ...]:
        statuses = self._cert.stat(), self._key.stat()
        return tuple(part for status in statuses for part in (status.st_ino, status.st_mtime_ns, status.st_size))

    def _choose(self, connection: ssl.SSLObject, name: str | None, context: ssl.SSLContext) -> None:
        """Called for each handshake, whether the client names a server or not."""
        connection.context = self.pair().context


def authorities_in(path: Path) -> bytes:
    """The certificates of authorities in a PEM file.

    Raises:
        InvalidInput: it cannot be read, or holds none.
    """
    try:
        pem = path.read_bytes()
        trusting(pem)
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
        raise InvalidInput(f"{path} holds no certificates of authorities: {error}", hint="a PEM file") from error
    return pem


def trusting(authorities: bytes) -> ssl.SSLContext:
    """For a client that knows servers by these authorities, PEM, and no others. Raises `ValueError`, `ssl.SSLError`."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_verify_locations(cadata=authorities.decode("ascii"))
    return context


def certificate_of(settings: Settings) -> Certificate | None:
    """The certificate of the settings; None for connections in plain text. Raises as `Certificate`."""
    if settings.tls_cert is None or settings.tls_key is None:
        return None
    return Certificate(settings.tls_cert, settings.tls_key)


def _context(cert: Path, key: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)  # 1.2 and later, with Python's choice of ciphers
    context.set_alpn_protocols(["http/1.1"])
    context.load_cert_chain(cert, key, password=_no_password)
    return context


def _no_password() -> str:
    """Or OpenSSL would ask for one at the terminal."""
    raise ValueError("the key needs a password")

"""The part of an OCI registry's distribution API that is needed for pushing and pulling.

https://github.com/opencontainers/distribution-spec/blob/v1.1.1/spec.md. The responses of a registry are not trusted:
their size is limited, and every blob is hashed. A password is sent only to the registry and to the token server that
the registry names.
"""

from __future__ import annotations

import io
import json
import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from urllib.parse import urljoin

import httpx

from service.cache import MANIFEST_MEDIA_TYPE, BlobStore, Descriptor
from service.cache.oci import INDEX_MEDIA_TYPE, LARGEST_MANIFEST_BYTES
from service.core.digest import Digest, digest_of
from service.core.errors import (
    DigestMismatch,
    Forbidden,
    InvalidInput,
    NotFound,
    RegistryFailed,
    TooLarge,
    Unauthorized,
)
from service.core.settings import PlainHttp, Settings
from service.registry import tokens
from service.registry.credentials import credentials_of
from service.registry.reference import Reference, is_loopback

_ACCEPT = f"{MANIFEST_MEDIA_TYPE}, {INDEX_MEDIA_TYPE}"
_PIECE_BYTES = 32 << 20  # the size of a request's piece of a blob; a broken connection costs at most one piece
_TRIES, _PAUSE_S, _MOST_PAUSE_S = 5, 0.5, 30.0
_MOST_REDIRECTS = 5
_BUSY = (408, 429, 500, 502, 503, 504)


class Registry:
    """One repository of a registry; a context manager.

    All methods may raise:
        RegistryFailed: the registry does not respond, or its response is not one of a registry.
        Unauthorized, Forbidden: the registry rejects this user, or denies this user the operation.
        InvalidInput: the registry responds or redirects in plain HTTP, and the settings do not allow that.

    Attributes:
        reference: the repository, and the tag or digest to pull or push.
    """

    def __init__(self, reference: Reference, settings: Settings, *, writes: bool = False) -> None:
        """
        Args:
            writes: request the permission to push, too.
        """
        self.reference = reference
        self._settings = settings
        plain = settings.registry_http is PlainHttp.ALWAYS or (
            settings.registry_http is PlainHttp.LOOPBACK and reference.is_loopback
        )
        self._origin = f"{'http' if plain else 'https'}://{reference.host}"
        self._base = f"{self._origin}/v2/{reference.repository}"
        self._scope = f"repository:{reference.repository}:{'pull,push' if writes else 'pull'}"
        self._authorization: str | None = None
        self._client = httpx.Client(timeout=settings.store_timeout_s, headers={"accept-encoding": "identity"})

    def __enter__(self) -> Registry:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._client.close()

    def manifest(self, name: str) -> tuple[str, bytes]:
        """Returns the media type and the bytes of the manifest or the index with this tag or digest.

        Raises:
            NotFound: the registry has no such manifest or index.
            DigestMismatch: the bytes do not have the given digest.
        """
        with self._request("GET", f"{self._base}/manifests/{name}", {"accept": _ACCEPT}) as answer:
            self._expect(answer, f"manifest {name}", 200)
            data = _read_bounded(answer, LARGEST_MANIFEST_BYTES)
            media_type = answer.headers.get("content-type", "").partition(";")[0].strip()
        if ":" in name and digest_of(data) != name:
            raise DigestMismatch(f"{self.reference.host} sends other bytes for {name}", hint="do not trust it")
        return media_type, data

    def has_manifest(self, digest: Digest) -> bool:
        return self._has(f"manifests/{digest}", f"manifest {digest}")

    def put_manifest(self, name: str, media_type: str, data: bytes) -> bool:
        """Uploads a manifest. Returns true if the registry will itself list the manifest as a referrer of the
        manifest's subject.
        """
        headers = {"content-type": media_type}
        with self._request("PUT", f"{self._base}/manifests/{name}", headers, lambda: data) as answer:
            self._expect(answer, f"manifest {name}", 201)
            return "oci-subject" in answer.headers

    def referrers(self, digest: Digest) -> list[Descriptor]:
        """Returns the manifests that the registry lists as referring to `digest`. Uses the referrers API, or, if the
        registry does not have it, the fallback tag.

        Returns only the first page of a long list: an artifact has a handful of referrers.
        """
        with self._request("GET", f"{self._base}/referrers/{digest}", {"accept": INDEX_MEDIA_TYPE}) as answer:
            is_index = answer.headers.get("content-type", "").startswith(INDEX_MEDIA_TYPE)
            if answer.status_code == 200 and is_index:
                return entries_of(_read_bounded(answer, LARGEST_MANIFEST_BYTES))
            if answer.status_code not in (200, 400, 404, 405):  # 400, 404, 405: the registry does not have this API
                self._expect(answer, f"the referrers of {digest}", 200)
        try:
            return entries_of(self.manifest(fallback_tag(digest))[1])
        except NotFound:
            return []

    def fetch(self, blob: Descriptor, blobs: BlobStore) -> None:
        """Stores a blob, unless it is already stored. If the connection breaks, requests the missing rest.

        Raises:
            NotFound: the registry does not have the blob.
            DigestMismatch, InvalidInput: the registry sent bytes with another digest, or more bytes than the blob has.
        """
        if blobs.exists(blob.digest):
            return
        with blobs.writer() as writer:
            for left in reversed(range(_TRIES)):
                before = writer.size_bytes
                try:
                    for chunk in self._pieces(blob, before):
                        if writer.size_bytes + len(chunk) > blob.size_bytes:
                            raise InvalidInput(f"{self.reference.host} sends more bytes than blob {blob.digest} has")
                        writer.write(chunk)
                except httpx.TransportError as error:
                    if not left and writer.size_bytes == before:
                        raise self._error(f"blob {blob.digest}: {error}") from error
                if writer.size_bytes == blob.size_bytes:
                    writer.commit(blob.digest)
                    return
                time.sleep(_PAUSE_S)
        raise self._error(f"blob {blob.digest} was cut off {_TRIES} times")

    def _pieces(self, blob: Descriptor, offset: int) -> Iterator[bytes]:
        """Yields the bytes from `offset` on. Raises `httpx.TransportError` if the connection breaks."""
        headers = {"range": f"bytes={offset}-"} if offset else {}
        with self._request("GET", f"{self._base}/blobs/{blob.digest}", headers) as answer:
            self._expect(answer, f"blob {blob.digest}", 200, 206)
            skip = 0 if answer.status_code == 206 else offset
            if answer.status_code == 206 and not answer.headers.get("content-range", "").startswith(f"bytes {offset}-"):
                raise self._error(f"blob {blob.digest}: the registry sent another range than requested")
            for chunk in answer.iter_raw():
                yield chunk[skip:]
                skip = max(0, skip - len(chunk))

    def put_blob(self, digest: Digest, content: Path | bytes) -> None:
        """Uploads a file, or bytes, that hash to `digest`, unless the registry has them."""
        if self._has(f"blobs/{digest}", f"blob {digest}"):
            return
        size_bytes = content.stat().st_size if isinstance(content, Path) else len(content)
        with self._request("POST", f"{self._base}/blobs/uploads/", {"content-length": "0"}) as answer:
            self._expect(answer, "an upload", 202)
            location = self._location(answer)
        offset = 0
        with content.open("rb") if isinstance(content, Path) else io.BytesIO(content) as file:
            while size_bytes - offset > _PIECE_BYTES:
                location, offset = self._send_piece(location, file.seek(offset), file.read(_PIECE_BYTES))
            file.seek(offset)
            last = file.read()
        url = str(httpx.URL(location).copy_merge_params({"digest": digest}))
        headers = {"content-type": "application/octet-stream"}
        with self._request("PUT", url, headers, lambda: last) as answer:
            self._expect(answer, f"blob {digest}", 201)

    def _send_piece(self, location: str, offset: int, piece: bytes) -> tuple[str, int]:
        """Uploads a piece. Returns the URL for the next piece, and how many bytes have arrived in total: fewer than
        were sent if the connection broke.
        """
        end = offset + len(piece) - 1
        headers = {"content-type": "application/octet-stream", "content-range": f"{offset}-{end}"}
        try:
            with self._request("PATCH", location, headers, lambda: piece, retries=False) as answer:
                self._expect(answer, "a piece of a blob", 202)
                return self._location(answer), end + 1
        except httpx.TransportError:
            with self._request("GET", location) as answer:
                self._expect(answer, "an upload", 204)
                arrived = re.fullmatch(r"0-([0-9]+)", answer.headers.get("range", ""))
                return self._location(answer), int(arrived[1]) + 1 if arrived else 0

    def _has(self, path: str, what: str) -> bool:
        with self._request("HEAD", f"{self._base}/{path}", {"accept": _ACCEPT}) as answer:
            if answer.status_code == 404:
                return False
            self._expect(answer, what, 200)
            return True

    @contextmanager
    def _request(
        self,
        method: str,
        url: str,
        headers: Mapping[str, str] | None = None,
        body: Callable[[], bytes] | None = None,
        *,
        retries: bool = True,
    ) -> Iterator[httpx.Response]:
        """Yields the response, with its body unread. Retries if the registry is busy or closes the connection."""
        for left in reversed(range(_TRIES if retries else 1)):
            try:
                answer = self._follow_redirects(method, url, headers or {}, body() if body else None)
            except httpx.TransportError as error:
                if not retries:
                    raise
                if not left:
                    raise self._error(str(error) or type(error).__name__) from error
                time.sleep(_PAUSE_S)
                continue
            if answer.status_code in _BUSY and left:
                answer.close()
                time.sleep(_pause_s(answer))
                continue
            break
        try:
            yield answer
        finally:
            answer.close()

    def _follow_redirects(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes | None
    ) -> httpx.Response:
        """Follows redirects, because blobs are often stored elsewhere. Other servers get no password and no token."""
        for _ in range(_MOST_REDIRECTS):
            answer = self._authenticate(method, url, headers, body)
            if not (answer.is_redirect and method in ("GET", "HEAD")):
                return answer
            answer.close()
            url = self._check_encryption(urljoin(url, answer.headers["location"]))
        raise self._error(f"it redirects more than {_MOST_REDIRECTS} times")

    def _authenticate(self, method: str, url: str, headers: Mapping[str, str], body: bytes | None) -> httpx.Response:
        is_own = self._is_own(url)
        answer = self._send(method, url, headers, body, self._authorization if is_own else None)
        if answer.status_code != 401 or not is_own:
            return answer
        answer.close()
        challenge = tokens.parse_challenge(answer.headers.get("www-authenticate", ""))
        credentials = credentials_of(self._settings, self.reference.host)
        self._authorization = tokens.authorization(challenge, credentials, self._scope, self._fetch_token)
        return self._send(method, url, headers, body, self._authorization)

    def _send(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes | None, authorization: str | None
    ) -> httpx.Response:
        authentication = {"authorization": authorization} if authorization else {}
        request = self._client.build_request(method, url, headers={**headers, **authentication}, content=body)
        return self._client.send(request, stream=True)

    def _fetch_token(self, request: httpx.Request) -> bytes:
        self._check_encryption(str(request.url))
        try:
            answer = self._client.send(request, stream=True)
        except httpx.TransportError as error:
            raise self._error(f"its token server does not respond: {error}") from error
        try:
            if answer.status_code != 200:
                raise Unauthorized(
                    f"{request.url.host} issues no token for {self.reference.repository} (status {answer.status_code})",
                    hint=f"docker login {self.reference.host}, or OCTET_REGISTRY_USERNAME and …_PASSWORD",
                )
            return _read_bounded(answer, tokens.MOST_BYTES)
        finally:
            answer.close()

    def _location(self, answer: httpx.Response) -> str:
        location = answer.headers.get("location")
        if not location:
            raise self._error("its response has no Location header to upload to")
        return self._check_encryption(urljoin(str(answer.request.url), location))

    def _check_encryption(self, url: str) -> str:
        """Returns `url`. Raises `InvalidInput` if it is plain HTTP and the settings do not allow that."""
        try:
            parsed = httpx.URL(url)
        except httpx.InvalidURL as error:
            raise self._error("it redirects to an invalid URL") from error
        plain = self._settings.registry_http
        is_plain_allowed = plain is PlainHttp.ALWAYS or (plain is PlainHttp.LOOPBACK and is_loopback(parsed.host))
        if parsed.scheme == "https" or (parsed.scheme == "http" and is_plain_allowed):
            return url
        raise InvalidInput(
            f"{self.reference.host} redirects to {parsed.scheme}://{parsed.host}, which is not encrypted",
            hint="OCTET_REGISTRY_HTTP=always allows plain HTTP",
        )

    def _is_own(self, url: str) -> bool:
        origin, other = httpx.URL(self._origin), httpx.URL(url)
        return (origin.scheme, origin.host, origin.port) == (other.scheme, other.host, other.port)

    def _expect(self, answer: httpx.Response, what: str, *statuses: int) -> None:
        status = answer.status_code
        if status in statuses:
            return
        where = f"{self.reference.host}/{self.reference.repository}"
        if status == 404:
            raise NotFound(f"{where} has no {what}")
        if status == 401:
            raise Unauthorized(f"{where} rejects this user", hint=f"docker login {self.reference.host}")
        if status == 403:
            raise Forbidden(f"{where} does not allow this user to read or change {what}")
        if status == 413:
            raise TooLarge(f"{where} rejects {what} as too large")
        raise self._error(f"{what}: it responded with status {status}")

    def _error(self, why: str) -> RegistryFailed:
        return RegistryFailed(f"registry {self.reference.host}: {why}")


def fallback_tag(digest: Digest) -> str:
    """Returns the tag of the index that lists the referrers, in registries without the referrers API."""
    return digest.replace(":", "-")


def entries_of(index: bytes) -> list[Descriptor]:
    """Returns the entries of an index. Raises `InvalidInput` if it is not an index."""
    try:
        return [Descriptor.from_json(entry) for entry in json.loads(index)["manifests"]]
    except (ValueError, LookupError, TypeError, RecursionError) as error:
        raise InvalidInput("the registry's list is not an OCI index") from error


def _read_bounded(answer: httpx.Response, most_bytes: int) -> bytes:
    data = bytearray()
    try:
        for chunk in answer.iter_raw():
            data += chunk
            if len(data) > most_bytes:
                raise InvalidInput(f"the registry's response has more than {most_bytes} bytes")
    except httpx.TransportError as error:
        raise RegistryFailed(f"registry {answer.request.url.host} closed the connection: {error}") from error
    return bytes(data)


def _pause_s(answer: httpx.Response) -> float:
    header = answer.headers.get("retry-after", "")
    return min(float(header), _MOST_PAUSE_S) if header.isdecimal() and len(header) < 6 else _PAUSE_S

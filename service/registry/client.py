"""The distribution API of an OCI registry, as much as pushing and pulling takes.

https://github.com/opencontainers/distribution-spec/blob/v1.1.1/spec.md. What a registry answers is a stranger's: every
answer is bounded, every blob is hashed, and a password goes to the registry, and to the server of tokens that it names,
alone.
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
_PIECE_BYTES = 32 << 20  # of a blob in one request: what is sent again where the connection breaks
_TRIES, _PAUSE_S, _MOST_PAUSE_S = 5, 0.5, 30.0
_MOST_REDIRECTS = 5
_BUSY = (408, 429, 500, 502, 503, 504)


class Registry:
    """One repository of a registry; a context manager.

    Raises, whatever it is asked:
        RegistryFailed: it does not answer, or not as a registry does.
        Unauthorized, Forbidden: it lets this user not in, or not do this.
        InvalidInput: it answers or redirects in plain HTTP, where that is not allowed.

    Attributes:
        reference: what is pulled or pushed.
    """

    def __init__(self, reference: Reference, settings: Settings, *, writes: bool = False) -> None:
        """
        Args:
            writes: whether to ask for the permission to push, too.
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
        """The media type and the bytes of the manifest or the index with this tag or digest.

        Raises:
            NotFound: there is none.
            DigestMismatch: it is another one than its digest says.
        """
        with self._asked("GET", f"{self._base}/manifests/{name}", {"accept": _ACCEPT}) as answer:
            self._expect(answer, f"manifest {name}", 200)
            data = _bounded(answer, LARGEST_MANIFEST_BYTES)
            media_type = answer.headers.get("content-type", "").partition(";")[0].strip()
        if ":" in name and digest_of(data) != name:
            raise DigestMismatch(f"{self.reference.host} gives something else for {name}", hint="do not trust it")
        return media_type, data

    def has_manifest(self, digest: Digest) -> bool:
        return self._has(f"manifests/{digest}", f"manifest {digest}")

    def put_manifest(self, name: str, media_type: str, data: bytes) -> bool:
        """Whether the registry will list it as a referrer of its subject by itself."""
        headers = {"content-type": media_type}
        with self._asked("PUT", f"{self._base}/manifests/{name}", headers, lambda: data) as answer:
            self._expect(answer, f"manifest {name}", 201)
            return "oci-subject" in answer.headers

    def referrers(self, digest: Digest) -> list[Descriptor]:
        """What the registry lists as about `digest`; by its API, or, where it has none, by the tag that stands for it.

        Only the first page of a long list: an artifact has a handful.
        """
        with self._asked("GET", f"{self._base}/referrers/{digest}", {"accept": INDEX_MEDIA_TYPE}) as answer:
            is_index = answer.headers.get("content-type", "").startswith(INDEX_MEDIA_TYPE)
            if answer.status_code == 200 and is_index:
                return entries_of(_bounded(answer, LARGEST_MANIFEST_BYTES))
            if answer.status_code not in (200, 400, 404, 405):  # those of registries that do not know the question
                self._expect(answer, f"the referrers of {digest}", 200)
        try:
            return entries_of(self.manifest(fallback_tag(digest))[1])
        except NotFound:
            return []

    def fetch(self, blob: Descriptor, blobs: BlobStore) -> None:
        """Stores a blob, unless it is there. Where the connection breaks, what is missing is asked for.

        Raises:
            NotFound: there is none.
            DigestMismatch, InvalidInput: it has other bytes, or more.
        """
        if blobs.exists(blob.digest):
            return
        with blobs.writer() as writer:
            for left in reversed(range(_TRIES)):
                before = writer.size_bytes
                try:
                    for chunk in self._pieces(blob, before):
                        if writer.size_bytes + len(chunk) > blob.size_bytes:
                            raise InvalidInput(f"{self.reference.host} sends more than blob {blob.digest} has")
                        writer.write(chunk)
                except httpx.TransportError as error:
                    if not left and writer.size_bytes == before:
                        raise self._failed(f"blob {blob.digest}: {error}") from error
                if writer.size_bytes == blob.size_bytes:
                    writer.commit(blob.digest)
                    return
                time.sleep(_PAUSE_S)
        raise self._failed(f"blob {blob.digest} ends early, again and again")

    def _pieces(self, blob: Descriptor, offset: int) -> Iterator[bytes]:
        """The bytes from `offset` on. Raises `httpx.TransportError`, where the connection breaks."""
        headers = {"range": f"bytes={offset}-"} if offset else {}
        with self._asked("GET", f"{self._base}/blobs/{blob.digest}", headers) as answer:
            self._expect(answer, f"blob {blob.digest}", 200, 206)
            skip = 0 if answer.status_code == 206 else offset
            if answer.status_code == 206 and not answer.headers.get("content-range", "").startswith(f"bytes {offset}-"):
                raise self._failed(f"blob {blob.digest}: another range was sent than was asked for")
            for chunk in answer.iter_raw():
                yield chunk[skip:]
                skip = max(0, skip - len(chunk))

    def put_blob(self, digest: Digest, content: Path | bytes) -> None:
        """Uploads a file, or bytes, that hash to `digest`, unless the registry has them."""
        if self._has(f"blobs/{digest}", f"blob {digest}"):
            return
        size_bytes = content.stat().st_size if isinstance(content, Path) else len(content)
        with self._asked("POST", f"{self._base}/blobs/uploads/", {"content-length": "0"}) as answer:
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
        with self._asked("PUT", url, headers, lambda: last) as answer:
            self._expect(answer, f"blob {digest}", 201)

    def _send_piece(self, location: str, offset: int, piece: bytes) -> tuple[str, int]:
        """Where the next piece goes, and how much has arrived: less than was sent, where the connection broke."""
        end = offset + len(piece) - 1
        headers = {"content-type": "application/octet-stream", "content-range": f"{offset}-{end}"}
        try:
            with self._asked("PATCH", location, headers, lambda: piece, is_tried_again=False) as answer:
                self._expect(answer, "a piece of a blob", 202)
                return self._location(answer), end + 1
        except httpx.TransportError:
            with self._asked("GET", location) as answer:
                self._expect(answer, "an upload", 204)
                arrived = re.fullmatch(r"0-([0-9]+)", answer.headers.get("range", ""))
                return self._location(answer), int(arrived[1]) + 1 if arrived else 0

    def _has(self, path: str, what: str) -> bool:
        with self._asked("HEAD", f"{self._base}/{path}", {"accept": _ACCEPT}) as answer:
            if answer.status_code == 404:
                return False
            self._expect(answer, what, 200)
            return True

    @contextmanager
    def _asked(
        self,
        method: str,
        url: str,
        headers: Mapping[str, str] | None = None,
        body: Callable[[], bytes] | None = None,
        *,
        is_tried_again: bool = True,
    ) -> Iterator[httpx.Response]:
        """The answer, whose body is yet to be read. A busy registry, and one that hangs up, is asked again."""
        for left in reversed(range(_TRIES if is_tried_again else 1)):
            try:
                answer = self._followed(method, url, headers or {}, body() if body else None)
            except httpx.TransportError as error:
                if not is_tried_again:
                    raise
                if not left:
                    raise self._failed(str(error) or type(error).__name__) from error
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

    def _followed(self, method: str, url: str, headers: Mapping[str, str], body: bytes | None) -> httpx.Response:
        """With redirects, as blobs often are elsewhere. Who is elsewhere is shown no password and no token."""
        for _ in range(_MOST_REDIRECTS):
            answer = self._let_in(method, url, headers, body)
            if not (answer.is_redirect and method in ("GET", "HEAD")):
                return answer
            answer.close()
            url = self._allowed(urljoin(url, answer.headers["location"]))
        raise self._failed("it redirects again and again")

    def _let_in(self, method: str, url: str, headers: Mapping[str, str], body: bytes | None) -> httpx.Response:
        is_own = self._is_own(url)
        answer = self._sent(method, url, headers, body, self._authorization if is_own else None)
        if answer.status_code != 401 or not is_own:
            return answer
        answer.close()
        challenge = tokens.parse_challenge(answer.headers.get("www-authenticate", ""))
        credentials = credentials_of(self._settings, self.reference.host)
        self._authorization = tokens.authorization(challenge, credentials, self._scope, self._ask_for_token)
        return self._sent(method, url, headers, body, self._authorization)

    def _sent(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes | None, authorization: str | None
    ) -> httpx.Response:
        own = {"authorization": authorization} if authorization else {}
        request = self._client.build_request(method, url, headers={**headers, **own}, content=body)
        return self._client.send(request, stream=True)

    def _ask_for_token(self, request: httpx.Request) -> bytes:
        self._allowed(str(request.url))
        try:
            answer = self._client.send(request, stream=True)
        except httpx.TransportError as error:
            raise self._failed(f"its server of tokens does not answer: {error}") from error
        try:
            if answer.status_code != 200:
                raise Unauthorized(
                    f"{request.url.host} gives no token for {self.reference.repository} ({answer.status_code})",
                    hint=f"docker login {self.reference.host}, or OCTET_REGISTRY_USERNAME and …_PASSWORD",
                )
            return _bounded(answer, tokens.MOST_BYTES)
        finally:
            answer.close()

    def _location(self, answer: httpx.Response) -> str:
        location = answer.headers.get("location")
        if not location:
            raise self._failed("it does not say where to upload")
        return self._allowed(urljoin(str(answer.request.url), location))

    def _allowed(self, url: str) -> str:
        """Raises `InvalidInput`: it is plain HTTP to another machine, or something else."""
        try:
            parsed = httpx.URL(url)
        except httpx.InvalidURL as error:
            raise self._failed("it names a place that is none") from error
        plain = self._settings.registry_http
        is_plain_allowed = plain is PlainHttp.ALWAYS or (plain is PlainHttp.LOOPBACK and is_loopback(parsed.host))
        if parsed.scheme == "https" or (parsed.scheme == "http" and is_plain_allowed):
            return url
        raise InvalidInput(
            f"{self.reference.host} leads to {parsed.scheme}://{parsed.host}, which is not encrypted",
            hint="OCTET_REGISTRY_HTTP=always allows plain HTTP",
        )

    def _is_own(self, url: str) -> bool:
        own, other = httpx.URL(self._origin), httpx.URL(url)
        return (own.scheme, own.host, own.port) == (other.scheme, other.host, other.port)

    def _expect(self, answer: httpx.Response, what: str, *statuses: int) -> None:
        status = answer.status_code
        if status in statuses:
            return
        where = f"{self.reference.host}/{self.reference.repository}"
        if status == 404:
            raise NotFound(f"{where} has no {what}")
        if status == 401:
            raise Unauthorized(f"{where} does not let this user in", hint=f"docker login {self.reference.host}")
        if status == 403:
            raise Forbidden(f"{where} does not let this user have or change {what}")
        if status == 413:
            raise TooLarge(f"{where} finds {what} too large")
        raise self._failed(f"{what}: it answers {status}")

    def _failed(self, why: str) -> RegistryFailed:
        return RegistryFailed(f"registry {self.reference.host}: {why}")


def fallback_tag(digest: Digest) -> str:
    """Of the index that lists the referrers, where the registry does not."""
    return digest.replace(":", "-")


def entries_of(index: bytes) -> list[Descriptor]:
    """Raises `InvalidInput`: it is no index."""
    try:
        return [Descriptor.from_json(entry) for entry in json.loads(index)["manifests"]]
    except (ValueError, LookupError, TypeError, RecursionError) as error:
        raise InvalidInput("the registry's list is no OCI index") from error


def _bounded(answer: httpx.Response, most_bytes: int) -> bytes:
    data = bytearray()
    try:
        for chunk in answer.iter_raw():
            data += chunk
            if len(data) > most_bytes:
                raise InvalidInput(f"the registry answers with more than {most_bytes} bytes")
    except httpx.TransportError as error:
        raise RegistryFailed(f"registry {answer.request.url.host} breaks off: {error}") from error
    return bytes(data)


def _pause_s(answer: httpx.Response) -> float:
    said = answer.headers.get("retry-after", "")
    return min(float(said), _MOST_PAUSE_S) if said.isdecimal() and len(said) < 6 else _PAUSE_S

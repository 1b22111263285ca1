"""A client of the HTTP API. An unsuccessful response is raised as the error that the server reported."""

from __future__ import annotations

import ssl
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import httpx

from service.cli.events import Event, parse_events
from service.core.builds.build import BuildState
from service.core.digest import digest_of_file
from service.core.errors import InvalidInput, NotReady, OctetError, from_json
from service.core.models.arrays import Array
from service.runtime.protocol import HEADER_LENGTH, decode_response, encode_request, whole_sequence

_CHUNK_BYTES = 1 << 18
_CONNECT_S = 5.0
_ANSWER_S = 120.0
_RESUMES = 10

Document = dict[str, Any]


class ServerUnreachable(OctetError):
    """No server responds at the configured address."""

    code = "server_unreachable"


class UnexpectedAnswer(OctetError):
    """The server's response is not one that an Octet server sends."""

    code = "unexpected_answer"


class Client:
    """Sends `key` with every request. Trusts the system's certificate authorities, or those in the file
    `SSL_CERT_FILE`.
    """

    def __init__(
        self,
        server: str,
        key: str | None = None,
        *,
        transport: httpx.BaseTransport | None = None,
        timeout_s: float = _ANSWER_S,
    ) -> None:
        self.server = server.rstrip("/")
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        verify = (
            ssl.create_default_context() if self.server.startswith("https:") else False
        )  # without a context, httpx would use its own list of certificate authorities
        timeout = httpx.Timeout(timeout_s, connect=min(timeout_s, _CONNECT_S))
        # No proxy is used: HTTP_PROXY is not meant for servers on this machine or in this cluster.
        try:
            self._http = httpx.Client(
                base_url=self.server,
                headers=headers,
                timeout=timeout,
                transport=transport,
                trust_env=False,
                verify=verify,
            )
        except httpx.InvalidURL as error:
            raise self._unreachable(error) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._http.close()

    def push(
        self,
        path: Path,
        name: str,
        target: str,
        numerics: str | None,
        on_sent: Callable[[int], None],
        options: Mapping[str, str] | None = None,
    ) -> Document:
        """Requests a build of the file. Uploads the file if the server does not have it; `on_sent` is called with the
        number of bytes of each chunk that was sent.
        """
        query = {"name": name, "target": target} | ({"numerics": numerics} if numerics else {}) | dict(options or {})
        return self._put("/api/v1/models", query, path, on_sent)

    def request_builds(self, name: str, version: int, targets: Sequence[str], options: Document) -> list[Document]:
        """Requests builds of a version for these targets, with options in the API's form. Returns them."""
        request = {"targets": list(targets), "version": version, "options": options}
        builds: list[Document] = self._document("POST", f"/api/v1/models/{name}/builds", json=request)["builds"]
        return builds

    def push_artifact(
        self, archive: Path, name: str, on_sent: Callable[[int], None], options: Mapping[str, str] | None = None
    ) -> Document:
        """Uploads an archive of a compiled artifact."""
        return self._put("/api/v1/artifacts", {"name": name, **(options or {})}, archive, on_sent)

    def quantize(
        self, name: str, query: Mapping[str, Any], data: Path | None, on_sent: Callable[[int], None]
    ) -> Document:
        """Requests a quantization, calibrated with the inputs in `data`, if any. Uploads them as `push` does."""
        if data is None:
            return self._document("POST", f"/api/v1/models/{name}/quantizations", params=query)
        return self._send("POST", f"/api/v1/models/{name}/quantizations", query, "data", data, on_sent)

    def quantization(self, name: str, identifier: str) -> Document:
        return self._document("GET", f"/api/v1/models/{name}/quantizations/{identifier}")

    def download_quantized(self, name: str, identifier: str, path: Path) -> None:
        """Writes the model file that a quantization produced to `path`."""
        self._download(f"/api/v1/models/{name}/quantizations/{identifier}/file", path)

    def _put(self, route: str, query: Mapping[str, Any], path: Path, on_sent: Callable[[int], None]) -> Document:
        return self._send("PUT", route, query, "source", path, on_sent)

    def _send(
        self, method: str, route: str, query: Mapping[str, Any], member: str, path: Path, on_sent: Callable[[int], None]
    ) -> Document:
        """Sends a file; if the server already has the file, sends only the file's digest as `member` of the query."""
        digest = digest_of_file(path)
        if self._http_request("HEAD", f"/api/v1/blobs/{digest}").is_success:
            return self._document(method, route, params={**query, member: digest})

        def chunks() -> Iterator[bytes]:
            with path.open("rb") as file:
                while chunk := file.read(_CHUNK_BYTES):
                    yield chunk
                    on_sent(len(chunk))

        length = {"Content-Length": str(path.stat().st_size)}
        return self._document(method, route, params=query, content=chunks(), headers=length)

    def models(self) -> list[Document]:
        return list(self._pages("/api/v1/models", "models", {}))

    def broken_files(self) -> list[Document]:
        """Returns the files of `octet serve --models` that cannot be served."""
        broken: list[Document] = self._document("GET", "/api/v1/models", params={"limit": 1})["broken_files"]
        return broken

    def model(self, name: str) -> Document:
        return self._document("GET", f"/api/v1/models/{name}")

    def matrix(self, name: str, version: int | None) -> Document:
        return self._document("GET", f"/api/v1/models/{name}/matrix", params=_version_query(version))

    def measure(self, name: str, version: int | None) -> Document:
        """Requests that a worker of each pool measures the model. Returns the matrix as it is now."""
        return self._document("POST", f"/api/v1/models/{name}/matrix", params=_version_query(version))

    def saturation(self, name: str, version: int | None, days: int) -> Document:
        params = {**_version_query(version), "days": days}
        return self._document("GET", f"/api/v1/models/{name}/saturation", params=params)

    def describe(self, name: str, version: int, metadata: Document) -> Document:
        return self._document("PATCH", f"/api/v1/models/{name}/versions/{version}", json=metadata)

    def put_tokenizer(self, name: str, version: int, tokenizer: bytes) -> Document:
        """Sets the tokenizer of a version: the bytes of a `tokenizer.json`."""
        return self._document("PUT", f"/api/v1/models/{name}/versions/{version}/tokenizer", content=tokenizer)

    def tokenizer(self, name: str, version: int) -> bytes:
        """Returns the tokenizer of a version. Raises `NotFound` if it has none."""
        return self._request("GET", f"/api/v1/models/{name}/versions/{version}/tokenizer").content

    def targets(self) -> Document:
        return self._document("GET", "/api/v1/targets")

    def delete(self, name: str, version: int | None, force: bool) -> Document:
        path = f"/api/v1/models/{name}" + ("" if version is None else f"/versions/{version}")
        return self._document("DELETE", path, params={"force": "true"} if force else {})

    def promote(
        self, model: str, version: int, alias: str, percent: int, least: Mapping[str, float] | None = None
    ) -> Document:
        request = {"version": version, "alias": alias, "percent": percent, **({"least": dict(least)} if least else {})}
        return self._document("POST", f"/api/v1/models/{model}/promote", json=request)

    def rollback(self, model: str, alias: str, away_from: int) -> Document:
        request = {"alias": alias, "away_from": away_from}
        return self._document("POST", f"/api/v1/models/{model}/rollback", json=request)

    def keys(self) -> list[Document]:
        keys: list[Document] = self._document("GET", "/api/v1/keys")["keys"]
        return keys

    def create_key(self, request: Document) -> Document:
        return self._document("POST", "/api/v1/keys", json=request)

    def revoke_key(self, identifier: str) -> Document:
        return self._document("DELETE", f"/api/v1/keys/{identifier}")

    def audit(self, limit: int) -> list[Document]:
        entries: list[Document] = self._document("GET", "/api/v1/audit", params={"limit": limit})["entries"]
        return entries

    def quarantine(self) -> list[Document]:
        held: list[Document] = self._document("GET", "/api/v1/quarantine")["artifacts"]
        return held

    def forgive(self, artifact: str) -> Document:
        return self._document("DELETE", f"/api/v1/quarantine/{artifact}")

    def builds(self, model: str | None = None, limit: int = 20) -> list[Document]:
        query = {"model": model} if model else {}
        builds: list[Document] = self._document("GET", "/api/v1/builds", params=query | {"limit": limit})["builds"]
        return builds

    def build(self, identifier: str) -> Document:
        return self._document("GET", f"/api/v1/builds/{identifier}")

    def cancel(self, identifier: str) -> Document:
        return self._document("POST", f"/api/v1/builds/{identifier}/cancel")

    def events(self, identifier: str, pause_s: float = 1.0) -> Iterator[Event]:
        """Yields the build's past and future events until it ends. Reconnects after a lost connection.

        Raises:
            ServerUnreachable: `_RESUMES` reconnections in a row failed, `pause_s` apart.
        """
        last, lost, reason = "", 0, ""
        while lost <= _RESUMES:
            headers = {"Accept": "text/event-stream"} | ({"Last-Event-ID": last} if last else {})
            try:
                with self._http.stream("GET", f"/api/v1/builds/{identifier}/events", headers=headers) as response:
                    if response.status_code == httpx.codes.NO_CONTENT:
                        return
                    if not response.is_success:
                        response.read()
                    for event in parse_events(_raise_if_failed(response).iter_lines()):
                        last, lost = event.id or last, 0
                        yield event
                        if event.kind == "state" and BuildState(event.data["state"]).is_final:
                            return
                reason = "it stopped"
            except (httpx.TransportError, NotReady) as error:
                # NotReady: the server runs, but one of its processes or its database does not.
                reason = str(error)
            lost += 1
            time.sleep(pause_s)
        raise self._unreachable(reason)

    def report(self, artifact: str, name: str) -> Document | None:
        """Returns the artifact's report of this name, or None if it has none."""
        response = self._http_request("GET", f"/api/v1/artifacts/{artifact}/{name}")
        if response.status_code in (204, 404):
            return None
        document: Document = _raise_if_failed(response).json()
        return document

    def put_score(self, artifact: str, document: bytes) -> None:
        """Attaches a score to an artifact of the server."""
        headers = {"Content-Type": "application/json"}
        self._request("PUT", f"/api/v1/artifacts/{artifact}/score", content=document, headers=headers)

    def artifact(self, digest: str) -> Document:
        return self._document("GET", f"/api/v1/artifacts/{digest}")

    def download(self, artifact: str, path: Path) -> None:
        """Writes the artifact and its attached reports to `path`: a tar archive of an OCI image layout."""
        self._download(f"/api/v1/artifacts/{artifact}/content", path)

    def _download(self, url: str, path: Path) -> None:
        try:
            with self._http.stream("GET", url) as response, path.open("wb") as file:
                if not response.is_success:
                    response.read()
                for chunk in _raise_if_failed(response).iter_bytes(_CHUNK_BYTES):
                    file.write(chunk)
        except httpx.TransportError as error:
            raise self._unreachable(error) from error

    def fetch(self, url: str, most_bytes: int) -> bytes:
        """Returns the content at a URL of this server.

        Raises:
            InvalidInput: the URL is of another server, to which the key must not be sent, or the content is longer than
                `most_bytes`.
        """
        parsed, own = httpx.URL(url), self._http.base_url
        if (parsed.scheme, parsed.host, parsed.port) != (own.scheme, own.host, own.port):
            raise InvalidInput(f"{url} is not a URL of {self.server}", hint="download the file, and pass its path")
        parts, size_bytes = [], 0
        try:
            with self._http.stream("GET", url) as response:
                if not response.is_success:
                    response.read()
                for chunk in _raise_if_failed(response).iter_bytes(_CHUNK_BYTES):
                    size_bytes += len(chunk)
                    if size_bytes > most_bytes:
                        raise InvalidInput(f"{url} has more than {most_bytes:,} bytes")
                    parts.append(chunk)
        except httpx.TransportError as error:
            raise self._unreachable(error) from error
        return b"".join(parts)

    def metadata(self, model: str, version: int | None = None) -> Document:
        return self._document("GET", _model_path(model, version))

    def infer(
        self, model: str, names: Sequence[str], inputs: Sequence[Array | bytes], version: int | None = None
    ) -> tuple[Document, dict[str, Array]]:
        """Returns the response's header, and the outputs by name. All tensors are sent in binary.

        A model that keeps state starts from its initial state.
        """
        body, header_bytes = encode_request(names, inputs, whole_sequence())
        headers = {HEADER_LENGTH: str(header_bytes), "Content-Type": "application/octet-stream"}
        response = self._request("POST", _model_path(model, version) + "/infer", content=body, headers=headers)
        return decode_response(response.content, int(response.headers[HEADER_LENGTH]))

    def predict(self, model: str, request: Document, version: int | None = None, top: int | None = None) -> Document:
        """Returns the result of a prediction in the form of the model's task. `request` has the input in JSON form."""
        query = {**_version_query(version), **({} if top is None else {"top": top})}
        return self._document("POST", f"/api/v1/models/{model}/predict", json=request, params=query)

    def compare(
        self, model: str, names: Sequence[str], inputs: Sequence[Array | bytes], version: int | None
    ) -> Document:
        """Sends one request to every pool, in the form of `infer`, and returns their results."""
        body, header_bytes = encode_request(names, inputs, whole_sequence())
        headers = {HEADER_LENGTH: str(header_bytes), "Content-Type": "application/octet-stream"}
        path = f"/api/v1/models/{model}/compare"
        return self._document("POST", path, content=body, headers=headers, params=_version_query(version))

    def is_ready(self) -> bool:
        """Returns true if the server accepts requests."""
        try:
            return self._http_request("GET", "/v2/health/ready").is_success
        except ServerUnreachable:
            return False

    def server_metadata(self) -> Document:
        return self._document("GET", "/v2")

    def _pages(self, path: str, member: str, query: Mapping[str, Any]) -> Iterator[Document]:
        response = self._request("GET", path, params=query)
        yield from response.json()[member]
        while following := response.links.get("next"):
            response = self._request("GET", following["url"])
            yield from response.json()[member]

    def _document(self, method: str, path: str, **arguments: Any) -> Document:
        document: Document = self._request(method, path, **arguments).json()
        return document

    def _request(self, method: str, path: str, **arguments: Any) -> httpx.Response:
        return _raise_if_failed(self._http_request(method, path, **arguments))

    def _http_request(self, method: str, path: str, **arguments: Any) -> httpx.Response:
        try:
            return self._http.request(method, path, **arguments)
        except (httpx.TransportError, httpx.InvalidURL) as error:
            raise self._unreachable(error) from error

    def _unreachable(self, reason: object) -> ServerUnreachable:
        hint = "start one with octet serve, or name another with --server or OCTET_SERVER"
        return ServerUnreachable(f"no answer from {self.server}: {str(reason) or type(reason).__name__}", hint=hint)


def _version_query(version: int | None) -> dict[str, int]:
    return {} if version is None else {"version": version}


def _model_path(model: str, version: int | None) -> str:
    return f"/v2/models/{model}" + (f"/versions/{version}" if version is not None else "")


def _raise_if_failed(response: httpx.Response) -> httpx.Response:
    if response.is_success:
        return response
    raise _error_of(response)


def _error_of(response: httpx.Response) -> OctetError:
    """Returns the error in a problem document; any other response becomes an `UnexpectedAnswer` that quotes it."""
    try:
        problem = response.json()
        error = from_json(dict(problem, message=problem["detail"]))
    except (ValueError, KeyError, TypeError):
        detail = f"{response.request.url} answered {response.status_code}: {response.text[:200]!r}"
        return UnexpectedAnswer(detail, hint="check that this is an Octet server")
    if error.code == problem.get("code"):
        return error
    return UnexpectedAnswer(error.message, hint=error.hint)

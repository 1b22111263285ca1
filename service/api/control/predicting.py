"""Predictions by task: converts a picture, a text, numbers or a table to requests of the Open Inference Protocol, sends
them to this server's data plane, and converts the outputs to results.

The requests go to the public port with the caller's key, so that they are admitted, queued, batched, traced and counted
like all others.
"""

from __future__ import annotations

import asyncio
import csv
import io
import json
import ssl
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from service.core.errors import InvalidInput, NotReady, OctetError, TooLarge, UnsupportedFormat, from_json
from service.core.models.picture import format_of
from service.core.settings import Settings

if TYPE_CHECKING:  # httpx and NumPy are imported when they are used: a server of tensors needs neither here
    import httpx

    from service.core.models.metadata import ModelMetadata
    from service.core.models.signature import ModelSignature, TensorSpec

MAX_SAMPLES = 1024  # the limit for the samples of one request
_PARALLEL = 16
_TIMEOUT_S = 600.0  # the data plane ends requests by their own deadlines
_HINT = "send a picture, JSON with text, values, inputs or rows, or CSV"

Result = dict[str, Any]


@dataclass(frozen=True)
class Sample:
    """The data of one prediction. One of the members is set.

    Attributes:
        values: real values for the only input, in nested lists or one list.
        inputs: real values for each input, by name.
        tokens: the token ids of a text.
    """

    picture: bytes | None = None
    text: str | None = None
    tokens: Sequence[int] | None = None
    values: Any = None
    inputs: Mapping[str, Any] | None = None


def samples_of(body: bytes, content_type: str) -> tuple[list[Sample], bool]:
    """Returns the samples in a body, and true if the body contains a list of samples, even one with a single sample.

    Raises:
        InvalidInput: the body is malformed.
        TooLarge: the body has more than `MAX_SAMPLES` samples.
        UnsupportedFormat: the body has another type.
    """
    kind = content_type.partition(";")[0].strip().lower()
    if format_of(body) is not None or kind.startswith("image/"):
        return [Sample(picture=body)], False
    if kind == "text/csv":
        return _limited(_rows(_text_of(body))), True
    if kind == "text/plain":
        return [Sample(text=_text_of(body))], False
    if kind == "application/json" or body.lstrip()[:1] in (b"{", b"["):
        return _samples_in(_json_of(body))
    raise UnsupportedFormat(f"a body of the type {kind or 'that is missing'} is not an input of a model", hint=_HINT)


async def predict(
    settings: Settings,
    path: str,
    headers: Mapping[str, str],
    samples: Sequence[Sample],
    top: int | None,
) -> list[Result]:
    """Returns the result of each sample, in order.

    Args:
        path: the path of the model, such as `/v2/models/digits`.
        headers: the headers to pass on, such as the caller's key.

    Raises:
        OctetError: the data plane refused a request, or a sample does not fit the model.
    """
    async with predictor(settings, path, headers, top) as model:
        return list(await asyncio.gather(*map(model.predict, samples)))


@asynccontextmanager
async def predictor(
    settings: Settings, path: str, headers: Mapping[str, str], top: int | None = None
) -> AsyncIterator[TaskPredictor]:
    """Yields the predictor of a model. Arguments and errors as for `predict`."""
    import httpx

    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(settings.host, settings.host)
    address = f"[{host}]" if ":" in host else host
    scheme = "http" if settings.tls_cert is None else "https"
    # Without TLS, no certificates need to be loaded, which would take 20 ms.
    verify = False if settings.tls_cert is None else _own_certificate(settings)
    limits = httpx.Limits(max_connections=_PARALLEL)
    async with httpx.AsyncClient(
        base_url=f"{scheme}://{address}:{settings.port}",
        headers=dict(headers),
        limits=limits,
        verify=verify,
        timeout=_TIMEOUT_S,
        trust_env=False,
    ) as client:
        described = (await _send(client, "GET", path)).json()
        yield TaskPredictor(client, path, described, top)


class TaskPredictor:
    """Sends the samples of one model to the data plane.

    Attributes:
        metadata: the metadata of the version.
    """

    def __init__(self, client: httpx.AsyncClient, path: str, described: Mapping[str, Any], top: int | None) -> None:
        from service.runtime.protocol import metadata_of, signature_of

        self._client, self._path, self._top = client, path, top
        self._signature: ModelSignature = signature_of(described)
        self.metadata: ModelMetadata = metadata_of(described)
        self._free = asyncio.Semaphore(_PARALLEL)

    async def predict(self, sample: Sample) -> Result:
        """Returns the result of a sample. Raises the errors of the function `predict`."""
        result, _ = await self.answer(sample)
        return result

    async def answer(self, sample: Sample) -> tuple[Result, int]:
        """Returns the result of a sample, and its number of tokens; 0 if it is not a text."""
        from service.runtime.protocol import HEADER_LENGTH, decode_response, encode_request, whole_sequence
        from service.runtime.results import real_values, result_of

        inputs = self._inputs(sample)
        body, header_bytes = encode_request(list(inputs), list(inputs.values()), whole_sequence())
        headers = {HEADER_LENGTH: str(header_bytes), "content-type": "application/octet-stream"}
        async with self._free:
            response = await _send(self._client, "POST", f"{self._path}/infer", content=body, headers=headers)
        answer, outputs = decode_response(response.content, int(response.headers[HEADER_LENGTH]))
        of_text = answer.get("parameters", {}) if sample.text is not None else {}
        tokens = len(sample.tokens) if sample.tokens is not None else of_text.get("tokens")
        real = real_values(outputs, self._signature.outputs)
        result = result_of(real, self.metadata, top=self._top, tokens=tokens)
        return {**result, **({"truncated": True} if of_text.get("truncated") else {})}, tokens or 0

    def _inputs(self, sample: Sample) -> dict[str, Any]:
        from service.runtime.results import stored_values

        specs = {spec.name: spec for spec in self._signature.inputs}
        if sample.text is not None:
            if self.metadata.text.tokenizer is None:
                raise InvalidInput(
                    "the model does not take text, because its version has no tokenizer",
                    hint="send a picture, or numbers as values or inputs",
                )
            return {"text": sample.text.encode()}
        if sample.tokens is not None:
            return {spec.name: self._token_input(spec, sample.tokens) for spec in specs.values()}
        if sample.inputs is not None:
            if sample.inputs.keys() != specs.keys():
                raise InvalidInput(
                    f"the inputs are {', '.join(map(repr, sample.inputs))}", hint=f"the model has: {', '.join(specs)}"
                )
            return {name: stored_values(sample.inputs[name], spec) for name, spec in specs.items()}
        if len(specs) != 1:
            raise InvalidInput(f"the model has {len(specs)} inputs", hint=f"send inputs by name: {', '.join(specs)}")
        ((name, spec),) = specs.items()
        return {name: sample.picture if sample.picture is not None else stored_values(sample.values, spec)}

    def _token_input(self, spec: TensorSpec, ids: Sequence[int]) -> Any:
        """Returns the tensor of an input for one text, `[1, tokens]`, padded if the model takes one length only."""
        import numpy as np

        from service.core.models.text import TokenInput

        text = self.metadata.text
        kind, length = text.data_of(spec.name), spec.shape[-1] if spec.shape[-1] > 0 else len(ids)
        if kind is None:
            raise InvalidInput(f"the model has an input {spec.name!r}, which does not come from text", tensor=spec.name)
        if len(ids) > length:
            raise InvalidInput(f"the model takes {length} tokens, not {len(ids)}", tensor=spec.name)
        columns = {
            TokenInput.IDS: ids,
            TokenInput.MASK: [1] * len(ids),
            TokenInput.TYPES: [0] * len(ids),
            TokenInput.POSITIONS: range(len(ids)),
        }
        filling = (text.pad_id or 0) if kind is TokenInput.IDS else 0
        tensor = np.full((1, length), filling, spec.dtype)
        tensor[0, : len(ids)] = columns[kind]
        return tensor


async def _send(client: httpx.AsyncClient, method: str, path: str, **arguments: Any) -> httpx.Response:
    import httpx

    try:
        response = await client.request(method, path, **arguments)
    except httpx.TransportError as error:
        raise NotReady("the data plane did not respond", hint="try again", retry_after_s=1) from error
    if not response.is_success:
        raise _error_of(response)
    return response


def _error_of(response: httpx.Response) -> OctetError:
    try:
        problem = response.json()
        error = from_json({**problem, "message": problem["detail"]})
    except (ValueError, KeyError, TypeError):
        return NotReady(f"the data plane responded with status {response.status_code}")
    if (after := response.headers.get("retry-after", "")).isdecimal():
        error.retry_after_s = float(after)
    return error


def _own_certificate(settings: Settings) -> ssl.SSLContext:
    """Returns a context that accepts this server's own certificate, for whatever name it is."""
    context = ssl.create_default_context(cafile=str(settings.tls_cert))
    context.check_hostname = False
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # another authority may have issued the certificate
    return context


def _samples_in(value: Any) -> tuple[list[Sample], bool]:
    if not isinstance(value, dict) or len(value) != 1:
        raise InvalidInput("the JSON is not an object with one member", hint="text, values, inputs or rows")
    ((member, content),) = value.items()
    match member:
        case "text" if isinstance(content, str):
            return [Sample(text=content)], False
        case "text" if isinstance(content, list) and all(isinstance(each, str) for each in content):
            return _limited([Sample(text=each) for each in content]), True
        case "values":
            return [Sample(values=content)], False
        case "inputs" if isinstance(content, dict):
            return [Sample(inputs=content)], False
        case "rows" if isinstance(content, list):
            return _limited([_row(each) for each in content]), True
    raise InvalidInput(f"{member!r} is not valid", hint="send text, values, inputs or rows; see docs/how-to/http.md")


def _row(row: Any) -> Sample:
    if isinstance(row, str):
        return Sample(text=row)
    if isinstance(row, dict):
        return Sample(inputs=row)
    return Sample(values=row)


def _rows(text: str) -> list[Sample]:
    """Returns the rows of CSV with a header: the text in a column `text`, or the numbers of all columns."""
    reader = csv.reader(io.StringIO(text, newline=""))
    try:
        header = next(reader, [])
        rows = [row for row in reader if row]
        if "text" in header:
            return [Sample(text=row[header.index("text")]) for row in rows]
        return [Sample(values=[float(cell) for cell in row]) for row in rows]
    except (csv.Error, ValueError, IndexError) as error:
        raise InvalidInput(
            f"line {reader.line_num} of the CSV is not valid: {error}", hint="numbers, or a column called text"
        ) from error


def _limited(samples: list[Sample]) -> list[Sample]:
    if len(samples) > MAX_SAMPLES:
        raise TooLarge(f"the request has {len(samples)} samples, but the limit is {MAX_SAMPLES}")
    return samples


def _text_of(body: bytes) -> str:
    try:
        return body.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InvalidInput("the body is not UTF-8 text") from error


def _json_of(body: bytes) -> Any:
    try:
        return json.loads(body)
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"the body is not well-formed JSON: {error}") from error

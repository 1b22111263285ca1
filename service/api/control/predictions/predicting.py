"""Predictions by task: converts a picture, a text, numbers or a table to requests of the Open Inference Protocol, sends
them to this server's data plane, and converts the outputs to results.

The requests go to the public port with the caller's key, so that they are admitted, queued, batched, traced and counted
like all others.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote

from service.api.control.predictions.plane_client import PlaneClient, PlaneResponse
from service.api.control.predictions.samples import Sample
from service.core.errors import InvalidInput, NotReady, OctetError, from_json
from service.core.models.task import Task
from service.core.settings import Settings

if TYPE_CHECKING:  # NumPy is imported when it is used: a server of tensors does not need it here
    from service.core.models.arrays import Array
    from service.core.models.metadata import ModelMetadata
    from service.core.models.signature import ModelSignature, TensorSpec

_PARALLEL = 16  # the number of requests that one request becomes at a time
# The interval at which a model's description is read again. The data plane learns of changes at the same interval.
_REFRESH_S = 0.5
_MOST_DESCRIBED = 256

Result = dict[str, Any]
T = TypeVar("T")


@dataclass(frozen=True)
class Predicted:
    """The result of one sample.

    Attributes:
        tokens: the number of tokens of a text; 0 for other samples.
        is_truncated: true if the text or the sound was longer than the model's maximum.
    """

    result: Result
    tokens: int = 0
    is_truncated: bool = False

    def to_json(self) -> Result:
        """Returns the result with the member `truncated` if the text was truncated."""
        return {**self.result, **({"truncated": True} if self.is_truncated else {})}


@dataclass(frozen=True)
class Described:
    """The signature and the metadata of a version of a model, as the data plane describes them."""

    signature: ModelSignature
    metadata: ModelMetadata


@dataclass(frozen=True)
class Computed:
    """The outputs for one sample.

    Attributes:
        outputs: real values by name, in the shapes of the model's outputs.
        model: the version of the model that computed them.
        parameters: the parameters of the data plane's response.
    """

    outputs: Mapping[str, Array]
    model: Described
    parameters: Mapping[str, Any]


class Predictions:
    """Sends predictions by task to this server's data plane. One object serves the whole application; its connections
    stay open. For one event loop.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._client: PlaneClient | None = None
        self._changed_ns = 0
        self._certificates: Sequence[str] = ()  # the current one, and the one before
        # by the caller's key and the path of a model: the description, and the time at which it was requested
        self._described: OrderedDict[tuple[str, str], tuple[asyncio.Task[Described], float]] = OrderedDict()

    def close(self) -> None:
        """Closes the connections."""
        if self._client is not None:
            self._client.close()

    async def send(self, method: str, path: str, headers: Mapping[str, str], content: bytes = b"") -> PlaneResponse:
        """Returns a successful response of the data plane.

        Raises:
            OctetError: the data plane refused the request, or did not respond.
        """
        try:
            response = await self._connected().request(method, path, headers, content)
        except OSError as error:
            raise NotReady("the data plane did not respond", hint="try again", retry_after_s=1) from error
        if not response.is_success:
            raise _error_of(response)
        return response

    async def describe(self, path: str, headers: Mapping[str, str]) -> Described:
        """Returns the description of the model at `path`, which is at most `_REFRESH_S` old.

        Raises:
            OctetError: as `send`.
        """
        key = headers.get("authorization", ""), path
        task, asked_s = self._described.get(key, (None, 0.0))
        if task is None or (task.done() and (time.monotonic() - asked_s > _REFRESH_S or task.exception() is not None)):
            task = asyncio.create_task(self._describe(path, headers))
            self._described[key] = task, time.monotonic()
            self._described.move_to_end(key)
            while len(self._described) > _MOST_DESCRIBED:
                self._described.popitem(last=False)
        return await asyncio.shield(task)

    async def _describe(self, path: str, headers: Mapping[str, str]) -> Described:
        from service.runtime.protocol import metadata_of, signature_of

        document = (await self.send("GET", path, headers)).json()
        return Described(signature_of(document), metadata_of(document))

    def _connected(self) -> PlaneClient:
        """Returns the client. A new one is created if the server's certificate has changed."""
        try:
            changed_ns = _changed_ns(self._settings)
            if self._client is None or self._changed_ns != changed_ns:
                certificates = _own_certificates(self._settings, self._certificates)
                client = _create_client(self._settings, certificates)
                self.close()
                self._client, self._changed_ns, self._certificates = client, changed_ns, certificates
        except (OSError, ValueError):  # a renewal has not written the whole file yet
            if self._client is None:
                raise
        return self._client


class TaskPredictor:
    """Sends the samples of one request to a model."""

    def __init__(
        self,
        predictions: Predictions,
        path: str,
        headers: Mapping[str, str] | None = None,
        top: int | None = None,
        least_score: float = 0.5,
        computes_spans: bool = False,
        parallel: int = _PARALLEL,
    ) -> None:
        """
        Args:
            path: the path of the model, such as `/v2/models/digits`.
            headers: the headers to pass on, such as the caller's key.
            top, least_score: see `result_of`.
            computes_spans: false if the results cannot be spans. The description of the model is then not needed before
                the first text is sent.
            parallel: the number of samples that are sent at a time.
        """
        self._computes_spans = computes_spans
        self._least_score = least_score
        self._predictions, self._path, self._headers, self._top = predictions, path, headers or {}, top
        self._free = asyncio.Semaphore(parallel)

    @property
    def has_deadline(self) -> bool:
        """True if the caller limits the time of a prediction."""
        return "octet-timeout-ms" in self._headers

    async def predict_all(self, samples: Sequence[Sample]) -> list[Predicted]:
        """Returns the result of each sample, in order.

        Raises:
            OctetError: as `predict`. With several samples, the message names the sample.
        """
        return await _gather(self.predict, samples)

    async def compute_all(self, samples: Sequence[Sample]) -> list[Computed]:
        """Returns the outputs for each sample, in order. Raises the same errors as `predict_all`."""
        return await _gather(self.compute, samples)

    async def predict(self, sample: Sample) -> Predicted:
        """Returns the result of a sample.

        Raises:
            OctetError: the data plane refused the request, or the sample does not fit the model.
        """
        from service.runtime.results import picture_size, result_of
        from service.runtime.results.spans import TokenizedText, parse_offsets

        computed = await self.compute(sample)
        of_text, model = computed.parameters, computed.model
        tokens = of_text.get("tokens")
        source = None
        if sample.text is not None and "token_offsets" in of_text:
            source = TokenizedText(sample.text, parse_offsets(of_text["token_offsets"]))
        size = picture_size(model.signature.inputs, model.metadata)
        result = result_of(
            computed.outputs,
            model.metadata,
            top=self._top,
            tokens=tokens,
            source=source,
            size=size,
            least_score=self._least_score,
        )
        return Predicted(result, tokens or 0, bool(of_text.get("truncated")))

    async def compute(self, sample: Sample) -> Computed:
        """Returns the outputs for a sample. Raises the same errors as `predict`."""
        from service.runtime.protocol import HEADER_LENGTH, decode_response, encode_request, whole_sequence
        from service.runtime.results import real_values

        inputs = await self._inputs(sample)
        parameters = whole_sequence() | ({"token_offsets": True} if await self._wants_offsets(sample) else {})
        body, header_bytes = encode_request(list(inputs), list(inputs.values()), parameters)
        headers = {HEADER_LENGTH: str(header_bytes), "content-type": "application/octet-stream", **self._headers}
        async with self._free:
            response = await self._predictions.send("POST", f"{self._path}/infer", headers, body)
        answer, outputs = decode_response(response.content, int(response.headers[HEADER_LENGTH.lower()]))
        model = await self.describe(
            f"/v2/models/{quote(answer['model_name'], safe='')}/versions/{answer['model_version']}"
        )
        return Computed(real_values(outputs, model.signature.outputs), model, answer.get("parameters", {}))

    async def _wants_offsets(self, sample: Sample) -> bool:
        """Returns true if the result consists of spans of the text."""
        if not self._computes_spans or sample.text is None or sample.pair is not None:
            return False
        return (await self.describe()).metadata.task is Task.CLASSIFY_TOKENS

    async def describe(self, path: str | None = None) -> Described:
        """Returns the description of the model, or of the one at `path`."""
        return await self._predictions.describe(path or self._path, self._headers)

    async def _inputs(self, sample: Sample) -> dict[str, Any]:
        if sample.text is not None:  # the data plane tokenizes it
            return {
                "text": sample.text.encode(),
                **({} if sample.pair is None else {"text_pair": sample.pair.encode()}),
            }
        model = await self.describe()
        specs = {spec.name: spec for spec in model.signature.inputs}
        if sample.row is not None:
            from service.runtime.table import inputs_of_row

            return dict(inputs_of_row(sample.row, model.signature.inputs, model.metadata.columns))
        if sample.inputs is not None:
            if sample.inputs.keys() != specs.keys():
                raise InvalidInput(
                    f"the inputs are {', '.join(map(repr, sample.inputs))}", hint=f"the model has: {', '.join(specs)}"
                )
            return {name: _stored(sample.inputs[name], spec) for name, spec in specs.items()}
        if len(specs) != 1:
            raise InvalidInput(f"the model has {len(specs)} inputs", hint=f"send inputs by name: {', '.join(specs)}")
        ((name, spec),) = specs.items()
        return {name: _stored(sample.values if sample.picture is None else sample.picture, spec)}


async def _gather(predict: Callable[[Sample], Awaitable[T]], samples: Sequence[Sample]) -> list[T]:
    results = await asyncio.gather(*map(predict, samples), return_exceptions=True)
    for index, result in enumerate(results):
        if isinstance(result, OctetError) and len(samples) > 1:
            result.message = f"input {index}: {result.message}"
        if isinstance(result, BaseException):
            raise result
    return [result for result in results if not isinstance(result, BaseException)]


def _stored(values: Any, spec: TensorSpec) -> Any:
    """Returns a file as it is, and the values of an input as the model stores them."""
    from service.runtime.results import stored_values

    return values if isinstance(values, bytes) else stored_values(values, spec)


def _error_of(response: PlaneResponse) -> OctetError:
    try:
        problem = response.json()
        error = from_json({**problem, "message": problem["detail"]})
    except (ValueError, KeyError, TypeError):
        return NotReady(f"the data plane responded with status {response.status}")
    if (after := response.headers.get("retry-after", "")).isdecimal():
        error.retry_after_s = float(after)
    return error


def _own_certificates(settings: Settings, before: Sequence[str]) -> Sequence[str]:
    """Returns the contents of the certificate's file, and those before its last change; empty without TLS. The data
    plane presents the earlier certificate until it has read the new one.
    """
    return () if settings.tls_cert is None else (settings.tls_cert.read_text(), *before[:1])


def _create_client(settings: Settings, certificates: Sequence[str]) -> PlaneClient:
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(settings.host, settings.host)
    # Without TLS, no certificates need to be loaded, which would take 20 ms.
    return PlaneClient(host, settings.port, _trusting(certificates) if certificates else None)


def _trusting(certificates: Sequence[str]) -> ssl.SSLContext:
    """Returns a context that accepts this server's own certificates, for whatever name they are."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # another authority may have issued the certificate
    for each in certificates:
        context.load_verify_locations(cadata=each)
    return context


def _changed_ns(settings: Settings) -> int:
    """Returns the time of the last change of the certificate's file; 0 without TLS."""
    return 0 if settings.tls_cert is None else settings.tls_cert.stat().st_mtime_ns

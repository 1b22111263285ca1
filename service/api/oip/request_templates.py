"""Templates of requests: where the inference header of a request is known, only its tensors are read.

The inference header is the JSON before the tensors, or over gRPC the message without them. A client sends the same one
again and again, followed by other tensors. It is checked once, and what it means is kept.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

from service.api.oip.body import Body
from service.api.oip.inputs import NamedTensor, Picture
from service.api.oip.request import InferRequest
from service.api.oip.tensors import Raw, from_binary, size_bytes
from service.core.signature import ModelSignature, TensorSpec
from service.workers.inference import Served

_MAX_TEMPLATES, _MAX_HEADER_BYTES = 64, 4096  # of a model; and of one, as JSON


@dataclass(frozen=True)
class RequestTemplate:
    """A parsed inference header, for reuse by requests with the same header.

    Attributes:
        request: with the inputs of another.
        specs: of the tensors, in the order in which they follow the header.
        order: which of them is each input of the model.
        size_bytes: of all of them.
    """

    request: InferRequest
    specs: Sequence[TensorSpec]
    order: Sequence[int]
    size_bytes: int

    def samples(self, signature: ModelSignature) -> int:
        """The number of samples in the request, for a model whose signature for one sample is `signature`."""
        first = signature.inputs[0]
        given = self.specs[self.order[0]]
        return 1 if given.shape == first.shape else given.shape[0]

    def filled(self, body: Body) -> InferRequest:
        tensors = [from_binary(body, spec) for spec in self.specs]
        request = self.request
        return InferRequest(request.id, [tensors[index] for index in self.order], request.outputs, request.terms)


class RequestTemplates:
    """The templates of one loaded model, by inference header. The cache is emptied when it is full."""

    def __init__(self, learned: Callable[[bytes, RequestTemplate], None] = lambda header, template: None) -> None:
        """`learned` is called with each new template."""
        self._known: dict[bytes, RequestTemplate] = {}
        self._learned = learned

    def __iter__(self) -> Iterator[tuple[bytes, RequestTemplate]]:
        return iter(self._known.items())

    def knows(self, inference_header: bytes) -> bool:
        return inference_header in self._known

    def read(self, inference_header: bytes, body: Body) -> InferRequest | None:
        """The request of `inference_header` with the tensors in `body`; None where it is not known, or they do not fit.

        Raises:
            InvalidTensor: a tensor holds what its type does not.
        """
        template = self._known.get(inference_header)
        return template.filled(body) if template is not None and template.size_bytes == body.remaining_bytes else None

    def remember(
        self, inference_header: bytes, sent: Sequence[NamedTensor], request: InferRequest, signature: ModelSignature
    ) -> None:
        """Keeps what was read of `inference_header`; not where the request has an `id`, which is new every time."""
        if request.id is not None or len(inference_header) > _MAX_HEADER_BYTES:
            return
        if not all(isinstance(each.elements, Raw) for each in sent) or any(
            isinstance(each, Picture) for each in request.inputs
        ):
            return
        place = {each.name: index for index, each in enumerate(sent)}
        order = [place[spec.name] for spec in signature.inputs]
        specs = list(signature.inputs)
        for index, (spec, given) in enumerate(zip(signature.inputs, request.inputs, strict=True)):
            assert not isinstance(given, Picture)
            specs[order[index]] = replace(spec, shape=given.shape)
        if len(self._known) >= _MAX_TEMPLATES:
            self._known.clear()
        blank = InferRequest(None, [], request.outputs, request.terms)
        template = self._known[inference_header] = RequestTemplate(blank, specs, order, sum(map(size_bytes, specs)))
        self._learned(inference_header, template)


class ModelTemplates:
    """The templates of every loaded model, for as long as it is loaded.

    Attributes:
        learned: called with each new template.
    """

    learned: Callable[[Served, bytes, RequestTemplate], None] | None = None

    def __init__(self) -> None:
        self._templates: weakref.WeakKeyDictionary[Served, RequestTemplates] = weakref.WeakKeyDictionary()

    def of(self, served: Served) -> RequestTemplates:
        templates = self._templates.get(served)
        if templates is None:
            templates = self._templates[served] = RequestTemplates(partial(self._learned, weakref.ref(served)))
        return templates

    def _learned(self, served: weakref.ref[Served], inference_header: bytes, template: RequestTemplate) -> None:
        if self.learned is not None and (model := served()) is not None:
            self.learned(model, inference_header, template)

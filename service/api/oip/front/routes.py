"""The predict requests that are answered without Python: those to loaded models for which there is a template."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Protocol
from urllib.parse import quote

import numpy as np

from service.api.oip.front.exchange import Headers
from service.api.oip.front.refusals import refusals
from service.api.oip.request import InferRequest
from service.api.oip.request_templates import ModelTemplates, RequestTemplate
from service.api.oip.response import render
from service.api.oip.tensors import Array
from service.core.errors import InvalidInput
from service.native import Entry, Front, GrpcFront
from service.workers.inference import Reference, Served
from service.workers.inference.routes import Route


class Wire(Protocol):
    """The format of one protocol's requests."""

    def addresses(self, model: str, reference: Reference) -> Sequence[str]:
        """The addresses under which the front finds a model, or a version of it."""

    def document(self, served: Served, request: InferRequest, outputs: Sequence[Array]) -> bytes | None:
        """The part of every answer to a request that precedes its outputs; None if these are not whole tensors that
        follow it.
        """

    def refusals(self, address: str) -> Mapping[str, tuple[int, bytes]]:
        """Of requests to that address, as `refusals.refusals` has them; none for those that Python composes."""


class RestWire:
    def __init__(self, default_headers: Headers) -> None:
        """`default_headers`: of every answer, with `Date`, whose value does not matter."""
        self._default_headers = default_headers

    def addresses(self, model: str, reference: Reference) -> Sequence[str]:
        """Paths, as `oip.address` reads them."""
        name = quote(model, safe="")
        if reference is None:
            return [f"/v2/models/{name}/infer"]
        return [f"/v2/models/{name}/versions/{reference}/infer", f"/v2/models/{name}@{reference}/infer"]

    def document(self, served: Served, request: InferRequest, outputs: Sequence[Array]) -> bytes | None:
        if not all(each.binary for each in request.outputs):
            return None
        body = render(served, request, outputs).body
        return body[: len(body) - sum(outputs[each.index].nbytes for each in request.outputs)]

    def refusals(self, address: str) -> Mapping[str, tuple[int, bytes]]:
        return refusals(address, self._default_headers)


@dataclass(frozen=True)
class Address:
    """The model and version that a request answered by the front was sent to."""

    path: str
    served: Served


class FrontRoutes:
    """Keeps a front's table of models and their request templates. For the event loop's thread."""

    def __init__(self, front: Front | GrpcFront, wire: Wire, templates: ModelTemplates) -> None:
        """`templates`: of the requests over this protocol; the front also learns those to come."""
        self._front, self._wire, self._keys, self._is_open = front, wire, count(1), False
        self._addresses: dict[int, Address] = {}
        self._leaving: set[int] = set()
        self._entries: dict[str, tuple[Served, Entry, int]] = {}
        self._templates = templates
        templates.learned = self._learned

    def address(self, key: int) -> Address:
        """The address of an entry's key, which stays known as long as records may refer to it."""
        return self._addresses[key]

    def change(self, routes: Mapping[tuple[str, Reference], Route]) -> None:
        """Routes requests to these models from now on. A name that two versions share is left to Python."""
        wanted = {
            path: route.main
            for (model, reference), route in routes.items()
            if route.canary is None
            for path in self._wire.addresses(model, reference)
        }
        kept = {path: known for path, known in self._entries.items() if wanted.get(path) is known[0]}
        self._entries = {path: kept.get(path) or self._enter(path, served) for path, served in wanted.items()}
        self._publish()

    def open(self, is_open: bool) -> None:
        """Whether anything is answered without Python."""
        if is_open != self._is_open:
            self._is_open = is_open
            self._publish()

    def report(self) -> None:
        """Has what happened in the queues of its models counted, and forgets the models that are gone."""
        for key in self._leaving:
            del self._addresses[key]
        current = {key for _, _, key in self._entries.values()}
        for address in self._addresses.values():
            address.served.report()
        # The next time: something may be on its way that is said of them.
        self._leaving = {key for key, it in self._addresses.items() if key not in current and not it.served.is_held}

    def _learned(self, served: Served, inference_header: bytes, template: RequestTemplate) -> None:
        for other, entry, _ in self._entries.values():
            if other is served:
                self._teach(entry, served, inference_header, template)

    def _publish(self) -> None:
        entries = self._entries if self._is_open else {}
        self._front.route({path: entry for path, (_, entry, _) in entries.items()})

    def _enter(self, path: str, served: Served) -> tuple[Served, Entry, int]:
        key = next(self._keys)
        self._addresses[key] = Address(path, served)
        entry = Entry.of(served.queue, key)
        for kind, (status, answer) in self._wire.refusals(path).items():
            entry.refuse_with(kind, status, answer)
        for inference_header, template in self._templates.of(served):
            self._teach(entry, served, inference_header, template)
        return served, entry, key

    def _teach(self, entry: Entry, served: Served, inference_header: bytes, template: RequestTemplate) -> None:
        """Has the front answer requests of `template`, where all their answers have the same inference header."""
        if not _is_native(served, template):
            return
        terms, rules = template.request.terms, served.scheduling
        try:
            level = rules.level_of(terms.priority)
        except InvalidInput:
            return  # it is refused every time
        samples = template.samples(served.signature)
        outputs = [np.zeros(spec.batched(samples).shape, spec.dtype) for spec in served.signature.outputs]
        document = self._wire.document(served, template.request, outputs)
        if document is None:
            return
        wanted = [each.index for each in template.request.outputs]
        entry.learn(
            inference_header,
            shapes=[spec.shape for spec in template.specs],
            dtypes=[spec.dtype for spec in template.specs],
            order=template.order,
            samples=samples,
            level=level,
            timeout_s=terms.timeout_s or rules.timeout_s,
            document=document,
            outputs=wanted,
            output_bytes=sum(outputs[index].nbytes for index in wanted),
        )


def _is_native(served: Served, template: RequestTemplate) -> bool:
    """Whether every answer has the same inference header."""
    is_fixed = not (served.signature.states or served.signature.buckets)
    return is_fixed and all(each.is_stored for each in template.request.outputs)

"""Requests in words that a model has heard before: of those only the tensors are read.

A client asks again and again in the same JSON, followed by other tensors. What was checked of the words once is kept.
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

_MOST_FORMS, _MOST_BYTES = 64, 4096  # of a model; and of one, as JSON


@dataclass(frozen=True)
class Form:
    """What some words ask for.

    Attributes:
        request: with the inputs of another.
        specs: of the tensors, in the order in which they follow the words.
        order: which of them is each input of the model.
        size_bytes: of all of them.
    """

    request: InferRequest
    specs: Sequence[TensorSpec]
    order: Sequence[int]
    size_bytes: int

    def samples(self, signature: ModelSignature) -> int:
        """Of the model that `signature` is that of one sample of."""
        first = signature.inputs[0]
        given = self.specs[self.order[0]]
        return 1 if given.shape == first.shape else given.shape[0]

    def filled(self, body: Body) -> InferRequest:
        tensors = [from_binary(body, spec) for spec in self.specs]
        request = self.request
        return InferRequest(request.id, [tensors[index] for index in self.order], request.outputs, request.terms)


class Forms:
    """What one loaded model was asked, by the words."""

    def __init__(self, learned: Callable[[bytes, Form], None] = lambda words, form: None) -> None:
        """`learned` is told of everything new."""
        self._known: dict[bytes, Form] = {}
        self._learned = learned

    def __iter__(self) -> Iterator[tuple[bytes, Form]]:
        return iter(self._known.items())

    def knows(self, words: bytes) -> bool:
        return words in self._known

    def read(self, words: bytes, body: Body) -> InferRequest | None:
        """The request that `words` make with the tensors in `body`; None where they are new, or those do not fit.

        Raises:
            InvalidTensor: a tensor holds what its type does not.
        """
        form = self._known.get(words)
        return form.filled(body) if form is not None and form.size_bytes == body.remaining_bytes else None

    def remember(
        self, words: bytes, sent: Sequence[NamedTensor], request: InferRequest, signature: ModelSignature
    ) -> None:
        """Keeps what was read of `words`. Who numbers his requests (`id`) says something new every time."""
        if request.id is not None or len(words) > _MOST_BYTES:
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
        if len(self._known) >= _MOST_FORMS:
            self._known.clear()
        blank = InferRequest(None, [], request.outputs, request.terms)
        form = self._known[words] = Form(blank, specs, order, sum(map(size_bytes, specs)))
        self._learned(words, form)


class FormsOfModels:
    """Those of every loaded model, for as long as it is.

    Attributes:
        learned: told of the words in which a model is asked for the first time.
    """

    learned: Callable[[Served, bytes, Form], None] | None = None

    def __init__(self) -> None:
        self._forms: weakref.WeakKeyDictionary[Served, Forms] = weakref.WeakKeyDictionary()

    def of(self, served: Served) -> Forms:
        forms = self._forms.get(served)
        if forms is None:
            forms = self._forms[served] = Forms(partial(self._learned, weakref.ref(served)))
        return forms

    def _learned(self, served: weakref.ref[Served], words: bytes, form: Form) -> None:
        if self.learned is not None and (model := served()) is not None:
            self.learned(model, words, form)

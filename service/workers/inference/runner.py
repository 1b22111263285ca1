"""What can be served: the part of `service.runtime.Model` that this room uses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy.typing as npt

from service.core.sequence import SequenceState
from service.core.signature import ModelSignature

Array = npt.NDArray[Any]


class Runner(Protocol):
    """One instance of a loaded model."""

    @property
    def signature(self) -> ModelSignature: ...

    def run(self, inputs: Sequence[Array], state: SequenceState | None = None) -> Sequence[Array]:
        """The outputs for `inputs`, both in the signature's order. One call at a time.

        A model that keeps state goes on from `state`, and leaves there what comes next; without it, from the beginning.

        Releases the GIL while it computes. Does not touch the returned arrays again, which are not those of the inputs.

        Raises:
            InvalidTensor: an input does not fit the signature.
        """

    def clone(self) -> Runner:
        """Another instance, which shares the constants and may run at the same time as this one."""

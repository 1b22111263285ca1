"""What can be served: the part of `service.runtime.Model` that this room uses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy.typing as npt

from service import native
from service.core.sequence import SequenceState
from service.core.signature import ModelSignature

Array = npt.NDArray[Any]


class Runner(Protocol):
    """One instance of a loaded model."""

    @property
    def signature(self) -> ModelSignature: ...

    @property
    def runner(self) -> native.Runner:
        """It as a native function, whose inputs and outputs are followed by a state, where the model keeps one."""

    def run(self, inputs: Sequence[Array], state: SequenceState | None = None) -> Sequence[Array]:
        """The outputs for `inputs`, both in the signature's order. One call at a time.

        A model that keeps state goes on from `state`, and leaves there what comes next; without it, from the beginning.

        Raises:
            InvalidTensor: an input does not fit the signature.
        """

    def clone(self) -> Runner:
        """Another instance, which shares the constants and may run at the same time as this one."""

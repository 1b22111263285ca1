"""One model in several batch sizes: a runner that takes each of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from service.core.signature import ModelSignature
from service.workers.inference.runner import Array, Runner


class Variants:
    """A `Runner` of the instance that was built for the batch of the inputs.

    They take turns on one thread, so that a model uses its cores once.

    Args:
        one: the instance for one sample; it says what the model is.
        others: by batch size.
    """

    def __init__(self, one: Runner, others: Mapping[int, Runner]) -> None:
        self._one, self._others = one, dict(others)
        self._cold = True

    @property
    def signature(self) -> ModelSignature:
        return self._one.signature

    def run(self, inputs: Sequence[Array]) -> Sequence[Array]:
        """As `Runner.run`; inputs of no built size go to the instance for one sample, which refuses them."""
        if self._cold:
            self._cold = False
            self._warm()
        batch = len(inputs[0]) if inputs and inputs[0].ndim else 1
        return self._others.get(batch, self._one).run(inputs)

    def _warm(self) -> None:
        """Runs each of the others once, on the thread that will run them (`Executor.warm`)."""
        for other in self._others.values():
            other.run([np.zeros(spec.shape, spec.dtype) for spec in other.signature.inputs])

    def clone(self) -> Variants:
        return Variants(self._one.clone(), {batch: other.clone() for batch, other in self._others.items()})

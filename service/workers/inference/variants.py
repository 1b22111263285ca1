"""One model in several batch sizes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from time import monotonic

import numpy as np

from service import native
from service.core.buckets import Fitted, fitted
from service.core.errors import InvalidTensor
from service.core.signature import ModelSignature, TensorSpec
from service.workers.inference.batch_plan import BatchPlan
from service.workers.inference.runner import Array, Runner

_WARM_UPS = 4  # the first call faults pages in; the least of the others is what a call takes


class Variants:
    """One instance of a model: of each built size a runner. They take turns on one thread.

    Attributes:
        signature: of one sample.
        plan: which sizes compute how many samples; by the measurements of `warm`, once it was called.
    """

    def __init__(self, one: Runner, others: Mapping[int, Runner] | None = None) -> None:
        """
        Args:
            one: the runner for one sample; it says what the model is.
            others: by size, of which each is that of all its inputs' and outputs' first dimension.
        """
        self._runners = {1: one, **(others or {})}
        self.signature: ModelSignature = one.signature
        self._one = [(spec.dtype, spec.shape) for spec in one.signature.inputs]
        self.plan = BatchPlan({size: float(size) for size in self._runners})

    @property
    def runners(self) -> Mapping[int, native.Runner]:
        """The same as native functions, by size."""
        return {size: runner.runner for size, runner in self._runners.items()}

    def clone(self) -> Variants:
        """Another instance, which may run at the same time as this one, and goes by the same plan."""
        one, *others = ((size, runner.clone()) for size, runner in self._runners.items())
        twin = Variants(one[1], dict(others))
        twin.plan = self.plan
        return twin

    def warm(self) -> None:
        """Calls every size on zeros, on the thread that is to call it, and makes the plan by what that took."""
        call_s = dict.fromkeys(self._runners, float("inf"))
        for _ in range(_WARM_UPS if len(self._runners) > 1 else 1):  # in turns: what disturbs one disturbs all
            for size, runner in self._runners.items():
                signatures = runner.signature.buckets or (runner.signature,)
                begun_s = monotonic()
                for signature in signatures:
                    runner.run([np.zeros(spec.shape, spec.dtype) for spec in signature.inputs])
                call_s[size] = min(call_s[size], monotonic() - begun_s)
        self.plan = BatchPlan(call_s)

    def fitted(self, inputs: Sequence[Array]) -> Fitted | None:
        """`inputs` as one of the buckets takes them; None of a model that has none. Raises `InvalidTensor`."""
        return fitted(self.signature, inputs) if self.signature.buckets else None

    def samples_of(self, inputs: Sequence[Array]) -> int:
        """How many samples a request asks for.

        Raises:
            InvalidTensor: an input does not fit the signature, or its inputs differ in it.
        """
        if self.signature.buckets or [(each.dtype, each.shape) for each in inputs] == self._one:
            return 1  # of buckets, `fitted` has said so
        specs = self.signature.inputs
        if len(inputs) != len(specs):
            raise InvalidTensor(f"the model takes {len(specs)} inputs, not {len(inputs)}")
        if len(self._runners) == 1:  # its first dimension need not be one of samples
            samples, shapes = 1, [spec.shape for spec in specs]
        else:
            samples = len(inputs[0]) if inputs and inputs[0].ndim else 0
            shapes = [(samples, *spec.shape[1:]) for spec in specs]
        for spec, shape, array in zip(specs, shapes, inputs, strict=True):
            if array.dtype != spec.dtype or array.shape != shape or not 1 <= samples <= self.plan.most:
                raise _misfit(spec, array, self.plan.most)
        return samples


def _misfit(spec: TensorSpec, array: Array, most: int) -> InvalidTensor:
    sizes = "" if most == 1 else f", and batches of up to {most}"
    return InvalidTensor(
        f"input {spec.name!r} is {array.dtype} {list(array.shape)}, but the model takes {spec.datatype}"
        f" {list(spec.shape)}{sizes}",
        tensor=spec.name,
    )

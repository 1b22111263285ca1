"""The buckets of one model, as one runner."""

from __future__ import annotations

from collections.abc import Sequence

from service import native
from service.core.buckets import opened
from service.core.sequence import SequenceState
from service.core.signature import ModelSignature
from service.workers.inference.runner import Array, Runner


class BucketRunner:
    """A `Runner` whose inputs have the shapes of one of its buckets. They take turns on one thread."""

    def __init__(self, runners: Sequence[Runner]) -> None:
        """`runners`: one for each bucket, in any order. Raises ValueError where they are not of one model."""
        self.signature: ModelSignature = opened([each.signature for each in runners])
        self._runners = sorted(runners, key=lambda each: self.signature.buckets.index(each.signature))

    @property
    def runner(self) -> native.Runner:
        """As `Runner.runner`; the shapes of its inputs say which bucket is called."""
        return native.choosing_runner(
            [(each.runner, [spec.shape for spec in each.signature.inputs]) for each in self._runners]
        )

    def run(self, inputs: Sequence[Array], state: SequenceState | None = None) -> Sequence[Array]:
        """As `Runner.run`, of inputs with the shapes of a bucket."""
        shapes = [each.shape for each in inputs]
        wanted = [[spec.shape for spec in bucket.inputs] for bucket in self.signature.buckets]
        return self._runners[wanted.index(shapes)].run(inputs, state)

    def clone(self) -> BucketRunner:
        """Another instance, which may run at the same time as this one."""
        return BucketRunner([each.clone() for each in self._runners])

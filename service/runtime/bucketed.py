"""A model with several buckets: one artifact for each shape that it is built for, called as one model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from service.core.digest import Digest
from service.core.models.arrays import Array
from service.core.models.buckets import fit_inputs, merge_buckets
from service.core.models.signature import ModelSignature
from service.runtime.model import Model


class BucketedModel:
    """One instance of a model with buckets. It runs one call at a time, from any thread.

    Attributes:
        models: one for each bucket, the smallest first.
        signature: has -1 for the dimensions that differ between buckets, and their signatures as `buckets`.
    """

    def __init__(self, models: Sequence[Model]) -> None:
        """
        Args:
            models: the models of all buckets, in any order.

        Raises:
            ValueError: `models` are not the buckets of one model.
        """
        self.signature: ModelSignature = merge_buckets([model.signature for model in models])
        self.models = tuple(sorted(models, key=lambda each: self.signature.buckets.index(each.signature)))

    @property
    def digest(self) -> Digest:
        """The digest of the smallest bucket's artifact, which identifies the whole model."""
        return Digest(self.models[0].digest)

    def __call__(self, *inputs: Array) -> Any:
        """Returns the output for `inputs` (in the signature's order), or a tuple if there are several outputs.

        Raises:
            InvalidTensor: an input does not fit the signature, or no bucket takes its size.
        """
        outputs = self.run(inputs)
        return outputs[0] if len(outputs) == 1 else tuple(outputs)

    def run(self, inputs: Sequence[Array]) -> list[Array]:
        """Runs the smallest bucket that takes `inputs`. Inputs and outputs are in the signature's order.

        Raises:
            InvalidTensor: an input does not fit the signature, or no bucket takes its size.
        """
        request = fit_inputs(self.signature, inputs)
        model = self.models[request.bucket]
        if request.length is None:
            return model.run(request.inputs)
        return request.cut(self.signature, model.run_padded(request.inputs, request.length))

    def clone(self) -> BucketedModel:
        """Returns a new instance of the same model, with memory of its own."""
        return BucketedModel([model.clone() for model in self.models])

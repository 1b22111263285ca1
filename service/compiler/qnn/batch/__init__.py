"""Batch: a model of one sample becomes one of several.

A tensor of one sample has an axis that counts samples, of length 1; moves merge it with others and put it elsewhere.
So for each tensor it is known where the samples lie (`samples`), and each operator has a rule (`rules`).
"""

from service.compiler.qnn.batch.grow import batched

__all__ = ["batched"]

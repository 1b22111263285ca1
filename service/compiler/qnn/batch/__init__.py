"""Batch: rewrites a model of one sample into a model of several.

In a model of one sample, every tensor has an axis of length 1 that counts samples. Reshapes and permutations may merge
that axis with others and change its position. `samples` records where the samples of each tensor are; `rules` has one
rule for each operator.
"""

from service.compiler.qnn.batch.grow import batched

__all__ = ["batched"]

"""PyTorch's exported programs."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module

import torch  # type: ignore[import-not-found]

from service.compiler.references import Array

# What registers the operators of conversions; the second is torchao's, if it is there.
_OPERATORS = ("torch.ao.quantization.fx._decomposed", "torchao.quantization.quant_primitives")


def answer(source: str, numerics: str, samples: Sequence[Sequence[Array]]) -> list[list[Array]]:
    """What the program in `source` answers to each of `samples`, in eager mode.

    `torch.export.load` may unpickle: this is for the sandboxed child alone.
    """
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    for module in _OPERATORS:
        with suppress(ImportError):
            import_module(module)
    program = torch.export.load(source).module()

    def one(sample: Sequence[Array]) -> list[Array]:
        result = program(*(torch.from_numpy(value.copy()) for value in sample))
        if isinstance(result, dict):
            result = list(result.values())
        return [output.numpy() for output in (result if isinstance(result, tuple | list) else [result])]

    with torch.no_grad():
        return [one(sample) for sample in samples]

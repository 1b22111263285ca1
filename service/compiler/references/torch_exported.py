"""Runs exported programs in PyTorch."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib import import_module

import torch  # type: ignore[import-not-found]

from service.compiler.references import Answer
from service.core.models.arrays import Array

# The modules that register PyTorch's operators for quantizing and dequantizing. The second module is part of torchao,
# which may not be installed.
_OPERATORS = ("torch.ao.quantization.fx._decomposed", "torchao.quantization.quant_primitives")


def open_session(source: str, options: Mapping[str, str]) -> Answer:
    """Loads the program in `source`. The program runs in eager mode.

    `torch.export.load` may unpickle data, so this function may only be called in a sandboxed child.
    """
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    for module in _OPERATORS:
        with suppress(ImportError):
            import_module(module)
    program = torch.export.load(source).module()

    def answer(sample: Sequence[Array]) -> list[Array]:
        with torch.no_grad():
            result = program(*(torch.from_numpy(value.copy()) for value in sample))
        if isinstance(result, dict):
            result = list(result.values())
        return [output.numpy() for output in (result if isinstance(result, tuple | list) else [result])]

    return answer

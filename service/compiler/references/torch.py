"""Runs TorchScript models in PyTorch."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence

import torch  # type: ignore[import-not-found]

from service.compiler.references import Answer
from service.core.models.arrays import Array


def open_session(source: str, options: Mapping[str, str]) -> Answer:
    """Loads the model in `source`.

    `torch.jit.load` executes pickles and code in the file, so this function may only be called in a sandboxed child.
    """
    warnings.filterwarnings("ignore")  # PyTorch warns that quantized tensors are deprecated
    torch.set_num_threads(1)
    # The engine must be set first, because weights are packed for it when the file is loaded.
    torch.backends.quantized.engine = options["torch.backends.quantized.engine"]
    model = torch.jit.load(source)

    def answer(sample: Sequence[Array]) -> list[Array]:
        with torch.no_grad():
            result = model(*(torch.from_numpy(value.copy()) for value in sample))
        if isinstance(result, dict):
            result = list(result.values())
        return [_array(output) for output in (result if isinstance(result, tuple | list) else [result])]

    return answer


def _array(output: torch.Tensor) -> Array:
    array: Array = (output.int_repr() if output.is_quantized else output).numpy()
    return array

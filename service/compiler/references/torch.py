"""PyTorch."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import torch  # type: ignore[import-not-found]

from service.compiler.references import Array
from service.core.numerics import FBGEMM, ONEDNN, QNNPACK, TORCH_X86

_ENGINES = {FBGEMM: "fbgemm", ONEDNN: "onednn", TORCH_X86: "x86", QNNPACK: "qnnpack"}


def answer(source: str, numerics: str, samples: Sequence[Sequence[Array]]) -> list[list[Array]]:
    """What the model in `source` answers to each of `samples`.

    `torch.jit.load` runs the file's pickles and code: this is for the sandboxed child alone.
    """
    warnings.filterwarnings("ignore")  # quantized tensors are deprecated
    torch.set_num_threads(1)
    torch.backends.quantized.engine = _ENGINES[numerics]  # weights are packed for it as the file is loaded
    model = torch.jit.load(source)

    def one(sample: Sequence[Array]) -> list[Array]:
        result = model(*(torch.from_numpy(value.copy()) for value in sample))
        if isinstance(result, dict):
            result = list(result.values())
        return [_array(output) for output in (result if isinstance(result, tuple | list) else [result])]

    with torch.no_grad():
        return [one(sample) for sample in samples]


def _array(output: torch.Tensor) -> Array:
    array: Array = (output.int_repr() if output.is_quantized else output).numpy()
    return array

"""Writes small models whose weights torchao has quantized, with PyTorch's results
(tests/fixtures/torch/weights_only.zip).

Run it in an environment with PyTorch 2.13 and torchao 0.18: python scripts/torch_weights_only.py
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch  # type: ignore[import-not-found]
from torchao.quantization import (  # type: ignore[import-not-found]
    Int8WeightOnlyConfig,
    IntxWeightOnlyConfig,
    quantize_,
)
from torchao.quantization.granularity import PerAxis, PerGroup  # type: ignore[import-not-found]
from torchao.utils import unwrap_tensor_subclass  # type: ignore[import-not-found]

FILE = Path(__file__).parents[1] / "tests" / "fixtures" / "torch" / "weights_only.zip"


class Dense(torch.nn.Module):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = torch.nn.Linear(32, 24), torch.nn.Linear(24, 5)

    def forward(self, x: Any) -> Any:
        return self.second(torch.relu(self.first(x)))


class Tokens(torch.nn.Module):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.table, self.dense = torch.nn.Embedding(20, 32), torch.nn.Linear(32, 6)

    def forward(self, x: Any) -> Any:
        return self.dense(self.table(x))


def _has_weights(module: Any, _: str) -> bool:
    return isinstance(module, torch.nn.Linear | torch.nn.Embedding)


def cases() -> Iterator[tuple[str, Callable[[], Any], Any, Any, bool]]:
    """Yields the name, the model, its input, the configuration, and whether the weights are plain tensors."""
    x, tokens = torch.randn(3, 32), torch.tensor([[1, 19, 0, 7]])
    groups = PerGroup(8)
    for bits, dtype in ((2, torch.int2), (4, torch.int4), (8, torch.int8)):
        yield f"groups_{bits}", Dense, x, IntxWeightOnlyConfig(weight_dtype=dtype, granularity=groups), True
    yield "subclasses_4", Dense, x, IntxWeightOnlyConfig(weight_dtype=torch.int4, granularity=groups), False
    yield "subclasses_2", Dense, x, IntxWeightOnlyConfig(weight_dtype=torch.int2, granularity=PerAxis(0)), False
    yield "rows_4", Dense, x, IntxWeightOnlyConfig(weight_dtype=torch.int4, granularity=PerAxis(0)), True
    yield "rows_8", Dense, x, Int8WeightOnlyConfig(), False
    yield "tokens_4", Tokens, tokens, IntxWeightOnlyConfig(weight_dtype=torch.int4, granularity=groups), True
    yield "tokens_8", Tokens, tokens, IntxWeightOnlyConfig(weight_dtype=torch.int8, granularity=PerAxis(0)), True


def main() -> None:
    torch.manual_seed(0)
    with zipfile.ZipFile(FILE, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, make, x, config, is_plain in cases():
            model = make().eval()
            quantize_(model, config, _has_weights)
            with torch.no_grad():
                y = model(x)
            if is_plain:
                unwrap_tensor_subclass(model)
            file, arrays = io.BytesIO(), io.BytesIO()
            torch.export.save(torch.export.export(model, (x,)), file)
            np.savez(arrays, x0=x.numpy(), y0=y.numpy())
            archive.writestr(f"{name}.pt2", file.getvalue())
            archive.writestr(f"{name}.npz", arrays.getvalue())


if __name__ == "__main__":
    main()

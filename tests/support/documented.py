"""Extracts the shell commands in the README and the documentation, and creates replacements for the files that they
use.

Every line of an indented block, and of a fenced block in `sh`, is a command. In a fenced block without a language,
lines that begin with `$ ` are commands, and the others are their output. HTML comments in a page contain further
instructions:

    <!-- setup: COMMAND -->        a command that is needed first, but not shown
    <!-- not run: REASON -->       do not run the next block
    <!-- WORD stands for: COMMAND -->   replace WORD in later commands by the output of COMMAND
    <!-- run -->                   the next block in `python` is a program to run
"""

from __future__ import annotations

import re
import shlex
import shutil
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image

from scripts.certificates import make_certificate
from tests.support import dialects
from tests.support.documented_models import provide_models
from tests.support.executorch_programs import program
from tests.support.float_networks import residual_network
from tests.support.onnx_builder import OnnxBuilder

ROOT = Path(__file__).resolve().parents[2]
_EXAMPLES, _FIXTURES = ROOT / "examples", ROOT / "tests" / "fixtures"
# Replacements for files that a reader would have.
_FILES = {
    "model.tflite": _EXAMPLES / "digits_int8.tflite",
    "mobilenet_v2_1.0_224_quant.tflite": _EXAMPLES / "digits_uint8.tflite",
    "labels.txt": _EXAMPLES / "labels.txt",
    "imagenet_labels.txt": _EXAMPLES / "labels.txt",
    "picture.png": _EXAMPLES / "digits" / "2.png",
    "model.pt": _FIXTURES / "torch" / "residual.pt",
    "model.pt2": _FIXTURES / "torch" / "residual_inductor.pt2",
    "model.xml": _FIXTURES / "openvino" / "residual.xml",
    "model.bin": _FIXTURES / "openvino" / "residual.bin",
    "resnet50-symbol.json": _FIXTURES / "mxnet" / "sg_residual-symbol.json",
    "resnet50-0000.params": _FIXTURES / "mxnet" / "sg_residual-0000.params",
}
_WEIGHTS = np.arange(-32, 32, dtype=np.int8).reshape(8, 8)
_PHOTOGRAPHS = ("cat.jpg", "zebra.jpg")


@dataclass(frozen=True)
class Command:
    """A command in a page.

    Attributes:
        line: the number of its first line, from 1.
        text: the command with its continuation lines joined.
        reason: the reason why it is not run, as the page gives it; empty if it is run.
        stands_for: the word in later commands that its output replaces; empty for most commands.
    """

    page: str
    line: int
    text: str
    reason: str = ""
    stands_for: str = ""

    def __str__(self) -> str:
        return f"{self.page}:{self.line}: {self.text}"

    @property
    def program(self) -> str:
        """The first word after variable assignments."""
        return next((word for word in self.text.split() if not re.match(r"\w+=", word)), "")


def pages() -> list[Path]:
    """Returns every handwritten page except the decisions (ADRs), which contain no commands."""
    generated, decisions = ROOT / "docs" / "reference", ROOT / "docs" / "adr"
    written = [page for page in sorted(ROOT.glob("docs/**/*.md")) if not {generated, decisions} & set(page.parents)]
    return [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "SECURITY.md", _EXAMPLES / "README.md", *written]


def commands_of(text: str, page: str) -> Iterator[Command]:
    """Yields the commands of a page in order, including those in its HTML comments."""
    reason, runs_python = "", False
    for first, kind, lines in _blocks(text):
        if kind == "python":
            if runs_python:
                yield Command(page, first, f"python -c {shlex.quote(chr(10).join(lines))}", reason)
            runs_python = False
            continue
        if kind == "comment":
            key, _, value = lines[0].partition(": ")
            runs_python = key == "run"
            if key == "setup":
                yield Command(page, first, value)
            elif key == "not run":
                reason = value
            elif key.endswith(" stands for"):
                yield Command(page, first, value, stands_for=key.removesuffix(" stands for"))
            continue
        for number, line in _join_lines(first, lines):
            if kind == "commands":
                yield Command(page, number, line, reason)
            elif line.startswith("$ "):
                yield Command(page, number, line.removeprefix("$ "), reason)
        reason = ""


def inline_commands(text: str) -> Iterator[str]:
    """Yields the commands `octet …` in sentences and tables."""
    for span in re.findall(r"(?<!`)`([^`\n]+)`(?!`)", text):
        if re.match(r"octet [a-z]", span):
            yield span


def provide(folder: Path) -> None:
    """Creates in `folder` the files that the pages name."""
    (folder / "examples").symlink_to(_EXAMPLES)
    (folder / "deploy").symlink_to(ROOT / "deploy")
    for name, source in _FILES.items():
        shutil.copy(source, folder / name)
    for name in _PHOTOGRAPHS:
        Image.open(_FILES["picture.png"]).convert("RGB").save(folder / name)
    (folder / "model.onnx").write_bytes(_onnx_with_external_data("model.onnx.data"))
    (folder / "model.onnx.data").write_bytes(_WEIGHTS.tobytes())
    (folder / "float.onnx").write_bytes(residual_network())
    (folder / "pictures").mkdir()
    with zipfile.ZipFile(folder / "pictures.zip", "w") as archive:
        for picture in sorted((_EXAMPLES / "digits").glob("*.png")):
            shutil.copy(picture, folder / "pictures")
            archive.write(picture, picture.name)
    (folder / "softsign.tflite").write_bytes(dialects.tflite_softsign())
    (folder / "curved.onnx").write_bytes(dialects.curved_convolution())
    (folder / "convolution.onnx").write_bytes(dialects.convolution()[0])
    (folder / "network.json").write_text(dialects.JSON_FILE)
    (folder / "model.pte").write_bytes(program("dense"))
    (folder / "bert.onnx").write_bytes(_onnx_of_tokens())
    (folder / "vad.onnx").write_bytes(_onnx_of_voice())
    (folder / "wine.onnx").write_bytes(_onnx_of_rows())
    (folder / "wine.csv").write_text("id,ph,alcohol,sugar\n1,3.3,9.4,1.9\n2,3.2,9.8,2.6\n3,3.1,11.2,1.7\n")
    provide_models(folder)
    make_certificate(folder)  # cert.pem and key.pem


def _onnx_with_external_data(location: str) -> bytes:
    """Returns a model of a dense layer. Its weights are in a separate file."""
    model = OnnxBuilder()
    return _dense(model, model.input("x", "float32", [1, 8]), model.external(_WEIGHTS, location))


def _onnx_of_rows() -> bytes:
    """Returns a model of a dense layer for rows of three numbers."""
    model = OnnxBuilder()
    return _dense(model, model.input("x", "float32", ["rows", 3]), model.constant(_WEIGHTS[:3]))


def _onnx_of_tokens() -> bytes:
    """Returns a model of an embedding and a dense layer, for a dynamic number of tokens."""
    model = OnnxBuilder()
    tokens = model.input("input_ids", "int64", ["batch", "tokens"])
    embedding = model.constant(np.linspace(-3, 3, 40 * 8).reshape(40, 8), "float32")
    return _dense(model, model.node("Gather", [embedding, tokens]), model.constant(_WEIGHTS))


def _onnx_of_voice() -> bytes:
    """Returns a model that chooses between branches by the sampling rate, which is an input."""
    branches = []
    for samples in (32, 16):
        branch = OnnxBuilder()
        branch.node("Slice", ["x", *(branch.constant(ends, "int64") for ends in ([0], [samples], [1]))], ["part"])
        branch.output("part", "float32")
        branches.append(branch.graph())
    model = OnnxBuilder()
    model.input("x", "float32", [1, 64])
    is_fast = model.node("Equal", [model.input("sr", "int64", []), model.constant(16000, "int64")])
    model.node("If", [is_fast], ["samples"], then_branch=branches[0], else_branch=branches[1])
    model.output(model.node("Sigmoid", ["samples"]), "float32")
    return model.build()


def _dense(model: OnnxBuilder, x: str, weights: str) -> bytes:
    x = model.dequantized(model.quantized(x, 0.05, 100, "uint8"), 0.05, 100, "uint8")
    y = model.node("MatMul", [x, model.dequantized(weights, 0.01, 0, "int8")])
    model.output(model.dequantized(model.quantized(y, 0.1, 100, "uint8"), 0.1, 100, "uint8"), "float32")
    return model.build()


def _join_lines(first: int, lines: list[str]) -> Iterator[tuple[int, str]]:
    """Yields the non-empty lines with their numbers. Lines that end in a backslash are joined to the next line."""
    begin, whole = first, ""
    for number, line in enumerate(lines, first):
        whole, begin = (whole + line, begin) if whole else (line, number)
        if line.endswith("\\"):
            whole = whole[:-1]
            continue
        if whole:
            yield begin, whole
        whole = ""


def _blocks(text: str) -> Iterator[tuple[int, str, list[str]]]:
    """Yields (number of the first line, type, lines without indentation) of each code block and comment."""
    lines = text.splitlines()
    number, after_text = 0, False
    while number < len(lines):
        line, begin = lines[number], number
        if fence := re.match(r"\s*```(\w*)", line):
            while number + 1 < len(lines) and not lines[number + 1].strip().startswith("```"):
                number += 1
            number += 1
            if fence[1] == "python":
                yield begin + 2, "python", lines[begin + 1 : number]
            elif fence[1] in ("", "sh"):
                kind = "commands" if fence[1] else "console"
                yield begin + 2, kind, [each.strip() for each in lines[begin + 1 : number]]
        elif comment := re.match(r"\s*<!-- (.*) -->", line):
            yield begin + 1, "comment", [comment[1]]
        elif line.startswith("    ") and not after_text:
            while number + 1 < len(lines) and lines[number + 1].startswith("    "):
                number += 1
            yield begin + 1, "commands", [each.strip() for each in lines[begin : number + 1]]
        # After a line of a paragraph, an indented line continues it. A heading or a comment ends a paragraph.
        after_text = bool(line.strip()) and not re.match(r"\s*(#|<!--|```)|    ", line)
        number += 1

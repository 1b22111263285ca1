"""Models of a few lines of C, in the form that the compiler writes, so that a data plane can load them."""

from __future__ import annotations

import atexit
import hashlib
import json
import math
import re
import shutil
import subprocess
import sys
import tempfile
import threading
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from service.core.digest import Digest
from service.core.models.signature import ModelSignature, Quantization, State, TensorSpec
from tests.support.gates import Gate

_TYPES = {
    "BOOL": "uint8_t",
    "UINT8": "uint8_t",
    "UINT16": "uint16_t",
    "INT8": "int8_t",
    "INT16": "int16_t",
    "INT32": "int32_t",
    "INT64": "int64_t",
    "FP16": "_Float16",
    "FP32": "float",
    "FP64": "double",
}
_compiling = threading.Lock()


@cache
def folder() -> Path:
    """Returns the folder of the libraries, which data planes must be able to read. It is removed when this process
    ends.
    """
    made = Path(tempfile.mkdtemp(prefix="octet-models-"))
    (made / "constants").write_bytes(bytes(64))
    atexit.register(shutil.rmtree, made, ignore_errors=True)
    return made


class FunctionRunner:
    """A model that consists of one C function.

    In the function, each tensor is an array that has its name, and `count_NAME` is the number of its elements. A state
    is `NAME`, and its next value is `next_NAME`. The call fails if the function does not return 0.
    """

    def __init__(self, signature: ModelSignature, body: str, gate: Gate | None = None) -> None:
        """
        Args:
            body: the statements of the function. When a data plane loads the model, it calls the function once with
                zeros.
            gate: a gate that the body calls.
        """
        self.signature = signature
        self._source = _source(signature, body, gate)

    def part(self, batch: int, artifact: Digest) -> dict[str, Any]:
        """Returns the part of a load order for this model, in the form of `loads.part`."""
        config = {
            "abi_version": 1,
            "numerics": "litert-reference",
            "plan": _plan(self.signature),
            "requires": [],
            "signature": self.signature.to_json(),
            "target": "x86-64-v3",
        }
        text = json.dumps(config, sort_keys=True, separators=(",", ":"))
        return {
            "batch": batch,
            "artifact": str(artifact),
            "config": text,
            "library": str(_library(self._source)),
            "constants": str(folder() / "constants"),
        }


def tensor(name: str, datatype: str, *shape: int) -> TensorSpec:
    return TensorSpec(name, datatype, shape)


def digits(bias: int = 0) -> FunctionRunner:
    """Returns a model that maps an 8x8 picture to the sums of its columns, and to its brightest pixel plus `bias`."""
    signature = ModelSignature(
        (tensor("image", "UINT8", 1, 8, 8, 1),), (tensor("columns", "INT32", 1, 8), tensor("top", "UINT8", 1))
    )
    body = f"""
      for (int column = 0; column < 8; ++column) columns[column] = 0;
      top[0] = 0;
      for (int at = 0; at < 64; ++at) {{
        columns[at % 8] += image[at];
        if (image[at] > top[0]) top[0] = image[at];
      }}
      top[0] += {bias};
    """
    return FunctionRunner(signature, body)


def affine() -> FunctionRunner:
    """Returns a model with three inputs of different types: y = a * x + b."""
    signature = ModelSignature(
        (tensor("x", "FP32", 1, 4), tensor("a", "INT8", 1, 4), tensor("b", "INT64", 1, 4)),
        (tensor("y", "FP32", 1, 4),),
    )
    return FunctionRunner(
        signature, "for (int i = 0; i < 4; ++i) y[i] = (float)((double)(x[i] * a[i]) + (double)b[i]);"
    )


def encoder(texts: int = 1, tokens: int = 8) -> FunctionRunner:
    """Returns a model of text that copies its inputs to its outputs."""
    names = {"input_ids": "ids", "attention_mask": "mask", "token_type_ids": "types"}
    signature = ModelSignature(
        tuple(tensor(name, "INT64", texts, tokens) for name in names),
        tuple(tensor(name, "INT64", texts, tokens) for name in names.values()),
    )
    copies = (f"__builtin_memcpy({to}, {name}, count_{name} * sizeof *{name});" for name, to in names.items())
    return FunctionRunner(signature, "".join(copies))


def reranker(tokens: int = 12) -> FunctionRunner:
    """Returns a model of pairs. Its score is the number of tokens of the second text that are in the first one, minus
    2; special tokens, whose ids are below 4, do not count.
    """
    names = ("input_ids", "attention_mask", "token_type_ids")
    signature = ModelSignature(
        tuple(tensor(name, "INT64", 1, tokens) for name in names), (tensor("logits", "FP32", 1, 1),)
    )
    body = """
      logits[0] = attention_mask[0] ? -2 : 0;
      for (int i = 0; i < count_input_ids; ++i) {
        if (token_type_ids[i] != 1 || input_ids[i] < 4) continue;
        for (int j = 0; j < i; ++j) {
          if (token_type_ids[j] != 0 || input_ids[j] != input_ids[i]) continue;
          logits[0] += 1;
          break;
        }
      }
    """
    return FunctionRunner(signature, body)


def tagger(tokens: int = 12, classes: int = 4) -> FunctionRunner:
    """Returns a model that gives each token of a text the class `id % classes`, with a logit of 3."""
    names = ("input_ids", "attention_mask", "token_type_ids")
    signature = ModelSignature(
        tuple(tensor(name, "INT64", 1, tokens) for name in names), (tensor("logits", "FP32", 1, tokens, classes),)
    )
    body = f"""
      for (int i = 0; i < count_logits; ++i) logits[i] = 0;
      for (int i = 0; i < {tokens}; ++i) logits[{classes} * i + input_ids[i] % {classes}] = 3 + 0 * attention_mask[i];
      (void)token_type_ids;
    """
    return FunctionRunner(signature, body)


def tally() -> FunctionRunner:
    """Returns a model with state: y is 100 plus the sum of all inputs of the sequence."""
    total = State(tensor("total", "INT32", 1), np.array([100], "<i4").tobytes())
    signature = ModelSignature((tensor("x", "INT32", 1),), (tensor("y", "INT32", 1),), (total,))
    return FunctionRunner(signature, "y[0] = next_total[0] = x[0] + total[0];")


def identity(datatype: str, *shape: int, body: str = "", gate: Gate | None = None) -> FunctionRunner:
    """Returns a model that executes `body` and then copies its input `x` to `y`."""
    signature = ModelSignature((tensor("x", datatype, *shape),), (tensor("y", datatype, *shape),))
    return FunctionRunner(signature, body + "__builtin_memcpy(y, x, count_x * sizeof *x);", gate)


def held(gate: Gate, datatype: str = "UINT8", *shape: int) -> FunctionRunner:
    """Returns an `identity` that stops at the gate unless its first element is 0. (It is 0 while the model is
    loaded.)
    """
    return identity(datatype, *shape or (1, 1), body="if (x[0] && gate(x[0])) return 1;", gate=gate)


def failing(datatype: str = "UINT8", *shape: int) -> FunctionRunner:
    """Returns an `identity` that fails unless its first element is 0. (It is 0 while the model is loaded.)"""
    return identity(datatype, *shape or (1, 1), body="if (x[0]) return 7;")


def quantized() -> FunctionRunner:
    """Returns a model that returns its input twice: as stored values with a scale of 0.5 and a zero point of -3, and as
    FP32.
    """
    stored = TensorSpec("y", "INT8", (1, 4), Quantization(0.5, -3))
    signature = ModelSignature((tensor("x", "INT8", 1, 4),), (stored, tensor("z", "FP32", 1, 4)))
    return FunctionRunner(signature, "for (int i = 0; i < 4; ++i) { y[i] = x[i]; z[i] = x[i]; }")


def _operands(signature: ModelSignature) -> list[tuple[str, int, str, TensorSpec]]:
    """Returns the space, the index, the C name and the tensor of each operand of the function."""
    states = [state.spec for state in signature.states]
    return [
        *(("input", index, spec.name, spec) for index, spec in enumerate(signature.inputs)),
        *(("state", index, spec.name, spec) for index, spec in enumerate(states)),
        *(("output", index, spec.name, spec) for index, spec in enumerate(signature.outputs)),
        *(("next_state", index, f"next_{spec.name}", spec) for index, spec in enumerate(states)),
    ]


def _plan(signature: ModelSignature) -> dict[str, Any]:
    operands = _operands(signature)
    return {
        "arena_bytes": 0,
        "buffers": [[space, index, math.prod(spec.shape) * spec.dtype.itemsize] for space, index, _, spec in operands],
        "calls": [["model", list(range(len(operands)))]],
        "copies": [],
        "version": 1,
    }


def _source(signature: ModelSignature, body: str, gate: Gate | None) -> str:
    names = []
    for number, (space, _, name, spec) in enumerate(_operands(signature)):
        constant = "const " if space in ("input", "state") else ""
        known = re.sub(r"\W", "_", name, flags=re.ASCII)
        names.append(f"{constant}{_TYPES[spec.datatype]}* {known} = operands[{number}]; (void){known};")
        names.append(f"enum {{ count_{known} = {math.prod(spec.shape)} }};")
    declared = "\n  ".join(names)
    before = gate.source if gate else "#include <stdint.h>\n"
    return f"{before}\nint32_t model(void* const* operands) {{\n  {declared}\n  {body}\n  return 0;\n}}\n"


def _library(source: str) -> Path:
    path = folder() / f"{hashlib.sha256(source.encode()).hexdigest()[:24]}.so"
    with _compiling:
        if not path.exists():
            compiler = [sys.executable, "-m", "ziglang", "cc", "-x", "c", "-", "-shared", "-nostdlib", "-O1", "-fPIC"]
            subprocess.run([*compiler, "-ffp-contract=off", "-o", str(path)], input=source.encode(), check=True)
    return path

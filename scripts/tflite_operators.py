"""The page about TFLite's operators: which of them LiteRT has on CPUs, and for which types Octet compiles them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from importlib.metadata import version

import numpy as np
from ai_edge_litert import schema_py_generated as schema
from ai_edge_litert.interpreter import Interpreter, OpResolverType

from service.compiler.importers.tflite.operators import RULES
from tests.support.tflite_builder import ModelBuilder

_TYPES = ("float32", "int8", "uint8", "int16", "int32", "int64", "bool")
# Operators on variables become the model's state before operators are converted.
_OF_STATES = ("ASSIGN_VARIABLE", "CALL_ONCE", "READ_VARIABLE", "VAR_HANDLE")
_NO_OPERATORS = ("CUSTOM", "DELEGATE", "PLACEHOLDER_FOR_GREATER_OP_CODES")
_VERSIONS = range(1, 5)  # LiteRT has no first version of some operators


def page() -> Iterator[tuple[Sequence[str], list[Sequence[str]]] | str]:
    """Yields paragraphs, and tables as headers and rows."""
    names = [name for name, value in vars(schema.BuiltinOperator).items() if isinstance(value, int)]
    names = sorted(name for name in names if name not in _NO_OPERATORS)
    both = [name for name in names if _has_kernel(name) and _is_compiled(name)]
    missing = [name for name in names if _has_kernel(name) and not _is_compiled(name)]
    yield "# TFLite operators"
    yield (
        f"Of the {len(names)} operators of TFLite's schema, LiteRT {version('ai-edge-litert')} has kernels for "
        f"{len(both) + len(missing)} on CPUs. Octet compiles {len(both)} of these. The columns are types of the first "
        "operand: `yes` if Octet compiles the operator for it. An operator may have other limits, which its error "
        "names; [TensorFlow Lite models](../how-to/tflite.md) describes graphs and quantization."
    )
    rows: list[Sequence[str]] = [
        (f"`{name}`", *(("yes" if _reads(name, dtype) else "") for dtype in _TYPES), "yes" if _is_hybrid(name) else "")
        for name in names
        if _is_compiled(name)
    ]
    yield ("operator", *_TYPES, "float32 by int8"), rows
    yield "`ASSIGN_VARIABLE`, `CALL_ONCE`, `READ_VARIABLE` and `VAR_HANDLE` become the model's state."
    custom = [name.removeprefix("CUSTOM(").removesuffix(")") for name in RULES if name.startswith("CUSTOM(")]
    yield f"Custom operators that Octet compiles: {', '.join(f'`{name}`' for name in sorted(custom))}."
    yield f"Operators that LiteRT has and Octet refuses by name: {', '.join(f'`{name}`' for name in missing)}."


def _is_compiled(name: str) -> bool:
    return name in RULES or name in _OF_STATES


def _reads(name: str, dtype: str) -> bool:
    return name in RULES and RULES[name].reads_dtype(dtype)


def _is_hybrid(name: str) -> bool:
    return name in RULES and RULES[name].hybrid is not None


@cache
def _has_kernel(name: str) -> bool:
    """Returns true if LiteRT loads a model with this operator."""
    return any(_loads(name, number) for number in _VERSIONS)


def _loads(name: str, number: int) -> bool:
    builder = ModelBuilder()
    x, y = builder.tensor("x", (1, 4), np.float32), builder.tensor("y", (1, 4), np.float32)
    builder.operator(name, [x], [y], version=number)
    try:
        Interpreter(model_content=builder.build([x], [y]), experimental_op_resolver_type=OpResolverType.AUTO)
    except (RuntimeError, ValueError) as error:
        return "Didn't find op" not in str(error)
    return True

"""The object with which a file defines what it adds to the compiler."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import tvm
from tvm.relax import dpl

from service.compiler.dialects import rules
from service.compiler.dialects.building import Graph, imported_from
from service.compiler.dialects.operators import Operator
from service.compiler.importers import auto, detect
from service.compiler.importers.builder.module import At
from service.compiler.importers.imported import ImportedModel
from service.compiler.lowering.passes import Context, add_pass
from service.compiler.qnn.ops.defined import Definition, define, parameters_of
from service.compiler.qnn.patterns import PATTERNS, SIMULATED, Pattern, Rewrite, apply_patterns, typed_again
from service.core.builds import numerics as modes
from service.core.errors import InvalidInput, MalformedModel, OctetError

_NAME = re.compile(r"[a-z][a-z0-9_]{0,30}")
_INTEGER_ARGUMENTS = {3: 1, 5: 2}  # positional parameters of a formula of integers -> its operands; the rest are types
_BEFORE = "decompose"  # a pattern that keeps values runs after permutations of axes have been moved

# The dialects of this process, by name.
DIALECTS: dict[str, Dialect] = {}


class Dialect:
    """The operators, patterns, passes and importers that a file adds to the compiler.

    Attributes:
        name: the first part of the names of its operators, patterns and passes.
        operators: the operators that it defines, by their names without the dialect.
        patterns, passes, formats: the names of its patterns, passes and file formats.
    """

    def __init__(self, name: str) -> None:
        """`name` consists of lower-case letters, digits and underscores."""
        if _NAME.fullmatch(name) is None or name == "relax":
            raise InvalidInput(f"{name!r} cannot be the name of a dialect: use lower-case letters, digits, underscores")
        self.name = name
        self.operators: dict[str, Operator] = {}
        self.patterns: list[str] = []
        self.passes: list[str] = []
        self.formats: list[str] = []
        DIALECTS[name] = self

    # -- operators

    def real(
        self,
        *,
        name: str | None = None,
        onnx: str | None = None,
        tflite: str | None = None,
        torch: str | None = None,
        check: Callable[..., None] | None = None,
    ) -> Callable[[Callable[..., Any]], Operator]:
        """Decorates a formula of real values, and returns the operator that computes it for each element.

        Positional parameters of the formula are operands. Keyword-only parameters are attributes; each has a number as
        its default. Functions of 8-bit values become tables of the formula's results.

        Args:
            name: the operator's name; by default that of the function.
            onnx: the type of ONNX operators that are converted to it, with their domain unless it is ONNX's own.
            tflite: a builtin of TFLite (`ABS`) or a custom operator (`CUSTOM(Softsign)`).
            torch: an operator of PyTorch (`aten::softsign`).
            check: called with `in_type` and `out_type` of the stored form; raises `ValueError` if they do not fit.

        Raises:
            InvalidFormula: the formula does what cannot be expressed on every target.
        """

        def decorate(formula: Callable[..., Any]) -> Operator:
            count, parameters = parameters_of(formula)
            operator = self._define(
                formula, name, count, parameters, takes_integers=False, check=check, onnx=onnx or ""
            )
            if onnx is not None:
                rules.add_onnx(onnx, rules.onnx_rule(operator), (count, count))
            if tflite is not None:
                rules.add_tflite(tflite, rules.tflite_rule(operator), (count, count), real=True)
            if torch is not None:
                rules.add_torch(torch, rules.torch_rule(operator))
            return operator

        return decorate

    def integer(
        self, *, name: str | None = None, tflite: str | None = None, check: Callable[..., None] | None = None
    ) -> Callable[[Callable[..., Any]], Operator]:
        """Decorates a formula of stored values, and returns the operator that computes it for each element.

        The formula takes the stored values of its operands as int32, and then the types: `f(q, in_type, out_type)`, or
        `f(a, b, lhs_type, rhs_type, out_type)`. It returns an int32, which is clamped to the bounds of `out_type`.
        Keyword-only parameters are attributes. A formula of one operand can also convert the accumulators of a layer
        (int32): the layer's kernel then computes it. It is called with the type of each channel, and must consist of
        the same operations for all of them.

        Args:
            name, tflite: as for `real`.
            check: called with the types by name; raises `ValueError` if they do not fit together.

        Raises:
            InvalidFormula: the formula takes other parameters.
        """

        def decorate(formula: Callable[..., Any]) -> Operator:
            given, parameters = parameters_of(formula)
            if given not in _INTEGER_ARGUMENTS:
                raise InvalidInput(
                    "a formula of integers takes (q, in_type, out_type) or (a, b, lhs_type, rhs_type, out_type)"
                )
            count = _INTEGER_ARGUMENTS[given]
            operator = self._define(formula, name, count, parameters, takes_integers=True, check=check)
            if tflite is not None:
                rules.add_tflite(tflite, rules.tflite_rule(operator), (count, count), real=False)
            return operator

        return decorate

    def onnx(self, op_type: str, *, inputs: tuple[int, int] = (1, 1)) -> Callable[[Callable[..., Any]], Any]:
        """Decorates the conversion of an ONNX operator: a function that takes the operator (`node`), and returns the
        value of its output. `node.expr(index)` is an input, `node.attribute(name, default)` an attribute,
        `node.emit(call)` adds a call, and `node.unsupported(text)` refuses the operator.

        Args:
            op_type: the type, with its domain unless it is ONNX's own.
            inputs: the smallest and the largest number of inputs.
        """

        def decorate(convert: Callable[..., Any]) -> Callable[..., Any]:
            rules.add_onnx(op_type, convert, inputs)
            return convert

        return decorate

    def tflite(self, name: str, *, inputs: tuple[int, int] = (1, 1)) -> Callable[[Callable[..., Any]], Any]:
        """Decorates the conversion of a TFLite operator, as `onnx` does. `node.option(name)` is an option."""

        def decorate(convert: Callable[..., Any]) -> Callable[..., Any]:
            rules.add_tflite(name, convert, inputs, real=True)
            return convert

        return decorate

    # -- patterns, passes and importers

    def pattern(
        self, pattern: dpl.DFPattern, *, changes_values: bool, name: str | None = None
    ) -> Callable[[Rewrite], Rewrite]:
        """Decorates a function that replaces a subgraph. The function takes the matched expression, and a mapping from
        each part of the pattern to its expression. It returns the replacement, or None to leave the subgraph.

        Args:
            pattern: built from `tvm.relax.dpl`.
            changes_values: true if the replacement computes other values, for example integers instead of real values.
                It then defines what the model computes, and the comparison with the reference runtime shows the
                differences. If false, every build checks that no bit changes.
            name: the pattern's name; by default that of the function.
        """

        def decorate(rewrite: Rewrite) -> Rewrite:
            full = f"{self.name}.{name or rewrite.__name__}"
            PATTERNS[full] = Pattern(full, pattern, rewrite, changes_values)
            if not changes_values:
                add_pass(full, _pass_of(full), _BEFORE)
            self.patterns.append(full)
            return rewrite

        return decorate

    def simulation(self, pattern: dpl.DFPattern, *, name: str | None = None) -> Callable[[Rewrite], Rewrite]:
        """Decorates a function that replaces a subgraph of a float model when `octet quantize` reads the model. The
        function is as for `pattern`.

        The replacement is the simulated form of the subgraph: it consists of operators of real values, which are
        calibrated, and written to the quantized file. Operators of a dialect need a type of ONNX operators
        (`real(onnx=…)`). A `pattern` that matches them between `dequantize` and `quantize` is the inference form.

        Args:
            pattern, name: as for `pattern`.
        """

        def decorate(rewrite: Rewrite) -> Rewrite:
            full = f"{self.name}.{name or rewrite.__name__}"
            SIMULATED[full] = Pattern(full, pattern, rewrite, changes_values=True)
            self.patterns.append(full)
            return rewrite

        return decorate

    def graph_pass(
        self, *, before: str, name: str | None = None
    ) -> Callable[[Callable[[tvm.IRModule], tvm.IRModule]], Callable[[tvm.IRModule], tvm.IRModule]]:
        """Decorates a pass: a function from a module to a module that computes the same, bit for bit.

        Args:
            before: Octet's pass before which it runs (docs/developers/life-of-a-build.md).
            name: the pass's name; by default that of the function.
        """

        def decorate(run: Callable[[tvm.IRModule], tvm.IRModule]) -> Callable[[tvm.IRModule], tvm.IRModule]:
            full = f"{self.name}.{name or run.__name__}"
            add_pass(full, lambda module, context: _checked(full, run(module)), before)
            self.passes.append(full)
            return run

        return decorate

    def importer(
        self, format: str, *, heads: Sequence[bytes], numerics: str
    ) -> Callable[[Callable[[bytes, Graph], None]], Callable[[bytes, Graph], None]]:
        """Decorates an importer: a function that takes the bytes of a file, and builds a graph with its inputs and
        outputs. It runs in a process that cannot read other files. Files are untrusted: an exception other than
        Octet's own errors is reported as a damaged file.

        Args:
            format: the name of the format, of at most 16 lower-case letters and digits.
            heads: the bytes with which files begin: one of these.
            numerics: the numerics mode in which models are compiled by default.
        """

        def decorate(read: Callable[[bytes, Graph], None]) -> Callable[[bytes, Graph], None]:
            if re.fullmatch(r"[a-z][a-z0-9]{0,15}", format) is None:
                raise InvalidInput(f"{format!r} is not a name of a format: use up to 16 lower-case letters and digits")
            detect.add_format(format, heads)
            modes.add_format(format, numerics)
            auto.add_importer(format, _importer(format, read))
            self.formats.append(format)
            FORMATS[format] = tuple(heads), numerics
            return read

        return decorate

    def _define(
        self,
        formula: Callable[..., Any],
        name: str | None,
        count: int,
        parameters: dict[str, Any],
        *,
        takes_integers: bool,
        check: Callable[..., None] | None,
        onnx: str = "",
    ) -> Operator:
        short = name or formula.__name__
        summary = (formula.__doc__ or "").strip().partition("\n")[0].rstrip(".") or f"the formula {short}"
        definition = Definition(
            f"{self.name}.{short}", formula, count, parameters, takes_integers, check, summary, onnx
        )
        define(definition)
        self.operators[short] = Operator(definition)
        return self.operators[short]

    def __repr__(self) -> str:
        return f"<dialect {self.name}: {', '.join((*self.operators, *self.patterns, *self.passes, *self.formats))}>"


# The formats of dialects: name -> the bytes with which files begin, and the default numerics mode.
FORMATS: dict[str, tuple[tuple[bytes, ...], str]] = {}


def _pass_of(name: str) -> Callable[[tvm.IRModule, Context], tvm.IRModule]:
    return lambda module, context: apply_patterns(module, names=(name,))[0]


def _checked(name: str, module: Any) -> tvm.IRModule:
    if not isinstance(module, tvm.IRModule) or "main" not in {each.name_hint for each in module.get_global_vars()}:
        raise InvalidInput(f"the pass {name} must return a module with the function main", op=name)
    return typed_again(module)


def _importer(format: str, read: Callable[[bytes, Graph], None]) -> Callable[[bytes, At], ImportedModel]:
    def import_model(data: bytes, at: At) -> ImportedModel:
        graph = Graph(at)
        try:
            with graph:
                read(data, graph)
        except (OctetError, MemoryError):
            raise
        except Exception as error:  # the importer of a dialect may raise anything for a damaged file
            raise MalformedModel(f"the importer of {format} failed: {type(error).__name__}: {error}") from error
        return imported_from(graph, format)

    return import_model

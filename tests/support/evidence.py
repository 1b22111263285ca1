"""What conformance tests saw, for docs/reference/conformance.md: they note it here, and `make tables` writes it down.

A table holds what was seen, never what was hoped for: a row is there because a test made the comparison.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from service.compiler.facts import facts_of
from service.compiler.importers.imported import ImportedModel
from service.core.facts import Facts, Scheme

Array = NDArray[Any]
_TITLES = {"tflite": "TFLite", "onnx": "ONNX", "torchscript": "PyTorch", "pt2": "PyTorch, exported", "mxnet": "MXNet"}


@dataclass
class Comparisons:
    """Of one operator, or one kind of model, with one reference.

    Attributes:
        models: how many different ones.
        elements: values compared.
        unequal: of them.
        largest_difference: in steps of the output; 0 where every value is equal bit for bit.
    """

    models: int = 0
    elements: int = 0
    unequal: int = 0
    largest_difference: float = 0.0

    def add(self, elements: int, unequal: int, largest_difference: float) -> None:
        self.models += 1
        self.elements += elements
        self.unequal += unequal
        self.largest_difference = max(self.largest_difference, largest_difference)

    def __str__(self) -> str:
        if not self.models:
            return ""
        if not self.unequal:
            return f"equal ({_counted(self.models, 'model')})"
        equal = 100.0 * (1 - self.unequal / self.elements)
        return f"{equal:.4g} % equal, off by at most {self.largest_difference:g} ({_counted(self.models, 'model')})"


@dataclass
class Ledger:
    """Everything that one run of the tests has noted.

    Attributes:
        operators: (operator, framework, numerics) -> comparisons of models that hold it.
        schemes: (weights, activations, framework, target) -> comparisons of compiled models.
        accuracies: (model, framework, numerics) -> a row of the third table.
    """

    operators: dict[tuple[str, str, str], Comparisons] = field(default_factory=lambda: defaultdict(Comparisons))
    schemes: dict[tuple[str, str, str, str], Comparisons] = field(default_factory=lambda: defaultdict(Comparisons))
    accuracies: dict[tuple[str, str, str], tuple[str, ...]] = field(default_factory=dict)


LEDGER = Ledger()


def compare(
    imported: ImportedModel,
    numerics: str,
    actual: Sequence[Sequence[Array]],
    expected: Sequence[Sequence[Array]],
    steps: float = 0,
) -> None:
    """Requires that the importer and the oracle gave what the framework gave, and notes it for each operator.

    Args:
        actual, expected: the outputs of each sample.
        steps: how far an output may be off.
    """
    seen = differences(actual, expected)
    for operator in facts_of(imported).operators:
        LEDGER.operators[operator, imported.format, numerics].add(*seen)
    _require(seen, steps)


def compare_compiled(
    facts: Facts, target: str, actual: Sequence[Sequence[Array]], expected: Sequence[Sequence[Array]], steps: float = 0
) -> None:
    """The same of a whole model that was compiled for `target`; noted for the way in which it is quantized."""
    seen = differences(actual, expected)
    LEDGER.schemes[scheme_of(facts.weights), scheme_of(facts.activations), facts.format, target].add(*seen)
    _require(seen, steps)


def note_accuracy(
    model: str, source_format: str, numerics: str, theirs: Array, ours: Array, labels: Array | None
) -> None:
    """Top-1 and top-5 of a model by its framework and by Octet.

    Args:
        theirs, ours: `[samples, classes]`.
        labels: the right class of each sample; None for a model with random weights, of which only agreement counts.
    """
    agreement = f"{100 * np.mean(theirs.argmax(1) == ours.argmax(1)):.4g} %"
    equal = f"{100 * np.mean(theirs == ours):.6g} %"
    rates = ["random weights"] * 2 if labels is None else [_rates(scores, labels) for scores in (theirs, ours)]
    LEDGER.accuracies[model, source_format, numerics] = (str(len(ours)), *rates, agreement, equal)


def differences(actual: Sequence[Sequence[Array]], expected: Sequence[Sequence[Array]]) -> tuple[int, int, float]:
    """How many values there are, how many differ, and by how much at most. Other shapes or types are an error."""
    elements, unequal, largest = 0, 0, 0.0
    for ours, theirs in zip(actual, expected, strict=True):
        for one, other in zip(ours, theirs, strict=True):
            assert (one.shape, one.dtype) == (other.shape, other.dtype)
            apart = ~((one == other) | ((one != one) & (other != other)))
            elements, unequal = elements + one.size, unequal + int(apart.sum())
            if apart.any():
                gaps = np.abs(one[apart].astype(np.float64) - other[apart].astype(np.float64))
                largest = max(largest, float(np.where(np.isnan(gaps), np.inf, gaps).max()))  # NaN beside a number
    return elements, unequal, largest


def scheme_of(scheme: Scheme | None) -> str:
    return "float" if scheme is None else str(scheme)


def _require(seen: tuple[int, int, float], steps: float) -> None:
    elements, unequal, largest = seen
    assert elements
    assert largest <= steps, f"{unequal} of {elements} values differ, by at most {largest:g}"
    assert steps or not unequal


def _rates(scores: Array, labels: Array) -> str:
    order = np.argsort(-scores.astype(np.float64), axis=1, kind="stable")
    top1, top5 = np.mean(order[:, 0] == labels), np.mean((order[:, :5] == labels[:, None]).any(1))
    return f"{100 * top1:.4g} / {100 * top5:.4g} %"


def _counted(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def tables(ledger: Ledger) -> str:
    """The three tables as Markdown."""
    sections = [
        "# Conformance",
        "",
        "Written by `make tables`, which runs the conformance tests: each cell is a comparison that a test made.",
        "",
        "## Operators",
        "Single-operator models, whole models and fixtures that hold the operator, imported and computed by the oracle "
        "in NumPy, beside the framework's own runtime on the same file. Models that compile to kernels are held to the "
        "oracle by the kernel tests.",
        "",
        *_operators(ledger),
        "",
        "## Schemes",
        "Compiled models, run on the instructions of each target, beside the framework's own runtime.",
        "",
        *_schemes(ledger),
        "",
        "## Accuracy",
        "Top-1 / top-5 on photographs, by the framework and by Octet; agreement where the weights are random.",
        "",
        *_markdown(
            ["model", "framework", "numerics", "inputs", "framework's", "Octet's", "same top-1", "equal outputs"],
            [
                [model, _TITLES[source_format], numerics, *row]
                for (model, source_format, numerics), row in sorted(ledger.accuracies.items())
            ],
        ),
    ]
    return "\n".join(sections) + "\n"


def _operators(ledger: Ledger) -> list[str]:
    columns = sorted({(framework, numerics) for _, framework, numerics in ledger.operators}, key=_order)
    rows = [
        [operator, *(str(ledger.operators.get((operator, *column), "")) for column in columns)]
        for operator in sorted({operator for operator, _, _ in ledger.operators})
    ]
    return _markdown(["operator", *(f"{_TITLES[framework]}, {numerics}" for framework, numerics in columns)], rows)


def _schemes(ledger: Ledger) -> list[str]:
    targets = sorted({target for *_, target in ledger.schemes})
    kinds = sorted({key[:3] for key in ledger.schemes}, key=lambda kind: (_order(kind[2:]), kind))
    rows = [
        [_TITLES[framework], weights, activations, *(str(ledger.schemes.get((*kind, each), "")) for each in targets)]
        for kind in kinds
        for weights, activations, framework in [kind]
    ]
    return _markdown(["framework", "weights", "activations", *targets], rows)


def _order(column: Sequence[str]) -> tuple[int, str]:
    framework, *rest = column
    return list(_TITLES).index(framework), "".join(rest)


def _markdown(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    return [
        f"| {' | '.join(head)} |",
        f"| {' | '.join(['---'] * len(head))} |",
        *(f"| {' | '.join(row)} |" for row in rows),
    ]

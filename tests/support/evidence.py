"""What conformance tests saw, for docs/reference/conformance.md: they note it here, and `make tables` writes it down.

A table holds what was seen, never what was hoped for: a row is there because a test made the comparison. What each test
function saw is kept in a record beside the tables, so that a run in which some tests were skipped, deselected or not
collected keeps what these saw before (`merged`).
"""

from __future__ import annotations

import json
import math
import os
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from service.compiler.importers.facts import facts_of
from service.compiler.importers.imported import ImportedModel
from service.core.arrays import Array
from service.core.comparison import equal_values, largest_difference
from service.core.facts import Facts, Scheme
from service.core.witnesses import percent

_TITLES = {"tflite": "TFLite", "onnx": "ONNX", "torchscript": "PyTorch", "pt2": "PyTorch, exported", "mxnet": "MXNet"}
_NAMING = {"Schemes": 3, "Accuracy": 3}  # how many columns name a row; one in other sections


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

    def include(self, other: Comparisons) -> None:
        self.add(other.elements, other.unequal, other.largest_difference)
        self.models += other.models - 1

    def __str__(self) -> str:
        if not self.models:
            return ""
        if not self.unequal:
            return f"equal ({_counted(self.models, 'model')})"
        equal = percent(self.elements - self.unequal, self.elements)
        return f"{equal:.4g} % equal, off by at most {self.largest_difference:g} ({_counted(self.models, 'model')})"


@dataclass
class Noted:
    """What one test function has noted, in all its cases.

    Attributes:
        operators: (operator, framework, numerics) -> comparisons of models that hold it.
        schemes: (weights, activations, framework, target) -> comparisons of compiled models.
        accuracies: (model, framework, numerics) -> a row of the third table.
    """

    operators: dict[tuple[str, str, str], Comparisons] = field(default_factory=lambda: defaultdict(Comparisons))
    schemes: dict[tuple[str, str, str, str], Comparisons] = field(default_factory=lambda: defaultdict(Comparisons))
    accuracies: dict[tuple[str, str, str], tuple[str, ...]] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        return {
            "operators": [[*key, *_numbers(each)] for key, each in sorted(self.operators.items())],
            "schemes": [[*key, *_numbers(each)] for key, each in sorted(self.schemes.items())],
            "accuracies": [[*key, list(row)] for key, row in sorted(self.accuracies.items())],
        }

    @staticmethod
    def from_json(said: Mapping[str, Any]) -> Noted:
        noted = Noted()
        for operator, framework, numerics, *numbers in said["operators"]:
            noted.operators[operator, framework, numerics] = _comparisons(*numbers)
        for weights, activations, framework, target, *numbers in said["schemes"]:
            noted.schemes[weights, activations, framework, target] = _comparisons(*numbers)
        for model, framework, numerics, row in said["accuracies"]:
            noted.accuracies[model, framework, numerics] = tuple(row)
        return noted


def _numbers(comparisons: Comparisons) -> tuple[int, int, int, float | None]:
    largest = comparisons.largest_difference
    return comparisons.models, comparisons.elements, comparisons.unequal, largest if math.isfinite(largest) else None


def _comparisons(models: int, elements: int, unequal: int, largest: float | None) -> Comparisons:
    return Comparisons(models, elements, unequal, math.inf if largest is None else largest)


@dataclass
class Ledger:
    """What the test functions have noted, by `FILE::FUNCTION`."""

    tests: dict[str, Noted] = field(default_factory=lambda: defaultdict(Noted))

    @property
    def now(self) -> Noted:
        """Of the test function that runs at this moment."""
        return self.tests[function_of(os.environ.get("PYTEST_CURRENT_TEST", ""))]

    @property
    def operators(self) -> dict[tuple[str, str, str], Comparisons]:
        found: dict[tuple[str, str, str], Comparisons] = defaultdict(Comparisons)
        for noted in self.tests.values():
            for key, comparisons in noted.operators.items():
                found[key].include(comparisons)
        return dict(found)

    @property
    def schemes(self) -> dict[tuple[str, str, str, str], Comparisons]:
        found: dict[tuple[str, str, str, str], Comparisons] = defaultdict(Comparisons)
        for noted in self.tests.values():
            for key, comparisons in noted.schemes.items():
                found[key].include(comparisons)
        return dict(found)

    @property
    def accuracies(self) -> dict[tuple[str, str, str], tuple[str, ...]]:
        return {key: row for noted in self.tests.values() for key, row in noted.accuracies.items()}

    def to_json(self) -> str:
        """The record: one line for each test function."""
        lines = (f"{json.dumps(test)}: {json.dumps(noted.to_json())}" for test, noted in sorted(self.tests.items()))
        return "{\n" + ",\n".join(lines) + "\n}\n"

    @staticmethod
    def from_json(text: str) -> Ledger:
        ledger = Ledger()
        ledger.tests.update({test: Noted.from_json(said) for test, said in json.loads(text).items()})
        return ledger


class Incomplete(Exception):
    """A run may not write the tables: rows would be lost that it has not looked at."""


def function_of(node: str) -> str:
    """`FILE::FUNCTION` of a test's id, of whatever case and phase."""
    return node.partition("[")[0].partition(" ")[0]


def merged(before: Ledger, seen: Ledger, complete: Collection[str], existing: Collection[str]) -> Ledger:
    """What the tables show after a run.

    Args:
        before: the record that the last run left.
        seen: what this run noted.
        complete: the test functions of which every case has passed in this run. Of all others, what they noted before
            stays; if that is nothing, what they noted now.
        existing: the test functions that there are. What others noted before is dropped.
    """
    after = Ledger()
    for test in sorted({*before.tests, *seen.tests}):
        if test in complete or test not in before.tests:
            after.tests[test] = seen.tests.get(test, Noted())
        elif test in existing:
            after.tests[test] = before.tests[test]
    after.tests = {test: noted for test, noted in after.tests.items() if noted != Noted()}
    return after


def require_rows(before: str, after: str, is_complete: bool) -> None:
    """
    Args:
        before, after: the tables as Markdown.
        is_complete: True if every test ran.

    Raises:
        Incomplete: a row of `before` is not in `after`, and some test did not run.
    """
    lost = sorted(_rows(before) - _rows(after))
    if lost and not is_complete:
        raise Incomplete(
            f"the tables were not written: not every conformance test ran, and {len(lost)} rows would be lost: "
            + "; ".join(" | ".join(row) for row in lost[:5])
        )


def _rows(tables: str) -> set[tuple[str, ...]]:
    """The rows of each table, by the section and the columns that name them."""
    found: set[tuple[str, ...]] = set()
    section = ""
    for line in tables.splitlines():
        if line.startswith("## "):
            section = line.removeprefix("## ")
        elif line.startswith("| ") and not line.startswith("| ---"):
            found.add((section, *line.strip("| ").split(" | ")[: _NAMING.get(section, 1)]))
    return found


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
        LEDGER.now.operators[operator, imported.format, numerics].add(*seen)
    _require(seen, steps)


def compare_compiled(
    facts: Facts, target: str, actual: Sequence[Sequence[Array]], expected: Sequence[Sequence[Array]], steps: float = 0
) -> None:
    """The same of a whole model that was compiled for `target`; noted for the way in which it is quantized."""
    seen = differences(actual, expected)
    LEDGER.now.schemes[scheme_of(facts.weights), scheme_of(facts.activations), facts.format, target].add(*seen)
    _require(seen, steps)


def note_accuracy(
    model: str, source_format: str, numerics: str, theirs: Array, ours: Array, labels: Array | None
) -> None:
    """Top-1 and top-5 of a model by its framework and by Octet.

    Args:
        theirs, ours: `[samples, classes]`.
        labels: the right class of each sample; None for a model with random weights, of which only agreement counts.
    """
    agreement = f"{_share(theirs.argmax(1) == ours.argmax(1)):.4g} %"
    equal = f"{_share(equal_values(theirs, ours)):.4g} %"
    rates = ["random weights"] * 2 if labels is None else [_rates(scores, labels) for scores in (theirs, ours)]
    LEDGER.now.accuracies[model, source_format, numerics] = (str(len(ours)), *rates, agreement, equal)


def differences(actual: Sequence[Sequence[Array]], expected: Sequence[Sequence[Array]]) -> tuple[int, int, float]:
    """How many values there are, how many differ, and by how much at most. Other shapes or types are an error."""
    elements, unequal, largest = 0, 0, 0.0
    for ours, theirs in zip(actual, expected, strict=True):
        for one, other in zip(ours, theirs, strict=True):
            assert (one.shape, one.dtype) == (other.shape, other.dtype)
            elements, unequal = elements + one.size, unequal + int((~equal_values(one, other)).sum())
            difference = largest_difference(one, other)
            largest = max(largest, math.inf if difference is None else difference)  # of a NaN beside a number
    return elements, unequal, largest


def _share(holds: NDArray[np.bool_]) -> float:
    return percent(int(holds.sum()), holds.size)


def scheme_of(scheme: Scheme | None) -> str:
    return "float" if scheme is None else str(scheme)


def _require(seen: tuple[int, int, float], steps: float) -> None:
    elements, unequal, largest = seen
    assert elements
    assert largest <= steps, f"{unequal} of {elements} values differ, by at most {largest:g}"
    assert steps or not unequal


def _rates(scores: Array, labels: Array) -> str:
    order = np.argsort(-scores.astype(np.float64), axis=1, kind="stable")
    top1, top5 = _share(order[:, 0] == labels), _share((order[:, :5] == labels[:, None]).any(1))
    return f"{top1:.4g} / {top5:.4g} %"


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
    found = ledger.operators
    columns = sorted({(framework, numerics) for _, framework, numerics in found}, key=_order)
    rows = [
        [operator, *(str(found.get((operator, *column), "")) for column in columns)]
        for operator in sorted({operator for operator, _, _ in found})
    ]
    return _markdown(["operator", *(f"{_TITLES[framework]}, {numerics}" for framework, numerics in columns)], rows)


def _schemes(ledger: Ledger) -> list[str]:
    found = ledger.schemes
    targets = sorted({target for *_, target in found})
    kinds = sorted({key[:3] for key in found}, key=lambda kind: (_order(kind[2:]), kind))
    rows = [
        [_TITLES[framework], weights, activations, *(str(found.get((*kind, each), "")) for each in targets)]
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

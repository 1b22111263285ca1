"""Records the results of conformance tests. `make tables` writes docs/reference/conformance.md from them.

Each row of a table is the result of a comparison that a test made. A record file contains the results of each test
function. So if tests are skipped, deselected or not collected in a run, their earlier results are kept (`merged`).
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
from service.core.models.arrays import Array
from service.core.models.facts import Facts, Scheme
from service.core.verification.comparison import equal_values, largest_difference
from service.core.verification.witnesses import percent

_TITLES = {"tflite": "TFLite", "onnx": "ONNX", "torchscript": "PyTorch", "pt2": "PyTorch, exported", "mxnet": "MXNet"}
_NAMING = {"Schemes": 3, "Accuracy": 3}  # section -> number of columns that identify a row; it is 1 in other sections


@dataclass
class Comparisons:
    """The comparisons of one operator, or of one type of model, with one reference runtime.

    Attributes:
        models: the number of different models.
        elements: the number of values that were compared.
        unequal: the number of values that differ.
        largest_difference: the largest difference in steps of the output; 0 if all values are equal bit for bit.
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
    """The results of all cases of one test function.

    Attributes:
        operators: (operator, framework, numerics) -> the comparisons of models that contain the operator.
        schemes: (weights, activations, framework, target) -> the comparisons of compiled models.
        accuracies: (model, framework, numerics) -> the row of the table of accuracies.
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
    def from_json(members: Mapping[str, Any]) -> Noted:
        noted = Noted()
        for operator, framework, numerics, *numbers in members["operators"]:
            noted.operators[operator, framework, numerics] = _comparisons(*numbers)
        for weights, activations, framework, target, *numbers in members["schemes"]:
            noted.schemes[weights, activations, framework, target] = _comparisons(*numbers)
        for model, framework, numerics, row in members["accuracies"]:
            noted.accuracies[model, framework, numerics] = tuple(row)
        return noted


def _numbers(comparisons: Comparisons) -> tuple[int, int, int, float | None]:
    largest = comparisons.largest_difference
    return comparisons.models, comparisons.elements, comparisons.unequal, largest if math.isfinite(largest) else None


def _comparisons(models: int, elements: int, unequal: int, largest: float | None) -> Comparisons:
    return Comparisons(models, elements, unequal, math.inf if largest is None else largest)


@dataclass
class Ledger:
    """The results of all test functions, by `FILE::FUNCTION`."""

    tests: dict[str, Noted] = field(default_factory=lambda: defaultdict(Noted))

    @property
    def now(self) -> Noted:
        """The results of the test function that is running."""
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
        """Returns the record: one line for each test function."""
        lines = (f"{json.dumps(test)}: {json.dumps(noted.to_json())}" for test, noted in sorted(self.tests.items()))
        return "{\n" + ",\n".join(lines) + "\n}\n"

    @staticmethod
    def from_json(text: str) -> Ledger:
        ledger = Ledger()
        ledger.tests.update({test: Noted.from_json(members) for test, members in json.loads(text).items()})
        return ledger


class Incomplete(Exception):
    """The run may not write the tables, because they would lose the rows of tests that did not run."""


def function_of(node: str) -> str:
    """Returns the part `FILE::FUNCTION` of a test's id, without its parameters and phase."""
    return node.partition("[")[0].partition(" ")[0]


def merged(before: Ledger, seen: Ledger, complete: Collection[str], existing: Collection[str]) -> Ledger:
    """Returns the results for the tables after a run.

    Args:
        before: the record of the last run.
        seen: the results of this run.
        complete: the test functions whose cases all passed in this run. For others, the earlier results are kept; if
            there are none, the new ones are used.
        existing: all test functions that exist. Earlier results of other functions are dropped.
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
    """Checks that the new tables contain all rows of the old ones.

    Args:
        before, after: the old and the new tables as Markdown.
        is_complete: true if every test ran, so that rows may disappear.

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
    """Returns each row of the tables as its section and the columns that identify it."""
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
    """Checks that the outputs of the oracle for the imported model equal those of the framework. Records the comparison
    for each operator of the model.

    Args:
        actual, expected: the outputs of each sample.
        steps: the largest difference that an output may have, in steps.
    """
    seen = differences(actual, expected)
    for operator in facts_of(imported).operators:
        LEDGER.now.operators[operator, imported.format, numerics].add(*seen)
    _require(seen, steps)


def compare_compiled(
    facts: Facts, target: str, actual: Sequence[Sequence[Array]], expected: Sequence[Sequence[Array]], steps: float = 0
) -> None:
    """Makes the same check for a whole model that was compiled for `target`, and records it by quantization scheme."""
    seen = differences(actual, expected)
    LEDGER.now.schemes[scheme_of(facts.weights), scheme_of(facts.activations), facts.format, target].add(*seen)
    _require(seen, steps)


def note_accuracy(
    model: str, source_format: str, numerics: str, theirs: Array, ours: Array, labels: Array | None
) -> None:
    """Records the top-1 and top-5 accuracy of a model, in its framework and in Octet.

    Args:
        theirs, ours: the scores of the framework and of Octet, `[samples, classes]`.
        labels: the correct class of each sample. None for a model with random weights, for which only the agreement of
            framework and Octet is recorded.
    """
    agreement = f"{_share(theirs.argmax(1) == ours.argmax(1)):.4g} %"
    equal = f"{_share(equal_values(theirs, ours)):.4g} %"
    rates = ["random weights"] * 2 if labels is None else [_rates(scores, labels) for scores in (theirs, ours)]
    LEDGER.now.accuracies[model, source_format, numerics] = (str(len(ours)), *rates, agreement, equal)


def differences(actual: Sequence[Sequence[Array]], expected: Sequence[Sequence[Array]]) -> tuple[int, int, float]:
    """Returns the number of values, the number of values that differ, and the largest difference.

    Different shapes or types fail the test.
    """
    elements, unequal, largest = 0, 0, 0.0
    for ours, theirs in zip(actual, expected, strict=True):
        for one, other in zip(ours, theirs, strict=True):
            assert (one.shape, one.dtype) == (other.shape, other.dtype)
            elements, unequal = elements + one.size, unequal + int((~equal_values(one, other)).sum())
            difference = largest_difference(one, other)
            # one of the two is NaN and the other is a number
            largest = max(largest, math.inf if difference is None else difference)
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
    """Returns the three tables as Markdown."""
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

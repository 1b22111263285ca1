"""Records the results of conformance tests. `make tables` writes docs/reference/conformance.md from them.

Each cell of a table is the result of a comparison that a test made. A record file contains the results of each test
function with their dates. So if tests are skipped, deselected or not collected in a run, or if this machine cannot
execute a target, earlier results are kept (`merged`), and the tables show how old they are.
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

from benchmarks.harness.kept import DATE, today
from service.compiler.importers.facts import facts_of
from service.compiler.importers.imported import ImportedModel
from service.core.models.arrays import Array
from service.core.models.facts import Facts, Scheme
from service.core.verification.comparison import equal_values, largest_difference
from service.core.verification.scoring import rank_of
from service.core.verification.witnesses import percent

_TITLES = {
    "tflite": "TFLite",
    "onnx": "ONNX",
    "torchscript": "PyTorch",
    "pt2": "PyTorch, exported",
    "mxnet": "MXNet",
    "openvino": "OpenVINO",
}


@dataclass
class Comparisons:
    """The comparisons of one operator, or of one type of model, with one reference runtime.

    Attributes:
        models: the number of different models.
        elements: the number of values that were compared.
        unequal: the number of values that differ.
        largest_difference: the largest difference in steps of the output; 0 if all values are equal bit for bit.
        days: the days on which the comparisons were made.
    """

    models: int = 0
    elements: int = 0
    unequal: int = 0
    largest_difference: float = 0.0
    days: set[str] = field(default_factory=set)

    def add(self, elements: int, unequal: int, largest_difference: float) -> None:
        self.include(Comparisons(1, elements, unequal, largest_difference, {today()}))

    def include(self, other: Comparisons) -> None:
        self.models += other.models
        self.elements += other.elements
        self.unequal += other.unequal
        self.largest_difference = max(self.largest_difference, other.largest_difference)
        self.days |= other.days

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
        accuracies: (model, framework, numerics) -> the row of the table of accuracies; its last cell is the day.
        tokenizers: (tokenizer, type of its model, reference) -> the number of texts, the number of texts with
            different tokens, and the day.
    """

    operators: dict[tuple[str, str, str], Comparisons] = field(default_factory=lambda: defaultdict(Comparisons))
    schemes: dict[tuple[str, str, str, str], Comparisons] = field(default_factory=lambda: defaultdict(Comparisons))
    accuracies: dict[tuple[str, str, str], tuple[str, ...]] = field(default_factory=dict)
    tokenizers: dict[tuple[str, str, str], tuple[int, int, str]] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        members: dict[str, Any] = {
            "operators": [[*key, *_numbers(each)] for key, each in sorted(self.operators.items())],
            "schemes": [[*key, *_numbers(each)] for key, each in sorted(self.schemes.items())],
            "accuracies": [[*key, list(row)] for key, row in sorted(self.accuracies.items())],
        }
        if self.tokenizers:
            members["tokenizers"] = [[*key, *row] for key, row in sorted(self.tokenizers.items())]
        return members

    @staticmethod
    def from_json(members: Mapping[str, Any]) -> Noted:
        noted = Noted()
        for operator, framework, numerics, *numbers in members["operators"]:
            noted.operators[operator, framework, numerics] = _comparisons(*numbers)
        for weights, activations, framework, target, *numbers in members["schemes"]:
            noted.schemes[weights, activations, framework, target] = _comparisons(*numbers)
        for model, framework, numerics, row in members["accuracies"]:
            noted.accuracies[model, framework, numerics] = tuple(row)
        for tokenizer, model_type, reference, texts, unequal, day in members.get("tokenizers", ()):
            noted.tokenizers[tokenizer, model_type, reference] = texts, unequal, day
        return noted


def _numbers(comparisons: Comparisons) -> tuple[int, int, int, float | None, list[str]]:
    largest = comparisons.largest_difference if math.isfinite(comparisons.largest_difference) else None
    return comparisons.models, comparisons.elements, comparisons.unequal, largest, sorted(comparisons.days)


def _comparisons(models: int, elements: int, unequal: int, largest: float | None, days: Sequence[str]) -> Comparisons:
    return Comparisons(models, elements, unequal, math.inf if largest is None else largest, set(days))


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

    @property
    def tokenizers(self) -> dict[tuple[str, str, str], tuple[int, int, str]]:
        return {key: row for noted in self.tests.values() for key, row in noted.tokenizers.items()}

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
    """The run may not write the tables, because no process has the results of all tests."""


def function_of(node: str) -> str:
    """Returns the part `FILE::FUNCTION` of a test's id, without its parameters and phase."""
    return node.partition("[")[0].partition(" ")[0]


def merged(before: Ledger, seen: Ledger, complete: Collection[str], existing: Collection[str]) -> Ledger:
    """Returns the results for the tables after a run.

    Args:
        before: the record of the last run.
        seen: the results of this run.
        complete: the test functions whose cases all passed in this run. Their results replace the earlier ones of the
            same operator, scheme or model. For other functions, earlier results have priority.
        existing: all test functions that exist. Earlier results of other functions are dropped.
    """
    after = Ledger()
    for test in sorted({*before.tests, *seen.tests}):
        earlier = before.tests.get(test, Noted()) if test in existing else Noted()
        found = seen.tests.get(test, Noted())
        last, first = (found, earlier) if test in complete else (earlier, found)
        noted = Noted(
            operators={**first.operators, **last.operators},
            schemes={**first.schemes, **last.schemes},
            accuracies={**first.accuracies, **last.accuracies},
            tokenizers={**first.tokenizers, **last.tokenizers},
        )
        if noted != Noted():
            after.tests[test] = noted
    return after


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
    _require(record(imported, numerics, actual, expected), steps)


def record(
    imported: ImportedModel, numerics: str, actual: Sequence[Sequence[Array]], expected: Sequence[Sequence[Array]]
) -> tuple[int, int, float]:
    """Records a comparison like `compare`, for a test that has its own tolerance. Returns the result of
    `differences`.
    """
    seen = differences(actual, expected)
    for operator in facts_of(imported).operators:
        LEDGER.now.operators[operator, imported.format, numerics].add(*seen)
    return seen


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
    LEDGER.now.accuracies[model, source_format, numerics] = (str(len(ours)), *rates, agreement, equal, today())


def note_tokens(tokenizer: str, model_type: str, reference: str, texts: int, unequal: int) -> None:
    """Records that the tokens of `unequal` texts of `texts` differ from those of the reference."""
    LEDGER.now.tokenizers[tokenizer, model_type, reference] = texts, unequal, today()


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
    ranks = np.array([rank_of(row, int(label)) for row, label in zip(scores, labels, strict=True)])
    top1, top5 = _share(ranks == 0), _share(ranks < 5)
    return f"{top1:.4g} / {top5:.4g} %"


def _counted(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def tables(ledger: Ledger) -> str:
    """Returns the four tables as Markdown."""
    sections = [
        "# Conformance",
        "",
        "Written by `make tables`, which runs the conformance tests: each cell is a comparison that a test made. A run "
        "without the models, the runtimes or the processor that a test needs keeps its earlier result; the last column "
        "shows the days of a row's comparisons.",
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
            ["model", "framework", "numerics", "inputs", "framework's", "Octet's", "same top-1", "equal outputs", DATE],
            [
                [model, _TITLES[source_format], numerics, *row]
                for (model, source_format, numerics), row in sorted(ledger.accuracies.items())
            ],
        ),
        "",
        "## Tokenizers",
        "Random texts of all scripts, tokenized as by the preprocessing process and by transformers' AutoTokenizer. "
        "Octet uses `tokenizer.json` as it is, and so does release 4 of transformers. Release 5 builds tokenizers of "
        "some classes without the file's normalizer.",
        "",
        *_markdown(
            ["tokenizer", "model", "reference", "texts", "texts with other tokens", DATE],
            [
                [*key, f"{texts:,}", f"{unequal:,}", day]
                for key, (texts, unequal, day) in sorted(ledger.tokenizers.items())
            ],
        ),
    ]
    return "\n".join(sections) + "\n"


def _operators(ledger: Ledger) -> list[str]:
    found = ledger.operators
    columns = sorted({(framework, numerics) for _, framework, numerics in found}, key=_order)
    rows = []
    for operator in sorted({operator for operator, _, _ in found}):
        cells = [found.get((operator, *column), Comparisons()) for column in columns]
        rows.append([operator, *map(str, cells), _days(cells)])
    return _markdown(
        ["operator", *(f"{_TITLES[framework]}, {numerics}" for framework, numerics in columns), DATE], rows
    )


def _schemes(ledger: Ledger) -> list[str]:
    found = ledger.schemes
    targets = sorted({target for *_, target in found})
    kinds = sorted({key[:3] for key in found}, key=lambda kind: (_order(kind[2:]), kind))
    rows = []
    for weights, activations, framework in kinds:
        cells = [found.get((weights, activations, framework, target), Comparisons()) for target in targets]
        rows.append([_TITLES[framework], weights, activations, *map(str, cells), _days(cells)])
    return _markdown(["framework", "weights", "activations", *targets, DATE], rows)


def _days(cells: Iterable[Comparisons]) -> str:
    """Returns the day of the comparisons, or the first and the last one."""
    days = set().union(*(each.days for each in cells))
    return " to ".join(sorted({min(days), max(days)}))


def _order(column: Sequence[str]) -> tuple[int, str]:
    framework, *rest = column
    return list(_TITLES).index(framework), "".join(rest)


def _markdown(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    return [
        f"| {' | '.join(head)} |",
        f"| {' | '.join(['---'] * len(head))} |",
        *(f"| {' | '.join(row)} |" for row in rows),
    ]

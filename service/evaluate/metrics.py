"""The scores of classifiers, and those that a user's Python file defines for other tasks.

Such a file runs in the process that evaluates, with all rights of its user. So only a command and `octet.evaluate`
load one, for whoever calls them; a server never does.
"""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from service.core.digest import digest_of_file
from service.core.errors import InvalidInput
from service.core.models.arrays import Array
from service.core.provenance.score import MOST_METRICS
from service.core.verification.scoring import Metric, check_label, mean_of, rank_of, share_of

TOP = 5
_RESAMPLES = 200
_MOST_METRICS = MOST_METRICS - 4  # a score also contains those of the comparison with the reference
_FORM = "def score(name, outputs, label): return a number, or a dict of numbers"

Score = Callable[[str, Mapping[str, Array], str | None], float | Mapping[str, float]]
Combine = Callable[[Sequence[Any]], float | Mapping[str, float]]


@dataclass(frozen=True)
class Scorer:
    """A user's functions that score the outputs of a model.

    Attributes:
        score: called with the name of each input, the outputs by name (arrays as the model returns them) and the text
            of the label, or None if the input has no label. Returns a number, or several by name.
        combine: computes the scores of the whole data set from a list of results of `score`, which it may define as it
            likes then. Without it, the scores are the means.
        title: the name of the functions in error messages.
        identity: the digest of the file that defines them, or the name of the first function.
    """

    score: Callable[[str, Mapping[str, Array], str | None], Any]
    combine: Combine | None = None
    title: str = "score"
    identity: str = ""

    @staticmethod
    def load(path: Path) -> Scorer:
        """Executes a Python file, and returns its functions `score` and, if it has one, `combine`.

        Raises:
            InvalidInput: the file has no function `score`, or raises an exception.
        """
        spec = importlib.util.spec_from_file_location("octet_user_score", path)
        if spec is None or spec.loader is None:
            raise InvalidInput(f"{path} is not a Python file", hint=_FORM)
        module = importlib.util.module_from_spec(spec)
        try:
            spec.loader.exec_module(module)
        except Exception as error:  # the file is the user's program
            raise InvalidInput(f"{path} raises {type(error).__name__}: {error}") from error
        score, combine = getattr(module, "score", None), getattr(module, "combine", None)
        if not callable(score):
            raise InvalidInput(f"{path} has no function score", hint=_FORM)
        return Scorer(score, combine if callable(combine) else None, str(path), digest_of_file(path))

    def score_input(self, name: str, outputs: Mapping[str, Array], label: str | None) -> Any:
        """Returns the result of `score`. Raises `InvalidInput` if the function raises an exception."""
        try:
            return self.score(name, outputs, label)
        except Exception as error:
            message = f"{self.title}: score({name!r}) raises {type(error).__name__}: {error}"
            raise InvalidInput(message, hint=_FORM) from error

    def metrics(self, scores: Sequence[Any]) -> dict[str, Metric]:
        """Returns the scores of the data set.

        The interval of a mean is that of the normal distribution. The interval of a combined score contains the middle
        95 % of the scores of `_RESAMPLES` data sets that are drawn from this one with replacement (bootstrap, with a
        fixed seed).

        Raises:
            InvalidInput: a result is not a finite number, or a dict of such numbers with the same names for all inputs.
        """
        if self.combine is None:
            rows = [self._numbers(each) for each in scores]
            if any(row.keys() != rows[0].keys() for row in rows):
                raise InvalidInput(f"{self.title}: score returns different names for different inputs", hint=_FORM)
            return {name: mean_of([row[name] for row in rows]) for name in rows[0]}
        whole = self._combined(scores)
        rng, count = np.random.default_rng(0), len(scores)
        draws = [self._combined([scores[int(at)] for at in rng.integers(0, count, count)]) for _ in range(_RESAMPLES)]
        return {
            name: Metric(value, _quantile(draws, name, 0.025), _quantile(draws, name, 0.975), count)
            for name, value in whole.items()
        }

    def first_number(self, score: Any) -> float | None:
        """Returns the number by which inputs are ordered; None if `score` returns something other than numbers."""
        try:
            return next(iter(self._numbers(score).values()))
        except InvalidInput:
            return None

    def _combined(self, scores: Sequence[Any]) -> dict[str, float]:
        assert self.combine is not None
        try:
            return self._numbers(self.combine(scores))
        except InvalidInput:
            raise
        except Exception as error:
            raise InvalidInput(f"{self.title}: combine raises {type(error).__name__}: {error}") from error

    def _numbers(self, value: Any) -> dict[str, float]:
        named = value if isinstance(value, Mapping) else {"score": value}
        try:
            numbers = {str(name): float(each) for name, each in named.items()}
        except (TypeError, ValueError) as error:
            raise InvalidInput(f"{self.title} returns {value!r}, which is not a number", hint=_FORM) from error
        if not 1 <= len(numbers) <= _MOST_METRICS or not all(map(math.isfinite, numbers.values())):
            raise InvalidInput(f"{self.title} returns {value!r}, not 1 to {_MOST_METRICS} finite numbers", hint=_FORM)
        return numbers


def _quantile(draws: Sequence[Mapping[str, float]], name: str, share: float) -> float:
    return float(np.quantile([draw[name] for draw in draws], share))


def check_labels(labels: Sequence[str | None], names: Sequence[str], classes: int) -> None:
    """Raises `InvalidInput`, with the name of the input, if a label is not the index of a class."""
    for name, label in zip(names, labels, strict=True):
        if label is not None:
            try:
                check_label(int(label), classes)
            except InvalidInput as error:
                raise InvalidInput(f"{name}: {error.message}", hint=error.hint) from error


def classifier_metrics(scores: Array, labels: Sequence[int | None]) -> dict[str, Metric]:
    """Returns `top1` and, if there are more than `TOP` classes, `top5`: the shares of the inputs whose label is the
    result, or one of the five largest results.

    Args:
        scores: one row for each input: `[inputs, …]`.
        labels: the class of each input. Inputs without a label do not count.

    Raises:
        InvalidInput: a label is not a class, or no input has a label.
    """
    ranks = [rank_of(row, label) for row, label in zip(scores, labels, strict=True) if label is not None]
    if not ranks:
        raise InvalidInput("no input has a label", hint="write a line of file,class for each picture")
    found = {"top1": share_of([rank == 0 for rank in ranks])}
    if scores[0].size > TOP:
        found["top5"] = share_of([rank < TOP for rank in ranks])
    return found

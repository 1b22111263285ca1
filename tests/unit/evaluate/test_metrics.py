"""The scores of classifiers, and those of a user's functions."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from service.core.errors import InvalidInput
from service.evaluate.metrics import Scorer, check_labels, classifier_metrics


def load(tmp_path: Path, text: str) -> Scorer:
    path = tmp_path / "score.py"
    path.write_text(text)
    return Scorer.load(path)


def test_top1_and_top5() -> None:
    scores = np.eye(6, dtype=np.uint8)[:3]  # input k has class k, and then 0, 1, 2, … of equal score
    found = classifier_metrics(scores, [0, 5, None])
    assert (found["top1"].value, found["top1"].inputs) == (0.5, 2)
    assert found["top5"].value == 0.5


def test_five_classes_have_no_top5() -> None:
    assert set(classifier_metrics(np.eye(5), [0] * 5)) == {"top1"}


def test_a_wrong_label_names_its_input() -> None:
    with pytest.raises(InvalidInput, match=r"cat\.png: the label 7 is not one of the model's 6 classes"):
        check_labels(["5", None, "7"], ["cow.png", "dog.png", "cat.png"], 6)


def test_the_mean_of_a_users_scores(tmp_path: Path) -> None:
    scorer = load(tmp_path, "def score(name, outputs, label):\n    return {'off': abs(outputs['y'][0] - float(label))}")
    found = [scorer.score_input("a", {"y": np.array([value])}, "1.5") for value in (1.0, 3.0)]
    assert scorer.metrics(found)["off"].value == 1.0
    assert scorer.first_number(found[1]) == 1.5


def test_a_combined_score_has_a_bootstrap_interval(tmp_path: Path) -> None:
    scorer = load(tmp_path, "score = lambda name, outputs, label: label\ncombine = lambda all: max(map(float, all))")
    found = scorer.metrics([str(each) for each in range(10)])["score"]
    assert (found.value, found.inputs) == (9.0, 10)
    assert found.low < found.high == 9.0


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x = 1", "has no function score"),
        ("1 / 0", "raises ZeroDivisionError"),
    ],
)
def test_a_file_that_is_no_scorer(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        load(tmp_path, text)


def test_an_error_of_the_users_function_names_the_input(tmp_path: Path) -> None:
    scorer = load(tmp_path, "def score(name, outputs, label):\n    return outputs['z']")
    with pytest.raises(InvalidInput, match=r"score\('a\.png'\) raises KeyError"):
        scorer.score_input("a.png", {"y": np.zeros(1)}, None)


@pytest.mark.parametrize("scores", [[float("nan")], ["good"], [{}]])
def test_scores_that_are_no_numbers(scores: list[object]) -> None:
    with pytest.raises(InvalidInput, match="number"):
        Scorer(lambda name, outputs, label: 0).metrics(scores)


def test_different_names_for_different_inputs() -> None:
    with pytest.raises(InvalidInput, match="different names"):
        Scorer(lambda name, outputs, label: 0).metrics([{"a": 1}, {"b": 1}])

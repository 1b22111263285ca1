from pathlib import Path

import pytest

from benchmarks.harness.home import Home


def test_the_latest_results_are_those_of_the_same_part(tmp_path: Path) -> None:
    home = Home(tmp_path)
    home.results.mkdir()
    for at in (1, 2):
        (home.results / f"2026-01-0{at}T000000Z.jsonl").touch()
        (home.results / f"2026-01-0{at + 3}T000000Z.serving.jsonl").touch()
    assert home.latest_results().name == "2026-01-02T000000Z.jsonl"
    assert home.latest_results("serving").name == "2026-01-05T000000Z.serving.jsonl"


@pytest.mark.parametrize("part", ["", "serving"])
def test_a_new_result_is_the_latest(tmp_path: Path, part: str) -> None:
    home = Home(tmp_path)
    home.results.mkdir()
    with pytest.raises(SystemExit, match="no results yet"):
        home.latest_results(part)
    new = home.new_results(part)
    new.touch()
    assert home.latest_results(part) == new

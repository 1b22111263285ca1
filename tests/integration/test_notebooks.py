"""The notebooks of the documentation run, and their cells print what is stored in the file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.notebooks import NOTEBOOKS, code_cells, comparable, run
from tests.support.serving import serving


def test_there_are_notebooks() -> None:
    assert [path.name for path in NOTEBOOKS] == ["python.ipynb"]


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_a_notebook_prints_what_it_shows(path: Path, tmp_path: Path) -> None:
    notebook = json.loads(path.read_text())
    with serving(tmp_path / "data") as served:
        outputs = run(notebook, served.url, tmp_path)
    for cell, found in zip(code_cells(notebook), outputs, strict=True):
        assert comparable(found) == comparable(cell["outputs"]), "".join(cell["source"])


def test_an_exception_in_a_cell_fails_the_run(tmp_path: Path) -> None:
    cells = [{"cell_type": "code", "source": ["1 / 0\n"]}]
    with pytest.raises(AssertionError, match="ZeroDivisionError"):
        run({"cells": cells}, "http://localhost:1", tmp_path)


def test_outputs_are_printed_text_and_the_last_value(tmp_path: Path) -> None:
    cells = [
        {"cell_type": "markdown", "source": ["1 / 0"]},
        {"cell_type": "code", "source": ["x = 2\n", "print('a')\n", "x + 1"]},
        {"cell_type": "code", "source": ["x = x + 5"]},
        {"cell_type": "code", "source": ["x"]},
    ]
    first, second, third = run({"cells": cells}, "http://localhost:1", tmp_path)
    assert ([each["output_type"] for each in first], comparable(first)) == (["stream", "execute_result"], "a\n3")
    assert (second, comparable(third)) == ([], "7")

"""Runs the notebooks of the documentation, and stores what their cells print.

    python -m tests.support.notebooks docs/how-to/python.ipynb    # runs the cells, and writes their outputs to the file

A cell's output is what it prints, and then the value of its last expression, as in Jupyter. All cells of a notebook run
in one process, in the root of the repository.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from scripts.demo import serving
from tests.support.documented import ROOT
from tests.support.waiting import WORK_TIMEOUT_S

NOTEBOOKS = sorted(ROOT.glob("docs/**/*.ipynb"))
SERVER = "http://localhost:8080"  # the server in notebooks; tests use a free port instead
# Runs the cells in the JSON list on stdin, and prints their outputs as a JSON list.
_DRIVER = """
import ast, contextlib, io, json, sys
scope, outputs = {"__name__": "__main__"}, []
for source in json.load(sys.stdin):
    tree, printed, value = ast.parse(source), io.StringIO(), None
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    with contextlib.redirect_stdout(printed):
        exec(compile(tree, "cell", "exec"), scope)
        if last is not None:
            value = eval(compile(ast.Expression(last.value), "cell", "eval"), scope)
    outputs.append([printed.getvalue(), None if value is None else repr(value)])
json.dump(outputs, sys.stdout)
"""


def code_cells(notebook: dict[str, Any]) -> list[dict[str, Any]]:
    return [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]


def run(notebook: dict[str, Any], server: str, home: Path) -> list[list[dict[str, Any]]]:
    """Returns the outputs of each code cell in the notebook's format.

    Args:
        server: the URL of a server without models.
        home: a folder for files that the cells write by relative paths in `home`, and for caches.

    Paths in `home` are shown in `/tmp`.

    Raises:
        AssertionError: a cell raised an exception; the message contains the traceback.
    """
    sources = ["".join(cell["source"]).replace(SERVER, server) for cell in code_cells(notebook)]
    ended = subprocess.run(
        [sys.executable, "-c", _DRIVER],
        input=json.dumps(sources),
        cwd=ROOT,
        env=os.environ | {"HOME": str(home), "TMPDIR": str(home), "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
        timeout=WORK_TIMEOUT_S,
    )
    assert ended.returncode == 0, ended.stderr
    outputs = json.loads(ended.stdout.replace(str(home), "/tmp"))
    return [_outputs(printed, value, number) for number, (printed, value) in enumerate(outputs, 1)]


def comparable(outputs: list[dict[str, Any]]) -> str:
    """Returns the text of outputs without what depends on the machine: digests and temporary folders."""
    text = "".join("".join(each.get("text") or each["data"]["text/plain"]) for each in outputs)
    return re.sub(r"/\S*/octet-\w+", "FOLDER", re.sub(r"sha256:[0-9a-f]+", "DIGEST", text))


def _outputs(printed: str, value: str | None, number: int) -> list[dict[str, Any]]:
    stream = {"name": "stdout", "output_type": "stream", "text": printed.splitlines(keepends=True)}
    result = {
        "data": {"text/plain": (value or "").splitlines(keepends=True)},
        "execution_count": number,
        "metadata": {},
        "output_type": "execute_result",
    }
    return [*([stream] if printed else []), *([result] if value is not None else [])]


def main(path: Path) -> None:
    notebook = json.loads(path.read_text())
    with tempfile.TemporaryDirectory() as folder, serving(Path(folder)) as served:
        outputs = run(notebook, served["url"], Path(folder))
    for number, (cell, found) in enumerate(zip(code_cells(notebook), outputs, strict=True), 1):
        cell["execution_count"], cell["outputs"] = number, found
    path.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())

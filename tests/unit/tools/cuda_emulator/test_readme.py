"""Runs the example of the emulator's README."""

from __future__ import annotations

import re
from pathlib import Path

README = Path(__file__).parents[4] / "tools" / "cuda_emulator" / "README.md"


def test_the_example_runs() -> None:
    (example,) = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    exec(example, {})

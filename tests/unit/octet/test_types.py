"""Type checkers of programs that use the installed package see the types of its functions."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np

import octet
import service

PROGRAM = """
import octet

artifact = octet.compile("model.tflite")
reveal_type(artifact.load())
reveal_type(artifact.load().inputs)
reveal_type(octet.Client().builds())
reveal_type(octet.quantize("model.onnx").layers_db)
octet.load(3)
"""


def test_a_strict_type_checker_knows_the_types(tmp_path: Path) -> None:
    environment, program = tmp_path / "environment", tmp_path / "program.py"
    program.write_text(PROGRAM)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(environment)], check=True)
    (packages,) = environment.glob("lib/python3*/site-packages")
    for package in (octet, service, np):
        folder = Path(str(package.__file__)).parent
        (packages / folder.name).symlink_to(folder)
    command = [sys.executable, "-m", "mypy", "--strict", "--python-executable", str(environment / "bin" / "python")]
    command += ["--cache-dir", str(tmp_path / "cache"), program.name]
    checked = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    notes = [line.split(" ", 1)[1] for line in checked.stdout.splitlines()]
    assert notes == [
        'note: Revealed type is "octet.models.Model"',
        'note: Revealed type is "tuple[service.core.models.signature.TensorSpec, ...]"',
        'note: Revealed type is "list[octet.client.Build]"',
        'note: Revealed type is "dict[str, float | None]"',
        'error: Argument 1 to "load" has incompatible type "int"; expected "str | Path"  [arg-type]',
        "1 error in 1 file (checked 1 source file)",
    ]

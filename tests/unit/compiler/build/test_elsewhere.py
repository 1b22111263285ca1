"""Roles in another Python environment. The environment is this one, but its interpreter is started as any other."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from service.compiler.build.elsewhere import run_elsewhere
from service.compiler.messages.checking import REFERENCE, ReferenceRequest
from service.compiler.messages.files import reference_file
from service.compiler.references.environment import Environment
from service.compiler.sandbox import Access, working
from service.core.builds.numerics import LITERT_REFERENCE
from service.core.digest import digest_of_file
from service.core.errors import BuildFailed
from service.core.models.signature import ModelSignature, TensorSpec, datatype_of
from tests.support.compiled import EXAMPLES

MODEL = EXAMPLES / "digits_int8.tflite"
SIGNATURE = ModelSignature(
    (TensorSpec("x", datatype_of("int8"), (1, 16, 16, 1)),), (TensorSpec("y", datatype_of("int8"), (1, 10)),)
)


def request_for(source: Path) -> dict[str, Any]:
    return ReferenceRequest(source, "tflite", None, LITERT_REFERENCE, SIGNATURE, 3).to_json()


def run(request: dict[str, Any], scratch: Path, readable: tuple[Path, ...] = (), role: str = "reference") -> Any:
    used_s: list[float] = []
    try:
        return run_elsewhere(
            Environment(Path(sys.executable)),
            role,
            request,
            access=Access(readable, (scratch,)),
            limits=working(60.0, 60.0, 8 << 30),
            on_message=None,
            poll=lambda: None,
            allow_unsandboxed=False,
            on_cpu=used_s.append,
        )
    finally:
        assert used_s[0] > 0


def test_a_role_runs_in_another_interpreter(tmp_path: Path) -> None:
    result = REFERENCE.read_result(run(request_for(MODEL), tmp_path, (MODEL,)))
    assert result.source == digest_of_file(MODEL)
    assert [session.answered for session in result.sessions] == [3, 3]
    assert np.load(tmp_path / reference_file(0))["2.0"].shape == (1, 10)


def test_it_cannot_read_other_files(tmp_path: Path) -> None:
    with pytest.raises(BuildFailed, match=r"exited with status 1: PermissionError: .*Permission denied"):
        run(request_for(MODEL), tmp_path)


def test_the_last_line_of_its_output_is_in_the_error(tmp_path: Path) -> None:
    with pytest.raises(BuildFailed, match="exited with status 1: KeyError: 'no such role'"):
        run({}, tmp_path, role="no such role")


@pytest.mark.parametrize("text", ["", "[1]", "[" * 100_000, "{" + " " * (5 << 20) + "}"], ids=len)
def test_an_invalid_result_is_refused(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "program.py"
    program.write_text(f"import pathlib; pathlib.Path('result.json').write_text({text!r})")
    monkeypatch.setattr("service.compiler.children.elsewhere.__file__", str(program))
    with pytest.raises(BuildFailed, match="the child wrote"):
        run({}, tmp_path, (program,))

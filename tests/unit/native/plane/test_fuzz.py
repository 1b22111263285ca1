"""Feeds damaged heads, bodies, JSON and protobuf messages to the data plane (tests/fuzz/native/plane.cc)."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.native import compile_plane

_PROGRAM = Path(__file__).parents[3] / "fuzz" / "native" / "plane.cc"
_SOURCES = (
    *("text/json_reader", "text/json_writer", "text/protobuf", "text/http1", "net/gzip", "net/reflection"),
    *(
        "request/buckets",
        "request/contents",
        "request/elements",
        "request/form",
        "request/infer_form",
        "request/json_form",
    ),
    *(
        "text/problem",
        "request/problem_reader",
        "request/sequence",
        "request/request",
        "request/signature",
        "request/tensor",
        "answer/answer",
        "answer/outputs",
    ),
)
# GCC 12 warns about its own AVX-512 headers, which leave a vector uninitialized on purpose.
_WARNINGS = ("-Wno-maybe-uninitialized", "-Wno-uninitialized")
_SECONDS = 20
_SANITIZED = ("g++", "-O1", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all", *_WARNINGS)


@pytest.mark.skipif(shutil.which("g++") is None, reason="the sanitizers' runtime comes with a system's compiler")
@pytest.mark.slow  # building the whole data plane with sanitizers takes half a minute
def test_damaged_requests_break_nothing_that_sanitizers_see(tmp_path: Path) -> None:
    program = compile_plane(_PROGRAM, tmp_path, _SOURCES, _SANITIZED)
    run = subprocess.run([program, str(_SECONDS), "1"], capture_output=True, text=True)
    assert (run.returncode, run.stderr) == (0, "")
    assert int(run.stdout.split()[0]) > 500 * _SECONDS

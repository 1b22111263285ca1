"""TVM with LLVM, the linker, the runtime and LiteRT work inside the sandbox."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from service.compiler.lowering.link import link
from service.compiler.sandbox import Access, Limits, run_child
from service.core.target import Target, detect_host, parse_target
from tests.support import litert_roles, tvm_roles

LIMITS = Limits(wall_s=120, cpu_s=120, memory_bytes=4 << 30, file_bytes=64 << 20)
DIGITS = Path(__file__).parents[4] / "examples" / "digits_int8.tflite"


def run(module: Any, role: str, request: dict[str, Any], access: Access, **env: str) -> dict[str, Any]:
    handlers = Path(module.__file__)
    access = Access((handlers, *access.readable), access.writable)
    return run_child(role, request, access=access, limits=LIMITS, handlers=handlers, env=env)


def build(scratch: Path, target: Target) -> list[Path]:
    options = {"kind": "llvm", "mtriple": f"{target.architecture}-linux-gnu", "mcpu": "generic"}
    if target.architecture == "x86_64":
        options["mcpu"] = "x86-64"
    result = run(tvm_roles, "build", {"target": options}, Access((), (scratch,)))
    return [scratch / name for name in result["objects"]]


def test_tvm_compiles_the_linker_links_and_the_runtime_runs(scratch: Path) -> None:
    objects = build(scratch, detect_host().target)
    assert [path.name for path in objects] == ["plain.o"]
    library = scratch / "lib.so"
    link(objects, library, detect_host().target)
    result = run(
        tvm_roles,
        "run",
        {"library": str(library), "name": detect_host().target.name},
        Access((library,), (scratch,)),
    )
    # TVM computes exp by a polynomial, and values reach e**2
    assert result["difference"] < 1e-5
    assert result["threads"] == 2


@pytest.mark.parametrize("name", ["x86-64-v3", "aarch64"])
def test_equal_modules_give_equal_libraries(tmp_path: Path, name: str) -> None:
    written = []
    for directory in (tmp_path / "a", tmp_path / "b"):
        directory.mkdir()
        link(build(directory, parse_target(name)), directory / "lib.so", parse_target(name))
        written.append((directory / "lib.so").read_bytes())
    assert written[0] == written[1]


def test_litert_with_threads_computes_the_same_as_outside(scratch: Path) -> None:
    result = run(litert_roles, "reference", {"model": str(DIGITS)}, Access((DIGITS,), (scratch,)))
    assert result["outputs"] == litert_roles.reference({"model": str(DIGITS)})["outputs"]
    assert result["threads"] == 2

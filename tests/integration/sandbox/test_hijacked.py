"""What a build child that an upload took over can reach: its own build, and no other."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from service.cache import OciLayout
from service.compiler.build import steps
from service.compiler.build.pipeline import CompileRequest, compile_model
from service.compiler.sandbox import Access, run_child
from service.core.artifact import LIBRARY_MEDIA_TYPE
from service.core.build import Stage
from service.core.digest import Digest, digest_of_file
from service.core.errors import BuildFailed, CorruptBlob, OctetError, Unsupported
from service.core.settings import Settings
from service.core.target import detect_host
from tests.support import hijacked
from tests.support.assembly import assemble, constructor, function, pointer

MODEL = Path(__file__).parents[3] / "examples" / "digits_int8.tflite"
TARGET = detect_host().target
with_kernels = pytest.mark.skipif(TARGET.architecture != "x86_64", reason="only x86-64 has kernels of its own")


class Log:
    def __init__(self) -> None:
        self.lines: list[str] = []

    def stage(self, stage: Stage, fraction: float = 0.0) -> None:
        pass

    def log(self, line: str) -> None:
        self.lines.append(line)


def build(folder: Path, name: str, log: Log | None = None) -> Digest:
    """The sample model, compiled into a store of its own; builds of one `folder` share everything else."""
    scratch = folder / name
    scratch.mkdir(parents=True)
    request = CompileRequest(MODEL, digest_of_file(MODEL), TARGET, "litert-reference", {})
    return compile_model(request, OciLayout(folder / f"{name}-store"), scratch, log or Log(), Settings(data_dir=folder))


def hijack(monkeypatch: pytest.MonkeyPatch, mischief: Mapping[str, Any], readable: tuple[Path, ...] = ()) -> None:
    """From now on build children do `mischief`."""
    file = Path(hijacked.__file__)

    def run(role: str, request: Mapping[str, Any], *, access: Access, **options: Any) -> Any:
        if role != "build":
            return run_child(role, request, access=access, **options)
        access = Access((file, *readable, *access.readable), access.writable)
        return run_child(role, {**request, "mischief": mischief}, access=access, handlers=file, **options)

    monkeypatch.setattr(steps, "run_child", run)


def libraries(layout: OciLayout, artifact: Digest) -> list[bytes]:
    layers = layout.manifest(artifact).layers
    return [layout.blobs.read(layer.digest) for layer in layers if layer.media_type == LIBRARY_MEDIA_TYPE]


@pytest.fixture(scope="module")
def honest(tmp_path_factory: pytest.TempPathFactory) -> Digest:
    """What the model compiles to where nobody does any harm."""
    return build(tmp_path_factory.mktemp("honest"), "build")


def test_an_object_with_a_constructor_is_not_linked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = function("octet_x") + pointer(".init_array", kind="%init_array", to="octet_x")
    armed = assemble(tmp_path, text, TARGET.architecture, "armed.o")
    hijack(monkeypatch, {"replace": {"plain.o": str(armed)}}, (armed,))
    with pytest.raises(BuildFailed, match=r"plain\.o cannot be linked: it has a section \.init_array") as caught:
        build(tmp_path, "build")
    assert caught.value.stage == "link"


def test_an_extra_object_is_not_linked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, honest: Digest) -> None:
    """Whatever the child says of its objects, the names are the parent's."""
    made = tmp_path / "made"
    ctypes.CDLL(str(constructor(tmp_path, made, detect_host().architecture)))
    made.unlink()  # so what is handed over works
    armed = tmp_path / "c.o"
    hijack(monkeypatch, {"replace": {"extra.o": str(armed)}, "say": {"objects": ["extra.o", "plain.o"]}}, (armed,))
    assert build(tmp_path, "build") == honest
    assert not made.exists()


@pytest.mark.parametrize(
    "plan",
    [
        {"version": 2},
        {"version": 1, "arena_bytes": 64, "buffers": [["arena", 0, 128]], "calls": [], "copies": []},
        {"version": 1, "arena_bytes": 0, "buffers": [["constant", 1 << 39, 64]], "calls": [], "copies": []},
        {"version": 1, "arena_bytes": 0, "buffers": [], "calls": [["octet_x", [0]]], "copies": []},
        {"version": 1, "arena_bytes": 0, "buffers": [], "calls": [["system", []]], "copies": []},
    ],
)
def test_a_plan_that_leaves_its_memory_is_never_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, plan: object
) -> None:
    hijack(monkeypatch, {"say": {"plan": plan}})
    with pytest.raises((BuildFailed, CorruptBlob, Unsupported)):
        build(tmp_path, "build")


@pytest.mark.parametrize("name", ["../escape", "octet_x/../../y", "plain", "octet_" + "x" * 200, 7])
def test_a_kernel_is_asked_for_by_a_name_of_a_kernel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: object
) -> None:
    hijack(monkeypatch, {"say": {"kernels": [name]}})
    with pytest.raises(BuildFailed, match=r"did not write|is not the name of a kernel"):
        build(tmp_path, "build")


def test_a_program_that_is_none_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = tmp_path / "text"
    text.write_text("[]")
    hijack(monkeypatch, {"replace": {"octet_x.json": str(text)}, "say": {"kernels": ["octet_x"]}}, (text,))
    with pytest.raises(OctetError):
        build(tmp_path, "build")
    assert not list((tmp_path / "objects").glob("*"))


@with_kernels
def test_the_kernel_cache_cannot_be_written_by_a_child(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    build(tmp_path, "before")
    kept = next((tmp_path / "objects").glob("*.o"))
    places = [str(kept), str(kept.with_name("new.o"))]
    hijack(monkeypatch, {"write": places})
    log = Log()
    build(tmp_path, "build", log)
    assert [line for line in log.lines if line.startswith(str(tmp_path))] == [f"{place}: EACCES" for place in places]


@with_kernels
def test_exchanged_programs_do_no_harm_to_the_next_build(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, honest: Digest
) -> None:
    """The kernel of each layer is another one's: what is kept of them is kept under what they are."""
    with monkeypatch.context() as patch:
        hijack(patch, {"exchange": True})
        with pytest.raises(OctetError):  # it computes something else, or crashes
            build(tmp_path, "hijacked")
    assert list((tmp_path / "objects").glob("*.o"))
    assert build(tmp_path, "next") == honest

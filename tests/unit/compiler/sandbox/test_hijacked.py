"""If an upload has taken over a build child, the child can affect only its own build."""

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
from service.core.artifacts.artifact import LIBRARY_MEDIA_TYPE
from service.core.builds.build import Stage
from service.core.digest import Digest, digest_of_file
from service.core.errors import BuildFailed, CorruptBlob, OctetError, Unsupported
from service.core.settings import Settings
from service.core.target import detect_host
from tests.support import hijacked
from tests.support.assembly import assemble, constructor, function, pointer
from tests.support.build_caches import share_results

MODEL = Path(__file__).parents[4] / "examples" / "digits_int8.tflite"
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
    """Compiles the sample model into a separate store. Builds with the same `folder` share everything else. All builds
    share what honest children compute: the imported model and the expected outputs.
    """
    share_results(folder)
    scratch = folder / name
    scratch.mkdir(parents=True)
    request = CompileRequest(MODEL, digest_of_file(MODEL), TARGET, "litert-reference", {})
    return compile_model(request, OciLayout(folder / f"{name}-store"), scratch, log or Log(), Settings(data_dir=folder))


def hijack(monkeypatch: pytest.MonkeyPatch, mischief: Mapping[str, Any], readable: tuple[Path, ...] = ()) -> None:
    """From now on, build children execute the code `mischief`."""
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
    """The artifact of the model, built without a hijacked child."""
    return build(tmp_path_factory.mktemp("honest"), "build")


def test_an_object_with_a_constructor_is_not_linked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = function("octet_x") + pointer(".init_array", kind="%init_array", to="octet_x")
    armed = assemble(tmp_path, text, TARGET.architecture, "armed.o")
    hijack(monkeypatch, {"replace": {"plain.o": str(armed)}}, (armed,))
    with pytest.raises(BuildFailed, match=r"plain\.o cannot be linked: it has a section \.init_array") as caught:
        build(tmp_path, "build")
    assert caught.value.stage == "link"


def test_an_additional_object_is_not_linked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, honest: Digest) -> None:
    """The parent determines the names of the objects, whatever the child reports."""
    made = tmp_path / "made"
    ctypes.CDLL(str(constructor(tmp_path, made, detect_host().architecture)))
    made.unlink()  # loading the object runs its constructor, so the attack would work
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
def test_a_plan_outside_its_memory_is_never_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, plan: object) -> None:
    hijack(monkeypatch, {"say": {"plan": plan}})
    with pytest.raises((BuildFailed, CorruptBlob, Unsupported)):
        build(tmp_path, "build")


@pytest.mark.parametrize("name", ["../escape", "octet_x/../../y", "plain", "octet_" + "x" * 200, 7])
def test_only_a_kernels_name_can_be_used_to_call_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: object
) -> None:
    hijack(monkeypatch, {"say": {"kernels": [name]}})
    with pytest.raises(BuildFailed, match=r"did not write|is not the name of a kernel|kernels\[0\] is not a string"):
        build(tmp_path, "build")


def test_an_invalid_program_is_rejected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = tmp_path / "text"
    text.write_text("[]")
    hijack(monkeypatch, {"replace": {"octet_x.json": str(text)}, "say": {"kernels": ["octet_x"]}}, (text,))
    with pytest.raises(OctetError):
        build(tmp_path, "build")
    assert not list((tmp_path / "objects").glob("*"))


@with_kernels
def test_a_child_cannot_write_to_the_kernel_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    build(tmp_path, "before")
    kept = next((tmp_path / "objects").glob("*.o"))
    positions = [str(kept), str(kept.with_name("new.o"))]
    hijack(monkeypatch, {"write": positions})
    log = Log()
    build(tmp_path, "build", log)
    assert [line for line in log.lines if line.startswith(str(tmp_path))] == [
        f"{position}: EACCES" for position in positions
    ]


@pytest.mark.slow  # compiles the kernels of the model three times
@with_kernels
def test_swapped_programs_do_not_affect_the_next_build(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, honest: Digest
) -> None:
    """The child swaps the kernels of two layers. The cache stores each under the digest of its own program."""
    with monkeypatch.context() as patch:
        hijack(patch, {"exchange": True})
        with pytest.raises(OctetError):  # the model computes wrong outputs, or crashes
            build(tmp_path, "hijacked")
    assert list((tmp_path / "objects").glob("*.o"))
    assert build(tmp_path, "next") == honest

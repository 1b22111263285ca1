"""The wheels of `make wheel`: their tags and contents, and that each supported Python can use them."""

from __future__ import annotations

import os
import platform
import re
import shutil
import struct
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
ARCHITECTURES = {"x86_64": 62, "aarch64": 183}  # ELF's e_machine
_FOLDER = "service/native"
_LOADED_LIBRARIES = [f"{_FOLDER}/liboctet_{part}.so" for part in ("python", "runtime")]
LIBRARIES = sorted([*_LOADED_LIBRARIES, f"{_FOLDER}/liboctet_fused.so"])
PROGRAM = f"{_FOLDER}/octet-plane"
EXAMPLES = ROOT / "examples"


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Builds the wheels by `make wheel` and returns them by architecture. The build runs in a copy, because it writes
    into its source tree.
    """
    tree = tmp_path_factory.mktemp("wheel")
    _copy_packages(tree)
    return {each: _built(tree, f"manylinux_2_28_{each}") for each in ARCHITECTURES}


@pytest.fixture(scope="module")
def client_wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Builds the wheel for other systems."""
    tree = tmp_path_factory.mktemp("client")
    _copy_packages(tree)
    return _built(tree, "any")


def _copy_packages(tree: Path) -> None:
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tree)
    ignored = shutil.ignore_patterns("__pycache__", "*.so", "octet-plane")
    for package in ("octet", "service"):
        shutil.copytree(ROOT / package, tree / package, ignore=ignored)


def _built(tree: Path, platform_name: str) -> Path:
    _run(
        *(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"),
        f"--config-settings=--build-option=--plat-name={platform_name}",
        *("--wheel-dir", str(tree / "dist"), "."),
        cwd=tree,
    )
    return next((tree / "dist").glob(f"*-{platform_name}.whl"))


@pytest.fixture(
    scope="module", params=[(each, name) for each in ARCHITECTURES for name in (*LIBRARIES, PROGRAM)], ids=str
)
def library(request: pytest.FixtureRequest, wheels: dict[str, Path]) -> Iterator[tuple[str, bytes]]:
    architecture, name = request.param
    with zipfile.ZipFile(wheels[architecture]) as wheel:
        yield architecture, wheel.read(name)


@pytest.mark.slow
@pytest.mark.timeout(900)
class TestWheels:
    def test_the_tag_is_independent_of_the_python_version(self, wheels: dict[str, Path]) -> None:
        for architecture, path in wheels.items():
            tag = f"py3-none-manylinux_2_28_{architecture}"
            assert path.stem.endswith(tag)
            with zipfile.ZipFile(path) as wheel:
                [described] = [name for name in wheel.namelist() if name.endswith(".dist-info/WHEEL")]
                assert f"Tag: {tag}" in wheel.read(described).decode().splitlines()

    def test_the_native_libraries_are_the_only_ones(self, wheels: dict[str, Path]) -> None:
        for path in wheels.values():
            with zipfile.ZipFile(path) as wheel:
                assert sorted(name for name in wheel.namelist() if ".so" in Path(name).name) == LIBRARIES

    def test_the_library_is_for_the_architecture_of_the_tag(self, library: tuple[str, bytes]) -> None:
        architecture, content = library
        assert content[:4] == b"\x7fELF"
        assert struct.unpack_from("<H", content, 18)[0] == ARCHITECTURES[architecture]

    def test_the_library_needs_no_newer_glibc_than_in_the_tag(self, library: tuple[str, bytes]) -> None:
        versions = {tuple(map(int, it.split(b"."))) for it in re.findall(rb"\0GLIBC_([0-9.]+)(?=\0)", library[1])}
        assert versions
        assert max(versions) <= (2, 28)

    def test_the_library_uses_only_the_stable_abi_of_cpython(self, library: tuple[str, bytes]) -> None:
        names = set(re.findall(rb"\0(lib[\w.+-]+\.so[.\d]*)(?=\0)", library[1]))
        assert b"libc.so.6" in names
        assert not [name for name in names if b"libpython" in name]
        declared = re.findall(r"\b_?Py[A-Z_]\w+", (ROOT / _FOLDER / "python/cpython.h").read_text())
        assert {name.decode() for name in re.findall(rb"\0(_?Py[A-Z_]\w+)(?=\0)", library[1])} <= set(declared)

    @pytest.mark.parametrize("minor", [11, 12, 13])
    def test_a_python_compiles_and_predicts_with_it(self, minor: int, wheels: dict[str, Path], tmp_path: Path) -> None:
        python = tmp_path / "venv/bin/python"
        _run(_interpreter(minor), "-m", "venv", str(tmp_path / "venv"))
        pip = (str(python), "-m", "pip", "--quiet", "--disable-pip-version-check", "install")
        _run(*pip, "--require-hashes", "-r", str(ROOT / "requirements/serve.lock"))
        _run(*pip, "--no-deps", str(wheels[platform.machine()]))

        octet = str(python.with_name("octet"))
        assert _run(octet, "--version", cwd=tmp_path).startswith("octet 0.")
        mapped = _run(str(python), "-c", _LOADED, cwd=tmp_path)
        assert [name for name in _LOADED_LIBRARIES if name not in mapped] == []
        assert os.access(tmp_path / f"venv/lib/python3.{minor}/site-packages" / PROGRAM, os.X_OK)
        artifact = str(tmp_path / "digits.octet")
        _run(octet, "compile", str(EXAMPLES / "digits_int8.tflite"), "--output", artifact, cwd=tmp_path)
        picture = str(EXAMPLES / "digits/2.png")
        answer = _run(octet, "run", artifact, picture, "--labels", str(EXAMPLES / "labels.txt"), cwd=tmp_path)
        assert answer.lstrip().startswith("2 ")


def test_the_client_has_no_native_code_and_runs_from_its_folder(client_wheel: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(client_wheel) as wheel:
        names = wheel.namelist()
        wheel.extractall(tmp_path)
    assert [name for name in names if name.endswith((".so", "/octet-plane"))] == []
    assert {"octet/client.py", "service/cli/client.py"} <= set(names)
    program = "from tests.support.other_system import pretend; pretend(); import service; print(service.__path__[0]); "
    program += (
        "import octet; octet.Client().close(); from service.cli.command_line import load_command; load_command('push')"
    )
    # the wheel's folder comes first; the checkout has only the module that imitates another system
    environment = os.environ | {"PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}", "PYTHONSAFEPATH": "1"}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == str(tmp_path / "service")


# The process's memory map shows which files it uses.
_LOADED = """
from service.runtime import python_library
python_library.library()
print(open('/proc/self/maps').read())
"""


def _interpreter(minor: int) -> str:
    """Returns the path of CPython 3.`minor`: the one on PATH, or else one of pyenv's."""
    name = f"python3.{minor}"
    pyenv = sorted(Path.home().glob(f".pyenv/versions/3.{minor}.*/bin/{name}"))
    for candidate in (shutil.which(name), *map(str, pyenv)):
        if candidate and subprocess.run([candidate, "-m", "venv", "--help"], capture_output=True).returncode == 0:
            return candidate
    pytest.skip(f"NOT TESTED on Python 3.{minor}, since there is no {name} with venv on PATH or in ~/.pyenv/versions")


def _run(*command: str, cwd: Path | None = None) -> str:
    done = subprocess.run(command, capture_output=True, text=True, cwd=cwd)
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}{done.stderr}"
    return done.stdout

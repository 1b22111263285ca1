"""Importing the public package: what it loads, and another project's package of the same name."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def run(code: str, *paths: Path) -> subprocess.CompletedProcess[str]:
    setup = "import sys; " + "".join(f"sys.path.insert(0, {str(path)!r}); " for path in paths)
    return subprocess.run([sys.executable, "-c", setup + code], capture_output=True, text=True, check=False)


def test_importing_loads_neither_numpy_nor_the_compiler() -> None:
    loaded = run("import octet; print(*sorted({'numpy', 'tvm', 'httpx', 'service.compiler'} & set(sys.modules)))")
    assert (loaded.returncode, loaded.stdout.strip()) == (0, ""), loaded.stderr


def test_a_client_needs_no_compiler() -> None:
    loaded = run("import octet; octet.Client(); print('tvm' in sys.modules, 'service.compiler' in sys.modules)")
    assert loaded.stdout.split() == ["False", "False"], loaded.stderr


def test_a_similar_name_is_suggested() -> None:
    failed = run("import octet; octet.compil")
    assert "AttributeError: module 'octet' has no attribute 'compil'. Did you mean: 'compile'?" in failed.stderr


def test_another_project_of_this_name_is_named(tmp_path: Path) -> None:
    info = tmp_path / "octet-9.1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: octet\nVersion: 9.1\n")
    imported = run("import octet", tmp_path)
    assert imported.returncode == 1
    assert "ImportError: another project, octet 9.1, is installed in the same folder as Octet" in imported.stderr
    assert "pip uninstall octet" in imported.stderr

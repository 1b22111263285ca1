from pathlib import Path

import pytest

import service
from service.compiler.sandbox.landlock import READ, USE_DEVICE, Right
from service.compiler.sandbox.policy import Access, system_rules


def readable_by_everyone(path: Path) -> bool:
    return any(path == rule or rule in path.parents for rule, _ in system_rules())


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/etc/passwd",
        "/etc/shadow",
        "/root/.ssh/id_rsa",
        "/home",
        "/tmp/x",
        "/var/lib/x",
        "/proc/1/environ",
        "/run",
    ],
)
def test_nothing_private_is_readable_by_every_child(path: str) -> None:
    assert not readable_by_everyone(Path(path))


def test_octets_code_is_readable_but_not_the_files_beside_it() -> None:
    package = Path(service.__path__[0])
    assert readable_by_everyone(package / "core" / "errors.py")
    assert not readable_by_everyone(package.parent / "pyproject.toml")


def test_installed_packages_are_readable_wherever_they_are_but_source_trees_are_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed, source = tmp_path / "site-packages", tmp_path / "source"
    installed.mkdir()
    source.mkdir()
    monkeypatch.setattr("sys.path", [str(installed), str(source)])
    assert readable_by_everyone(installed / "numpy")
    assert not readable_by_everyone(source / "file")


def test_no_child_may_write_anywhere_by_default() -> None:
    assert {rights for path, rights in system_rules() if path != Path("/dev/null")} == {READ}
    assert [rights for path, rights in system_rules() if path == Path("/dev/null")] == [USE_DEVICE]


def test_access_survives_a_round_trip_to_the_child(tmp_path: Path) -> None:
    access = Access((tmp_path / "a",), (tmp_path / "b", tmp_path / "c"), (tmp_path / "d",))
    assert Access.from_json(access.to_json()) == access


def test_paths_are_made_absolute_before_the_child_changes_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert Access((Path("model"),)).to_json()["readable"] == [str(tmp_path / "model")]


def test_the_first_writable_directory_is_the_scratch_directory(tmp_path: Path) -> None:
    assert Access(writable=(tmp_path, Path("/x"))).scratch == tmp_path
    assert Access().scratch is None


def test_programs_may_be_read_and_executed_but_not_written() -> None:
    assert Access(executable=(Path("/p"),)).rules() == [(Path("/p"), Right.EXECUTE | Right.READ_FILE)]

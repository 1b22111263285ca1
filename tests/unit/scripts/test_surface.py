"""A version must be large enough for the changes of the public API since the last release."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from packaging.version import Version

from scripts import surface
from scripts.surface_changes import compare

LINES = [
    "octet.Model",
    "octet.Model.digest: str",
    "octet.errors.Different.code: 'different'",
    "octet.load(path: str | Path, size: int, *, threads: int = 0) -> Model | None",
]


def with_line(old: str, new: str) -> list[str]:
    assert old in LINES
    return sorted([*(line for line in LINES if line != old), new])


def problems(version: str, lines: Sequence[str], last: str = "0.2.0", *, is_release: bool = False) -> list[str]:
    return list(surface.check({Version(last): LINES}, Version(version), lines, is_release=is_release))


class TestCompare:
    @pytest.mark.parametrize(
        ("new", "problem"),
        [
            ("octet.load(path: str | Path, *, threads: int = 0) -> Model | None", "parameter size was removed"),
            ("octet.load(size: int, path: str | Path, *, threads: int = 0) -> Model | None", "at another position"),
            ("octet.load(path: str | Path, *, size: int, threads: int = 0) -> Model | None", "at another position"),
            ("octet.load(path: str, size: int, *, threads: int = 0) -> Model | None", "path does not accept Path"),
            ("octet.load(path: str | Path, size: int, *, threads: int) -> Model | None", "threads lost its default"),
            ("octet.load(path: str | Path, size: int, *, threads: int = 1) -> Model | None", "changed from 0 to 1"),
            (
                "octet.load(path: str | Path, size: int, *, threads: int = 0, key: str) -> Model | None",
                "parameter key is required",
            ),
            (
                "octet.load(path: str | Path, size: int, *, threads: int = 0) -> Model | int | None",
                "its type changed from Model | None to Model | None | int",
            ),
            ("octet.load", "became a name"),
        ],
    )
    def test_a_call_that_is_not_valid_any_more(self, new: str, problem: str) -> None:
        changes = compare(LINES, with_line(LINES[-1], new))
        assert any(each.startswith("octet.load: ") and problem in each for each in changes.breaking), changes
        assert not changes.added

    @pytest.mark.parametrize(
        "new",
        [
            "octet.load(path: str | Path | bytes, size: int, *, threads: int = 0) -> Model | None",
            "octet.load(path: str | PathLike[str], size: int, *, threads: int = 0) -> Model | None",
            "octet.load(path: Any, size: int, *, threads: int = 0) -> Model | None",
            "octet.load(path: str | Path, size: int, *, threads: int = 0) -> Model",
            "octet.load(path: str | Path, size: int, more: int = 1, *, threads: int = 0, k: int = 3) -> Model | None",
            "octet.load(path: str | Path, size: int, threads: int = 0) -> Model | None",
            "octet.load(path: str | Path, size: int, *rest: int, threads: int = 0, **options: int) -> Model | None",
        ],
    )
    def test_every_old_call_is_still_valid(self, new: str) -> None:
        changes = compare(LINES, with_line(LINES[-1], new))
        assert (changes.breaking, changes.added) == ((), ("octet.load was extended",))

    def test_names_and_types(self) -> None:
        changes = compare(LINES, ["octet.Model.digest: bytes", "octet.errors.Different.code: 'other'", "octet.new"])
        assert changes.breaking == (
            "octet.Model was removed",
            "octet.Model.digest: its type changed from str to bytes",
            "octet.errors.Different.code: its type changed from 'different' to 'other'",
            "octet.load was removed",
        )
        assert changes.added == ("octet.new was added",)


class TestVersions:
    REMOVED, ADDED = LINES[1:], [*LINES, "octet.new"]

    def test_a_removal_needs_a_minor_version_before_1_and_then_a_major_one(self) -> None:
        (problem,) = problems("0.2.0", self.REMOVED)
        assert problem == (
            "version 0.2.0 is too small for these changes of the public API since 0.2.0: octet.Model was removed; "
            "use 0.3.0"
        )
        assert problems("0.2.7", self.REMOVED)
        assert not problems("0.3.0", self.REMOVED)
        assert problems("1.9.0", self.REMOVED, "1.2.3")[0].endswith("use 2.0.0")
        assert not problems("2.0.0", self.REMOVED, "1.2.3")

    def test_an_addition_needs_a_new_version_before_1_and_then_a_minor_one(self) -> None:
        assert not problems("0.2.0", self.ADDED)  # until the version is raised
        assert problems("0.2.0", self.ADDED, is_release=True)
        assert not problems("0.2.1", self.ADDED)
        assert problems("1.2.4", self.ADDED, "1.2.3")[0].endswith("octet.new was added; use 1.3.0")
        assert not problems("1.3.0", self.ADDED, "1.2.3")

    def test_a_release_is_recorded(self) -> None:
        assert not problems("0.2.0", LINES, is_release=True)
        (problem,) = problems("0.2.1", LINES, is_release=True)
        assert problem == "the API of 0.2.1 is not recorded; run: python -m scripts.surface --record"

    def test_a_recorded_release_fits_the_one_before(self) -> None:
        recorded = {Version("0.2.0"): LINES, Version("0.2.1"): self.REMOVED}
        (problem,) = surface.check(recorded, Version("0.2.1"), self.REMOVED, is_release=True)
        assert problem.endswith("octet.Model was removed; use 0.3.0")

    def test_an_older_version_than_the_last_release(self) -> None:
        (problem,) = problems("0.1.9", LINES)
        assert problem == "version 0.1.9 is older than the last release, 0.2.0"

    def test_a_record_never_changes(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(surface, "RELEASES", tmp_path)
        surface.record(Version("0.2.0"), LINES)
        surface.record(Version("0.2.0"), LINES)
        assert surface.releases() == {Version("0.2.0"): LINES}
        with pytest.raises(FileExistsError, match="those of a release never change"):
            surface.record(Version("0.2.0"), self.REMOVED)


class TestThisTree:
    def test_it_fits_the_last_release(self) -> None:
        lines = surface.surface()
        assert not [*surface.check(surface.releases(), surface.current_version(), lines, is_release=False)]

    def test_each_name_that_is_removed_without_a_version_is_found(self) -> None:
        recorded, lines = surface.releases(), surface.surface()
        last = max(recorded)
        for line in recorded[last]:
            name = surface.name_in(line)
            fewer = [each for each in lines if surface.name_in(each) != name]
            (problem,) = surface.check(recorded, last, fewer, is_release=False)
            assert f"{name} was removed" in problem

    def test_lint_and_the_release_check_it(self) -> None:
        lint = (surface.ROOT / "Makefile").read_text()
        release = (surface.ROOT / ".github" / "workflows" / "release.yml").read_text()
        assert "-m scripts.surface --check" in lint
        assert "-m scripts.surface --release" in release

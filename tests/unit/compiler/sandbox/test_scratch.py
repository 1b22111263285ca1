import os
from pathlib import Path

import pytest

from service.compiler.sandbox.scratch import remove_tree, scratch_directory


def test_the_scratch_folder_is_private_and_removed_afterwards(tmp_path: Path) -> None:
    with scratch_directory(tmp_path, "x-") as path:
        assert path.parent == tmp_path
        assert path.name.startswith("x-")
        assert path.stat().st_mode & 0o777 == 0o700
        (path / "a" / "b").mkdir(parents=True)
        (path / "a" / "b" / "file").write_text("x")
    assert list(tmp_path.iterdir()) == []


def test_the_scratch_folder_is_removed_after_an_error_too(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="x"), scratch_directory(tmp_path):
        raise ValueError("x")
    assert list(tmp_path.iterdir()) == []


def test_directories_nested_deeper_than_any_path_are_removed(tmp_path: Path) -> None:
    with scratch_directory(tmp_path) as root:  # pytest cannot remove such directories if the test is interrupted
        descriptor = os.open(root, os.O_RDONLY)
        for _ in range(3000):  # 3000 * 11 characters exceed PATH_MAX, and 3000 frames exceed the recursion limit
            os.mkdir("0123456789", dir_fd=descriptor)
            inner = os.open("0123456789", os.O_RDONLY, dir_fd=descriptor)
            os.close(descriptor)
            descriptor = inner
        os.close(os.open("file", os.O_CREAT | os.O_WRONLY, dir_fd=descriptor))
        os.close(descriptor)
    assert list(tmp_path.iterdir()) == []


def test_directories_that_forbid_everything_are_removed(tmp_path: Path) -> None:
    (tmp_path / "root" / "a" / "b").mkdir(parents=True)
    (tmp_path / "root" / "a" / "file").touch()
    (tmp_path / "root" / "a" / "b").chmod(0)
    (tmp_path / "root" / "a").chmod(0)
    remove_tree(tmp_path / "root")
    assert list(tmp_path.iterdir()) == []


def test_links_are_removed_and_not_followed(tmp_path: Path) -> None:
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "file").touch()
    (tmp_path / "root").mkdir()
    (tmp_path / "root" / "link").symlink_to(tmp_path / "kept")
    remove_tree(tmp_path / "root")
    assert (tmp_path / "kept" / "file").exists()
    assert not (tmp_path / "root").exists()


def test_names_that_look_like_our_own_do_not_collide(tmp_path: Path) -> None:
    (tmp_path / "root" / ".removed-1" / ".removed-2" / ".removed-1").mkdir(parents=True)
    (tmp_path / "root" / ".removed-3").touch()
    remove_tree(tmp_path / "root")
    assert list(tmp_path.iterdir()) == []

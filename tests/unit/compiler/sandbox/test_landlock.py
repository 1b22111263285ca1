import pytest

from service.compiler.sandbox.landlock import WRITE, Right, handled_rights


@pytest.mark.parametrize(
    ("abi", "newest"),
    [
        (1, Right.MAKE_SYM),
        (2, Right.REFER),
        (3, Right.TRUNCATE),
        (4, Right.TRUNCATE),
        (5, Right.IOCTL_DEV),
        (7, Right.IOCTL_DEV),
        (99, Right.IOCTL_DEV),
    ],
)
def test_every_right_up_to_the_newest_is_handled(abi: int, newest: Right) -> None:
    assert int(handled_rights(abi)) == 2 * newest - 1


def test_a_writable_directory_holds_regular_files_and_directories_only() -> None:
    special = Right.MAKE_SYM | Right.MAKE_FIFO | Right.MAKE_SOCK | Right.MAKE_BLOCK | Right.MAKE_CHAR
    assert not WRITE & special
    assert not WRITE & Right.EXECUTE
    assert not WRITE & Right.IOCTL_DEV

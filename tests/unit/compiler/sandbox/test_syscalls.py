import pytest

from service.compiler.sandbox.syscalls import HIGHEST_KNOWN, NUMBERS, numbers
from tests.support.kernel_headers import syscall_numbers


@pytest.mark.parametrize("architecture", ["x86_64", "aarch64"])
def test_the_table_equals_the_kernels_table(architecture: str) -> None:
    kernel = syscall_numbers(architecture)
    assert numbers(architecture) == {name: kernel[name] for name in NUMBERS if name in kernel}


@pytest.mark.parametrize("architecture", ["x86_64", "aarch64"])
def test_the_table_covers_every_call_of_these_headers(architecture: str) -> None:
    assert max(syscall_numbers(architecture).values()) <= HIGHEST_KNOWN


def test_every_listed_name_exists_on_some_architecture() -> None:
    assert all(any(number is not None for number in row) for row in NUMBERS.values())

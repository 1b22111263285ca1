from __future__ import annotations

import pytest

from service.core.errors import InvalidInput
from service.core.options import batch_of, check_batches, parse_batches, with_batch


@pytest.mark.parametrize(
    ("text", "sizes"), [("1", (1,)), ("8", (1, 8)), ("16, 1,8,8", (1, 8, 16)), ("64", (1, 64))], ids=str
)
def test_sizes_ascend_and_one_is_among_them(text: str, sizes: tuple[int, ...]) -> None:
    assert parse_batches(text) == sizes


@pytest.mark.parametrize("text", ["", "a", "1;8", "0", "65", "-1", "1,,8", "٣", "999999999"])
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput):
        parse_batches(text)


def test_numbers_are_held_to_the_same() -> None:
    assert check_batches([8, 2]) == (1, 2, 8)
    with pytest.raises(InvalidInput):
        check_batches([-1])


def test_a_build_of_one_sample_has_the_key_it_always_had() -> None:
    assert with_batch(1) == {}
    assert batch_of({}) == 1
    assert batch_of(with_batch(8)) == 8

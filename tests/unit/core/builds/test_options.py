from __future__ import annotations

import pytest

from service.core.builds.options import (
    MAX_BUCKETS,
    batch_of,
    bucket_index_of,
    buckets_of,
    check_batches,
    counts_values,
    parse_batches,
    parse_open_shapes,
    parse_shapes,
    parse_tune,
    ranges_of,
    shapes_of,
    tune_s_of,
    with_batch,
    with_counts,
    with_shapes,
    with_sizes,
    with_tuning,
    without_tuning,
)
from service.core.errors import InvalidInput


@pytest.mark.parametrize(
    ("text", "sizes"), [("1", (1,)), ("8", (1, 8)), ("16, 1,8,8", (1, 8, 16)), ("64", (1, 64))], ids=str
)
def test_batch_sizes_are_sorted_and_contain_one(text: str, sizes: tuple[int, ...]) -> None:
    assert parse_batches(text) == sizes


@pytest.mark.parametrize("text", ["", "a", "1;8", "0", "257", "-1", "1,,8", "٣", "999999999"])
def test_malformed_batch_sizes_are_refused(text: str) -> None:
    with pytest.raises(InvalidInput):
        parse_batches(text)


def test_numbers_have_the_same_limits() -> None:
    assert check_batches([8, 2]) == (1, 2, 8)
    with pytest.raises(InvalidInput):
        check_batches([-1])


def test_a_build_of_one_sample_has_the_key_it_always_had() -> None:
    assert with_batch(1) == {}
    assert batch_of({}) == 1
    assert batch_of(with_batch(8)) == 8


@pytest.mark.parametrize(("text", "seconds"), [("60s", 60), ("2m", 120), ("1h", 3600), ("5", 5)])
def test_a_tuning_time_has_a_unit_or_is_in_seconds(text: str, seconds: float) -> None:
    assert parse_tune(text) == seconds


@pytest.mark.parametrize("text", ["", "s", "0", "2h", "-1s", "1.5s", "60x", "nan"])
def test_malformed_tuning_times_are_refused(text: str) -> None:
    with pytest.raises(InvalidInput):
        parse_tune(text)


def test_without_tuning_returns_the_original_options() -> None:
    options = with_tuning(with_batch(8), 60.0)
    assert (tune_s_of(options), without_tuning(options)) == (60.0, {"batch": 8})
    assert tune_s_of({}) is None


def test_shapes_have_a_name_or_belong_to_the_only_input() -> None:
    assert parse_shapes("1,3,224,224") == {"": [1, 3, 224, 224]}
    assert parse_shapes("x=1, 3;y=7") == {"x": [1, 3], "y": [7]}
    assert parse_shapes("") == {}


@pytest.mark.parametrize("text", ["x", "x=", "1,,2", "-1,2", "1,2;x=a", "9999999999", "1,1,1,1,1,1,1,1,1"])
def test_malformed_shapes_are_refused(text: str) -> None:
    with pytest.raises(InvalidInput):
        parse_shapes(text)


def test_several_shapes_of_an_input_are_its_sizes() -> None:
    assert parse_open_shapes("1x16;1x32;1x64") == {"": [1, [16, 32, 64]]}
    assert parse_open_shapes("x=1,3,224,224;y=7;x=1,3,320,320") == {"x": [1, 3, [224, 320], [224, 320]], "y": [7]}
    assert parse_open_shapes("x=1x..128;x=1x..128") == {"x": [1, [0, 128]]}


@pytest.mark.parametrize(
    ("text", "message"), [("x=1,2;y=3;x=4", "2 and of 1 axes"), ("x=1x..8;x=1x16", "a range and another shape")]
)
def test_shapes_of_an_input_that_do_not_fit_together_are_refused(text: str, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        parse_open_shapes(text)


def test_a_build_without_shapes_has_the_key_it_always_had() -> None:
    assert with_shapes({}) == {}
    assert shapes_of({}) == {}
    assert shapes_of(with_shapes({"x": (1, 3)})) == {"x": [1, 3]}


@pytest.mark.parametrize(
    ("text", "shapes"),
    [
        ("1,3,224,224", {"": [1, 3, 224, 224]}),
        ("x=1x[16,32]", {"x": [1, [16, 32]]}),
        ("a=b=1,[16, 32],8; y=1x2", {"a=b": [1, [16, 32], 8], "y": [1, 2]}),
    ],
)
def test_a_shape_may_have_a_list_of_sizes(text: str, shapes: dict[str, object]) -> None:
    assert parse_open_shapes(text) == shapes


@pytest.mark.parametrize(
    "text", ["1x[]", "1x[16", "1x16]", "[1,[2]]", "1x[a]", "1x[1,]", "1xx2", "[1][2]", "[1234567890]"]
)
def test_malformed_lists_of_sizes_are_refused(text: str) -> None:
    with pytest.raises(InvalidInput, match="is not a shape"):
        parse_open_shapes(text)


def test_each_bucket_is_a_build_with_all_buckets_in_its_options() -> None:
    found = with_sizes([1], parse_open_shapes("ids=1x[16,32];mask=1x[16,32];x=1,4"))
    assert [shapes_of(options) for options in found] == [
        {"ids": [1, 16], "mask": [1, 16], "x": [1, 4]},
        {"ids": [1, 32], "mask": [1, 32], "x": [1, 4]},
    ]
    assert [bucket_index_of(options) for options in found] == [0, 1]
    assert buckets_of(found[0]) == buckets_of(found[1]) == [shapes_of(options) for options in found]


def test_a_model_of_one_shape_has_no_buckets() -> None:
    (options,) = with_sizes([1], parse_open_shapes("x=1x[16]"))
    assert options == with_shapes({"x": [1, 16]})
    assert (buckets_of(options), bucket_index_of(options)) == ([], 0)
    assert with_sizes([1, 8], {}) == [{}, with_batch(8)]


@pytest.mark.parametrize(
    "text", ["x=1x[16,32];y=1x[16]", "1x[32,16]", "1x[16,16]", f"1x[{','.join(map(str, range(1, MAX_BUCKETS + 2)))}]"]
)
def test_lists_of_different_lengths_are_refused(text: str) -> None:
    with pytest.raises(InvalidInput):
        with_sizes([1], parse_open_shapes(text))


def test_buckets_cannot_have_batch_sizes() -> None:
    with pytest.raises(InvalidInput, match="one sample at a time"):
        with_sizes([1, 8], parse_open_shapes("1x[16,32]"))
    with pytest.raises(InvalidInput, match="several shapes"):
        parse_shapes("1x[16,32]")


def test_one_build_of_a_model_counts_its_values() -> None:
    shapes = with_shapes({"x": [1, 4]})
    assert with_counts(shapes) == {**shapes, "counts": True}
    assert counts_values(with_counts({}) or {})
    assert not counts_values(shapes)
    for variant in (with_batch(8), with_tuning({}, 60), {"counts": True}, {"buckets": [{"x": [1, 4]}], **shapes}):
        assert with_counts(variant) is None


def test_two_dots_stand_for_one_build_for_all_sizes() -> None:
    shapes = parse_open_shapes("ids=1x..128;mask=1x..128;x=1,4")
    assert shapes == {"ids": [1, [0, 128]], "mask": [1, [0, 128]], "x": [1, 4]}
    (options,) = with_sizes([1], shapes)
    assert options == {
        **with_shapes({"ids": [1, 128], "mask": [1, 128], "x": [1, 4]}),
        "ranges": {"ids": [1], "mask": [1]},
    }
    assert ranges_of(options) == {"ids": [1], "mask": [1]}
    assert buckets_of(options) == []
    with pytest.raises(InvalidInput):
        parse_open_shapes("1x..")


def test_a_target_without_ranges_gets_buckets_that_are_at_most_half_as_large_again() -> None:
    def sizes(text: str) -> list[int]:
        found = with_sizes([1], parse_open_shapes(text), binds=False)
        return [shapes_of(options)[""][-1] for options in found]

    assert sizes("1x..128") == [8, 12, 16, 24, 32, 48, 64, 96, 128]
    assert sizes("..100") == [8, 12, 16, 24, 32, 48, 64, 96, 100]
    assert sizes("..5") == [5]
    assert sizes("..8192")[0] == 48
    assert len(sizes("..8192")) == 16


@pytest.mark.parametrize("text", ["ids=1x..128;mask=1x..64", "ids=1x..128;mask=1x[64,128]"])
def test_ranges_of_several_inputs_are_equal(text: str) -> None:
    with pytest.raises(InvalidInput, match="not the same"):
        with_sizes([1], parse_open_shapes(text))


def test_a_range_takes_one_sample_at_a_time() -> None:
    with pytest.raises(InvalidInput, match="one sample"):
        with_sizes([1, 8], parse_open_shapes("1x..64"))

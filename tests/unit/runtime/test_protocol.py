"""Tests of the binary tensor extension, from the client's side."""

import json
from pathlib import Path

import numpy as np
import pytest

from service.core.errors import InvalidInput
from service.runtime.protocol import decode_response, encode_request, read_input


def test_a_tensor_is_sent_as_little_endian_bytes() -> None:
    body, header_bytes = encode_request(["x"], [np.array([[1, 2]], ">i4")])
    (described,) = json.loads(body[:header_bytes])["inputs"]
    assert described == {"name": "x", "datatype": "INT32", "shape": [1, 2], "parameters": {"binary_data_size": 8}}
    assert body[header_bytes:] == b"\1\0\0\0\2\0\0\0"


def test_a_picture_is_sent_as_one_element_of_bytes() -> None:
    body, header_bytes = encode_request(["x"], [b"\x89PNG"])
    (described,) = json.loads(body[:header_bytes])["inputs"]
    assert (described["datatype"], described["shape"]) == ("BYTES", [1])
    assert body[header_bytes:] == b"\4\0\0\0\x89PNG"


def test_tensors_are_sent_in_the_order_of_the_names() -> None:
    body, header_bytes = encode_request(["a", "b"], [np.array([1], np.uint8), np.array([2], np.uint8)])
    assert [described["name"] for described in json.loads(body[:header_bytes])["inputs"]] == ["a", "b"]
    assert body[header_bytes:] == b"\1\2"


def test_a_non_contiguous_array_is_sent_in_its_logical_order() -> None:
    body, header_bytes = encode_request(["x"], [np.arange(6, dtype=np.uint8).reshape(2, 3).T])
    assert body[header_bytes:] == bytes([0, 3, 1, 4, 2, 5])


def test_a_type_that_no_model_accepts_is_refused() -> None:
    with pytest.raises(InvalidInput, match="no model accepts data type complex128"):
        encode_request(["x"], [np.zeros(1, np.complex128)])


def test_outputs_are_read_in_the_order_of_the_header() -> None:
    outputs = [_output("a", "INT16", [2], 4), _output("b", "UINT8", [1, 1], 1)]
    header = json.dumps({"outputs": outputs}).encode()
    _, decoded = decode_response(header + b"\1\0\2\0\7", len(header))
    assert decoded["a"].tolist() == [1, 2]
    assert decoded["b"].tolist() == [[7]]


def test_a_file_that_is_not_an_array_is_read_as_a_picture(tmp_path: Path) -> None:
    (tmp_path / "x.npy").write_bytes(b"\xff\xd8\xff")
    assert read_input(tmp_path / "x.npy") == b"\xff\xd8\xff"


def test_an_array_is_read_whatever_the_name_of_its_file(tmp_path: Path) -> None:
    with (tmp_path / "x.bin").open("wb") as file:
        np.save(file, np.arange(3))
    assert np.array_equal(read_input(tmp_path / "x.bin"), np.arange(3))


def test_an_array_of_objects_is_refused_and_never_unpickled(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.array([{}], object), allow_pickle=True)
    with pytest.raises(InvalidInput, match=r"x\.npy"):
        read_input(tmp_path / "x.npy")


def test_a_truncated_array_is_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.arange(100))
    (tmp_path / "x.npy").write_bytes((tmp_path / "x.npy").read_bytes()[:-1])
    with pytest.raises(InvalidInput, match=r"x\.npy"):
        read_input(tmp_path / "x.npy")


def _output(name: str, datatype: str, shape: list[int], size_bytes: int) -> dict[str, object]:
    return {"name": name, "datatype": datatype, "shape": shape, "parameters": {"binary_data_size": size_bytes}}

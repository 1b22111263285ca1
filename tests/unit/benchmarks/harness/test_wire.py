import pytest

from benchmarks.harness.wire import Response, parse

WHOLE = b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc"


def test_a_response_is_complete_when_its_last_byte_arrives() -> None:
    assert all(parse(bytearray(WHOLE[:length])) is None for length in range(len(WHOLE)))
    assert parse(bytearray(WHOLE)) == Response(200, b"abc", True)


def test_a_connection_that_the_server_closes_is_not_used_again() -> None:
    response = parse(bytearray(WHOLE.replace(b"\r\n\r\n", b"\r\nConnection: Close\r\n\r\n")))
    assert response == Response(200, b"abc", False)


def test_a_response_without_its_length_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"without Content-Length: HTTP/1\.1 200 OK"):
        parse(bytearray(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"))


def test_an_error_response_in_chunks_is_read_up_to_its_status() -> None:
    response = parse(bytearray(b"HTTP/1.1 404 Not Found\r\nTransfer-Encoding: chunked\r\n\r\n3\r\n"))
    assert response == Response(404, b"", False)

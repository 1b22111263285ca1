import contextlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.compiler.sandbox import messages
from service.compiler.sandbox.messages import Conversation, clean
from service.core.errors import BuildFailed, CorruptBlob, InternalError, MalformedModel, OctetError, SandboxUnavailable


def feed(conversation: Conversation, *from_child: Any) -> list[dict[str, Any]]:
    return list(conversation.feed(b"".join(json.dumps(message).encode() + b"\n" for message in from_child)))


def test_progress_messages_are_forwarded() -> None:
    news = [
        {"at": {"stage": "codegen", "op": "conv2d", "tensor": "x"}},
        {"stage": "codegen", "fraction": 0.5},
        {"make": "model.onnx"},
        {"discard": 3},
        {"log": "hello"},
    ]
    assert feed(Conversation(), {"locked": True}, *news) == news


def test_messages_may_arrive_in_pieces() -> None:
    conversation = Conversation()
    heard = [
        news for byte in b'{"log": "a"}\n{"log": "b"}\n{"result": {}}\n' for news in conversation.feed(bytes([byte]))
    ]
    assert heard == [{"log": "a"}, {"log": "b"}]
    assert conversation.result == {}


def test_a_position_keeps_the_last_reported_stage() -> None:
    conversation = Conversation()
    feed(conversation, {"stage": "codegen", "fraction": 0}, {"at": {"op": "conv2d"}})
    assert conversation.position == {"stage": "codegen", "op": "conv2d"}
    feed(conversation, {"stage": "link", "fraction": 0})
    assert conversation.position == {"stage": "link"}


@pytest.mark.parametrize(
    "line",
    [
        b"garbage",
        b"",
        b"\xff\xfe",
        b"[" * 100_000,
        b'{"a":' * 5_000,
        b'{"log": NaN}',
        b'{"stage": "codegen", "fraction": Infinity}',
        b'{"result": {"x": ' + b"9" * 5000 + b"}}",
        b'{"log": "\\ud800"}',
        b"[]",
        b"{}",
        b"null",
        b'{"log": 1}',
        b'{"make": ["a"]}',
        b'{"discard": "1"}',
        b'{"log": "a", "more": 1}',
        b'{"at": "codegen"}',
        b'{"at": {"stage": "nowhere"}}',
        b'{"at": {"op": 1}}',
        b'{"at": {"else": "x"}}',
        b'{"stage": "codegen"}',
        b'{"stage": "nowhere", "fraction": 0}',
        b'{"stage": "codegen", "fraction": "0"}',
        b'{"stage": "codegen", "fraction": true}',
        b'{"stage": "codegen", "fraction": 1.5}',
        b'{"stage": "codegen", "fraction": 1e999}',
        b'{"result": []}',
        b'{"result": null}',
        b'{"error": "x"}',
        b'{"locked": false}',
    ],
)
def test_an_invalid_message_fails_the_build(line: bytes) -> None:
    with pytest.raises(BuildFailed, match=r"the compiler process (sent|reported)"):
        list(Conversation().feed(line + b"\n"))


@given(st.binary())
def test_any_bytes_are_read_or_fail_the_build(data: bytes) -> None:
    with contextlib.suppress(BuildFailed):
        list(Conversation().feed(data))


texts = st.text(alphabet='ab"\\\n\0\x1b\u202e\ud800é')
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | texts,
    lambda inner: st.lists(inner) | st.dictionaries(texts, inner),
    max_leaves=10,
)


@given(st.dictionaries(st.sampled_from(["at", "stage", "fraction", "log", "locked", "result", "error"]), json_values))
def test_any_json_is_read_or_fails_the_build(message: dict[str, Any]) -> None:
    with contextlib.suppress(BuildFailed):
        feed(Conversation(), message)


@pytest.mark.parametrize("last", [{"result": {}}, {"error": {"code": "malformed_model"}}])
def test_nothing_follows_the_last_message(last: dict[str, Any]) -> None:
    conversation = Conversation()
    feed(conversation, last)
    with pytest.raises(BuildFailed, match="sent a message after its last one"):
        feed(conversation, {"log": "and another thing"})


def test_the_size_of_a_message_is_limited() -> None:
    conversation = Conversation()
    megabyte = b"x" * (1 << 20)
    assert not any(list(conversation.feed(megabyte)) for _ in range(4))
    with pytest.raises(BuildFailed, match="sent a message of more than"):
        list(conversation.feed(megabyte))


def test_the_size_of_all_messages_together_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(messages, "MAX_TOTAL_BYTES", 1000)
    with pytest.raises(BuildFailed, match="sent more than 1000 bytes"):
        feed(Conversation(), *[{"log": "x" * 100}] * 10)


def test_the_number_of_messages_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(messages, "MAX_MESSAGES", 10)
    with pytest.raises(BuildFailed, match="sent more than 10 messages"):
        feed(Conversation(), *[{"log": ""}] * 11)


def error_of(*from_child: Any) -> OctetError:
    conversation = Conversation()
    feed(conversation, *from_child)
    assert conversation.error is not None
    return conversation.error


def test_an_octet_error_is_raised_as_the_same_class() -> None:
    sent = MalformedModel("bad offset", stage="import", op="CONV_2D", hint="send another")
    error = error_of({"error": sent.to_json()})
    assert isinstance(error, MalformedModel)
    assert error.to_json() == {
        "code": "malformed_model",
        "message": "bad offset",
        "stage": "import",
        "op": "CONV_2D",
        "hint": "send another",
    }


@pytest.mark.parametrize("code", ["nonsense", "unauthorized", "not_ready", "corrupt_blob", "queue_full", "error", 7])
def test_a_child_cannot_send_the_servers_error_codes(code: Any) -> None:
    assert type(error_of({"locked": True}, {"error": {"code": code, "message": "m"}})) is BuildFailed


def test_a_locked_child_cannot_report_a_missing_sandbox() -> None:
    message = {"error": {"code": "sandbox_unavailable", "message": "m"}}
    assert isinstance(error_of(message), SandboxUnavailable)
    assert type(error_of({"locked": True}, message)) is BuildFailed


def test_an_error_without_a_position_gets_the_last_reported_one() -> None:
    at = {"at": {"stage": "codegen", "op": "conv2d", "tensor": "x"}}
    error = error_of(at, {"error": {"code": "build_failed", "message": "m"}})
    assert (error.stage, error.op, error.tensor) == ("codegen", "conv2d", "x")
    error = error_of(at, {"error": {"code": "build_failed", "message": "m", "tensor": "y"}})
    assert (error.stage, error.op, error.tensor) == ("codegen", None, "y")


def test_members_of_an_error_are_checked() -> None:
    error = error_of({"error": {"message": "a\x1b[31m" + "b" * 9999, "stage": "nowhere", "op": 7, "hint": "h" * 9999}})
    assert error.message.startswith("a [31mbbb")
    assert len(error.message) <= 2000
    assert error.stage is None
    assert error.op is None
    assert error.hint is not None
    assert len(error.hint) <= 2000


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plain", "plain"),
        ("two\nlines\tand  more ", "two lines and more"),
        ("\x1b]0;title\x07", "]0;title"),
        ("a\u202eb\u200bc", "a b c"),
        ("ü✓", "ü✓"),
        ("0123456789A", "012345678…"),
        ("0123456789" * 1000, "012345678…"),
    ],
)
def test_clean_returns_one_short_harmless_line(text: str, expected: str) -> None:
    assert clean(text, 10 if text.startswith("0") else 100) == expected


def test_a_child_may_raise_the_errors_that_its_role_allows() -> None:
    conversation = Conversation((CorruptBlob,))
    feed(conversation, {"locked": True}, {"error": {"code": "corrupt_blob", "message": "m"}})
    assert type(conversation.error) is CorruptBlob


def report_of(report: Any) -> Any:
    """Returns the parsed report of an internal error, as the parent receives it."""
    conversation = Conversation()
    error = {"code": "internal_error", "message": "it failed", "report": report}
    feed(conversation, {"locked": True}, {"error": error})
    assert isinstance(conversation.error, InternalError)
    return conversation.error.report


def test_the_report_of_an_internal_error_is_cleaned() -> None:
    deep = {"a": {"b": {"c": [[1]]}}}
    report = report_of({"role": "build\x1b[31m", "operators": [{"op": "qnn.conv2d", "line": 7, "deep": deep}]})
    assert report["role"] == "build [31m"
    (operator,) = report["operators"]
    assert (operator["op"], operator["line"]) == ("qnn.conv2d", 7)
    assert "1" not in json.dumps(operator["deep"])


@pytest.mark.parametrize("report", ["text", [1], None, {"operators": ["x" * 1000] * 100}])
def test_an_invalid_or_too_large_report_is_left_out(report: Any) -> None:
    assert report_of(report) == {}

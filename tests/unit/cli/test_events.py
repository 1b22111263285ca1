"""Tests of the parser of server-sent events, with the rules of the format."""

from service.cli.events import Event, parse_events


def test_an_event_ends_at_the_blank_line() -> None:
    lines = ["id: 1", "event: stage", 'data: {"stage": "import"}', "", "id: 2", "event: log", 'data: {"line": "x"}']
    assert list(parse_events(lines)) == [Event("1", "stage", {"stage": "import"})]


def test_comments_are_ignored() -> None:
    assert list(parse_events([": still here", "", ":", ""])) == []


def test_data_of_several_lines_is_joined() -> None:
    (event,) = parse_events(["data: {", 'data:"line": "x"}', ""])
    assert event.data == {"line": "x"}


def test_an_event_without_a_kind_is_a_message() -> None:
    (event,) = parse_events(["data: {}", ""])
    assert event.kind == "message"


def test_fields_do_not_leak_into_the_next_event() -> None:
    first, second = parse_events(["id: 1", "event: stage", "data: {}", "", "data: {}", ""])
    assert (first.id, first.kind) == ("1", "stage")
    assert (second.id, second.kind) == ("", "message")

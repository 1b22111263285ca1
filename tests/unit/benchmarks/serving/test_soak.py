"""Checks that the soak test reports wrong responses, errors and cut connections."""

import threading
from collections.abc import Callable

import httpx
import pytest

from benchmarks.serving.soak.actors import WRONG, Actor, Problems, Unexpected, checked, hold, running
from benchmarks.serving.soak.lifecycle import LIVE, Versions, marked
from tests.support.waiting import GIVE_UP_S


def counted(act: Callable[[], str], times: int = 1) -> tuple[dict[str, int], Problems]:
    """Runs `act` at least `times` times, and returns how often each outcome occurred, and the problems."""
    problems, enough, left = Problems(), threading.Event(), [times]

    def once() -> str:
        left[0] -= 1
        if not left[0]:
            enough.set()
        return act()

    actor = Actor("it", 0.0 if times > 1 else 60.0, once)
    with running([actor], problems):
        assert enough.wait(GIVE_UP_S)
    return dict(actor.outcomes), problems


def answer(status: int, json: object = None) -> httpx.Response:
    return httpx.Response(status, json=json, request=httpx.Request("POST", "http://here/there"))


def test_a_response_with_an_unexpected_status_is_a_problem_and_counted() -> None:
    outcomes, problems = counted(lambda: checked(answer(500), 400))
    assert outcomes == {"500": 1}
    assert problems.count == 1
    assert problems.kinds[0].startswith("it: POST /there: 500, not (400,)")


def test_a_wrong_response_is_counted_as_wrong() -> None:
    def ask() -> str:
        hold([1, 2], [1, 3], "the model")
        return "200"

    assert counted(ask)[0] == {WRONG: 1}


def test_a_cut_connection_and_an_unreadable_response_are_problems() -> None:
    def cut() -> str:
        raise httpx.ReadError("cut")

    def unreadable() -> str:
        return str(answer(200, {}).json()["outputs"])

    for act, outcome in ((cut, "ReadError"), (unreadable, "KeyError")):
        outcomes, problems = counted(act)
        assert (outcomes, problems.count) == ({outcome: 1}, 1)


def test_the_message_of_a_repeated_problem_is_stored_once() -> None:
    def ask() -> str:
        raise Unexpected("again")

    outcomes, problems = counted(ask, times=5)
    assert outcomes[WRONG] == problems.count >= 5
    assert problems.kinds == ["it: again"]


def test_a_mark_gives_another_file_of_the_same_model() -> None:
    first, second = marked("digits_int8.tflite", 1), marked("digits_int8.tflite", 2)
    assert (first != second, len(first)) == (True, len(second))


@pytest.mark.parametrize(("version", "is_right"), [(1, True), (2, False)])
def test_a_response_must_have_the_output_of_its_version(version: int, is_right: bool) -> None:
    versions = Versions(httpx.Client(), 0, {1: "digits_int8.tflite", 2: "digits_uint8.tflite"})
    scores = versions._scores["digits_int8.tflite"][0]

    def handle(request: httpx.Request) -> httpx.Response:
        assert request.url.path == f"/v2/models/{LIVE}/infer"
        return httpx.Response(200, json={"model_version": str(version), "outputs": [{"data": scores}]})

    versions.client = httpx.Client(base_url="http://here", transport=httpx.MockTransport(handle))
    if is_right:
        assert versions.ask() == "200"
    else:
        with pytest.raises(Unexpected, match="soak-live version 2"):
            versions.ask()

"""Who gets which message, and what becomes of it when one of the two does not answer."""

from __future__ import annotations

import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from smart_fork.rpc import made
from tests.smart_fork.front.conversation import (
    INITIALIZE,
    SECONDS,
    Conversation,
    answer,
    call,
    dies,
    dies_in_the_middle,
    request,
    told,
)
from tests.smart_fork.odd_lines import ODD, UNANSWERED


def answered(talk: Conversation) -> tuple[int | str, str]:
    """The next answer: to what, and by whom."""
    said = talk.hear()
    return said["id"], said["result"]["by"]


def test_what_is_read_is_answered_by_the_service_and_no_server_is_started():
    with Conversation() as talk:
        for number, one in enumerate(("prompts/get", "ping", "resources/list", "some/thing"), 1):
            talk.say(request(number, one))
            assert (number, "service") == answered(talk)
        talk.say(call("a", "list_sessions", limit=3))
        assert ("a", "service") == answered(talk)

    assert not talk.own.started


def test_what_acts_is_done_by_a_server_of_our_own_which_is_greeted_as_we_were():
    with Conversation() as talk:
        talk.say(call(1, "close_workers", workers=["x"]))
        assert (1, "own") == answered(talk)
        talk.say(call(2, "unheard_of"))
        assert (2, "own") == answered(talk)

    hello, ready, listing, *calls = talk.own.told
    assert INITIALIZE["params"] == hello.params
    assert hello.id != INITIALIZE["id"], "the client might use it again"
    assert ["notifications/initialized", "tools/list"] == [ready.method, listing.method]
    assert ["close_workers", "unheard_of"] == [one.params["name"] for one in calls]
    assert 1 == talk.own.started
    assert talk.own.ended
    assert talk.silence()


def test_a_handshake_may_have_the_id_of_what_was_asked_before_it():
    with Conversation(begin=False) as talk:
        talk.own.silent.add(5)
        talk.say(request(5, "server/discover"), INITIALIZE | {"id": 5}, request(7, "ping"))
        assert "begins again" in talk.hear()["error"]["message"]
        assert (7, "own") == answered(talk)

    assert ["server/discover", "initialize", "ping"] == [one.method for one in talk.own.told]


def test_a_second_request_with_the_id_of_one_that_waits_is_refused_and_the_first_is_answered():
    with Conversation() as talk:
        talk.own.silent.add(4)
        talk.say(call(4, "close_workers"), call(4, "list_sessions"))
        refused = talk.hear()
        talk.own.heard(answer(made(call(4, "close_workers")), "own"))
        assert (4, "own") == answered(talk)
        talk.say(call(4, "list_sessions"))
        assert (4, "service") == answered(talk), "the id is free again"

    assert (4, -32600) == (refused["id"], refused["error"]["code"])
    assert not any(one.params.get("name") == "list_sessions" for one in talk.own.told)


def test_a_call_is_passed_on_as_it_was_written():
    line = b'{"params": {"name":"spawn_workers","arguments":{"n":1e2}} ,"jsonrpc":"2.0","method":"tools/call","id":7}'
    with Conversation() as talk:
        talk.say(line + b"\r\n")
        talk.hear()

    assert line == talk.own.told[-1].line


@pytest.mark.parametrize("fails", [dies, dies_in_the_middle, lambda *_: 1 / 0])
def test_what_the_service_does_not_answer_a_server_of_our_own_does_from_then_on(fails):
    with Conversation() as talk:
        talk.service.asked[1] = fails
        talk.say(call(1, "list_sessions"))
        if fails is dies_in_the_middle:
            assert "notifications/progress" == talk.hear()["method"]
        assert (1, "own") == answered(talk)
        talk.say(call(2, "list_sessions"), told("notifications/roots/list_changed"))
        assert (2, "own") == answered(talk)

    assert [1] == [one.id for one in talk.service.heard]
    assert "notifications/roots/list_changed" == talk.own.told[-1].method
    assert talk.service.told.empty()


@pytest.mark.parametrize(
    "first",
    [
        request(5, "ping"),
        request(5, "server/discover", _meta={"io.modelcontextprotocol/protocolVersion": "2026-07-28"}),
        call(5, "list_sessions"),
    ],
)
def test_who_does_not_begin_with_the_handshake_talks_to_our_own_server_alone(first):
    with Conversation(begin=False) as talk:
        talk.say(first, call(6, "list_sessions"), told("notifications/cancelled", requestId=77))
        assert [(5, "own"), (6, "own")] == [answered(talk), answered(talk)]

    assert [first["method"], "tools/call"] == [one.method for one in talk.own.told]
    assert not talk.service.heard


def test_who_asks_something_and_then_begins_with_the_handshake_is_answered_by_another_server():
    """As a client does whose first question takes long to answer. The server that has heard it refuses a handshake."""
    with Conversation(begin=False) as talk:
        talk.own.silent.add(5)
        talk.say(request(5, "server/discover"), INITIALIZE | {"id": 6}, request(7, "ping"))
        assert "begins again" in talk.hear()["error"]["message"]
        assert [(6, "own"), (7, "own")] == [answered(talk), answered(talk)]

    assert ["server/discover", "initialize", "ping"] == [one.method for one in talk.own.told]
    assert 2 == talk.own.started


def test_without_a_service_all_is_asked_of_a_server_of_our_own():
    with Conversation(service=False) as talk:
        talk.say(call(1, "list_sessions"), call(2, "close_workers"), request(3, "tools/list"))
        assert [(1, "own"), (2, "own"), (3, "own")] == [answered(talk), answered(talk), answered(talk)]

    assert 1 == talk.own.started
    assert talk.own.ended


def test_who_waits_for_a_server_that_dies_is_told_and_the_next_question_starts_another():
    with Conversation(service=False) as talk:
        talk.own.silent.add(1)
        talk.own.deadly.add(2)
        talk.say(call(1, "spawn_workers"), call(2, "close_workers"))
        lost = [talk.hear(), talk.hear()]
        talk.say(call(3, "list_sessions"))
        assert (3, "own") == answered(talk)

    assert [1, 2] == [one["id"] for one in lost]
    assert {"was ended by signal 9"} <= {
        one["error"]["message"].partition("server ")[2].partition(" before")[0] for one in lost
    }
    assert all("Ask again" in one["error"]["message"] for one in lost)
    assert 2 == talk.own.started
    again = [one.method for one in talk.own.told[-4:]]
    assert ["initialize", "notifications/initialized", "tools/list", "tools/call"] == again


def test_what_only_reads_is_asked_of_another_server_when_the_one_that_has_it_dies():
    with Conversation(service=False) as talk:
        talk.own.silent.add(1)
        talk.say(call(1, "list_sessions"), request(2, "ping"))
        assert (2, "own") == answered(talk)
        talk.own.silent.clear()
        talk.own.dies(-9)
        assert (1, "own") == answered(talk)

    assert 2 == talk.own.started


def test_a_question_that_every_server_dies_of_is_asked_twice_and_then_said_to_be_lost():
    with Conversation(service=False) as talk:
        talk.own.deadly.add(1)
        talk.say(call(1, "list_sessions"))
        assert "was ended by signal 9" in talk.hear()["error"]["message"]

    assert 2 == talk.own.started
    assert talk.silence()


def test_a_form_of_a_server_that_dies_is_taken_from_the_screen():
    with Conversation(service=False) as talk:
        talk.own.silent.add(1)
        talk.say(call(1, "smart_fork", auto_fork=True), request(2, "ping"))
        assert (2, "own") == answered(talk)
        talk.own.heard(made(request("form", "elicitation/create")))
        form = talk.hear()
        talk.own.dies(1)

        assert (1, "smart-fork's server ended with status 1") == (
            (lost := talk.hear())["id"], lost["error"]["message"].partition(" before")[0]
        )  # fmt: skip
        assert ("notifications/cancelled", form["id"]) == ((gone := talk.hear())["method"], gone["params"]["requestId"])


def test_a_server_that_cannot_be_started_is_an_error_that_says_why(monkeypatch):
    with Conversation(service=False) as talk:

        def fails(*_: object) -> None:
            raise OSError("no memory")

        talk.own.start = fails
        talk._relay._start = fails
        talk.say(call(1, "list_sessions"))

        assert "no memory" in talk.hear()["error"]["message"]


def test_where_a_server_lists_other_tools_than_the_client_has_been_told_of_it_is_told():
    with Conversation(service=False) as talk:
        talk.own.lists = [{"name": "a new one"}]
        talk.say(call(1, "list_sessions"))
        told_of, answer = sorted((talk.hear(), talk.hear()), key=len)

    assert {"notifications/tools/list_changed", 1} == {
        told_of.get("method", told_of.get("id")),
        answer.get("method", answer.get("id")),
    }


def test_both_may_ask_the_client_under_the_same_id():
    """Such as for its roots."""
    with Conversation() as talk:
        talk.own.silent.add(1)
        talk.say(call(1, "close_workers"))
        going_on = threading.Event()

        def asks(message, heard):
            heard(made(request(0, "roots/list")))
            assert going_on.wait(SECONDS)
            heard(answer(message, "service"))

        talk.service.asked[2] = asks
        talk.say(call(2, "list_sessions"))
        of_service = talk.hear()
        talk.own.heard(made(request(0, "roots/list")))
        of_own = talk.hear()
        assert of_service["id"] != of_own["id"]

        for asked, name in ((of_own, "own"), (of_service, "service")):
            talk.say({"jsonrpc": "2.0", "id": asked["id"], "result": {"roots": [name]}})
        replied = talk.service.told.get(timeout=SECONDS)
        assert (0, ["service"]) == (replied.id, replied.content["result"]["roots"])
        going_on.set()
        assert (2, "service") == answered(talk)
        talk.say({"jsonrpc": "2.0", "id": of_own["id"], "result": {}}, {"jsonrpc": "2.0", "id": "?", "result": {}})

    replies = [one.content for one in talk.own.told if one.kind == "answer"]
    assert [{"jsonrpc": "2.0", "id": 0, "result": {"roots": ["own"]}}] == replies, "an answer counts once"


def test_what_is_not_wanted_from_the_client_any_more_is_named_as_the_client_knows_it():
    with Conversation() as talk:

        def gives_up(message, heard):
            heard(made(request("r", "roots/list")))
            heard(made(told("notifications/cancelled", requestId="x")))
            heard(made(told("notifications/cancelled", requestId="r")))
            heard(answer(message, "service"))

        talk.service.asked[1] = gives_up
        talk.say(call(1, "list_sessions"))

        asked, cancelled, done = (talk.hear() for _ in range(3))

    assert asked["id"] == cancelled["params"]["requestId"]
    assert 1 == done["id"]


def test_what_the_client_takes_back_is_told_to_whoever_has_it_and_is_not_answered():
    taken_back = threading.Event()
    with Conversation() as talk:

        def waits(message, heard):
            assert taken_back.wait(SECONDS)
            heard(made({"jsonrpc": "2.0", "id": message.id, "error": {"code": -32800, "message": "cancelled"}}))

        talk.service.asked[1] = waits
        talk.own.silent.add(2)
        talk.say(call(1, "list_sessions"), call(2, "close_workers"), request(3, "ping"))
        assert 3 == talk.hear()["id"]
        talk.say(*(told("notifications/cancelled", requestId=number) for number in (1, 2, 99, None)))
        assert 1 == talk.service.told.get(timeout=SECONDS).params["requestId"]
        taken_back.set()
        talk.say(request(4, "ping"))
        assert 4 == talk.hear()["id"]

    assert [2] == [one.params["requestId"] for one in talk.own.told if one.method == "notifications/cancelled"]
    assert talk.silence()


def test_what_is_taken_back_is_not_asked_again_where_the_service_dies():
    taken_back = threading.Event()
    with Conversation() as talk:

        def waits(*_: object) -> None:
            assert taken_back.wait(SECONDS)
            dies()

        talk.service.asked[1] = waits
        talk.say(call(1, "list_sessions"), request(2, "ping"))
        assert 2 == talk.hear()["id"]
        talk.say(told("notifications/cancelled", requestId=1))
        talk.service.told.get(timeout=SECONDS)
        taken_back.set()

    assert not talk.own.started


def test_long_lines_pass():
    text = "ä" * 3_000_000
    with Conversation() as talk:
        talk.service.asked[1] = lambda message, heard: heard(
            made({"jsonrpc": "2.0", "id": message.id, "result": {"text": text}})
        )
        talk.say(call(1, "read_session", session_id=text))

        assert text == talk.hear()["result"]["text"]

    assert text == talk.service.heard[0].params["arguments"]["session_id"]


@pytest.mark.parametrize("service", [False, True])
def test_what_is_no_message_is_refused_under_its_id_and_the_next_is_answered(service):
    with Conversation(service=service) as talk:
        for line, number in ODD.values():
            talk.say(line + b"\n")
            refused = talk.hear()
            assert (number, "error") == (refused["id"], list(refused)[-1])
        talk.say(*(line + b"\n" for line in UNANSWERED), request("next", "ping"))

        assert "next" == talk.hear()["id"]
    assert talk.silence()


@given(st.lists(st.tuples(st.booleans(), st.sampled_from(["answers", "dies", "in the middle"])), max_size=8))
def test_whatever_fails_every_request_is_answered_once(calls):
    with Conversation() as talk:
        how = {"dies": dies, "in the middle": dies_in_the_middle}
        talk.service.asked |= {n: how[what] for n, (_, what) in enumerate(calls, 1) if what in how}
        talk.say(*(call(n, "list_sessions" if reads else "stop") for n, (reads, _) in enumerate(calls, 1)))
        heard = []
        while len(heard) < len(calls):
            said = talk.hear()
            heard += [said["id"]] if "result" in said else []

    assert list(range(1, len(calls) + 1)) == sorted(heard)
    assert not [said for said in talk.rest() if "id" in said]
    assert talk.own.started <= 1

"""Where several sessions are about as likely, the person at a client with forms says which is forked."""

from __future__ import annotations

from typing import Any

import anyio
import mcp_types as types
import pytest
from mcp import Client

from smart_fork.forking.worker_preconditions import NotLoggedIn, Provisions
from tests.smart_fork.mcp_client import Person, choices
from tests.smart_fork.tool_server import create_server
from tests.smart_fork.world import World
from tests.support.cases import thorough_except_first

RETRY, DONE = "add retry with backoff to the uploader", "The uploader in upload.py retries five times with backoff"


@pytest.fixture(autouse=True)
def _in_the_project(shop, monkeypatch):
    monkeypatch.chdir(shop)


@pytest.fixture
def near(world, shop) -> set[str]:
    """Three sessions that are about as likely; another one is not."""
    world.claude(shop, "paint the logo green", "It is painted")
    return {world.claude(shop, f"{RETRY} {where}", DONE) for where in ("first", "second", "third")}


def ask(world: World, person: Any, mode: str = "legacy", **arguments: object) -> dict[str, Any]:
    async def talk() -> types.CallToolResult:
        server = create_server(world.model)
        more = {"elicitation_callback": person} if person else {}
        async with Client(server, mode=mode, **more) as client:
            return await client.call_tool("smart_fork", {"intent": RETRY, "auto_fork": True, **arguments})

    told = anyio.run(talk)
    assert not told.is_error, told.content
    assert told.structured_content is not None
    return told.structured_content


@pytest.mark.parametrize("mode", thorough_except_first(["legacy", "auto"]))
def test_what_is_chosen_is_forked(world, near, launched, mode):
    """Also by who answers a form with another call, as versions from 2026 on have it."""
    person = Person(1)

    answer = ask(world, person, mode)

    (form,) = person.forms
    offered = choices(form)
    assert near | {"none"} == set(offered)
    assert "none" == list(offered)[-1]
    assert all(label.startswith(f"{RETRY} ") and label.endswith(" %") for one, label in offered.items() if one in near)
    assert [list(offered)[1]] == [session_id for session_id, *_ in launched]
    assert list(offered)[1] == answer["forked_session"]["resume_session_id"]
    assert answer["results"][answer["forked_session"]["forked_index"]]["session_id"] == list(offered)[1]


def test_the_sessions_stand_numbered_in_the_question(world, near, launched):
    """A client may show the choices only when they are opened."""
    person = Person(0)

    ask(world, person)

    (form,) = person.forms
    _, *lines = form.message.splitlines()
    offered = [label for one, label in choices(form).items() if one in near]
    assert [f"{number}. {label}" for number, label in enumerate(offered, start=1)] == lines


@pytest.mark.parametrize("mode", thorough_except_first(["legacy", "auto"]))
def test_nobody_is_asked_where_the_fork_would_be_refused(world, near, launched, monkeypatch, mode):
    def refused(*_: object) -> None:
        raise NotLoggedIn("Nothing was started: Claude Code is not logged in here")

    monkeypatch.setattr("smart_fork.forking.start.provisions", refused)
    person = Person(0)

    answer = ask(world, person, mode)

    assert ([], []) == (person.forms, launched)
    assert "not logged in" in answer["error"]


def test_only_sessions_of_agents_that_could_be_started_are_offered(world, near, launched, monkeypatch, shop):
    other = world.codex(shop, f"{RETRY} another", DONE)

    def refused(agent: str, *_: object) -> Provisions:
        if agent == "codex":
            raise NotLoggedIn("Nothing was started: Codex is not logged in here")
        return Provisions()

    monkeypatch.setattr("smart_fork.forking.start.provisions", refused)
    person = Person(0)

    ask(world, person, agent_type="both")

    assert 1 == len(launched)
    assert other not in choices(person.forms[0])


@pytest.mark.parametrize("mode", thorough_except_first(["legacy", "auto"]))
@pytest.mark.parametrize(
    ("chooses", "why", "step"),
    [
        (-1, "the user chose none of the sessions", "what to do instead"),
        ("decline", "the user chose none of the sessions", "what to do instead"),
        ("cancel", "3 sessions have about the same score, and the question has no answer", "its fork_session_id"),
        (
            "another session",
            "3 sessions have about the same score, and the question has no answer",
            "its fork_session_id",
        ),
    ],
)
def test_where_nothing_is_chosen_nothing_is_forked_and_the_answer_says_so_with_the_results(
    world, near, launched, *, mode, chooses, why, step
):
    answer = ask(world, Person(chooses), mode)

    assert [] == launched
    assert "forked_session" not in answer
    assert near < {hit["session_id"] for hit in answer["results"]}
    assert answer["error"].startswith("Nothing was forked: ")
    assert why in answer["error"]
    assert step in answer["next"]


def test_a_client_that_cannot_show_the_form_it_has_offered_forks_nothing(world, near, launched):
    answer = ask(world, Person("fail"))

    assert [] == launched
    assert "this client could not ask" in answer["error"]


def test_a_client_without_forms_gets_the_best_one_forked(world, near, launched):
    answer = ask(world, None)

    assert 1 == len(launched)
    assert 0 == answer["forked_session"]["forked_index"]


@pytest.mark.parametrize(
    "chosen", [{"fork_index": 1}, {"min_score": 0.99}, {"limit": 1}, {"intent": "paint the logo green"}]
)
def test_nobody_is_asked_where_there_is_nothing_to_choose(world, near, launched, chosen):
    person = Person(0)

    ask(world, person, **chosen)

    assert [] == person.forms


def test_many_that_share_the_chance_are_offered_though_each_alone_is_below_the_floor(world, near, launched, shop):
    near |= {world.claude(shop, f"{RETRY} {where}", DONE) for where in ("fourth", "fifths")}
    person = Person(0)

    answer = ask(world, person, limit=6)

    assert max(hit["score"] for hit in answer["results"]) < 0.3
    assert len(person.forms) == len(launched) == 1


def test_what_cannot_be_forked_is_not_offered(world, near, launched, shop):
    gone = next(iter(near))
    world.find(RETRY, shop)
    world.log_of(gone).rename(world.home / "elsewhere")
    person = Person(0)

    ask(world, person)

    assert gone not in choices(person.forms[0])


@pytest.mark.parametrize("mode", thorough_except_first(["legacy", "auto"]))
@pytest.mark.parametrize(("chooses", "forks"), [(0, 1), (1, 0), ("decline", 0), ("cancel", 0), (None, 1)])
def test_a_fork_that_loads_very_much_is_asked_about_and_starts_only_if_the_person_agrees(  # noqa: PLR0917
    world, shop, launched, mode, chooses, forks
):
    """A client without forms is not asked."""
    knows = world.sized_claude(shop, (RETRY, DONE, 126_000))
    person = None if chooses is None else Person(chooses)

    answer = ask(world, person, mode)

    assert forks == len(launched)
    if person is not None:
        (form,) = person.forms
        assert [knows, "none"] == list(choices(form))
        assert "126k tokens" in choices(form)[knows]
        assert knows == form.requested_schema["properties"]["session"]["default"], "accepting the form is enough"
    if not forks:
        assert "126k tokens" in answer["error"]
        assert "budget '30k'" in answer["next"]


@pytest.mark.parametrize(
    ("tokens", "how"),
    [(99_000, {}), (126_000, {"budget": "30k"}), (126_000, {"fork_index": 0}), (126_000, {"dry_run": True})],
)
def test_a_fork_that_loads_less_or_that_was_chosen_is_not_asked_about(world, shop, launched, tokens, how):
    world.sized_claude(shop, (RETRY, DONE, tokens))
    person = Person(0)

    ask(world, person, **how)

    assert ([], 1) == (person.forms, len(launched))

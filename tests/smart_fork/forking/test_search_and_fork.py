"""Tests of search and fork in one call: the chosen session, and the answer after a failure."""

from __future__ import annotations

import contextvars
from types import SimpleNamespace

import pytest

from smart_fork.agents.request_fields import Options
from smart_fork.errors import ProgramFailed, Usage, speak_of_tools
from smart_fork.finding.index_refresh import Engine
from smart_fork.finding.request import FindRequest
from smart_fork.forking.request import ForkRequest
from smart_fork.forking.results import Forked
from tests.smart_fork.answers import a_fork, a_hit, an_answer
from tests.smart_fork.forks import choosing, told
from tests.smart_fork.searches import find_and_fork
from tests.smart_fork.world import World

RETRY = "add retry with backoff to the uploader"


@pytest.fixture
def forks(monkeypatch) -> SimpleNamespace:
    """Replace the launch. `calls` collects the sessions; `error` is raised if set."""
    seam = SimpleNamespace(calls=[], error=None)

    def fork_session(request: ForkRequest, _engine: object = None) -> Forked:
        seam.calls.append(told(request))
        if seam.error:
            raise seam.error
        return a_fork(request.session)

    monkeypatch.setattr("smart_fork.forking.plan.fork_session", fork_session)
    return seam


def ask(world: World, shop, intent: str = RETRY, min_score: float | None = None, **choice: object) -> dict:
    request = FindRequest(intent, agent_type="both", min_score=min_score)
    return find_and_fork(request, Engine(world.model), choosing(**choice), shop).as_json()


@pytest.fixture
def two(world, shop) -> list[str]:
    """Return the best and the second best session."""
    world.claude(shop, "uploader", "hm")
    world.codex(shop, RETRY, "done")
    return world.ids(RETRY, shop)


def test_nothing_is_forked_unasked(world, shop, two, forks):
    assert "forked_session" not in ask(world, shop)
    assert forks.calls == []


def test_an_id_or_an_index_wins_over_the_best_and_both_are_refused(world, shop, two, forks):
    """F-090, F-091."""
    chosen = [
        ask(world, shop, auto_fork=True),
        ask(world, shop, auto_fork=True, fork_index=1),
        ask(world, shop, auto_fork=True, fork_session_id=two[1]),
        ask(world, shop, fork_session_id="another"),
    ]

    assert [answer["forked_session"]["resume_session_id"] for answer in chosen] == [two[0], two[1], two[1], "another"]
    assert [answer["forked_session"]["forked_index"] for answer in chosen] == [0, 1, 1, None]
    with pytest.raises(Usage, match="fork_session_id and fork_index are mutually exclusive"):
        ask(world, shop, fork_index=0, fork_session_id=two[1])
    with pytest.raises(Usage, match="fork_session_id is empty"):
        ask(world, shop, fork_session_id=" ")


def test_what_cannot_be_forked_is_passed_over_and_refused_by_index(world, shop, two, forks):
    """F-061."""
    (world.home / "bin/codex").unlink()
    first = next(i for i, hit in enumerate(world.find(RETRY, shop)["results"]) if hit["agent_type"] == "codex")

    assert ask(world, shop, auto_fork=True, min_score=0)["forked_session"]["forked_index"] == 1 - first
    answer = ask(world, shop, fork_index=first)
    assert "cannot be forked: codex was not found" in answer["error"]
    assert len(answer["results"]) == 2
    assert len(forks.calls) == 1


def test_what_stands_first_but_scores_less_than_is_wanted_is_not_forked(world, shop, two, forks, monkeypatch):
    """Of about equally likely results, the better one to fork comes first."""
    found = an_answer(*map(a_hit, (0.58, 0.61), two))
    monkeypatch.setattr("smart_fork.finding.session_library.Library.find", lambda *_: found)

    answer = ask(world, shop, auto_fork=True, min_score=0.6)

    assert [two[1]] == [session_id for session_id, *_ in forks.calls]
    assert 1 == answer["forked_session"]["forked_index"]


OTHER = "which sauce goes with asparagus"


def test_nothing_is_forked_where_nothing_fits_and_the_answer_says_how_to_do_it_anyway(world, shop, two, forks):
    answer = ask(world, shop, OTHER, auto_fork=True)

    assert forks.calls == []
    assert "forked_session" not in answer
    assert 2 == answer["count"] == len(answer["results"])
    assert answer["results"][0]["score"] < 0.3
    assert answer["error"].startswith("Nothing was forked: the best score")
    assert answer["error"].endswith(", below 0.50.")
    assert "smart-fork fork ID" in answer["hint"]
    assert "--min-score" in answer["hint"]


def test_a_model_is_told_the_parameters_that_fork_anyway(world, shop, two, forks):
    def as_a_tool() -> dict:
        speak_of_tools()
        return ask(world, shop, OTHER, auto_fork=True)

    hint = contextvars.copy_context().run(as_a_tool)["hint"]

    for parameter in ("fork_index", "fork_session_id", "min_score"):
        assert parameter in hint
    assert "smart-fork" not in hint


def test_another_floor_can_be_set_and_none_and_who_chooses_needs_none(world, shop, two, forks):
    best, other = (hit["score"] for hit in world.find(RETRY, shop)["results"])
    between = (best + other) / 2

    above = ask(world, shop, OTHER, min_score=0.9, auto_fork=True)
    forked = ask(world, shop, min_score=between, auto_fork=True)
    anything = ask(world, shop, OTHER, min_score=0, auto_fork=True)
    chosen = ask(world, shop, OTHER, fork_index=1, auto_fork=True)

    assert "forked_session" not in above
    assert (0, 1, 2) == (above["count"], forked["count"], anything["count"])
    assert "Nothing was forked: no session scores 0.9 or more" == above["error"]
    assert 0 == forked["forked_session"]["forked_index"] == anything["forked_session"]["forked_index"]
    assert 1 == chosen["forked_session"]["forked_index"]
    assert 3 == len(forks.calls)


def test_where_what_fits_cannot_be_forked_what_does_not_fit_is_not_taken_instead(world, shop, two, forks):
    path = world.log_of(two[0])
    path.unlink()

    answer = ask(world, shop, min_score=world.find(RETRY, shop)["results"][1]["score"] + 0.01, auto_fork=True)

    assert forks.calls == []
    assert ("No forkable sessions found", True) == (answer["error"], "its log is deleted" in answer["hint"])


def test_an_index_beyond_the_results_is_said_with_the_results(world, shop, two, forks):
    """F-091, F-092."""
    answer = ask(world, shop, fork_index=2)

    assert answer["error"] == "fork_index is out of range"
    assert answer["hint"] == "There are 2 results, counted from 0."
    assert answer["count"] == 2


def test_where_the_program_is_missing_it_is_said_how_it_is_had_and_not_to_say_it_in_other_words(
    world, shop, two, forks
):
    for name in ("claude", "codex"):
        (world.home / "bin" / name).unlink()

    answer = ask(world, shop, auto_fork=True)

    assert answer["error"] == "No forkable sessions found"
    assert "codex was not found" in answer["hint"]
    assert "other words" not in answer["hint"]
    assert "install" in answer["hint"].lower()


@pytest.mark.parametrize("choice", [{"auto_fork": True}, {"fork_index": 0}])
def test_nothing_found_is_nothing_to_fork(world, shop, forks, choice):
    assert ask(world, shop, **choice)["error"] == "No forkable sessions found"


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (ProgramFailed("tmux is gone", "Start tmux."), ("tmux is gone", "Start tmux.")),
        (OSError("disk full"), ("The fork failed: disk full", "`smart-fork doctor` checks what forks need.")),
    ],
)
def test_a_fork_that_fails_keeps_the_results(world, shop, forks, error, said):
    """F-092."""
    world.claude(shop, "uploader", "hm")
    world.codex(shop, RETRY, "done")
    forks.error = error

    answer = ask(world, shop, auto_fork=True)

    assert (answer["error"], answer["hint"], answer["count"]) == (*said, 2)


def test_without_an_index_an_id_can_be_forked_and_the_reason_stays_otherwise(world, shop, two, forks, monkeypatch):
    monkeypatch.setenv("SMART_FORK_HOME", "/dev/null/x")

    assert ask(world, shop, auto_fork=True)["error"] == "index_not_available"
    assert ask(world, shop, fork_session_id=two[0])["forked_session"]["resume_session_id"] == two[0]


@pytest.mark.parametrize("choice", [{"fork_index": -1}, {"at": -1}, {"options": Options(place="moon")}])
def test_a_wrong_choice_is_refused_before_anything_is_read(world, shop, forks, choice):
    """F-005, F-009."""
    with pytest.raises(Usage):
        ask(world, shop, **choice)
    assert not (world.home / ".smart-fork").exists()

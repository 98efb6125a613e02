"""``fork`` of several sessions: the meaning of its words, and the result of each fork."""

from __future__ import annotations

import json
import threading
from types import SimpleNamespace

import pytest

from smart_fork.agents.request_fields import Options
from smart_fork.errors import ForkRefused, Usage
from smart_fork.finding.session_lookup import locate
from smart_fork.forking.request import ForkRequest
from smart_fork.forking.search_and_fork import fan_out
from smart_fork.forking.worker_spec import name_of
from tests.smart_fork.answers import a_fork
from tests.smart_fork.forks import told
from tests.support.cases import thorough_except_first

RETRY = "add retry with backoff to the uploader"
DONE = "Retry is in upload.py now."


@pytest.fixture
def forked(monkeypatch):
    """Return the started forks as (session, prompt, how). `refuse` makes one fail."""
    lock = threading.Lock()

    class Forked(list):
        """The list of started forks, with the dry runs and the forks that have to fail."""

    calls = Forked()
    calls.tried, calls.refuse = [], {}

    class Planned(SimpleNamespace):
        """A stand-in for `Fork` that starts no agent."""

        @classmethod
        def plan(cls, request, engine=None):
            one = cls(request=request, sessions=[SimpleNamespace(session_id=locate(request.session).session_id)])
            one.keep(calls.tried, planned=True)
            return one

        def keep(self, kept: list, *, planned: bool) -> None:
            _, prompt, how = told(self.request)
            with lock:
                kept.append((self.sessions[0].session_id, prompt, how))
            if error := calls.refuse.get((planned, how["name"])):
                raise error

        def preview(self):
            return a_fork(self.sessions[0].session_id, session_name=self.request.options.name, worker_id="")

        def start(self):
            self.keep(calls, planned=False)
            name = self.request.options.name
            return a_fork(self.sessions[0].session_id, session_name=name, worker_id=f"claude-{name}")

        def drop(self) -> None:
            pass

    def fork_session(request, engine=None):
        planned = Planned.plan(request)
        return planned.preview() if request.dry_run else planned.start()

    monkeypatch.setattr("smart_fork.cli.fork.fork_session", fork_session)
    monkeypatch.setattr("smart_fork.forking.search_and_fork.Fork", Planned)
    return calls


@pytest.fixture
def two(world, shop) -> tuple[str, str]:
    return world.claude(shop, RETRY, DONE), world.codex(shop, "rename the logo", "done")


def test_several_sessions_get_one_prompt_and_a_worktree_each(run, forked, two):
    """F-120."""
    done = run("fork", two[0][:8], two[1], "fix the race in api", "--in", "process")

    assert {(two[0], "fix the race in api"), (two[1], "fix the race in api")} == {call[:2] for call in forked}
    assert [("fix-the-race-in-1", "fix-the-race-in-1"), ("fix-the-race-in-2", "fix-the-race-in-2")] == sorted(
        (how["name"], how["worktree"]) for _, _, how in forked
    )
    assert done.code == 0
    assert "Compare them: smart-fork compare claude-fix-the-race-in-1 claude-fix-the-race-in-2" in done.out


def test_the_last_word_is_the_prompt_unless_it_is_a_session(run, forked, two):
    first, second = two
    run("fork", first, second, "--name", "n")
    assert [(first, None), (second, None)] == sorted((call[:2] for call in forked), key=lambda call: two.index(call[0]))
    forked.clear()

    run("fork", first, first, "--name", "n", "--", second)
    assert [(first, second), (first, second)] == [call[:2] for call in forked]
    forked.clear()

    run("fork", first, second, "--name", "n", "--no-worktree", "--", "-Werror")
    assert {"-Werror"} == {call[1] for call in forked}
    assert {None} == {call[2]["worktree"] for call in forked}


def test_a_word_that_could_be_a_session_but_is_none_is_the_prompt(run, forked, two):
    run("fork", *two, "deadbeefdeadbeef", "--worktree-name", "api")

    assert {"deadbeefdeadbeef"} == {call[1] for call in forked}
    assert {"api-1", "api-2"} == {call[2]["worktree"] for call in forked}


def test_nothing_is_started_if_one_of_them_cannot_be(run, forked, two):
    forked.refuse = {(True, "n-2"): ForkRefused("No", "Do this.")}

    done = run("fork", *two, "go on", "--name", "n")

    assert (1, []) == (done.code, list(forked))
    assert "Do this." in done.err
    assert run("fork", two[0], "11111111-1111-4111-8111-111111111111", "go on").code == 3
    assert [] == forked


def test_one_that_fails_does_not_stop_the_others(run, forked, two):
    forked.refuse = {(False, "n-1"): ForkRefused("No", "Do this."), (False, "n-3"): ValueError("odd")}

    done = run("fork", *two, two[0], "go on", "--name", "n", "--json")

    assert 1 == done.code
    first, second, third = json.loads(done.out)["forks"]
    assert {"resume_session_id": two[0], "session_name": "n-1", "error": "No", "hint": "Do this."} == first
    assert "claude-n-2" == second["worker_id"]
    assert "The fork failed: odd" == third["error"]
    assert "n-1, a fork of" in run("fork", *two, "go on", "--name", "n").err


def test_a_dry_run_starts_none(run, forked, two):
    done = run("fork", *two, "go on", "--dry-run")

    assert [] == forked
    assert [f"claude --resume {session}" for session in two] == done.out.splitlines()


def test_the_best_sessions_of_a_search_are_forked(run, forked, world, shop, two):
    run("fork", "--top", "1", "go on", "--intent", RETRY, "--in", "process")
    assert [(two[0], "go on")] == [call[:2] for call in forked]
    assert "at" not in forked[0][2]
    forked.clear()

    run("fork", "--top", "2", RETRY, "--at", "match")
    assert set(two) >= {call[0] for call in forked}
    assert all(how["at"] == "match" for _, _, how in forked)


def test_named_sessions_are_forked_where_each_answers(run, forked, world, shop):
    sessions = [world.claude(shop, RETRY, DONE, "another thing", "done"), world.claude(shop, RETRY, "It is there.")]

    run("fork", *sessions, "go on", "--at", "match", "--intent", RETRY)

    assert sessions == [call[0] for call in sorted(forked, key=lambda call: call[2]["name"])]
    assert all(how["at"] == "match" for _, _, how in forked)


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["--at", "4", "go on"], "only for one session"),
        (["--intent", "x", "go on"], "--intent is only for"),
        (["--in", "here", "go on"], "replace this"),
        (["--at", "match"], "need an intent"),
        (["--no-worktree", "--with-changes", "go on"], "--no-worktree goes with neither"),
    ],
)
def test_what_means_nothing_for_several_is_refused(run, forked, two, words, reason):
    done = run("fork", *two, *words)

    assert 2 == done.code
    assert reason in done.err
    assert [] == forked.tried


@pytest.mark.parametrize(
    "words",
    thorough_except_first(
        [[], ["--top", "2"], ["--top", "0", RETRY], ["--top", "2", "12345678", "c d"], ["--top", "99", "x"]]
    ),
)
def test_without_a_session_there_is_nothing_to_fork(run, forked, two, words):
    assert 2 == run("fork", *words).code
    assert [] == forked


def test_there_is_a_limit():
    with pytest.raises(Usage, match="Between 1 and 10"):
        fan_out([ForkRequest("60309e1e", Options("go"))] * 11, in_worktrees=True)


@pytest.mark.parametrize(
    ("prompt", "name"),
    [
        ("Fix: the same race, please", "fix-the-same-race"),
        ("--rm -rf /", "rm--rf"),
        (None, "fork"),
        ("ü", "fork"),
        ("x" * 99, "x" * 27),
    ],
)
def test_workers_without_a_name_are_named_after_their_prompt(prompt, name):
    assert name == name_of(prompt)


def test_top_forks_what_fits_and_says_how_many_are_left_out(run, world, shop, forked, monkeypatch):
    monkeypatch.chdir(shop)
    knows = world.claude(shop, RETRY, DONE)
    world.codex(shop, "rename the logo", "done")
    world.claude(shop, "which sauce goes with asparagus", "hollandaise")

    done = run("fork", "--top", "3", "go on", "--intent", RETRY, "--in", "process")
    told = json.loads(run("fork", "--top", "3", "go on", "--intent", RETRY, "--in", "process", "--json").out)
    everything = json.loads(
        run("fork", "--top", "3", "go on", "--intent", RETRY, "--in", "process", "--json", "--min-score", "0").out
    )

    assert [knows] == [one["resume_session_id"] for one in told["forks"]]
    assert 2 == told["left_out"]
    assert "2 more were skipped: their scores are below 0.50. --min-score 0 takes all." in done.err
    assert (3, False) == (len(everything["forks"]), "left_out" in everything)


def test_where_nothing_fits_top_starts_nothing_and_shows_what_there_is(run, shop, two, forked):
    command = ("fork", "--top", "2", "which sauce goes with asparagus", "--in", "process", "--cwd", str(shop))

    said, told = run(*command), run(*command, "--json")

    assert (3, 3) == (said.code, told.code)
    assert [] == forked == forked.tried
    answer = json.loads(told.out)
    assert set(two) == {hit["session_id"] for hit in answer["results"]}
    assert [] == answer["forks"]
    assert answer["error"] in said.err
    assert answer["hint"] in " ".join(said.err.split())
    assert "Nothing was forked" in answer["error"]
    assert [answer["results"][0]["session_id"][:8] in said.out, "1 more, unlikely" in said.out] == [True] * 2


@pytest.mark.parametrize("score", ["nan", "1.5", "-1", "high"])
def test_a_floor_that_is_none_is_a_mistake(run, two, forked, score):
    assert 2 == run("fork", "--top", "2", RETRY, "--min-score", score).code
    assert [] == forked == forked.tried


def test_who_names_a_session_needs_no_floor(run, two, forked):
    assert 2 == run("fork", two[0], RETRY, "--min-score", "0.5").code

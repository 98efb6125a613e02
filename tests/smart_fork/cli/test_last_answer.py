"""Words, numbers and names on the command line: sessions, prompts, and results of the last answer."""

from __future__ import annotations

import json

import pytest

from indexer import state_db
from smart_fork.cli import listed_sessions, quick_answers
from tests.smart_fork.answers import a_hit
from tests.smart_fork.cli.test_fan_out import DONE, RETRY, forked, two  # noqa: F401 - fixtures

TERMINAL = "/dev/pts/7"


@pytest.fixture
def terminal(monkeypatch, shop):
    """Return a function that goes to a project at a terminal, or at another terminal."""
    names = [TERMINAL]
    monkeypatch.setattr(listed_sessions, "_terminal", lambda: names[-1])
    monkeypatch.chdir(shop)
    return names


def test_words_are_words_and_options_may_stand_behind_them(run, world, shop):
    knows = world.claude(shop, RETRY, DONE)

    for words in (RETRY.split(), [RETRY], ["--agent", "claude", *RETRY.split()], [*RETRY.split(), "--agent", "claude"]):
        answer = json.loads(run("find", *words, "--json").out)
        assert (RETRY, knows) == (answer["query"], answer["results"][0]["session_id"])
    assert "-Werror breaks -n" == json.loads(run("find", "--json", "--", "-Werror", "breaks", "-n").out)["query"]
    assert RETRY == json.loads(run("search", *RETRY.split(), "--json").out)["query"]


def test_a_number_is_a_result_of_the_last_answer_wherever_an_id_is_taken(run, world, shop, two, terminal):  # noqa: F811
    best = json.loads(run("find", RETRY, "--json").out)["results"][0]["session_id"]
    listed_sessions.remember([a_hit(session_id=best)])

    assert best == json.loads(run("show", "1", "--json").out)["session_id"]
    assert best == json.loads(run("lineage", "1", "--json").out)["session_id"]
    run("tag", "1", "retry")
    assert best[:8] in run("list", "--tag", "retry").out


def test_a_number_before_a_prompt_forks_that_result(run, two, forked, terminal):  # noqa: F811
    listed_sessions.remember([a_hit(session_id=two[0]), a_hit(session_id=two[1], rank=2, agent_type="codex")])

    run("fork", "2", "1", "draw", "it", "--in", "process")

    assert {(two[0], "draw it"), (two[1], "draw it")} == {call[:2] for call in forked}


@pytest.mark.usefixtures("two")
@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"at": 0.0}, "is 56 years old"),
        ({"at": 1e12}, "old: 1 is no longer known"),
        ({"project": "another"}, "is of another project"),
        ({"sessions": {"2": "claude:12345678"}}, "has no result 1"),
        ({"sessions": {"1": "claude:12345678"}}, "is gone: claude:12345678"),
        ({"sessions": {"1": "--help\x1b[2J"}}, "is gone"),
        ({"sessions": "none"}, "There is no answer in this terminal"),
    ],
)
def test_an_answer_that_is_not_the_last_one_here_is_refused(run, forked, terminal, change, says):  # noqa: F811
    listed_sessions.remember([a_hit()])
    name = f"last answer {TERMINAL}"
    state_db.keep(name, state_db.fact(name) | change)

    done = run("fork", "1", "go on")

    assert says in done.err
    assert ("\x1b" in done.err, [], True) == (False, forked.tried, done.code in (2, 3))


def test_each_terminal_has_its_own_answer_and_without_one_none_is_kept(run, two, terminal):  # noqa: F811
    listed_sessions.remember([a_hit(session_id=two[0])])
    assert 0 == run("show", "1").code

    for other in ("/dev/pts/8", ""):
        terminal.append(other)
        assert "There is no answer in this terminal" in run("show", "1").err
    listed_sessions.remember([a_hit(session_id=two[0])])
    assert "There is no answer in this terminal" in run("show", "1").err


def test_the_title_of_a_session_stands_for_it_if_it_is_of_one_alone(run, world, shop, two, terminal):  # noqa: F811
    run("index", "run")

    assert two[0] == json.loads(run("show", RETRY.upper(), "--json").out)["session_id"]
    world.claude(shop, RETRY, "again")
    run("index", "run")
    assert "is the title of several sessions" in run("show", RETRY).err


def test_a_prompt_alone_forks_the_session_that_fits_best(run, two, forked, terminal):  # noqa: F811
    done = run("fork", *RETRY.split(), "--in", "process")

    assert [(two[0], RETRY)] == [call[:2] for call in forked]
    assert f"note: Best session: {RETRY}" in done.err
    assert not forked[0][2].get("worktree")


@pytest.mark.parametrize("words", [["12345678"], ["12345678", "go on"], ["70f1", "go on"], ["1", "go on"]])
def test_what_looks_like_a_session_and_is_none_is_never_searched_for(run, two, forked, terminal, words):  # noqa: F811
    assert run("fork", *words).code in (2, 3)
    assert [] == forked.tried


@pytest.mark.parametrize(
    ("words", "error", "hint"),
    [
        (["serch", "x"], "No such command: serch", "`smart-fork search`"),
        (["ls"], "No such command: ls", "Did you mean `smart-fork list`?"),
        (["add", "retry"], "No such command: add", 'smart-fork find "add retry"'),
        (["qqq"], "No such command: qqq", "`smart-fork --help` lists them."),
        (["index", "rnu"], "No such command: rnu", "`smart-fork index run`"),
        (["find", "x", "--colour"], "No such option", "`smart-fork find --help`"),
        (["list", "x"], "extra argument", "`smart-fork list --help`"),
    ],
)
def test_what_the_command_line_refuses_has_the_voice_of_all_errors(run, words, error, hint):
    plain, as_json = run(*words), json.loads(run(*words, "--json").out)

    assert (2, "") == (plain.code, plain.out)
    assert plain.err.startswith(f"error: {as_json['error']}\n  {as_json['hint']}\n")
    assert [error in as_json["error"], hint in as_json["hint"]] == [True, True]


def test_a_title_is_looked_up_as_a_text(tmp_path):
    assert [] == quick_answers.titled(tmp_path / "none.db", "key", "' OR 1 --")

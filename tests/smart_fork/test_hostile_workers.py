"""Hostile ids, names, prompts, titles and paths: each is refused, or reaches the agent as it is and does nothing."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest

from smart_fork.errors import SmartForkError
from smart_fork.forking.spawn import spawn
from smart_fork.workers.registry import Registry
from tests.smart_fork.forks import SESSION, snapshot
from tests.support.cases import thorough_except, thorough_except_first

TEXTS = {
    "option": "--dangerously-skip-permissions",
    "dash": "-",
    "end of options": "--",
    "quotes": 'it\'s "quoted" `touch PWNED` $(touch PWNED) ${HOME}',
    "shell": "; touch PWNED & touch PWNED | touch PWNED > PWNED",
    "lines": "one\ntwo\r\nthree",
    "escapes": "\x1b[31mred\x1b[0m \x1b]0;title\x07 \x9b2J",
    "tmux": "#(touch PWNED) #{pane_id} a;",
    "up": "../../../../etc/passwd",
    "nul": "before\0after",
    "slash": "/clear",
    "bang": "!touch PWNED",
    "word": "doctor",
    "unicode": "naïve 日本語 🦊 \u202e\u2028",
    "half": "\ud800",
    "long": "x" * 100_001,
}
#: Each agent and each place once: what a place does to arguments does not depend on the agent.
somewhere = pytest.mark.parametrize(
    ("agent", "place"), [("claude", "tmux"), pytest.param("codex", "process", marks=pytest.mark.thorough)]
)
texts = pytest.mark.parametrize("kind", TEXTS)


@pytest.fixture
def order(repo, scripted):
    def say(**more: object) -> dict:
        return {"project_path": str(repo), "prompt": "fix the race", "worktree": False} | more

    return say


def executed(home: Path) -> list[Path]:
    return [*home.rglob("PWNED"), *Path.cwd().glob("PWNED")]


def nothing_was_started(home: Path, scripted) -> bool:
    with Registry() as registry:
        return not registry.workers() and not scripted.ran() and not executed(home)


@somewhere
@pytest.mark.parametrize("kind", thorough_except(TEXTS, "option", "quotes", "tmux", "half", "long"))
@pytest.mark.usefixtures("private_tmux")
def test_a_prompt_is_the_last_argument_and_nothing_else(kind, agent, place, order, scripted, home, repo):  # noqa: PLR0917
    """F-104."""
    prompt = TEXTS[kind]
    if kind == "long":
        with pytest.raises(SmartForkError, match="longer than 100,000 bytes"):
            spawn([order(agent_type=agent, run_in=place, prompt=prompt)])
        assert nothing_was_started(home, scripted)
        return

    (result,) = (one.as_json() for one in spawn([order(agent_type=agent, run_in=place, prompt=prompt)]).workers)

    _, words, cwd, _ = scripted.call(result["worker_id"])
    before = ["--session-id", result["session_id"]] if agent == "claude" else ["exec", "-C", str(repo)]
    said = prompt.replace("\0", "").encode("utf-8", "replace").decode().strip()
    plain = said[0].isalnum() and len(said.split()) > 1
    assert [*before, "--", said if plain else f" {said}"] == words
    assert str(repo) == cwd
    assert [] == executed(home)


@pytest.mark.parametrize("kind", thorough_except(TEXTS, "option", "up", "escapes"))
@pytest.mark.usefixtures("private_tmux")
def test_a_name_is_one_line_and_never_a_path_or_an_option(kind, order, scripted, home, repo):
    """B-027, F-104, F-120."""
    said = order(run_in="tmux", name=TEXTS[kind])
    del said["worktree"]

    (result,) = (one.as_json() for one in spawn([said]).workers)

    _, words, cwd, _ = scripted.call(result["worker_id"])
    assert not re.search(r"[\x00-\x1f\x7f-\x9f]", result["name"])
    assert len(result["name"]) <= 200
    if result["name"] != result["worker_id"]:
        assert [f"--name={result['name']}"] == words[2:-2]
    assert "fix the race" == words[-1]
    assert Path(cwd).parent == repo / ".worktrees"
    assert re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,29}", Path(cwd).name)
    assert f"smart-fork/{Path(cwd).name}" == result["branch"]
    assert [] == executed(home)


@texts
@pytest.mark.parametrize("key", ["fork_from", "resume_session_id"])
def test_an_id_that_is_none_is_refused(key, kind, order, scripted, home):
    """F-104, R-061."""
    before = snapshot(home)
    with pytest.raises(SmartForkError, match=r"Session not found|Session id too short") as caught:
        spawn([order(**{key: TEXTS[kind]})])

    assert len(caught.value.message) < 200
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", caught.value.message)
    assert nothing_was_started(home, scripted)
    left = {name for name in set(snapshot(home)) - set(before) if "workers.db" not in name}
    assert set() == left


@texts
def test_a_directory_that_is_none_is_refused(kind, order, scripted, home, monkeypatch):
    """X-002."""
    monkeypatch.chdir(home)
    with pytest.raises(SmartForkError, match="No such directory"):
        spawn([order(project_path=f"./no{TEXTS[kind]}")])

    assert nothing_was_started(home, scripted)


@somewhere
@pytest.mark.usefixtures("private_tmux")
@pytest.mark.parametrize(
    "kind", thorough_except_first(["quotes", "option", "shell", "lines", "escapes", "tmux", "unicode"])
)
def test_a_directory_of_any_name_is_only_a_directory(kind, agent, place, order, scripted, home):  # noqa: PLR0917
    """X-001, X-002."""
    folder = home / TEXTS[kind].replace("/", "_")
    folder.mkdir()

    (result,) = (
        one.as_json() for one in spawn([order(agent_type=agent, run_in=place, project_path=str(folder))]).workers
    )

    _, words, cwd, _ = scripted.call(result["worker_id"])
    assert str(folder) == cwd
    assert "fix the race" == words[-1]
    if agent == "codex":
        assert str(folder) == words[words.index("-C") + 1]
    assert [] == executed(home)


@texts
def test_a_place_an_agent_or_a_key_of_any_name_is_refused(kind, order, scripted, home):
    for said in ({"run_in": TEXTS[kind]}, {"agent_type": TEXTS[kind]}, {TEXTS[kind]: 1}):
        with pytest.raises(SmartForkError) as caught:
            spawn([order(**said)])
        assert caught.value.message.startswith("Worker 0: ")
    assert nothing_was_started(home, scripted)


@pytest.mark.parametrize("kind", thorough_except(TEXTS, "option", "up"))
def test_a_worktree_of_any_name_lies_beside_the_others(kind, order, scripted, repo, home):
    """F-120."""
    (result,) = (one.as_json() for one in spawn([order(worktree=TEXTS[kind], run_in="process")]).workers)

    assert Path(result["cwd"]).parent == repo / ".worktrees"
    assert result["cwd"] == scripted.call(result["worker_id"])[2]
    assert [] == executed(home)


def test_a_title_in_a_log_reaches_no_command(order, scripted, claude_session, home):
    """X-002: what a session is called, and what was said in it, is not looked at to fork it."""
    with claude_session.open("a") as log:
        title = {"type": "custom-title", "customTitle": "--help; touch PWNED", "sessionId": SESSION}
        log.write(json.dumps(title) + "\n")
    os.utime(claude_session, (0, 0))

    (result,) = (one.as_json() for one in spawn([order(fork_from=SESSION, run_in="process")]).workers)

    _, words, _, _ = scripted.call(result["worker_id"])
    assert not any("PWNED" in word for word in words)
    assert [] == executed(home)

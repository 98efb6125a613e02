"""One prompt for two real sessions, one of each agent, each fork in a worktree of its own; compared, and cleaned up."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.e2e.agents import Machine
from tests.e2e.logs import Json, Log
from tests.e2e.model_server import Call, Protocol, Say
from tests.e2e.scenario import CONVERSATION, assert_forked, unlike_any_other
from tests.e2e.terminals import PROGRAM_SECONDS, wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.xdist_group("machine")]


@pytest.fixture
def writing(equipped: Machine) -> Iterator[Machine]:
    """Claude Code may write files without asking."""
    settings = equipped.home / ".claude" / "settings.json"
    settings.write_text(json.dumps({"permissions": {"allow": ["Write"]}}))
    yield equipped
    settings.unlink()


@pytest.fixture
def notes(writing: Machine) -> Iterator[Path]:
    """A file in the project that nobody has committed; other tests find it gone."""
    path = writing.project / "notes.txt"
    yield path
    path.unlink(missing_ok=True)


def test_two_sessions_are_fanned_out_compared_and_cleaned_up(
    writing: Machine, parents: Callable[[Protocol], Log], notes: Path, tmp_path: Path
):
    """F-095, F-099, F-103, F-106, F-120: the one that wrote a file is kept, the other one is removed."""
    agents: list[Protocol] = ["claude", "codex"]
    logs = [parents(agent) for agent in agents]
    before = [log.sha256 for log in logs]
    prompt, name = unlike_any_other("Now do the same for the downloader"), "downloader"
    notes.write_text("not committed\n")
    first, second = (writing.project / ".worktrees" / f"{name}-{number}" for number in (1, 2))
    says = Say(f"Noted: {prompt}")
    writing.model.when(
        prompt, Call("", "Write", {"file_path": str(first / "download.py"), "content": "retry = 5\n"}, says)
    )

    ids = [log.session_id for log in logs]
    how = ("--name", name, "--with-changes", "--in", "process", "--json")
    forks = json.loads(writing.smart_fork("fork", *ids, *how, "--", prompt).stdout)["forks"]

    for agent, log, fork, worktree in zip(agents, logs, forks, (first, second), strict=True):
        assert_forked(writing, agent, log, fork, prompt, said_before=CONVERSATION)
        assert str(worktree) == fork["cwd"]
        assert "not committed\n" == (worktree / "notes.txt").read_text()
    _ended(writing)
    one, two = _json(writing, "compare")["workers"]
    assert [fork["worker_id"] for fork in forks] == [one["worker_id"], two["worker_id"]]
    assert [fork["new_session_id"] for fork in forks] == [one["session_id"], two["session_id"]]
    assert [says.text, says.text] == [one["answer"], two["answer"]]
    assert ([{"path": "download.py", "added": 1, "removed": 0}], []) == (one["files"], two["files"])
    assert [(120, 40), (120, 20)] == [(w["context_tokens"], w["output_tokens"]) for w in (one, two)]
    assert all(0 < w["seconds"] < 600 and w["state"] == "ended" and not w["notes"] for w in (one, two))
    writing.smart_fork("compare", "--html", str(tmp_path / "x.html"))
    assert "retry = 5" in re.sub("<[^>]*>", "", (tmp_path / "x.html").read_text()), "what one of them wrote is shown"
    listed = [
        session["session_id"] for session in _json(writing, "list", "--include-automated", "--limit", "500")["sessions"]
    ]
    assert [1, 1] == [listed.count(session_id) for session_id in ids], "the copy in the worktree is not another one"
    (told,) = [one for one in _json(writing, "lineage", ids[0])["sessions"] if one["session_id"] == ids[0]]
    staged = writing.folder_of_claude(first) / logs[0].path.name
    assert (str(logs[0].path), True) == (told["jsonl_path"], str(staged) in told["copies"])

    (second / "notes.txt").unlink()
    pruned = _json(writing, "worktrees", "--prune")

    assert str(second) in pruned["removed"]
    left = {tree["worktree"]: tree for tree in pruned["worktrees"]}  # those of other tests among them
    assert str(second) not in left
    assert 1 == left[str(first)]["changed_files"]
    assert "2 uncommitted or new files" in left[str(first)]["reason"]
    assert "retry = 5\n" == (first / "download.py").read_text()
    assert not second.exists()
    for name in ("download.py", "notes.txt"):
        (first / name).unlink()
    assert str(staged) in _json(writing, "worktrees", "--prune")["copies"]
    assert not staged.exists()
    assert before == [log.sha256 for log in logs]
    (writing.project / "notes.txt").unlink()


def _json(machine: Machine, *words: str) -> Json:
    value: Json = json.loads(machine.smart_fork(*words, "--json").stdout)
    return value


def _ended(machine: Machine) -> None:
    """The workers, and what they had started."""
    ended = lambda: all(one["state"] == "ended" for one in _json(machine, "compare")["workers"])  # noqa: E731
    wait_until(ended, "the workers to end", pause=PROGRAM_SECONDS)
    trees = lambda: [tree["reason"] or "" for tree in _json(machine, "worktrees")["worktrees"]]  # noqa: E731
    free = lambda: not any("process" in reason for reason in trees())  # noqa: E731
    wait_until(free, "all that they had started to end", pause=PROGRAM_SECONDS)

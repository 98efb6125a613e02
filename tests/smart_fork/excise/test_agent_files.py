"""The files that agents keep apart from their logs are searched for cut text."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from smart_fork.excise import Request, check, cut
from tests.smart_fork.commands import command_model, run  # noqa: F401 - fixtures
from tests.smart_fork.excise.test_families import indexed, play
from tests.smart_fork.session_family import branch
from tests.support.cases import thorough_except_first

pytestmark = pytest.mark.usefixtures("command_model")
SAID = ("add retry", "done", "the code is swordfish-hunter-7731, not penguin", "I will remember it")
#: Of each agent the files that it keeps; ID is the session's.
KEPT = {
    "claude": (
        ".claude/file-history/ID/1a2b@v1", ".claude/history.jsonl", ".claude/paste-cache/1a2b.txt", ".claude/plans/a-plan.md",
        ".claude/todos/ID-agent-ID.json", ".claude/shell-snapshots/snapshot-bash-1.sh", ".claude/debug/ID.txt", ".claude.json",
    ),
    "codex": (".codex/history.jsonl", ".codex/shell_snapshots/ID.sh", ".codex/log/codex-tui.log", ".codex/state_5.sqlite"),
}  # fmt: skip


def session_of(world, shop, agent):
    return (world.claude if agent == "claude" else world.codex)(shop, *SAID)


def kept(world, name, session_id, text):
    path = world.home / name.replace("ID", session_id)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return str(path)


@pytest.mark.parametrize("agent", KEPT)
def test_a_file_that_an_agent_keeps_apart_is_named_where_it_has_what_was_cut(world, shop, agent):
    session_id = session_of(world, shop, agent)
    paths = [kept(world, name, session_id, f"once more: {SAID[2]}") for name in KEPT[agent]]

    left = [one["path"] for one in cut(Request(session_id, "2-3", force=True))["left"]]
    found = check(session_id)

    assert sorted(paths) == sorted(left) == sorted(one["path"] for one in found["copies"])
    assert not found["ok"]


def test_a_line_of_a_prompt_history_has_the_words_of_the_session_that_it_names(world, shop):
    session_id = session_of(world, shop, "claude")
    lines = [{"display": "a penguin", "sessionId": name} for name in ("another", session_id)]
    path = kept(world, ".claude/history.jsonl", "", "".join(f"{json.dumps(one)}\n" for one in lines))
    cut(Request(session_id, "2-3", force=True))

    assert [(path, ("penguin",))] == [(one["path"], tuple(one["words_found"])) for one in check(session_id)["copies"]]
    kept(world, ".claude/history.jsonl", "", json.dumps(lines[0]))
    assert check(session_id)["ok"]


@pytest.mark.parametrize("name", ["plans/a.md", "file-history/ID/1a2b@v1", "projects/x/ID/tool-results/1.txt"])
def test_ordinary_words_in_files_of_other_sessions_are_no_trace(world, shop, name):
    session_id, other = session_of(world, shop, "claude"), world.claude(shop, "go on", "done")
    kept(world, f".claude/{name}", other, "there was a swordfish, a hunter and a penguin")
    cut(Request(session_id, "2-3", force=True))

    assert check(session_id)["ok"]


@pytest.mark.parametrize("name", thorough_except_first(["codex", "gemini"]))
def test_the_kept_copy_of_a_lost_session_that_was_told_is_named(world, shop, monkeypatch, name):
    monkeypatch.setenv("SMART_FORK_KEEP_TRANSCRIPTS", "true")
    session_id = session_of(world, shop, "claude")
    made = branch(session_id, as_agent=name)
    indexed()
    Path(made["path"]).unlink()
    cut(Request(session_id, "2-3", force=True))
    indexed()

    found = check(session_id)
    named = [one["path"] for one in found["copies"]]
    assert not found["ok"]
    assert any(f"/kept/{name}/" in one for one in named)
    assert all("smart-fork forget" in one["reason"] for one in found["copies"])


@pytest.mark.parametrize("line", thorough_except_first([
    {"type": "ai-title", "aiTitle": "use swordfish-hunter-7731"},
    {"type": "user", "isCompactSummary": True, "uuid": "c", "message": {"role": "user", "content": "swordfish-hunter-7731"}},
]))  # fmt: skip
def test_a_summary_or_title_that_still_says_it_is_named_with_the_command_that_cuts_it(world, shop, run, line):  # noqa: F811 - a fixture
    session_id = world.claude(shop, *SAID, "and the docs", "they are there")
    log = world.log_of(session_id)
    log.write_text(f"{log.read_text()}{json.dumps(line | {'sessionId': session_id})}\n")

    left = cut(Request(session_id, "2-3", force=True))["left"]
    (named,) = check(session_id)["copies"]
    assert [str(log)] == [one["path"] for one in left] == [named["path"]]
    command = named["reason"].partition("smart-fork ")[2].split()
    assert 0 == run(*command, "--yes").code
    assert check(session_id)["ok"]


def test_ids_in_a_branch_that_its_parent_has_as_well_are_no_words(world, shop):
    parent = session_of(world, shop, "claude")
    made = branch(parent)["session_id"]

    cut(Request(made, "2-3", force=True))
    indexed()

    assert check(made)["ok"]


@pytest.mark.thorough
def test_a_title_in_a_branch_that_still_says_it_is_named_beside_that_of_the_session(world, shop):
    session_id = world.claude(shop, *SAID, "and the docs", "they are there")
    paths = [world.log_of(session_id), Path(branch(session_id)["path"])]
    for path in paths:
        title = {"type": "ai-title", "aiTitle": "use swordfish-hunter-7731", "sessionId": path.stem}
        path.write_text(f"{path.read_text()}{json.dumps(title)}\n")
    cut(Request(session_id, "2-3", force=True))

    assert set(map(str, paths)) == {one["path"] for one in check(session_id)["copies"]}


#: Where agents keep earlier versions of files, as git repositories.
SNAPSHOTS = {"opencode": ".local/share/opencode/snapshot/1a2b", "gemini": ".gemini/history/shop/.git"}


@pytest.fixture
def snapshots(world, request):
    """A git repository of an agent, with the secret in a pack, and a configuration that would run a program."""
    repository = world.home / SNAPSHOTS[request.param]
    file = kept(world, "work/notes.txt", "", f"{SAID[2]}\n")

    def git(*arguments: str) -> str:
        where = ["git", f"--git-dir={repository}", f"--work-tree={Path(file).parent}"]
        return subprocess.run([*where, *arguments], check=True, capture_output=True, text=True).stdout

    subprocess.run(["git", "init", "-q", "--bare", str(repository)], check=True)
    git("add", "-A")
    tree = git("write-tree").strip()
    git(
        "update-ref",
        "refs/heads/main",
        git("-c", "user.name=a", "-c", "user.email=a@b", "commit-tree", "-m", "x", tree).strip(),
    )
    git("repack", "-adq")
    with (repository / "config").open("a") as config:
        config.write("[core]\n\tfsmonitor = touch ran\n[include]\n\tpath = nowhere\n[broken\n")
    return request.param, repository


@pytest.mark.thorough
@pytest.mark.parametrize("snapshots", SNAPSHOTS, indirect=True)
def test_a_packed_repository_of_an_agent_that_received_a_hand_over_is_named(world, shop, monkeypatch, snapshots):
    agent, repository = snapshots
    play(monkeypatch, world.home)
    session_id = session_of(world, shop, "claude")
    branch(session_id, as_agent=agent)

    left = [one["path"] for one in cut(Request(session_id, "2-3", force=True))["left"]]

    named = {one["path"]: one for one in check(session_id)["copies"]}
    assert str(repository) in left
    assert "swordfish-hunter-7731" in named[str(repository)]["words_found"]
    assert "It is a git repository of" in named[str(repository)]["reason"]


@pytest.mark.thorough
@pytest.mark.parametrize("snapshots", ["gemini"], indirect=True)
def test_a_repository_that_git_cannot_read_is_named_as_not_searched(world, shop, snapshots):
    _, repository = snapshots
    session_id = session_of(world, shop, "claude")
    branch(session_id, as_agent="gemini")
    (pack,) = repository.glob("objects/pack/*.pack")
    pack.chmod(0o600)
    pack.write_bytes(b"no pack")

    cut(Request(session_id, "2-3", force=True))

    named = {one["path"]: one for one in check(session_id)["copies"]}
    assert "is not searched: git cannot read the objects" in named[str(repository)]["reason"]

"""Sessions whose logs say no directory: whose they are, how that is shown, and who is told of them."""

from __future__ import annotations

import contextvars
import json
import os
import shutil
import subprocess
import uuid
from pathlib import Path

import pytest

from indexer.project import project_of
from indexer.repositories import known_objects
from smart_fork.agents.codex.log_files import CodexAdapter
from smart_fork.cli.result_list import print_found
from smart_fork.errors import NotFound
from smart_fork.finding import session_lookup
from smart_fork.finding.conversation import ReadRange
from smart_fork.finding.index_refresh import Engine
from smart_fork.finding.recent import list_recent
from smart_fork.finding.request import FindRequest
from smart_fork.system import call_context
from tests.smart_fork.searches import find
from tests.smart_fork.session_family import lineage
from tests.smart_fork.world import World, git
from tests.support.cases import thorough_except_first

ASKED = "mend the parser of invoices"
NOWHERE = "/srv/nowhere/shop"


@pytest.fixture
def shop(shop: Path) -> Path:
    """With a commit that no other repository of the same second has."""
    git(shop, "commit", "-q", "--allow-empty", "-m", str(uuid.uuid4()))
    return shop


def head(repository: Path) -> str:
    done = subprocess.run(["git", "rev-parse", "HEAD"], cwd=repository, check=True, capture_output=True, text=True)
    return done.stdout.strip()


def run(*words: str, **more: object) -> dict:
    return {
        "type": "function_call",
        "name": "shell",
        "call_id": str(uuid.uuid4()),
        "arguments": _json({"command": ["bash", "-lc", *words], **more}),
    }


def _json(value: object) -> str:
    return json.dumps(value)


def old_log(world: World, *items: dict, commit: str = "", said: str = ASKED) -> str:
    """A rollout as Codex wrote it before September 2025: no envelope, and no directory in its head."""
    session_id = str(uuid.uuid4())
    git_part = {"git": {"commit_hash": commit, "branch": "main"}} if commit else {"git": {}}
    prompt = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": said}]}
    answer = {
        "type": "message",
        "role": "assistant",
        "content": [{"type": "output_text", "text": "The minus sign was lost."}],
    }
    records = [
        {"id": session_id, "timestamp": "2025-08-24T10:00:00.000Z", "instructions": None, **git_part},
        *items[:1],
        prompt,
        *items[1:],
        answer,
    ]
    world._write(
        world.home / ".codex/sessions/2025/08/24" / f"rollout-2025-08-24T10-00-00-{session_id}.jsonl", records, "w"
    )
    return session_id


def environment(directory: Path | str) -> dict:
    text = f"<environment_context>\n  <cwd>{directory}</cwd>\n  <shell>zsh</shell>\n</environment_context>"
    return {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]}


NOTHING = {"record_type": "state"}


def found(world: World, project: Path) -> list[tuple[str, str | None]]:
    return [(hit["session_id"], hit.get("project_inferred_from")) for hit in world.find(ASKED, project)["results"]]


def listed(project: Path) -> list[tuple[str, str | None]]:
    sessions_ = list_recent("codex", str(project), 10).sessions
    return [(one.session_id, one.project_inferred_from or None) for one in sessions_]


@pytest.mark.parametrize("way", ["environment_context", "commands", "commit"])
def test_a_log_without_directory_is_found_in_the_project_that_it_tells(world, shop, way):
    told = {
        "environment_context": ([environment(shop)], ""),
        "commands": ([NOTHING, run(f"cd {shop} && make"), run("ls", workdir=str(shop))], ""),
        "commit": ([NOTHING], head(shop)),
    }
    items, commit = told[way]
    session_id = old_log(world, *items, commit=commit)

    assert [(session_id, way)] == found(world, shop) == listed(shop)
    (hit,) = world.find(ASKED, shop)["results"]
    assert (str(shop), True) == (hit["working_directory"], hit["can_fork"])


def test_a_stated_directory_is_not_called_inferred(world, shop):
    world.codex(shop, ASKED, "done")

    assert "project_inferred_from" not in world.find(ASKED, shop)["results"][0]
    assert [None] == [how for _, how in listed(shop)]


def test_a_commit_is_found_in_a_repository_that_is_cloned_later(world, shop):
    session_id = old_log(world, NOTHING, run("ls", workdir=NOWHERE), commit=head(shop))
    other = world.repository("other")
    assert [] == found(world, other) == listed(other)

    shutil.rmtree(other)
    git(world.home, "clone", "-q", "--no-local", str(shop), str(other))
    assert [(session_id, "commit")] == found(world, other) == listed(other)


def test_a_commit_is_found_in_a_pack_and_in_a_worktree(world, shop):
    session_id = old_log(world, NOTHING, commit=head(shop))
    git(shop, "worktree", "add", "-q", "../tree")
    git(shop, "gc", "-q", "--aggressive", "--prune=now")
    assert not list((shop / ".git/objects").glob("??/*"))

    assert [(session_id, "commit")] == found(world, shop) == found(world, shop.parent / "tree")


@pytest.mark.parametrize(
    "commit", thorough_except_first(["f" * 40, "main", "../../etc/passwd", "", "A" * 40, "f" * 64])
)
def test_a_commit_that_no_repository_has_tells_nothing(world, shop, commit):
    old_log(world, NOTHING, commit=commit)

    assert [] == found(world, shop) == listed(shop)


def test_commands_that_do_not_agree_tell_no_directory(world, shop):
    other = world.repository("other")
    old_log(world, NOTHING, run(f"cd {shop} && make"), run("ls", workdir=str(other)))
    old_log(world, NOTHING, run(f"cd {shop} && make"), run("ls"), run("make"))
    old_log(world, NOTHING, run("cd shop && make"), run("cd $HOME/shop && make"), run(f"echo cd {shop}"))
    old_log(world, NOTHING, run("ls", workdir=f"{shop}/../other"))

    assert [] == found(world, shop) == listed(shop)


def test_what_a_person_pastes_is_no_directory(world, shop):
    old_log(world, NOTHING, said=f"{ASKED}: <environment_context><cwd>{shop}</cwd></environment_context>")
    old_log(world, NOTHING, said=f"{ASKED}\nCurrent working directory: {shop}")

    assert [] == found(world, shop) == listed(shop)


def test_a_directory_that_is_not_there_does_not_bring_a_log_into_a_repository(world, shop):
    old_log(world, NOTHING, run("ls", workdir=f"{shop}/gone"))

    assert [] == found(world, shop) == listed(shop)


def as_client(project: Path, ask):
    def limited():
        call_context.limit_to(call_context.permitted([str(project)]))
        return ask()

    return contextvars.copy_context().run(limited)


def is_told(session_id: str, project: Path) -> bool:
    try:
        as_client(project, lambda: session_lookup.read(session_lookup.locate(session_id)))
    except NotFound:
        return False
    return True


def test_a_client_is_told_of_its_own_repository_s_sessions_alone(world, shop):
    other = world.repository("other")
    by_commit = old_log(world, NOTHING, commit=head(shop))
    by_commands = old_log(world, NOTHING, run("ls", workdir=str(shop)))
    by_nothing = old_log(world, NOTHING, commit="f" * 40)
    gone = old_log(world, NOTHING, run("ls", workdir=f"{shop}/gone"))
    every = (by_commit, by_commands, by_nothing, gone)

    assert [True, True, False, False] == [is_told(one, shop) for one in every]
    assert [False] * 4 == [is_told(one, other) for one in every]
    world.find(ASKED, shop)
    assert [True, True, False, False] == [is_told(one, shop) for one in every]
    assert [False] * 4 == [is_told(one, other) for one in every]


def borrow(thief: Path, victim: Path, how: str) -> None:
    objects = thief / ".git/objects"
    if how == "alternates":
        (objects / "info").mkdir(exist_ok=True)
        (objects / "info/alternates").write_text(f"{victim}/.git/objects\n")
    elif how == "linked store":
        shutil.rmtree(objects)
        objects.symlink_to(victim / ".git/objects")
    elif how == "linked packs":
        shutil.rmtree(objects / "pack")
        (objects / "pack").symlink_to(victim / ".git/objects/pack")
    else:
        for index in (victim / ".git/objects/pack").glob("*.idx"):
            (objects / "pack" / index.name).symlink_to(index)


@pytest.mark.parametrize("how", thorough_except_first(["alternates", "linked store", "linked packs", "linked index"]))
def test_a_client_cannot_borrow_another_repository_s_commits(world, shop, how):
    git(shop, "gc", "-q", "--prune=now")
    session_id = old_log(world, NOTHING, commit=head(shop))
    thief = world.repository("thief")
    borrow(thief, shop, how)

    assert is_told(session_id, shop)
    assert not is_told(session_id, thief)
    assert [] == found(world, thief)


@pytest.mark.parametrize(
    "content", [b"", b"\xfftOc\x00\x00\x00\x02", b"\xfftOc\x00\x00\x00\x02" + b"\xff" * 1024, os.urandom(4000)]
)
def test_a_damaged_index_of_a_pack_has_nothing(shop, content):
    (shop / ".git/objects/pack/pack-x.idx").write_bytes(content)

    assert frozenset() == known_objects(Path(project_of(shop).key), {"e" * 40})


def test_the_conversation_says_that_its_project_is_inferred(world, shop, monkeypatch):
    monkeypatch.chdir(shop)
    session_id = old_log(world, NOTHING, commit=head(shop))
    conversation = session_lookup.look_into(session_lookup.locate(session_id))

    assert (str(shop), "commit") == (conversation.cwd, conversation.inferred_from)
    assert "project inferred from its commit" in "\n".join(
        text for text, _ in ReadRange().conversation(conversation).as_markdown()
    )


def test_people_are_shown_that_a_project_is_inferred_and_what_matched(world, shop, capsys):
    old_log(world, NOTHING, commit=head(shop))
    for asked, line in ((ASKED, ASKED), ("minus sign lost", "    │ The minus sign was lost.")):
        print_found(find(FindRequest(asked, agent_type="both"), Engine(world.model), shop))
        printed = capsys.readouterr().out

        assert "project inferred from its commit" in printed
        assert [line in printed, printed.count(ASKED)] == [True, 1]


def test_a_family_says_that_a_project_is_inferred(world, shop, monkeypatch):
    monkeypatch.chdir(shop)
    (one,) = lineage(old_log(world, NOTHING, commit=head(shop)))["sessions"]

    assert (str(shop), "commit") == (one["working_directory"], one["project_inferred_from"])


def test_what_was_done_in_a_worktree_that_is_removed_stays_its_repository_s(world, shop):
    tree = shop.parent / "tree"
    git(shop, "worktree", "add", "-q", str(tree))
    session_id = old_log(world, environment(tree))
    assert [(session_id, "environment_context")] == found(world, shop)
    git(shop, "worktree", "remove", str(tree))

    assert [(session_id, "environment_context")] == found(world, shop)


def test_a_stated_directory_wins_over_what_else_is_told(home):
    path = home / f".codex/sessions/2025/08/24/rollout-2025-08-24T10-00-00-{uuid.UUID(int=1)}.jsonl"
    path.parent.mkdir(parents=True)
    records = [
        {"type": "session_meta", "payload": {"id": "x", "cwd": "/srv/stated", "git": {"commit_hash": "f" * 40}}},
        {"type": "response_item", "payload": environment("/srv/other")},
        {"type": "response_item", "payload": run("ls", workdir="/srv/third")},
        {"type": "response_item", "payload": {"type": "message", "role": "user", "content": ASKED}},
    ]
    path.write_text("".join(_json(record) + "\n" for record in records))
    session = CodexAdapter().read(path).session

    assert session is not None
    assert ("/srv/stated", "", "") == (session.cwd, session.inferred_from, session.head)

"""A session by its id, and its conversation."""

from __future__ import annotations

import os
import re

import pytest

from indexer.safe_files import state_home
from smart_fork.errors import NotFound, Usage
from smart_fork.finding import session_lookup
from smart_fork.finding.conversation import ReadRange
from smart_fork.finding.team_sessions import conversation_of
from smart_fork.workers.registry import Registry
from tests.smart_fork.commands import command_model, run  # noqa: F401 - fixtures

FIRST = "11111111-aaaa-4000-8000-000000000001"
SECOND = "11111111-bbbb-4000-8000-000000000002"


def test_a_full_id_a_prefix_in_any_case_and_a_workers_id(world, shop):
    world.claude(shop, "one", "1", session_id=FIRST)
    world.codex(shop, "two", "2", session_id=SECOND)
    with Registry() as registry:
        worker = registry.add("codex", source_session_id=FIRST, session_id=SECOND, place="process", cwd=shop)

    assert session_lookup.locate(FIRST).path == world.log_of(FIRST)
    assert session_lookup.locate(" 11111111-AAAA ").session_id == FIRST
    assert session_lookup.locate(SECOND[:13]).agent == "codex"
    assert session_lookup.locate(worker.id).session_id == SECOND


@pytest.mark.parametrize(
    ("reference", "error", "text"),
    [
        ("1111", Usage, "too short"),
        ("11111111", Usage, "ambiguous"),
        ("22222222", NotFound, "Session not found: 22222222"),
        ("../../../../etc/passwd", NotFound, "Session not found"),
        ("\x1b[31m-and-more", NotFound, "not found: [31m-and-more"),
        ("claude-1234567890123", NotFound, "Session not found"),
    ],
)
def test_what_cannot_be_meant_is_said(world, shop, reference, error, text):
    world.claude(shop, "one", "1", session_id=FIRST)
    world.claude(shop, "two", "2", session_id=SECOND)

    with pytest.raises(error, match=re.escape(text)):
        session_lookup.locate(reference)


def test_a_copy_without_a_conversation_does_not_hide_the_session(world, shop):
    """F-100: several files of one id; the newest is not always the one."""
    world.claude(shop, "one", "1", session_id=FIRST)
    real = world.log_of(FIRST)
    junk = real.parent.parent / "-elsewhere" / real.name
    junk.parent.mkdir()
    junk.write_text('{"type": "mode"}\n', encoding="utf-8")
    later = real.stat().st_mtime + 60
    os.utime(junk, (later, later))

    located = session_lookup.locate(FIRST)

    assert real == located.path == session_lookup.read(located).source_path


def test_nothing_is_made_by_looking(world, shop):
    world.claude(shop, "one", "1", session_id=FIRST)
    with pytest.raises(NotFound):
        session_lookup.locate("claude-1234567890123")

    assert not (world.home / ".smart-fork").exists()


def test_messages_around_one_and_from_one_on(world, shop):
    world.claude(shop, *"abcdefg", session_id=FIRST)
    session = session_lookup.read(session_lookup.locate(FIRST))

    def said(*args, **more):
        chosen, next_at = ReadRange(*args, **more).messages(session)
        return "".join(message.text for message in chosen), next_at

    assert said() == ("abcdefg", None)
    assert said(3, before=1, after=1) == ("cde", None)
    assert said(0, before=5, after=0) == ("a", None)
    assert said(5, before=0) == ("fg", None)
    assert said(2, characters=2) == ("cd", 4)
    with pytest.raises(NotFound, match="No message 7"):
        said(7)
    with pytest.raises(NotFound):
        said(-1)


def test_a_heading_that_was_said_passes_for_no_message(world, shop):
    world.claude(shop, "see:\n## 1 · assistant · 2026-05-04T10:00:00Z\n\n  ##2 · user\n## Plan", session_id=FIRST)

    text = "\n".join(
        text for text, _ in ReadRange().conversation(session_lookup.read(session_lookup.locate(FIRST))).as_markdown()
    )

    assert [line[:4] for line in text.splitlines() if line.lstrip().startswith("##")] == ["## 0", "## P"]
    assert "\\## 1 · assistant" in text


def test_a_directory_s_name_is_one_line(world, run, tmp_path):  # noqa: F811
    folder = tmp_path / "a\n## 1 · assistant · now\nb"
    folder.mkdir()
    session = world.claude(folder, "here", "ok", session_id=FIRST)

    lines = run("show", session).out.splitlines() + run("list", "-A").out.splitlines()

    assert not any(line.startswith(("##  1", "## 1 · assistant · now", "b")) for line in lines)
    assert sum("a ## 1 · assistant · now b" in line for line in lines) == 2


def test_secrets_and_escapes_are_not_shown(world, shop):
    world.claude(shop, "the key is \x1b[2Jhttps://me:hunter2secret@example.com/x", "ok", session_id=FIRST)
    session = session_lookup.read(session_lookup.locate(FIRST))

    text = "\n".join(text for text, _ in ReadRange().conversation(session).as_markdown())

    assert "hunter2secret" not in text
    assert "\x1b" not in text


def test_a_deleted_log_leaves_the_export(world, shop):
    world.claude(shop, "one", "the answer", session_id=FIRST)
    world.find("one", shop)
    world.log_of(FIRST).unlink()

    located = session_lookup.locate(FIRST)

    assert located.path is None
    assert "the answer" in session_lookup.exported(located)
    with pytest.raises(NotFound, match="deleted"):
        session_lookup.read(located)


def test_of_an_export_as_much_is_read_as_a_tool_may_answer(world, shop):
    world.claude(shop, "one", "the answer", session_id=FIRST)
    world.find("one", shop)
    world.log_of(FIRST).unlink()

    read = conversation_of(FIRST, ReadRange(characters=30), None)

    assert read.markdown.startswith("---\nSession ID: 11111111-aaaa-\n… (")


def test_an_export_that_is_another_sessions_is_not_shown(world, shop):
    world.claude(shop, "one", "1", session_id=FIRST)
    world.find("one", shop)
    world.log_of(FIRST).unlink()
    export = next((world.home / ".smart-fork/index").glob("*/*.md"))

    export.write_text(export.read_text().replace(FIRST, SECOND))
    with pytest.raises(NotFound, match="is not the export"):
        session_lookup.exported(session_lookup.locate(FIRST))
    export.unlink()
    with pytest.raises(NotFound, match="Neither log nor export"):
        session_lookup.exported(session_lookup.locate(FIRST))


def test_a_log_without_a_conversation_is_an_error(world, shop):
    path = world.write_claude(FIRST, shop, [{"type": "mode", "mode": "normal"}])

    with pytest.raises(NotFound, match="No conversation"):
        session_lookup.read(session_lookup.locate(FIRST))
    path.unlink()
    with pytest.raises(NotFound, match="cannot be read"):
        session_lookup.read(session_lookup.Located("claude", FIRST, path))


@pytest.mark.parametrize("agent", ["claude", "codex"])
def test_a_secret_in_the_name_of_a_branch_is_shown_and_kept_nowhere(world, shop, agent):
    token = "ghp" + "_" + "k7Q2m9X4aBcDeFgHiJkLmNoPqRsTuVwXyZ12"
    branch = {"gitBranch": f"try/{token}"} if agent == "claude" else {"git": {"branch": f"try/{token}"}}
    getattr(world, agent)(shop, "Add retry to the uploader", "It retries five times.", **branch)

    shown = [hit["git_branch"] for hit in world.find("retry of the uploader", shop)["results"]]

    assert ["try/[REDACTED:github-token]"] == shown
    assert not [path for path in state_home().rglob("*") if path.is_file() and token.encode() in path.read_bytes()]

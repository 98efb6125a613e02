"""Logs that Claude Code 2.1.197 and Codex 0.169.0 themselves wrote, with our own words in them; and a corpus of old ones."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from indexer.transcripts.base import UNREAD
from indexer.transcripts.model import Session
from smart_fork.agents.log_readers import READERS
from tests.indexer.transcripts.records import (
    FIXTURES,
    actions,
    codex_path,
    notes,
    prompts,
    read_claude,
    read_codex,
    said,
    texts,
)  # fmt: skip
from tests.support.exhaustive import full_or_sample

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("corpus")]


def claude(home: Path, name: str) -> Session:
    source = FIXTURES / f"claude/{name}.jsonl"
    records = [json.loads(line) for line in source.read_text().splitlines()]
    session = next(record["sessionId"] for record in records if "sessionId" in record)
    folder = "-home-ada-shop--worktrees-w1" if "worktree" in name else "-home-ada-shop"
    path = home / ".claude/projects" / folder / f"{session}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(source, path)
    return read_claude(path)


@pytest.fixture
def codex(home) -> dict[str, Session]:
    paths = {}
    for source in (FIXTURES / "codex").glob("*.jsonl"):
        with source.open() as file:
            identity = json.loads(file.readline())["payload"]["id"]
        paths[source.stem] = codex_path(home, identity)
        paths[source.stem].parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, paths[source.stem])
    return {name: read_codex(path) for name, path in paths.items()}


ZEBRA = ["Please remember zebra", "zebra it is"]


@pytest.mark.parametrize(
    ("name", "said", "title", "origin"),
    [
        ("person", ZEBRA, "Please remember zebra", "person"),
        ("print-named", ["Summarise the repository", "Noted: Summarise the repository"], "worker one", "person"),
        (
            "fork-print",
            [*ZEBRA, "--list the exits; echo $HOME `id`", "Noted: --list the exits; echo $HOME `id`"],
            "--list the exits; echo $HOME `id`",
            "person",
        ),
        ("fork-named", [*ZEBRA, "-x dash prompt", "Noted: -x dash prompt"], "worker two", "person"),
        (
            "fork-of-fork",
            [*ZEBRA, "-x dash prompt", "Noted: -x dash prompt", "fork of fork", "Noted: fork of fork"],
            "worker two: fork of fork",
            "person",
        ),
        ("fork-worktree", [*ZEBRA, "go on there", "Noted: go on there"], "go on there", "person"),
        (
            "mcp-call",
            ["which session knows zebras", "The tool has answered."],
            "which session knows zebras",
            "automated",
        ),
    ],
)
def test_a_session_of_claude_code(home, name, said, title, origin):
    session = claude(home, name)

    assert (texts(session), session.title, session.origin) == (said, title, origin)
    assert session.cwd == ("/home/ada/shop/.worktrees/w1" if name == "fork-worktree" else "/home/ada/shop")


def test_forks_of_claude_code_are_one_family(home):
    family = {claude(home, name).root_id for name in ("person", "fork-print", "fork-named", "fork-of-fork")}

    assert len(family) == 1


def test_a_call_of_ours_from_claude_code_leaves_no_trace(home):
    session = claude(home, "mcp-call")

    assert (actions(session), notes(session), session.symbols) == ([""], [""], ())


def test_sessions_of_codex(codex):
    assert texts(codex["person"]) == ZEBRA
    assert texts(codex["exec"]) == ["Summarise the repository", "Noted: Summarise the repository"]
    assert prompts(codex["exec-fork"]) == [ZEBRA[0], "--list the exits; echo $HOME `id`"]
    assert prompts(codex["fork"]) == [ZEBRA[0], "-x dash prompt"]
    assert prompts(codex["fork-of-fork"]) == [ZEBRA[0], "-x dash prompt", "fork of fork"]
    assert {session.cwd for session in codex.values()} == {"/home/ada/shop"}


def test_forks_of_codex_are_one_family_of_a_person(codex):
    family = [codex[name] for name in ("person", "exec-fork", "fork", "fork-of-fork")]

    assert {session.root_id for session in family} == {codex["person"].session_id}
    assert {session.origin for session in family} == {"person"}
    assert codex["exec"].origin == codex["mcp-call"].origin == "automated"


def test_a_call_of_ours_from_codex_leaves_no_trace(codex):
    session = codex["mcp-call"]

    assert texts(session) == ["which session knows zebras", "The tool has answered."]
    assert (actions(session), notes(session), session.symbols) == ([""], [""], ())


@pytest.mark.thorough
def test_a_corpus_of_sessions_of_many_versions_is_read(home, real_home, monkeypatch):
    """Every log gives a session or a known reason.

    Every ninth log is also read in two parts, with an equal result. Only one of nine consecutive logs is read, unless
    thorough tests run.
    """
    monkeypatch.setenv("HOME", str(real_home))
    read, step = 0, full_or_sample(1, 9)

    for reader in READERS:
        for number, file in enumerate(list(reader.discover())[::step]):
            outcome = reader.read(file.path, UNREAD)
            read += outcome.session is not None
            assert outcome.skipped in (
                "",
                "no conversation",
                "a sub-agent's",
                "it has no prompt",
                "only sub-agent records",
            )
            if number % (9 // step):
                continue
            part = home / "part" / file.path.parent.name / file.path.name
            part.parent.mkdir(parents=True, exist_ok=True)
            part.write_bytes(file.path.read_bytes()[: file.size // 2])
            half = reader.read(part, UNREAD)
            shutil.copy2(file.path, part)
            whole = reader.read(part, half.checkpoint)
            assert whole.bytes_read + half.bytes_read == outcome.bytes_read
            if outcome.session:
                assert said(whole).turns == outcome.session.turns
            part.unlink()

    assert read > 300 / step

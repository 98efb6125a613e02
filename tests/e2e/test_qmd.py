"""The real qmd over our exports. Its models cannot be had here, so that words answer; how it comes to that is real too."""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path

import pytest

from tests.smart_fork.world import World, git
from tests.support import forkserver

RETRY = "add retry with backoff to the uploader"
DONE = "The uploader in upload.py retries five times with exponential backoff"

pytestmark = pytest.mark.e2e


@pytest.fixture
def world(home: Path, qmd_program: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.setenv("PATH", f"{qmd_program}{os.pathsep}{Path(shutil.which('git')).parent}{os.pathsep}/usr/bin:/bin")
    monkeypatch.setenv("SMART_FORK_ENGINE", "qmd")
    monkeypatch.setenv("SMART_FORK_BACKGROUND", "0")
    return World(home)


def smart_fork(cwd: Path, *words: str) -> tuple[int, dict, str]:
    done = forkserver.run(
        [sys.executable, "-m", "smart_fork", *words], cwd=cwd, capture_output=True, text=True, timeout=240
    )
    return done.returncode, json.loads(done.stdout), done.stderr


@pytest.mark.timeout(900)
@pytest.mark.thorough  # starts it eleven times
def test_the_real_qmd_finds_by_words_where_it_has_no_models_and_keeps_nothing_of_what_has_been_forgotten(world):
    shop, elsewhere = world.repository("shop"), world.repository("elsewhere")
    knows = world.claude(shop, "paint the logo", "It is blue", RETRY, DONE, "now the docs", "Written")
    world.claude(elsewhere, RETRY, DONE)
    world.codex(shop, "write the release notes", "Wrote them")

    code, answer, said = smart_fork(shop, "find", "--json", "how do I make the retry of the uploader better")

    assert code == 0, said
    assert [hit["session_id"] for hit in answer["results"]] == [knows]
    assert answer["results"][0]["match"]["exchange"] == 2
    assert "uploader" in answer["results"][0]["snippet"]
    assert (answer["engine"], answer["qmd_command"], answer["search_mode"]) == ("qmd", "search", "lexical")
    assert answer["fallback_used"] is True
    assert "qmd query failed: " in answer["qmd_error"]
    assert "qmd vsearch failed: " in answer["qmd_error"]
    assert not [*world.home.glob(".cache/qmd/*.sqlite"), *world.home.glob(".config/qmd/*.yml")]

    later = world.claude(shop, "the zanzibar migration of the invoices", "Migrated")
    code, answer, said = smart_fork(shop, "find", "--json", "zanzibar")
    assert [hit["session_id"] for hit in answer["results"]] == [later], said

    index = world.home / ".smart-fork" / "qmd" / "index.sqlite"
    assert b"zanzibar" in index.read_bytes()
    code, _, said = smart_fork(shop, "forget", "--json", later, "--yes")
    assert code == 0, said
    assert b"zanzibar" not in index.read_bytes()
    _, answer, said = smart_fork(shop, "find", "--json", "uploader")
    assert [hit["session_id"] for hit in answer["results"]] == [knows], said


@pytest.mark.thorough  # rarer ways
@pytest.mark.timeout(900)
def test_the_real_qmd_finds_from_a_worktree_what_looks_like_an_option_and_says_that_it_has_no_vectors(world):
    shop = world.repository("shop")
    codex = world.codex(shop, "write the release notes", "Wrote them")
    git(shop, "worktree", "add", "-q", "../tree")

    code, answer, said = smart_fork(world.home / "tree", "find", "--json", "--agent", "codex", "--", "-n release notes")
    assert [hit["session_id"] for hit in answer["results"]] == [codex], said

    code, answer, said = smart_fork(shop, "index", "run", "--json", "--no-vectors")
    assert (code, answer["engine"]) == (0, "qmd"), said

    code, answer, said = smart_fork(shop, "index", "run", "--json")
    assert code == 1
    assert "qmd embed failed: " in answer["error"]


@pytest.mark.timeout(900)
def test_a_real_qmd_that_dies_of_an_old_node_is_not_available(world, qmd_program, tmp_path, monkeypatch):
    shop = world.repository("shop")
    world.claude(shop, RETRY, DONE)
    (tmp_path / "node").write_text("#!/bin/sh\nkill -SEGV $$\n")
    (tmp_path / "node").chmod(0o755)
    (tmp_path / "qmd").symlink_to((qmd_program / "qmd").resolve())
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}/usr/bin:/bin")

    code, answer, _ = smart_fork(shop, "find", "--json", "uploader")

    assert (code, answer["error"]) == (1, "qmd_not_available")
    assert "qmd collection list failed" in answer["message"]

"""Tests that a session with a deleted log is found, shown and forked from the kept copy (D17)."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from indexer import kept_logs
from smart_fork.agents.request_fields import Options
from smart_fork.errors import ForkRefused, NotFound
from smart_fork.finding import session_lookup
from smart_fork.forking.plan import fork_session
from smart_fork.forking.request import ForkRequest
from smart_fork.forking.source_sessions import restored
from tests.smart_fork.commands import command_model, run  # noqa: F401 - fixtures
from tests.smart_fork.forks import snapshot
from tests.smart_fork.world import World
from tests.support.cases import thorough_except_first

RETRY = "add retry with backoff to the uploader"
DONE = "The uploader retries five times"
MORE = "and a jitter of a tenth"


@pytest.fixture(params=thorough_except_first(["claude", "codex"]))
def deleted(request, world: World, shop: Path, monkeypatch) -> tuple[str, Path, bytes]:
    """Return a session that was indexed and then deleted by its agent: its id, its log's path and content."""
    monkeypatch.setenv("SMART_FORK_KEEP_TRANSCRIPTS", "true")
    session_id = getattr(world, request.param)(shop, RETRY, DONE)
    log = world.log_of(session_id)
    data = log.read_bytes()
    if request.param == "claude":
        (log.with_suffix("") / "tool-results").mkdir(parents=True)
        (log.with_suffix("") / "tool-results/1.txt").write_text("long output")
    assert [session_id] == world.ids(RETRY, shop)
    log.unlink()
    shutil.rmtree(log.with_suffix(""), ignore_errors=True)
    return session_id, log, data


def test_it_is_found_and_can_be_forked(deleted, world, shop):
    (hit,) = world.find(RETRY, shop)["results"]

    assert (True, None) == (hit["can_fork"], hit["jsonl_path"])
    assert "warning" not in hit


def test_it_is_shown(deleted, run, world, shop):  # noqa: F811
    session_id, log, _ = deleted
    world.find(RETRY, shop)
    shown = json.loads(run("show", session_id, "--json").out)

    assert [RETRY, DONE] == [message["text"] for message in shown["messages"]]
    shutil.rmtree(kept_logs.folder_of(shown["agent_type"], session_id))
    assert "markdown" in json.loads(run("show", session_id, "--json").out)
    assert not log.exists()


def test_it_is_found_by_its_id_without_an_index(deleted, home):
    session_id, *_ = deleted
    for path in (home / ".smart-fork").glob("index*"):
        shutil.rmtree(path) if path.is_dir() else path.unlink()

    assert session_id == session_lookup.locate(session_id[:35]).session_id


def test_it_is_put_back_where_the_agent_looks_for_it(deleted):
    session_id, log, data = deleted
    with restored(session_lookup.locate(session_id)) as located:
        assert log == located.path

    assert data == log.read_bytes()
    assert 0o600 == log.stat().st_mode & 0o777
    if located.agent == "claude":
        assert "long output" == (log.with_suffix("") / "tool-results/1.txt").read_text()


def test_a_fork_that_fails_leaves_nothing_behind(deleted, home):
    session_id, *_ = deleted
    before = snapshot(home / ".claude") | snapshot(home / ".codex")
    with pytest.raises(ZeroDivisionError), restored(session_lookup.locate(session_id)):
        1 / 0  # noqa: B018

    assert before == snapshot(home / ".claude") | snapshot(home / ".codex")


def test_a_dry_run_puts_nothing_back(deleted, home, shop):
    session_id, *_ = deleted
    before = snapshot(home / ".claude") | snapshot(home / ".codex")
    planned = fork_session(ForkRequest(session_id, Options("go on", place="process"), dry_run=True))

    assert session_id in planned.command
    assert before == snapshot(home / ".claude") | snapshot(home / ".codex")
    assert [] == list((home / ".smart-fork/kept/.reading").iterdir())


def test_nothing_that_is_there_is_written_over(deleted):
    session_id, log, data = deleted
    located = session_lookup.locate(session_id)
    log.parent.mkdir(parents=True, exist_ok=True)
    log.write_bytes(data)
    with restored(located):
        pass  # the same is there already
    assert data == log.read_bytes()

    log.write_bytes(b"something else")
    with pytest.raises(ForkRefused), restored(located):
        pass
    log.unlink()
    log.symlink_to("/nowhere")
    with pytest.raises(ForkRefused), restored(located):
        pass
    assert log.is_symlink()


def test_a_damaged_copy_is_not_put_back(deleted, home):
    session_id, log, _ = deleted
    located = session_lookup.locate(session_id)
    (copy,) = kept_logs.copies()
    path = copy.folder / copy.log.name
    path.write_bytes(path.read_bytes()[:-20])

    for attempt in (
        lambda: session_lookup.look_into(located),
        lambda: fork_session(ForkRequest(session_id, Options("go"), dry_run=True)),
    ):
        with pytest.raises(NotFound, match=r"copy of .* cannot be"):
            attempt()
    with pytest.raises(NotFound, match="cannot be used"), restored(located):
        pass
    assert not log.exists()


def test_a_codex_fork_is_put_back_together_with_what_it_was_forked_from(world, shop, monkeypatch):
    monkeypatch.setenv("SMART_FORK_KEEP_TRANSCRIPTS", "true")
    parent = world.codex(shop, RETRY, DONE)
    base = {"thread_id": parent, "end_ordinal_exclusive": 3, "end_byte_offset": 1}
    fork = world.codex(shop, MORE, DONE, forked_from_id=parent, history_base=base)
    world.find(RETRY, shop)
    logs = [world.log_of(one) for one in (parent, fork)]
    data = [log.read_bytes() for log in logs]
    for log in logs:
        log.unlink()

    with restored(session_lookup.locate(fork)) as located:
        assert data == [log.read_bytes() for log in logs]
        assert [RETRY, DONE, MORE, DONE] == [turn.text for _, turn in session_lookup.read(located).messages]
    for log in logs:
        log.unlink()
    shutil.rmtree(kept_logs.folder_of("codex", parent))
    with pytest.raises(NotFound, match=r"The parent session of .* is gone"), restored(session_lookup.locate(fork)):
        pass


def test_an_archived_session_is_put_back_where_codex_forks_it(world, shop, home, monkeypatch):
    monkeypatch.setenv("SMART_FORK_KEEP_TRANSCRIPTS", "true")
    log = world.log_of(world.codex(shop, RETRY, DONE, session_id="00000001-1111-4111-8111-111111111111"))
    archive = home / ".codex/archived_sessions" / log.name
    archive.parent.mkdir()
    log.rename(archive)
    world.find(RETRY, shop)
    archive.unlink()

    with restored(session_lookup.locate("00000001-1111-4111-8111-111111111111")) as located:
        assert log == located.path

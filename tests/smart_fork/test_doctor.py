"""Tests of the doctor: each part is checked by using it, and each failure names the next step."""

from __future__ import annotations

import resource
from shutil import rmtree

import pytest

from indexer import state_db
from indexer.safe_files import index_db, state_home
from smart_fork import doctor
from smart_fork.agents import AGENTS
from smart_fork.agents.log_readers import READERS
from smart_fork.doctor import Check, Checked, run_checks
from tests.smart_fork.world import BrokenModel, add_program


def checks(world, model=None) -> dict[str, Check]:
    found = run_checks(model or world.model)
    for check in found:
        assert check.ok or check.next_step, check
    return {check.name: check for check in found}


@pytest.fixture
def settled(world, shop):
    """Prepare a world in which every check succeeds."""
    (world.home / ".smart-fork").mkdir(mode=0o700)
    world.claude(shop, "add retry to the uploader", "done")
    world.codex(shop, "rename the logo", "done")
    world.find("retry", shop)
    add_program(world.home / "bin", "codex", "  fork  Fork\n  exec  Run")
    return world


def test_all_is_well(settled):
    found = checks(settled)

    assert Checked.of(list(found.values())).ok
    assert set(found) >= {
        "state folder",
        "project",
        "claude sessions",
        "codex sessions",
        "index",
        "model",
        "search",
        "claude program",
        "tmux",
    }
    assert found["claude sessions"].detail.startswith("1 logs")
    assert found["search"].detail.startswith("hybrid, ")
    assert "forks, also without a terminal" in found["codex program"].detail


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("codex-cli 0.169.0", "version 0.169.0 ("),
        ("codex-cli 0.170.4", "version 0.170.4 ("),
        ("codex-cli 0.171.1", "version 0.171.1 (newer than "),
        ("codex-cli 0.99.0", "version 0.99.0 (older than "),
        ("codex", "version unknown ("),
    ],
)
def test_a_program_is_told_with_the_versions_that_were_seen_to_work(settled, monkeypatch, said, told):
    monkeypatch.setattr(AGENTS["codex"], "seen", "0.169.0")
    monkeypatch.setattr(AGENTS["codex"], "newest", "0.171.0")
    program = settled.home / "bin/codex"
    program.write_text(f'#!/bin/sh\n[ "$1" = --version ] && echo "{said}" && exit\necho "  fork  Fork"\n')

    found = checks(settled)["codex program"]

    assert found.ok
    assert f"{told}0.169.0 to 0.171.0, seen to work)" in found.detail


def test_an_empty_home_lacks_nothing_that_has_to_be_there(world):
    found = checks(world)

    assert Checked.of(list(found.values())).ok
    assert "CLAUDE_CONFIG_DIR" in found["claude sessions"].next_step
    assert found["search"].next_step == "Run `smart-fork index run`."


def test_an_agent_that_has_never_been_here_is_not_spoken_of(settled):
    """If no agent is in use, each names what to install."""
    for agent in READERS:
        if agent.name != "codex":
            (settled.home / "bin" / agent.name).unlink(missing_ok=True)
            rmtree(agent.home(), ignore_errors=True)

    assert ["codex"] == sorted(name.removesuffix(" program") for name in checks(settled) if name.endswith(" program"))

    (settled.home / "bin/codex").unlink()
    rmtree(READERS["codex"].home())
    everyone = {name for name in checks(settled) if name.endswith((" program", " sessions"))}
    assert everyone == {f"{agent} {what}" for agent in AGENTS.startable() for what in ("program", "sessions")}


def test_logs_of_a_newer_version_and_unknown_records_are_named(settled, shop):
    log = settled.log_of(settled.claude(shop, "add a cache", "done", version="9.0.0"))
    log.write_text(log.read_text() + '{"type": "hologram"}\n')
    settled.find("cache", shop)

    found = checks(settled)

    assert not found["claude log format"].ok
    assert found["claude log format"].detail.startswith("version 9.0.0 is newer than 2.1.197")
    assert "; 1 of " in found["claude log format"].detail
    assert "codex log format" not in found
    assert found["log formats"].ok
    assert Checked.of(list(found.values())).ok


def test_a_damaged_index(settled):
    data = bytearray(index_db().read_bytes())
    data[100:4000] = b"\xff" * 3900
    index_db().write_bytes(data)
    for name in ("-wal", "-shm"):
        index_db().with_name(f"index.db{name}").unlink(missing_ok=True)

    found = checks(settled)

    assert not found["index"].ok
    assert f"kept as {index_db()}.corrupt-" in found["index"].detail
    assert found["index"].next_step == found["search"].next_step == "Run `smart-fork index run`."
    assert not Checked.of(list(found.values())).ok


@pytest.mark.full
def test_which_install_it_is(settled, monkeypatch):
    assert checks(settled)["install"].detail.startswith("full: ")
    monkeypatch.setattr("smart_fork.doctor.has_frameworks", lambda: False)

    assert checks(settled)["install"].detail.startswith("light: ")


def test_a_model_that_cannot_be_loaded(settled):
    found = checks(settled, BrokenModel())

    assert not found["model"].ok
    assert not found["search"].ok
    assert "lexical" in found["search"].detail
    assert "SMART_FORK_MODEL" in found["model"].next_step


def test_missing_programs_are_told_and_do_not_fail(settled):
    (settled.home / "bin/claude").unlink()
    add_program(settled.home / "bin", "codex", "nothing")

    found = checks(settled)

    assert "Install Claude Code" in found["claude program"].next_step
    assert "Update it" in found["codex program"].next_step
    assert Checked.of(list(found.values())).ok


def test_without_tmux(settled, monkeypatch):
    monkeypatch.setenv("PATH", str(settled.home / "bin"))

    assert "Install tmux" in checks(settled)["tmux"].next_step


@pytest.mark.parametrize(
    ("version", "ok"), [("3.1c", False), ("3.2", True), ("3.10", True), ("next-3.9", True), ("next-3.1", False)]
)
def test_a_tmux_older_than_those_that_are_tested_is_named(settled, version, ok):
    add_program(settled.home / "bin", "tmux", f"tmux {version}")

    found = checks(settled)

    assert (found["tmux"].ok, found["tmux"].detail) == (ok, f"tmux {version}")
    assert ok or "3.2 and newer" in found["tmux"].next_step
    assert Checked.of(list(found.values())).ok


@pytest.mark.usefixtures("settled")
def test_a_disk_that_takes_only_empty_files_is_seen():
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, before[1]))
    try:
        (found,) = doctor._state()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)

    assert not found.ok
    assert "File too large" in found.detail
    assert not (state_home() / ".doctor").exists()


def test_a_state_folder_that_others_can_read_or_nobody_can_write(settled, monkeypatch):
    (settled.home / ".smart-fork").chmod(0o755)
    assert "chmod 700" in checks(settled)["state folder"].next_step

    (settled.home / "file").write_text("")
    monkeypatch.setenv("SMART_FORK_HOME", str(settled.home / "file/state"))
    found = checks(settled)
    assert "SMART_FORK_HOME" in found["state folder"].next_step
    assert "SMART_FORK_HOME" in found["index"].next_step


def test_a_damaged_state_database_is_seen(settled):
    state_db.keep("anything", "a value")
    assert str(state_db.path()) == checks(settled)["state database"].detail
    page, whole = 4096, state_db.path().read_bytes()
    state_db.path().write_bytes(whole[:page] + b"\xff" * (len(whole) - page))

    found = checks(settled)["state database"]

    assert not found.ok
    assert f"move {state_db.path()} away" in found.next_step


def test_a_check_that_breaks_does_not_stop_the_others(settled, monkeypatch):
    monkeypatch.setattr("smart_fork.doctor.state_home", lambda: 1 / 0)

    found = checks(settled)

    assert "ZeroDivisionError" in found["state folder"].detail
    assert found["index"].ok


def test_a_git_that_is_not_believed_is_named(settled, monkeypatch):
    folder = settled.home / "forged"
    folder.mkdir()
    monkeypatch.chdir(folder)
    assert f"{folder}, outside git" == checks(settled)["project"].detail

    (folder / ".git").write_text(f"gitdir: {settled.repository('secret')}/.git\n")
    found = checks(settled)
    assert not found["project"].ok
    assert "does not point back" in found["project"].detail
    assert Checked.of(list(found.values())).ok

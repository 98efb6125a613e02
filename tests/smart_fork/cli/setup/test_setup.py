"""`smart-fork setup` in homes full of other people's settings, and its undoing."""

from __future__ import annotations

import json
import os
import shlex
import signal
import stat
import subprocess
import sys
import tomllib
from pathlib import Path
from subprocess import PIPE

import pytest

from smart_fork.agents import AGENTS
from smart_fork.cli import setup as setup_command
from smart_fork.cli.preload import client
from smart_fork.cli.setup import agent_hooks, installed_parts
from smart_fork.cli.setup.ledger import Ledger
from smart_fork.cli.setup.setup_output import Trial
from smart_fork.cli.setup.skill_file import content
from smart_fork.doctor import Check
from tests.smart_fork.cli.setup.settings_homes import HOMES, by_hand, empty, everything, full
from tests.smart_fork.test_docs import assert_documented
from tests.support import forkserver
from tests.support.cases import thorough_except
from tests.support.exhaustive import full_or_sample

CLAUDE, CODEX = AGENTS.registration_of("claude"), AGENTS.registration_of("codex")


@pytest.mark.parametrize(
    "settled", thorough_except(HOMES, full, empty, by_hand), indirect=True, ids=lambda one: one.__name__
)
def test_what_was_set_up_is_there_and_undone_to_the_byte(setup, settled):
    before = everything(settled)

    done = setup("--yes")

    assert 0 == done.code, done.err
    for way in AGENTS.registrations():
        program, *words = way.argv(way.value(way.path().read_text()))
        assert (["-I", "-m", "smart_fork", "mcp"], True) == (words, Path(program).is_absolute())
        assert not AGENTS[way.agent].has("hooks") or agent_hooks.is_installed(way.agent)
        assert content() == (way.skills() / "past-sessions/SKILL.md").read_text()
    assert setup("--remove").code == 0
    assert before == everything(settled)
    assert not Ledger().path.exists()


def test_a_second_run_changes_nothing_and_says_so(setup, settled):
    setup("--yes")
    before = everything(settled)

    again = setup()  # it need not even ask

    assert (0, before) == (again.code, everything(settled))
    assert "Everything is set up already" in again.out
    assert "added" not in again.out


def test_the_names_of_the_variables_that_log_the_agents_in_are_noted_with_a_yes(setup, settled, monkeypatch):
    monkeypatch.setenv("ANTHROPIC_API_KEY", "a-secret")
    monkeypatch.setenv("CODEX_API_KEY", "a-secret")

    assert (2, ()) == (setup().code, AGENTS.login_of("claude").noted())
    assert 0 == setup("--yes").code

    assert (("ANTHROPIC_API_KEY",), ("CODEX_API_KEY",)) == (
        AGENTS.login_of("claude").noted(),
        AGENTS.login_of("codex").noted(),
    )


def test_a_plan_alone_changes_nothing(setup, settled):
    before = everything(settled)

    shown = setup("--dry-run")

    assert (0, before) == (shown.code, everything(settled))
    assert "MCP server" in shown.out
    assert not (settled / ".smart-fork/setup").exists()


@pytest.mark.parametrize("words", [(), ("--json",)])
def test_where_nobody_can_say_yes_nothing_is_done(setup, settled, words):
    before = everything(settled)

    asked = setup(*words)

    assert (2, before) == (asked.code, everything(settled))
    assert "smart-fork setup --yes" in asked.err


@pytest.mark.parametrize(("answer", "code"), [("y\n", 0), ("n\n", 1)])
def test_a_person_is_asked_once(setup, world, monkeypatch, answer, code):
    full(world.home)
    before = everything(world.home)
    terminal = __import__("io").StringIO(answer)
    terminal.isatty = lambda: True
    monkeypatch.setattr("sys.stdin", terminal)

    done = setup()

    assert code == done.code
    assert (code == 1) == (before == everything(world.home))


@pytest.mark.parametrize(("answer", "code"), [("y\n", 0), ("n\n", 1)])
def test_a_person_is_asked_once_before_it_is_undone(setup, world, monkeypatch, answer, code):
    full(world.home)
    before = everything(world.home)
    setup("--yes")
    terminal = __import__("io").StringIO(answer)
    terminal.isatty = lambda: True
    monkeypatch.setattr("sys.stdin", terminal)

    done = setup("--remove")

    assert code == done.code
    assert "  remove  hooks" in done.out
    assert 1 == done.out.count("Remove all of it?")
    assert (code == 0) == (before == everything(world.home))


def test_undoing_it_ends_what_runs_for_this_home(setup, world, monkeypatch):
    setup("--yes")
    preloaders = Path(client.folder())
    preloaders.mkdir(mode=0o700)
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[4])}
    waits = [sys.executable, "-c", "import sys; print(flush=True); sys.stdin.read()", "index", "run", "--if-idle"]
    with (
        subprocess.Popen(waits, env=env, stdin=PIPE, stdout=PIPE, start_new_session=True) as ours,
        subprocess.Popen(waits, env=env | {"HOME": "/"}, stdin=PIPE, stdout=PIPE, start_new_session=True) as others,
    ):
        ours.stdout.readline(), others.stdout.readline()

        removed = json.loads(setup("--remove", "--json").out)

        assert -signal.SIGTERM == ours.wait(60)
        assert others.poll() is None
        others.stdin.close()
    assert ["indexing", "the preloader"] == removed["ended"]
    assert not preloaders.exists()


def test_what_stays_is_not_said_to_be_removed(setup, world):
    setup("--yes", "--keep-logs")
    skill = AGENTS.registration_of("claude").skills() / "past-sessions" / "SKILL.md"
    skill.write_text("mine")

    removed = setup("--remove")

    said = [line.split() for line in removed.out.splitlines()]
    assert [["stays", "skill", "past-sessions", f"~/{skill.relative_to(world.home)}"]] == [
        words for words in said if words[:1] == ["stays"]
    ]


def test_the_end_quotes_a_session_of_this_persons_own_and_cannot_be_run_by_pasting(setup, world, shop, monkeypatch):
    title = "draw `touch pwned` $(touch pwned) the map"
    monkeypatch.setattr(
        setup_command, "try_server", lambda way, *, ask: Trial(way.agent, ok=True, asked=title if ask else "", tools=7)
    )

    said = setup("--yes").out

    (command,) = (line.removeprefix("Ready. Try: ") for line in said.splitlines() if line.startswith("Ready."))
    assert ["smart-fork", "find", title] == shlex.split(command)
    assert f"'{title}'" in command, "a shell runs nothing in it"
    assert "upload retry" not in said


def test_where_no_agent_can_be_set_up_everything_stays_as_it_is(setup, world):
    full(world.home)
    (world.home / ".claude.json").write_text("{ // mine\n}")
    before = everything(world.home)

    refused = setup("--yes", "--agent", "claude")

    assert (1, before) == (refused.code, everything(world.home))
    assert "Correct" in refused.err


def test_several_agents_are_set_up_by_their_names(setup, world):
    full(world.home)
    before = everything(world.home)

    assert 0 == setup("--yes", "--agent", "codex", "--agent", "claude").code

    ours = {way.agent for way in AGENTS.registrations() if way.path().is_file() and way.value(way.path().read_text())}
    assert {"claude", "codex"} == ours
    assert 0 == setup("--remove", "--agent", "claude", "--agent", "codex").code
    assert before == everything(world.home)
    assert 2 == setup("--yes", "--agent", "claude", "--agent", "nobody").code


def test_what_is_removed_leaves_no_folder_of_ours_and_none_is_open_to_others(setup, world):
    full(world.home)
    before = sorted(world.home.rglob("*"))
    mask = os.umask(0)
    try:
        assert 0 == setup("--yes", "--no-index", "--no-service").code
        made = [path for path in set(world.home.rglob("*")) - set(before) if path.is_dir()]
        assert made
        assert {0o700} == {stat.S_IMODE(path.stat().st_mode) for path in made}
        assert 0o600 == stat.S_IMODE((world.home / ".smart-fork/setup/lock").stat().st_mode)
        removed = setup("--remove")
        assert (0, False) == (removed.code, "The index stays" in removed.out)
    finally:
        os.umask(mask)
    assert before == sorted(world.home.rglob("*"))


def test_one_agent_is_set_up_where_the_settings_of_the_other_are_broken(setup, world):
    full(world.home)
    (world.home / ".codex/config.toml").write_text("[broken")
    before = everything(world.home)

    assert 0 == setup("--yes", "--agent", "claude").code

    assert "smart-fork" in json.loads((world.home / ".claude.json").read_text())["mcpServers"]
    assert before[".codex/config.toml"] == everything(world.home)[".codex/config.toml"]
    assert 0 == setup("--remove", "--agent", "claude").code
    assert before == everything(world.home)


def test_a_server_of_our_name_that_is_not_smart_fork_is_left(setup, world):
    full(world.home)
    text = '{"mcpServers": {"smart-fork": {"type": "http", "url": "http://127.0.0.1:8766/mcp"}}}'
    (world.home / ".claude.json").write_text(text)

    done = setup("--yes", "--agent", "claude")

    assert (0, text) == (done.code, (world.home / ".claude.json").read_text())
    assert "7 tools" not in done.out, "it is not ours to try"
    assert "another server has this name" in done.out


def test_a_skill_of_our_name_that_is_not_ours_is_left(setup, world):
    mine = world.home / ".claude/skills/past-sessions/SKILL.md"
    mine.parent.mkdir(parents=True)
    mine.write_text("mine")

    setup("--yes")
    setup("--remove")

    assert "mine" == mine.read_text()


def test_out_of_settings_that_have_changed_since_only_ours_is_taken(setup, world):
    """Claude Code rewrites its settings at each start, and people edit theirs."""
    full(world.home)
    claude, codex = world.home / ".claude.json", world.home / ".codex/config.toml"
    setup("--yes")
    changed = json.loads(claude.read_text()) | {"numStartups": 8}
    claude.write_text(json.dumps(changed, indent=2))
    codex.write_text(codex.read_text() + '\n[mcp_servers.smart-fork.tools.x]\napproval_mode = "approve"\n\n[new]\n')
    skill = world.home / ".agents/skills/past-sessions/SKILL.md"
    skill.write_text("my own words")

    removed = setup("--remove")

    del changed["mcpServers"]["smart-fork"]
    assert changed == json.loads(claude.read_text())
    assert {"other"} == set(tomllib.loads(codex.read_text())["mcp_servers"])
    assert "new" in tomllib.loads(codex.read_text())
    assert "my own words" == skill.read_text()
    said = " ".join(removed.err.split())
    assert said.count("has changed since: only smart-fork's entry was removed") == 2
    assert "with its changes" in said
    assert "you changed it" in said


def test_what_cannot_be_undone_is_said_and_stays_in_the_ledger(setup, world):
    full(world.home)
    setup("--yes")
    config = world.home / ".codex/config.toml"
    config.write_text("[half")

    removed = setup("--remove")

    assert (1, "[half") == (removed.code, config.read_text())
    assert "failed" in removed.out
    assert "then remove again" in " ".join(removed.err.split())
    assert [("server", "codex")] == [(line.what, line.agent) for line in Ledger()]


def test_a_ledger_that_cannot_be_read_stops_everything(setup, settled):
    before = everything(settled)
    (settled / ".smart-fork/setup").mkdir(parents=True)
    (settled / ".smart-fork/setup/ledger.json").write_text('{"version": 2}')

    for words in (("--yes",), ("--remove",)):
        refused = setup(*words)
        assert (1, before) == (refused.code, everything(settled))
        assert "ledger.json cannot be read" in refused.err


@pytest.mark.thorough
def test_what_was_empty_before_is_so_again_after_the_agent_has_written_its_settings(setup, world):
    claude = world.home / ".claude.json"
    claude.write_text("{}")
    setup("--yes")
    claude.write_text(json.dumps(json.loads(claude.read_text()) | {"numStartups": 1}, indent=2))

    setup("--remove")

    assert {"numStartups": 1} == json.loads(claude.read_text())


def test_a_program_that_has_moved_is_registered_anew_and_undone_to_the_byte(setup, settled, monkeypatch, tmp_path):
    before = everything(settled)
    setup("--yes")
    moved = tmp_path / "smart-fork"
    monkeypatch.setattr("smart_fork.cli.setup.plan.lasting_program", lambda _: str(moved))

    done = setup("--yes")

    assert "update MCP server" in done.out
    assert str(moved) == CODEX.value(CODEX.path().read_text())["command"]
    setup("--remove")
    assert before == everything(settled)


def test_removing_what_was_never_set_up_changes_nothing(setup, settled):
    before = everything(settled)

    removed = setup("--remove")

    assert (0, before) == (removed.code, everything(settled))
    assert "Nothing was set up here" in removed.out


def test_what_was_put_there_by_hand_is_named(setup, world):
    (world.home / ".claude.json").write_text(
        '{"mcpServers": {"smart-fork": {"command": "smart-fork", "args": ["mcp"]}}}'
    )
    agent_hooks.install("claude")

    removed = setup("--remove")

    assert "manually added" in removed.err
    assert "smart-fork setup hooks --remove" in removed.err


def test_parts_are_left_out(setup, world):
    setup("--yes", "--no-skill", "--no-hooks", "--no-index", "--no-service")

    assert {"server"} == {line.what for line in Ledger()}


def test_from_the_cache_of_uvx_nothing_is_done(setup, settled, monkeypatch, tmp_path):
    fleeting = tmp_path / ".cache/uv/archive-v0/x/bin/smart-fork"
    fleeting.parent.mkdir(parents=True)
    fleeting.write_text("#!/bin/sh\n")
    fleeting.chmod(0o755)
    monkeypatch.setattr(
        "smart_fork.cli.setup.plan.own_program.__defaults__", (str(fleeting.with_name("python")),), raising=True
    )
    before = everything(settled)

    refused = setup("--yes")

    assert (1, before) == (refused.code, everything(settled))
    assert "uv tool install" in refused.err


def test_without_any_agent_it_says_what_to_install(setup, world):
    for name in ("claude", "codex"):
        (world.home / "bin" / name).unlink()
    for folder in (".claude", ".codex"):
        __import__("shutil").rmtree(world.home / folder, ignore_errors=True)

    refused = setup("--yes")

    assert refused.code == 1
    assert f"{AGENTS.titles(way.agent for way in AGENTS.registrations())} were not found" in refused.err


@pytest.mark.thorough
def test_nothing_that_is_printed_is_wider_than_a_terminal(setup, settled):
    printed = [setup("--dry-run"), setup("--yes"), setup("--yes"), setup("--remove"), setup("--remove")]

    lines = [line for one in printed for line in (one.out + one.err).splitlines()]
    assert [] == [line for line in lines if len(line) > 80 and str(settled) not in line and "/bin/" not in line]


def test_json_is_documented(setup, world):
    full(world.home)
    done = json.loads(setup("--yes", "--json").out)

    assert_documented("setup", done)
    for step in done["steps"]:
        assert_documented("steps", step)
    for trial in done["tried"]:
        assert_documented("tried", trial)
    assert_documented("setup", json.loads(setup("--dry-run", "--json").out))
    removed = json.loads(setup("--remove", "--json").out)
    assert_documented("setup --remove", removed)
    for step in removed["steps"]:
        assert_documented("undone", step)


def test_the_doctor_says_what_is_not_as_it_was_left(setup, world):
    full(world.home)

    def doctor():
        (check,) = Check.run("set-up", installed_parts.checks)
        return check

    assert "nothing was set up" in doctor().detail
    setup("--yes")
    assert doctor().ok, doctor().detail
    (world.home / ".agents/skills/past-sessions/SKILL.md").write_text("mine")
    (world.home / ".claude.json").write_text("{}")
    hooks = agent_hooks.settings_file("claude")
    hooks.write_text("{}")
    assert "was changed" in doctor().detail
    assert "is gone from" in doctor().detail
    assert f"the hooks in {hooks} are missing or outdated" in doctor().detail
    assert doctor().optional


def test_the_doctor_fails_where_the_agents_start_what_is_gone(setup, world, monkeypatch, tmp_path):
    full(world.home)
    monkeypatch.setattr("smart_fork.cli.setup.plan.lasting_program", lambda _: str(tmp_path / "gone"))
    setup("--yes")

    (check,) = Check.run("set-up", installed_parts.checks)

    assert (False, False) == (check.ok, check.optional)
    assert "which no longer exists" in check.detail


_KILLED = """
import os, signal, sys
from indexer.safe_files import Disk
from smart_fork.cli.setup.ledger import Ledger
from smart_fork.cli.setup.plan import SetupOptions, make_plan
replace = Disk.replace
def die(self, staging, target):
    global left
    left -= 1
    if not left:
        os.kill(os.getpid(), signal.SIGKILL)
    replace(self, staging, target)
Disk.replace = die
for line in sys.stdin:
    left = int(line)
    if not (child := os.fork()):
        ledger = Ledger()
        plan = make_plan(SetupOptions(("claude", "codex"), service=False, index=False), ledger)
        for step in plan.steps:
            if step.is_open:
                step.act(ledger)
        os._exit(0)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


@pytest.mark.thorough
@pytest.mark.parametrize("finish", [("--yes", "--remove"), ("--remove",)], ids=" ".join)
def test_a_kill_at_any_step_is_made_whole(setup, world, finish):
    """Undoing alone repairs it, and so does another setup that is then undone."""
    full(world.home)
    before = everything(world.home)
    command = [sys.executable, "-c", _KILLED]
    with forkserver.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        for kill_at in range(1, 100, full_or_sample(1, 3)):
            print(kill_at, file=process.stdin, flush=True)
            ended = int(process.stdout.readline())
            assert ended in (0, -signal.SIGKILL)
            if (lock := world.home / ".claude.json.lock").exists():
                os.utime(lock, (1, 1))  # ten seconds later nobody holds it
            for word in finish:
                assert 0 == setup(word).code
            assert before == everything(world.home), kill_at
            if ended == 0:
                break
        process.stdin.close()
    assert kill_at > 10


def test_all_that_is_printed_for_two_agents_fits_on_one_screen(setup, world, shop):
    full(world.home)
    world.claude(shop, "add retry", "done")

    done = setup("--yes", "--keep-logs", "--agent", "claude", "--agent", "codex")

    lines = (done.out + done.err).splitlines()
    assert (0, True) == (done.code, len(lines) <= 20), lines
    for path in (".claude.json", ".claude/settings.json", ".codex/config.toml", ".codex/hooks.json", ".smart-fork/kept"):  # fmt: skip
        assert f"~/{path}" in done.out

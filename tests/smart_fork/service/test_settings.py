"""The settings with which the service is installed."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from smart_fork.cli.service import unit_settings as places
from smart_fork.cli.service.instance import keep_port
from smart_fork.cli.service.unit_settings import (
    BASE,
    UnitSettings,
    checked_interval,
    new_settings,
    own_program,
    search_path,
)
from smart_fork.errors import ProgramMissing, SmartForkError, Usage


def program(folder: Path, name: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def bare(home: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Return the environment of a person with smart-fork in ~/bin and nothing else."""
    monkeypatch.setattr(places.Program, "USUAL_FOLDERS", ("~/.local/bin",))
    monkeypatch.setattr(sys, "executable", str(home / "venv/bin/python"))
    program(home / "venv/bin", "smart-fork")
    monkeypatch.setattr(own_program, "__defaults__", (str(home / "venv/bin/python"),))
    return {"HOME": str(home), "PATH": str(home / "bin")}


def installed_before(**environment: str) -> UnitSettings:
    given = {"SMART_FORK_INDEXING": "true", "SMART_FORK_INDEX_CRON": "6h", "PATH": "/bin"}
    return UnitSettings("/old/smart-fork", 5111, given | environment)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [("15m", "15m"), (" 1H\n", "1h"), ("06h", "06h"), ("*/15  9-18 * * MON-FRI", "*/15 9-18 * * mon-fri"), ("0 3 * * *", "0 3 * * *"), ("0 9 * * 7", "0 9 * * 7"), ("90000m", "90000m")],
)  # fmt: skip
def test_an_interval_is_written_as_the_scheduler_reads_it(text, wanted):
    """F-187, F-205."""
    assert wanted == checked_interval(text)


@pytest.mark.parametrize(
    "text",
    ["", " ", "0m", "000h", "1d", "abc", "-5m", "5", "m", "1.5h", "1h 2m", "99999h", "0 0 * * 5-1", "0 0 30 2 *", "\u0661\u0665m", "* * * *", "* * * * * *", "61 * * * *",
     "a b c d e", "0 0 31 2 *", "*/0 * * * *", "$(id) * * * *", "1m\n2h"],
)  # fmt: skip
def test_what_is_no_interval_is_refused_before_anything_is_written(text):
    """F-205."""
    with pytest.raises(Usage) as caught:
        checked_interval(text)
    assert "15m" in caught.value.hint


def test_a_folder_that_was_written_by_hand_is_where_the_service_will_look(bare, home, monkeypatch):
    """The service expands ~; launchd and systemd do not."""
    monkeypatch.chdir(home)
    made = new_settings(installed_before(SMART_FORK_HOME="~/elsewhere"), bare)

    assert home / "elsewhere" == made.state


def test_a_first_installation_has_the_defaults(bare, home):
    """F-201."""
    made = new_settings(None, bare)

    assert [str(home / "venv/bin/smart-fork"), "serve", "--port", "8766"] == made.argv
    assert {
        "SMART_FORK_INDEXING": "true",
        "SMART_FORK_INDEX_CRON": "1h",
        "PATH": os.pathsep.join(BASE),
    } == made.environment
    assert home / ".smart-fork/logs" == made.crash_log.parent


def test_what_was_set_before_is_kept(bare):
    """F-201: a reinstallation after an upgrade changes the program, not the choices."""
    before = installed_before(SMART_FORK_HOME="/state", HTTPS_PROXY="http://proxy", SMART_FORK_INDEXING="false")

    made = new_settings(before, bare)

    assert (5111, Path("/state")) == (made.port, made.state)
    kept = {name: text for name, text in made.environment.items() if name != "PATH"}
    assert kept == {name: text for name, text in before.environment.items() if name != "PATH"}
    assert made.program != before.program


def test_what_is_asked_for_or_set_now_wins_over_what_was_before(bare, home):
    before = installed_before(CLAUDE_CONFIG_DIR="/old", CODEX_HOME="/codex", SMART_FORK_MODEL="small")
    env = bare | {"CLAUDE_CONFIG_DIR": "~/claude", "SMART_FORK_MODEL": "", "SMART_FORK_INDEX_CRON": "30m"}

    made = new_settings(before, env, port=9000)
    assert (9000, "30m") == (made.port, made.environment["SMART_FORK_INDEX_CRON"])
    assert (str(home / "claude"), "/codex") == (made.environment["CLAUDE_CONFIG_DIR"], made.environment["CODEX_HOME"])
    assert "SMART_FORK_MODEL" not in made.environment
    assert "2h" == new_settings(before, env, every="2h").environment["SMART_FORK_INDEX_CRON"]


def test_the_port_is_that_of_the_option_else_of_the_environment_else_the_one_before(bare, home):
    """F-210: `serve` finds the same port."""
    state = home / "state"
    keep_port(9000, state)
    env = bare | {"SMART_FORK_HOME": str(state)}

    assert 8766 == new_settings(None, bare).port
    assert 9000 == new_settings(None, env).port
    assert 5111 == new_settings(installed_before(), env).port
    assert 9001 == new_settings(installed_before(), env | {"SMART_FORK_PORT": "9001"}).port
    assert 9002 == new_settings(installed_before(), env | {"SMART_FORK_PORT": "9001"}, port=9002).port


@pytest.mark.parametrize("name", ["SMART_FORK_HOME", "CLAUDE_CONFIG_DIR", "CODEX_HOME"])
def test_folders_do_not_depend_on_where_the_service_runs(bare, name, monkeypatch, tmp_path):
    """X-004."""
    monkeypatch.chdir(tmp_path)

    assert str(tmp_path / "b") == new_settings(None, bare | {name: "a/../b"}).environment[name]


@pytest.mark.parametrize("name", ["SMART_FORK_KEEP_TRANSCRIPTS", "SMART_FORK_KEEP_MEGABYTES", "SMART_FORK_MAX_WORKERS"])
def test_what_a_person_has_set_for_commands_holds_for_the_service_too(bare, name):
    """The service reads most logs first: without the setting it would keep no copies of them."""
    assert "7" == new_settings(None, bare | {name: "7"}).environment[name]


def test_secrets_and_the_callers_own_session_are_not_taken_over(bare):
    env = bare | {
        "ANTHROPIC_API_KEY": "sk-x",
        "OPENAI_API_KEY": "x",
        "SMART_FORK_WORKER_ID": "w",
        "SMART_FORK_DEPTH": "1",
    }

    assert not {"ANTHROPIC_API_KEY", "OPENAI_API_KEY", "SMART_FORK_WORKER_ID", "SMART_FORK_DEPTH"} & set(
        new_settings(None, env).environment
    )


def test_path_has_the_folders_where_programs_are_found(bare, home, monkeypatch):
    """F-205."""
    wanted = {"bin": "git", ".nvm/v22/bin": "node", "odd %&<dir": "tmux", "other": "other", "here": "uv"}
    for folder, name in wanted.items():
        program(home / folder, name)
    monkeypatch.chdir(home / "here")  # it chooses nothing
    program(home / ".local/bin", "claude")  # where installers put it, on PATH or not
    path = os.pathsep.join([".", "", *(str(home / one) for one in ("other", "odd %&<dir", ".nvm/v22/bin", "bin"))])

    found = search_path(bare | {"PATH": path}).split(os.pathsep)

    assert [str(home / one) for one in ("odd %&<dir", ".nvm/v22/bin", "bin", ".local/bin")] == found[:4]
    assert list(BASE) == found[4:]


def test_an_upgrade_with_a_bare_path_loses_no_folder(bare, home):
    """F-205."""
    codex = program(home / "codex/bin", "codex").parent

    path = search_path(bare, os.pathsep.join([str(codex), "/no/longer/there", "relative", ""]))

    assert [str(codex), *BASE] == path.split(os.pathsep)


def test_our_own_environment_is_not_on_the_services_path(bare, home):
    """An agent that runs `python` would get smart-fork's own."""
    program(home / "venv/bin", "python3")
    program(home / "bin", "git")

    path = search_path(bare | {"PATH": f"{home}/venv/bin/:{home}/bin"}, python=str(home / "venv/bin/python"))

    assert [str(home / "bin"), *BASE] == path.split(os.pathsep)


def test_a_folder_of_one_shell_is_not_the_folder_of_the_service(bare, home):
    program(home / "node/22/bin", "node")
    (home / "fnm_multishells").mkdir()
    (home / "fnm_multishells/1_2").symlink_to(home / "node/22")

    path = search_path(bare | {"PATH": str(home / "fnm_multishells/1_2/bin")})

    assert str(home / "node/22/bin") == path.split(os.pathsep)[0]


def test_the_program_is_that_of_this_python_else_that_on_path(bare, home):
    other = program(home / "bin", "smart-fork")

    assert str(home / "venv/bin/smart-fork") == own_program(bare)
    assert str(other) == own_program(bare, "/nowhere/python")


def test_without_a_program_there_is_nothing_to_install(bare):
    with pytest.raises(ProgramMissing, match="No installed smart-fork command") as caught:
        own_program(bare, "/nowhere/python")
    assert "uv tool install" in caught.value.hint


def test_an_environment_that_will_be_gone_is_refused(bare, home):
    """The environment of `uvx smart-fork` is deleted some day, and the service would crash from then on."""
    program(home / ".cache/uv/archive-v0/x/bin", "smart-fork")

    with pytest.raises(SmartForkError, match="temporary environment"):
        own_program(bare, str(home / ".cache/uv/archive-v0/x/bin/python"))

"""Finding the agents' programs (F-097)."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

import pytest

from indexer import state_db
from smart_fork.agents import AGENTS, programs
from smart_fork.agents.programs import Program
from smart_fork.errors import ProgramMissing
from smart_fork.system.processes import Processes
from tests.smart_fork.forks import HELP

of_each = pytest.mark.parametrize("agent", [agent.name for agent in AGENTS if agent.command])


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the only folder in which programs are looked for."""
    monkeypatch.setattr(Program, "USUAL_FOLDERS", ())
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    return folder


def install(folder: Path, name: str, help_text: str, exec_help: str = "") -> Path:
    """Write a program that prints its help and logs its runs. Return its path."""
    program = folder / name
    program.write_text(
        f'#!/bin/sh\necho asked >>"{folder}/asked"\n'
        f'[ "$1" = exec ] && printf %s {shlex.quote(exec_help)} || printf %s {shlex.quote(help_text)}\n'
    )
    program.chmod(0o755)
    return program


@of_each
def test_a_program_is_found_on_path(places, agent):
    program = install(places, agent, "")

    assert Program.find(agent) == str(program)


@of_each
def test_a_setting_wins_over_path(places, monkeypatch, tmp_path, agent):
    """F-121."""
    install(places, agent, "")
    (tmp_path / "mine").mkdir()
    other = install(tmp_path / "mine", "other", "")
    monkeypatch.setenv(f"SMART_FORK_{agent.upper()}", str(other))

    assert Program.find(agent) == str(other)


@of_each
def test_a_service_with_a_bare_path_finds_a_program_in_the_persons_folders(home, monkeypatch, agent):
    folder = home / ".local/bin"
    folder.mkdir(parents=True)
    program = install(folder, agent, "")

    assert Program.find(agent, {"HOME": str(home), "PATH": ""}) == str(program)


@of_each
def test_the_newest_node_js_of_a_person_is_looked_into_first(home, agent):
    for version in ("v9.1.0", "v22.4.0", "v22.10.0"):
        folder = home / f".nvm/versions/node/{version}/bin"
        folder.mkdir(parents=True)
        install(folder, agent, "")
    env = {"HOME": str(home), "PATH": "/usr/bin", "SHLVL": "1"}

    program = Program.find(agent, env)

    assert program == str(home / ".nvm/versions/node/v22.10.0/bin" / agent)
    assert Program.path_for(program, env) == {"PATH": f"{Path(program).parent}:/usr/bin"}, "its script needs node"
    assert Program.path_for("/usr/bin/x", env) == {}


def test_the_login_shell_knows_where_programs_are_that_a_service_does_not(home):
    folder = home / "my tools"
    folder.mkdir()
    program = install(folder, "codex", "")
    (home / ".profile").write_text('echo hello\nPATH="bin:$HOME/my tools:$PATH"\nexport PATH\n')
    env = {"HOME": str(home), "PATH": "/usr/bin:/bin", "SHELL": "/bin/sh"}

    assert Program.find("codex", env) == str(program)
    assert Program.path_for(str(program), env)["PATH"].startswith(f"{folder}:bin:{folder}:/")
    with pytest.raises(ProgramMissing):
        Program.find("codex", env | {"SHLVL": "1"})


@of_each
def test_the_current_directory_never_chooses_the_program(places, tmp_path, monkeypatch, agent):
    """X-002: a repository may contain a program with this name, and PATH a dot."""
    install(tmp_path, agent, "")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", f".{os.pathsep}{os.pathsep}bin/..")

    with pytest.raises(ProgramMissing, match=f"{agent} was not found") as caught:
        Program.find(agent)
    assert f"SMART_FORK_{agent.upper()}" in caught.value.hint

    program = install(places, agent, "")
    monkeypatch.setenv("PATH", f".{os.pathsep}{places}")
    assert Program.find(agent) == str(program)


@of_each
def test_a_missing_program_is_reported_and_not_raised(places, agent):
    program = Program.of(agent, Processes())

    assert not program.can_fork
    assert not Program.of(agent, Processes()).can_fork
    assert "was not found" in program.problem
    assert "Install" in program.hint
    with pytest.raises(ProgramMissing, match="was not found"):
        Program.require(agent, Processes())


@of_each
def test_a_program_that_lists_forking_can_fork(places, agent):
    program = install(places, agent, HELP[agent], HELP[agent])

    assert Program.require(agent, Processes(), headless=True) == str(program)
    assert Program.of(agent, Processes()).can_fork
    assert "" == Program.of(agent, Processes()).problem


@of_each
def test_an_old_program_is_refused_with_a_hint(places, agent):
    install(places, agent, "  resume   --resume\n  forked words, a fork in the road")

    with pytest.raises(ProgramMissing, match="cannot fork sessions") as caught:
        Program.require(agent, Processes())
    assert "Update it" in caught.value.hint


def test_an_older_codex_forks_only_in_a_terminal(places):
    program = install(places, "codex", HELP["codex"], "Commands:\n  resume  Resume\n")

    assert Program.require("codex", Processes()) == str(program)
    with pytest.raises(ProgramMissing, match="without a terminal"):
        Program.require("codex", Processes(), headless=True)


def test_a_program_that_cannot_fork_is_not_asked_if_it_could_without_a_terminal(places):
    install(places, "codex", "nothing", "nothing")

    assert not Program.of("codex", Processes()).can_fork
    assert ["asked"] == (places / "asked").read_text().split()


def test_a_program_is_asked_once_until_it_is_updated(places):
    program = install(places, "claude", "nothing")

    assert [False, False] == [Program.of("claude", Processes()).can_fork for _ in range(2)]
    assert ["asked"] == (places / "asked").read_text().split()

    install(places, "claude", HELP["claude"])
    os.utime(program, ns=(1, 1))
    assert Program.of("claude", Processes()).can_fork


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("#!/bin/sh\necho --fork-session\necho 'no native binary' >&2\nexit 3\n", "(exit status 3): no native binary"),
        ("#!/bin/sh\nkill -KILL $$\n", "(killed by SIGKILL)"),
        ("#!/nowhere/node\n", "the interpreter in its first line is missing"),
    ],
)
def test_a_program_that_does_not_run_is_not_called_too_old_or_missing(places, script, said):
    program = install(places, "claude", HELP["claude"])
    program.write_text(script)

    seen = Program.of("claude", Processes())

    assert not seen.can_fork
    assert said in seen.problem
    assert str(program) in seen.problem
    assert "Update" not in seen.hint


def test_what_a_program_can_do_is_known_to_later_processes_until_it_is_another_file(places, home):
    program = install(places, "claude", HELP["claude"])
    asked = places / "asked"

    def later() -> bool:
        """Return whether the program can fork, for a process that has not run it yet."""
        programs._seen.clear()
        return Program.of("claude", Processes()).can_fork

    assert later()
    Program.keep()
    before = asked.read_text()
    assert later()
    assert before == asked.read_text()

    times = program.stat()
    program.unlink()
    install(places, "claude", "  --resume\n")
    os.utime(program, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert not later()
    Program.keep()  # what it cannot do is asked again
    assert not later()
    state_db.path().write_bytes(b"this is no database" * 1000)
    assert not later()
    Program.keep()

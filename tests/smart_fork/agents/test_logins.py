"""Login variables of agents, whether an agent would be logged in, and the noted names of a person's variables."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest

from smart_fork.agents import AGENTS
from smart_fork.agents.login import LoginShell
from smart_fork.agents.programs import Program
from smart_fork.system.processes import Processes
from tests.smart_fork.forks import FakeProcesses
from tests.support.cases import parametrize_subtests

CLAUDE, CODEX = AGENTS.login_of("claude"), AGENTS.login_of("codex")
HELP = "  --fork-session  Fork\n  auth  Manage authentication\n  fork  Fork\n  login  Manage login"


def chosen(way: str) -> str:
    """Return settings with this login method."""
    return json.dumps({"security": {"auth": {"selectedType": way}}})


PROVIDER = 'model_provider = "mock"\n[model_providers.mock]\n'


def says(program: Path, answer: str, status: int = 0) -> FakeProcesses:
    """Return processes in which the program's help lists the status command, and the command gives this answer."""
    return FakeProcesses({program.name: lambda argv: (0, HELP) if argv[-1] == "--help" else (status, answer)})


@pytest.fixture
def codex_settings(home):
    path = home / ".codex" / "config.toml"
    path.parent.mkdir()
    return path


@pytest.mark.parametrize(
    ("answer", "logged_in"),
    [
        ('{"loggedIn": true, "authMethod": "api_key_helper"}', True),
        ('{"loggedIn": false, "authMethod": "none"}', False),
        ('{"loggedIn": "yes"}', None),
        ("[1]", None),
        ("Hello! How can I help?", None),
        ("", None),
    ],
)
def test_claude_is_asked_whether_it_is_logged_in(programs, answer, logged_in):
    program = programs / "claude"

    assert logged_in is Program.login_state(CLAUDE, {}, str(program), says(program, answer)).logged_in


def test_a_claude_that_does_not_know_the_question_is_not_asked_it(programs):
    """Such a version would take the command for a prompt."""
    processes = FakeProcesses({"claude": (0, "  --fork-session  Fork")})

    assert Program.login_state(CLAUDE, {}, str(programs / "claude"), processes).logged_in is None
    assert [("--help",)] == [argv[1:] for argv in processes.ran]


@pytest.mark.parametrize(
    ("answer", "status", "logged_in"),
    [("Logged in using ChatGPT", 0, True), ("Not logged in", 1, False), ("error: unexpected argument", 2, None)],
)
def test_codex_is_asked_whether_it_is_logged_in(programs, answer, status, logged_in):
    program = programs / "codex"

    assert logged_in is Program.login_state(CODEX, {}, str(program), says(program, answer, status)).logged_in


@pytest.mark.parametrize("login", list(AGENTS.logins()), ids=lambda login: login.agent)
def test_a_program_that_does_not_answer_says_nothing_of_its_login(login, home):
    assert Program.login_state(login, {}, str(home / "none"), Processes()).logged_in is None


@parametrize_subtests(
    ("login", "env"),
    [
        (CLAUDE, {"ANTHROPIC_API_KEY": "x"}),
        (CLAUDE, {"ANTHROPIC_AUTH_TOKEN": "x"}),
        (CLAUDE, {"CLAUDE_CODE_USE_BEDROCK": "1"}),
        (CODEX, {"CODEX_API_KEY": "x"}),
        (AGENTS.login_of("qwen"), {"OPENAI_API_KEY": "x"}),
        (AGENTS.login_of("opencode"), {"ANTHROPIC_API_KEY": "x"}),
        (AGENTS.login_of("gemini"), {"GEMINI_API_KEY": "x"}),
        (AGENTS.login_of("copilot"), {"GH_TOKEN": "x"}),
        (AGENTS.login_of("copilot"), {"COPILOT_PROVIDER_BASE_URL": "x"}),
    ],
)
def test_a_key_in_the_environment_needs_no_question(login, env):
    assert Program.login_state(login, env, "/none", FakeProcesses()).logged_in is True
    assert not login.is_plain({})
    assert not login.is_plain(dict.fromkeys(env, ""))


@pytest.mark.parametrize(
    ("login", "files"),
    [
        (CLAUDE, {".claude/.credentials.json": "{}"}),
        (CODEX, {".codex/auth.json": "{}"}),
        (AGENTS.login_of("qwen"), {".qwen/settings.json": chosen("qwen-oauth"), ".qwen/oauth_creds.json": "{}"}),
        (AGENTS.login_of("opencode"), {".local/share/opencode/auth.json": "{}"}),
        (
            AGENTS.login_of("gemini"),
            {".gemini/settings.json": chosen("oauth-personal"), ".gemini/oauth_creds.json": "{}"},
        ),
    ],
)
def test_a_login_that_is_stored_needs_no_question(login, files, home):
    *_, last = files
    for name, text in files.items():
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text(text)
    assert Program.login_state(login, {}, "/none", FakeProcesses()).logged_in is True

    (home / last).unlink()
    assert Program.login_state(login, {}, "/none", FakeProcesses()).logged_in is not True


def test_a_provider_of_codex_needs_the_variable_that_its_settings_name(codex_settings):
    codex_settings.write_text(f'{PROVIDER}env_key = "MOCK_KEY"\nenv_http_headers = {{ "X-Org" = "MOCK_ORG" }}\n')

    without, given = (
        Program.login_state(CODEX, env, "/none", FakeProcesses()) for env in ({"CODEX_API_KEY": "x"}, {"MOCK_KEY": "x"})
    )
    assert (False, ("MOCK_KEY",), True) == (without.logged_in, without.lacks, given.logged_in)
    assert {"MOCK_KEY", "MOCK_ORG"} < AGENTS.login_variables()


@pytest.mark.parametrize(
    "settings",
    [
        f'{PROVIDER}base_url = "http://127.0.0.1:1"\n',
        'model_provider = "ollama"\n',
        f'profile = "home"\n[profiles.home]\nmodel_provider = "local"\n[model_providers.local]\nname = "x"\n{PROVIDER.replace("mock", "x").partition(chr(10))[2]}env_key = "K"\n',
    ],
)
def test_a_provider_of_codex_without_a_key_needs_no_login(codex_settings, settings):
    codex_settings.write_text(settings)

    assert Program.login_state(CODEX, {}, "/none", FakeProcesses()).logged_in is True


@pytest.mark.parametrize(
    "settings",
    [
        "model_provider = 7",
        "[",
        'model_providers = "x"',
        "[model_providers]\nopenai = 1",
        f'{PROVIDER}env_key = "$(x)"\n',
    ],
)
def test_settings_that_say_nothing_sensible_name_no_variables(codex_settings, settings):
    codex_settings.write_text(settings)

    assert () == CODEX.required()
    assert all(name.isidentifier() for name in CODEX.variables())


def test_what_the_settings_of_claude_set_is_not_missing(home):
    (home / ".claude").mkdir()
    settings = home / ".claude/settings.json"
    settings.write_text('{"env": {"ANTHROPIC_BASE_URL": "http://127.0.0.1:1"}}')

    assert {"ANTHROPIC_BASE_URL"} == CLAUDE.settled()
    for odd in ("[]", "{", '{"env": 7}'):
        settings.write_text(odd)
        assert not CLAUDE.settled()


def test_names_are_noted_and_no_values(home):
    AGENTS.note_login_variables_of_person({"ANTHROPIC_API_KEY": "the-secret", "CODEX_HOME": "/secret", "PATH": "/bin"})

    (file,) = (home / ".smart-fork").iterdir()
    noted = json.loads(file.read_text())
    assert (["ANTHROPIC_API_KEY"], ["CODEX_HOME"]) == (noted["claude"], noted["codex"])
    assert "secret" not in file.read_text()
    assert 0o600 == stat.S_IMODE(file.stat().st_mode)
    assert ("ANTHROPIC_API_KEY",) == CLAUDE.noted()


def test_where_nothing_is_set_nothing_is_written(home):
    AGENTS.note_login_variables_of_person({"PATH": "/bin"})

    assert not (home / ".smart-fork").exists()


def test_a_terminal_says_anew_what_is_set_and_an_agent_only_adds(home):
    AGENTS.note_login_variables_of_person({"ANTHROPIC_API_KEY": "x"})
    AGENTS.note_login_variables({"ANTHROPIC_BASE_URL": "x", "CODEX_API_KEY": "x"}, ["claude"], also=True)
    assert ("ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL") == CLAUDE.noted()
    assert () == CODEX.noted()

    AGENTS.note_login_variables_of_person({"ANTHROPIC_AUTH_TOKEN": "x"})
    assert ("ANTHROPIC_AUTH_TOKEN",) == CLAUDE.noted()


@pytest.mark.parametrize("mark", ["CLAUDECODE", "CODEX_THREAD_ID", "SMART_FORK_WORKER_ID", "SMART_FORK_DEPTH"])
def test_the_environment_of_what_an_agent_runs_is_no_persons(mark, home):
    AGENTS.note_login_variables_of_person({"ANTHROPIC_API_KEY": "x", mark: "1"})

    assert not (home / ".smart-fork").exists()


@pytest.mark.parametrize(
    "said", ["{", "[]", '{"claude": 7}', '{"claude": ["A B", 7, "$(touch x)", ""]}', "[" * 100_000]
)
def test_odd_notes_name_nothing(said, home):
    (home / ".smart-fork").mkdir()
    (home / ".smart-fork/variables.json").write_text(said)

    assert () == CLAUDE.noted()
    AGENTS.note_login_variables_of_person({"ANTHROPIC_API_KEY": "x"})
    assert ("ANTHROPIC_API_KEY",) == CLAUDE.noted()


def test_notes_that_cannot_be_written_disturb_nobody(monkeypatch):
    monkeypatch.setenv("SMART_FORK_HOME", "/dev/null/x")

    AGENTS.note_login_variables_of_person({"ANTHROPIC_API_KEY": "x"})


def test_the_login_shell_says_what_was_asked_for_and_nothing_else(home):
    (home / ".profile").write_text(
        'echo welcome\nexport ANTHROPIC_API_KEY=\'a\nb"c$d\'\nexport OTHER=secret\n[ "$SMART_FORK_ASKS_SHELL" ] || export ASKED=no\n'
    )
    env = {"HOME": str(home), "SHELL": "/bin/sh", "PATH": "/usr/bin:/bin", "ANTHROPIC_BASE_URL": "from-here"}
    names = ["ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL", "ASKED"]

    assert {"ANTHROPIC_API_KEY": 'a\nb"c$d'} == LoginShell(env).values(names, Processes())


@pytest.mark.parametrize("profile", ["exit 0", "echo no; exit 1", "exec sleep 60"])
def test_a_shell_that_does_not_answer_sets_nothing(profile, home, monkeypatch):
    monkeypatch.setattr("smart_fork.agents.login.SHELL_SECONDS", 0.5)
    (home / ".profile").write_text(f"{profile}\n")

    shell = LoginShell({"HOME": str(home), "SHELL": "/bin/sh"})
    assert {} == shell.values(["ANTHROPIC_API_KEY"], Processes())


def test_only_an_absolute_path_is_a_shell(home):
    assert "/bin/sh" == LoginShell({"SHELL": "/bin/sh"}).path
    assert "" == LoginShell({"SHELL": "sh"}).path
    assert "" == LoginShell({"SHELL": str(home / "none")}).path
    assert {} == LoginShell({"SHELL": "sh"}).values(["A"], Processes())
    assert Path(LoginShell({}).path).is_absolute()

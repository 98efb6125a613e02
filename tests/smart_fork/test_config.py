"""Tests of ``config.toml``: it is read without pydantic, and invalid content is refused in one sentence."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from indexer.safe_files import state_home
from smart_fork import config
from smart_fork.agents import AGENTS
from smart_fork.errors import Usage


def settle(text: str) -> None:
    state_home().mkdir(parents=True, exist_ok=True)
    (state_home() / "config.toml").write_text(text)


ASKED = {"engine": config.engine, "service": config.allowed_projects, "team": config.team}


def test_what_is_settled_is_read(home):
    assert ("", [], config.TeamSection()) == (config.engine(), config.allowed_projects(), config.team())

    settle('engine = " QMD "\n[service]\nprojects = ["~/shop"]\n[team]\nnever = ["~/x"]\nauto_fork = true\n')

    assert ("qmd", ["~/shop"]) == (config.engine(), config.allowed_projects())
    assert config.TeamSection(never=("~/x",), auto_fork=True) == config.team()


@pytest.mark.parametrize("asked", ASKED)
def test_a_key_that_is_not_known_above_the_sections_is_refused_whatever_is_asked_for(home, asked):
    settle('engin = "qmd"\n')

    with pytest.raises(Usage) as refused:
        ASKED[asked]()

    path = state_home() / "config.toml"
    assert f'{path}: unknown key "engin". Known: engine, homes, service, team' == refused.value.message
    assert 'Such as: engine = "qmd", above the first [section].' == refused.value.hint


@pytest.mark.parametrize(
    ("asked", "text", "said"),
    [
        ("engine", "engine = 3", "engine must be text, not 3"),
        ("engine", "engine = 2026-01-01", 'engine must be text, not "2026-01-01"'),
        ("service", "service = 1", "service must be a section, not 1"),
        ("service", "[service]\nproject = []", 'unknown key "project" in [service]. Known: projects'),
        ("service", "[service]\nprojects = 1", "[service] projects must be a list of texts of 1 to 1000 characters, not 1"),
        ("service", '[service]\nprojects = [""]', '[service] projects must be a list of texts of 1 to 1000 characters, not [""]'),
        ("team", "[[team]]", "team must be a section, not [{}]"),
        ("team", '[team]\n"\\u001b[31m" = 1', 'unknown key "\\u001b[31m" in [team]. Known: never, redact, allow, auto_fork'),
        ("team", "[team]\nnever = [5]", "[team] never must be a list of texts of 1 to 1000 characters, not [5]"),
        ("team", "[team]\nauto_fork = 1", "[team] auto_fork must be true or false, not 1"),
    ],
)  # fmt: skip
def test_the_field_what_was_given_and_what_is_allowed(home, asked, text, said):
    settle(text)

    with pytest.raises(Usage) as refused:
        ASKED[asked]()

    assert f"{state_home() / 'config.toml'}: {said}" == refused.value.message
    assert refused.value.message.isprintable()
    assert refused.value.hint.startswith("Such as: ")


@pytest.mark.parametrize("text", ["engine = ", 'engine = "\0"'], ids=ascii)
def test_a_file_that_is_no_toml_is_to_be_corrected_or_removed(home, text):
    settle(text)

    with pytest.raises(Usage) as refused:
        config.engine()

    assert refused.value.message.startswith(f"{state_home() / 'config.toml'} cannot be read: ")
    assert "Correct it, or remove it." == refused.value.hint


def test_a_section_that_is_wrong_keeps_nobody_from_what_does_not_ask_for_it(home):
    settle('engine = "qmd"\n[team]\nnever = 1\n')

    assert "qmd" == config.engine()


@pytest.mark.slow
def test_a_question_and_a_hook_are_answered_without_pydantic(home):
    settle('engine = "builtin"\n[service]\nprojects = ["~/shop"]\n[team]\nnever = ["~/x"]\n')
    script = (
        "import sys\nfrom smart_fork import config\nimport smart_fork.cli.find, smart_fork.finding.session_library\n"
        "import smart_fork.workers.hook_events, smart_fork.hooks.hints\n"
        "config.engine(), config.allowed_projects(), config.team()\n"
        "print(*[one for one in sys.modules if one.startswith('pydantic')])"
    )
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)

    assert [] == run.stdout.split()


@pytest.mark.parametrize("own", [*AGENTS.homes()], ids=lambda own: f"{own.variable}-{own.default}")
def test_the_default_that_is_shown_for_an_agents_folder_is_where_it_is(home, monkeypatch, own):
    usual = own.folder()
    monkeypatch.setenv(own.variable, str(Path(own.usual()).expanduser()))

    assert usual == own.folder()

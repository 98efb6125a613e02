"""A directory that a log names and that is no absolute path here: its session is of no project, wherever one stands."""

from __future__ import annotations

import json
import shlex
import sqlite3
from collections.abc import Callable, Iterable
from contextlib import closing
from itertools import product
from pathlib import Path

import pytest

from indexer.project import project_of
from indexer.repositories import recorded
from smart_fork.agents.log_readers import READERS
from smart_fork.agents.request_fields import Options
from smart_fork.errors import ForkRefused, NotFound
from smart_fork.finding.recent import recent_sessions
from smart_fork.finding.results import fork_command
from smart_fork.forking.branch import command_to_resume
from smart_fork.forking.plan import fork_session
from smart_fork.forking.request import ForkRequest
from smart_fork.forking.resume import newest_session
from smart_fork.sharing.local_logs import ProjectLogs
from smart_fork.system import call_context
from tests.indexer.transcripts.records import (
    FIXTURES,
    assistant,
    claude_log,
    codex_log,
    copilot_log,
    gemini_log,
    happened,
    id_of,
    lay_out,
    linked,
    message,
    meta,
    qwen_log,
    spoken,
    user,
)
from tests.smart_fork.agents.opencode import database
from tests.smart_fork.forks import branched as branch
from tests.smart_fork.session_family import lineage
from tests.support.cases import parametrize_subtests, thorough_except_first

SESSION = id_of(7)
WINDOWS = "C:\\Users\\me\\shop"
#: Joined with our own directory, or with our home, each is a place of this machine.
ODD = (WINDOWS, ".", "..", "src", "./src", "../shop", "~", "~/shop", "file:///srv/shop", "\\\\host\\share")
#: What no log can mean by a directory: it is as if nothing were said.
NOTHING = ("", "a\0b")


def _claude(home: Path, cwd: str) -> None:
    said = user("u1", None, "mend it", cwd=cwd, sessionId=SESSION)
    claude_log(home, said, assistant("a1", "u1", "done", cwd=cwd, sessionId=SESSION), session=SESSION, cwd="nowhere")


def _codex(home: Path, cwd: str) -> None:
    codex_log(home, SESSION, meta(SESSION, cwd=cwd), message("user", "mend it"), message("assistant", "done"))


def _qwen(home: Path, cwd: str) -> None:
    said = linked("user", "u1", None, "mend it", cwd=cwd, sessionId=SESSION)
    qwen_log(home, said, linked("assistant", "a1", "u1", "done", cwd=cwd), session=SESSION, cwd="nowhere")


def _gemini(home: Path, cwd: str) -> None:
    log = gemini_log(home, spoken("user", "u1", "mend it"), spoken("gemini", "a1", "done"), session=SESSION)
    (log.parent.parent / ".project_root").write_text(cwd)


def _copilot(home: Path, cwd: str) -> None:
    asked, answered = (
        happened("user.message", "u1", content="mend it"),
        happened("assistant.message", "a1", content="x"),
    )
    copilot_log(home, asked, answered, session=SESSION, cwd=cwd)


def _opencode(home: Path, cwd: str) -> None:
    del home
    path = database.make()
    with closing(sqlite3.connect(path)) as db:
        db.execute("DELETE FROM session WHERE id <> ?", (database.TOOLS,))
        db.execute("UPDATE session SET directory = ?", (cwd,))
        db.commit()


def _goose(home: Path, cwd: str) -> None:
    (log,) = lay_out("goose")
    with closing(sqlite3.connect(log.parent)) as db:
        db.execute("UPDATE sessions SET working_dir = ?", (cwd,))
        db.commit()


def _fixture(agent: str) -> Callable[[Path, str], None]:
    """The fixture of an agent that is only read, in that directory."""

    def write(home: Path, cwd: str) -> None:
        for source in (FIXTURES / agent / "home").rglob("*.json*"):
            target = home / source.relative_to(FIXTURES / agent / "home")
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(source.read_text("utf-8").replace("/home/ada/shop", json.dumps(cwd)[1:-1]), "utf-8")

    return write


WRITTEN: dict[str, Callable[[Path, str], None]] = {
    "claude": _claude, "codex": _codex, "qwen": _qwen, "gemini": _gemini, "copilot": _copilot, "opencode": _opencode,
    "goose": _goose,
    **{agent: _fixture(agent) for agent in ("amp", "droid", "kimi", "pi")},
}  # fmt: skip
#: Cursor states an absolute path, or none: tests/smart_fork/agents/test_read_agents.py.
WITHOUT_ODD = {"cursor"}
agents = pytest.mark.parametrize("agent", WRITTEN)


def some(agents: Iterable[str]) -> pytest.MarkDecorator:
    """Each agent in the first odd directory, and Claude Code in all; each in each are thorough."""
    return pytest.mark.parametrize(
        ("agent", "cwd"),
        [
            pytest.param(agent, cwd, marks=() if agent == "claude" or cwd == ODD[0] else pytest.mark.thorough)
            for agent, cwd in product(agents, ODD)
        ],
    )


@pytest.fixture
def here(shop, monkeypatch) -> Path:
    """A repository that is the working directory, with folders of the names that logs say."""
    for name in ("src", WINDOWS, "~"):
        (shop / name).mkdir()
    monkeypatch.chdir(shop)
    return shop


def listed(agent: str, project: Path | None) -> list[str]:
    """The directories of the sessions that are listed, as they are shown."""
    where = project_of(project) if project else None
    return [one.cwd for one in recent_sessions([READERS[agent]], where, 20, automated=True).sessions]


def test_every_agent_that_is_read_is_tried_here():
    assert set(WRITTEN) | WITHOUT_ODD == {agent.name for agent in READERS}


@some(WRITTEN)
def test_a_session_whose_directory_is_no_absolute_path_is_listed_only_among_all_and_with_its_path(
    home, here, agent, cwd
):
    WRITTEN[agent](home, cwd)

    assert [] == listed(agent, here) == listed(agent, here / "src") == listed(agent, home)
    assert [cwd] == listed(agent, None)


@agents
@pytest.mark.parametrize("cwd", NOTHING)
def test_a_session_that_names_no_directory_is_listed_only_among_all(home, here, agent, cwd):
    WRITTEN[agent](home, cwd)

    assert [] == listed(agent, here) == listed(agent, home)
    assert [""] == listed(agent, None)


def test_a_directory_with_a_nul_is_not_the_project_that_the_folder_of_the_log_is_named_after(home):
    said = user("u1", None, "mend it", cwd="/a\0b", sessionId=SESSION)
    claude_log(home, said, assistant("a1", "u1", "done", cwd="/a\0b", sessionId=SESSION), session=SESSION, cwd="/usr")

    assert [] == listed("claude", Path("/usr"))
    assert [""] == listed("claude", None)


@agents
def test_continuing_in_a_directory_never_takes_a_session_of_another_system(home, here, agent):
    WRITTEN[agent](home, ".")

    with pytest.raises(NotFound):
        newest_session(here, agent, automated=True)


@some(["claude", "codex", "qwen", "gemini", "copilot", "opencode"])
def test_a_team_is_not_sent_a_session_that_may_be_another_projects(home, here, agent, cwd):
    WRITTEN[agent](home, cwd)
    log = next(iter(READERS[agent].discover())).path
    session = READERS[agent].id_of(log)

    with pytest.raises(ForkRefused, match="belongs to no project") as refused:
        ProjectLogs(here).found(session)
    assert cwd in refused.value.message
    assert f"smart-fork branch {session} --cwd {shlex.quote(str(here))}" == refused.value.hint.partition(": ")[2]
    with pytest.raises(ForkRefused, match="belongs to no project"):
        ProjectLogs(here).read(log, agent)


def test_a_team_is_not_sent_a_session_that_says_no_directory(home, here):
    _codex(home, "")

    with pytest.raises(ForkRefused, match="its directory is unknown"):
        ProjectLogs(here).found(SESSION)


@pytest.mark.parametrize("cwd", thorough_except_first(ODD, 3))
@pytest.mark.parametrize(
    "make",
    thorough_except_first([lambda one: fork_session(ForkRequest(one, Options())), branch]),
    ids=["fork", "branch"],
)
def test_a_fork_and_a_branch_say_why_they_need_a_directory(home, here, cwd, make):
    _claude(home, cwd)

    with pytest.raises(ForkRefused) as refused:
        make(SESSION)
    assert cwd in refused.value.message
    assert "not an absolute path here" in refused.value.message
    assert "--cwd DIR" in f"{refused.value.message} {refused.value.hint}"
    assert branch(SESSION, cwd=str(here)).working_directory == str(here)


@pytest.mark.parametrize("cwd", ODD[:2])
def test_a_family_is_told_wherever_one_stands(home, here, cwd):
    _claude(home, cwd)

    assert [cwd] == [one["working_directory"] for one in lineage(SESSION)["sessions"]]


@parametrize_subtests("cwd", ODD)
def test_no_command_goes_to_a_directory_that_is_none_of_this_machine(cwd):
    assert "cd " not in fork_command("claude", SESSION, cwd)
    assert "cd " not in command_to_resume("claude", SESSION, cwd)


@pytest.mark.parametrize("cwd", [*ODD, *NOTHING])
def test_who_may_ask_about_one_project_is_told_nothing_of_what_was_done_nowhere(here, cwd):
    token = call_context._allowed.set(call_context.permitted([str(here)]))
    try:
        assert not call_context.permits(cwd)
        call_context.require(".", "here")
        call_context.require(str(here / "src"), "here")
    finally:
        call_context._allowed.reset(token)


@pytest.mark.parametrize("cwd", [*ODD, *NOTHING, "/a\ud800"])
def test_a_directory_is_recorded_where_it_is_an_absolute_path(tmp_path, cwd):
    (tmp_path / "link").symlink_to(tmp_path)

    assert recorded(cwd) is None
    assert recorded(f"{tmp_path}/link/x/../gone") == tmp_path.resolve() / "gone"

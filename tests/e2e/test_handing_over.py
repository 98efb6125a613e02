"""Sessions handed over between the real agents: each model is sent exactly what was told, and then the prompt."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import groupby, permutations
from pathlib import Path
from typing import Any

import pytest

from smart_fork.agents import AGENTS
from smart_fork.agents.copier import NewSession
from smart_fork.agents.log_readers import READERS
from smart_fork.finding import session_lookup
from smart_fork.forking.handover import handover
from smart_fork.forking.lineage import lineage
from tests.e2e import test_copilot, test_gemini, test_opencode, test_qwen
from tests.e2e.agents import Machine, machine_in
from tests.e2e.model_server import Message
from tests.e2e.programs import cache_folder
from tests.e2e.scenario import heard, settled, unlike_any_other
from tests.e2e.terminals import wait_until
from tests.indexer.transcripts.records import READ_LOGS, below_home, lay_out
from tests.smart_fork.agents.opencode import database
from tests.support.exhaustive import full_or_sample

pytestmark = pytest.mark.e2e
FIXTURES = Path(__file__).parents[1] / "fixtures"
#: A session that the real program wrote, of each agent.
SOURCES = {
    "claude": "claude/person.jsonl", "codex": "codex/person.jsonl", "qwen": "qwen/tools.jsonl", "opencode": "",
    "gemini": "gemini/tools.jsonl", "copilot": "copilot/tools.jsonl",
}  # fmt: skip
TOLD = [agent.name for agent in AGENTS if agent.has("converter")]
#: A start takes seconds: each of those that are told in their own way. `SMART_FORK_DRILLS=all` takes all pairs.
SOME = [("gemini", "qwen"), ("copilot", "opencode"), ("codex", "gemini"), ("claude", "copilot")]
#: Agents that are only read are handed over as well.
READ = [(agent, "claude") for agent in READ_LOGS]
PAIRS = full_or_sample([*permutations(TOLD, 2), *READ], [*SOME, READ[-1]])
#: To a log of its own, and from an agent that is only read.
MAIN = (SOME[-1], READ[-1])


def with_others(machine: Machine, *folders: Path) -> None:
    """The agents in these folders on a machine that has others as well."""
    url = machine.model.url
    machine.env["PATH"] = os.pathsep.join(map(str, (machine.programs, *folders, machine.env["PATH"])))
    machine.env |= test_gemini.variables(url) | test_copilot.variables(url)
    machine.env |= {"OPENAI_API_KEY": "loopback", "OPENAI_BASE_URL": f"{url}/v1", "OPENAI_MODEL": "mock"}
    machine.env |= {
        "NODE_COMPILE_CACHE": str(cache_folder() / "compiled"),
        **dict([test_qwen.ONE_PROCESS, test_gemini.ONE_PROCESS]),
    }
    machine.know_smart_fork()
    test_copilot.unpacked_in(machine.home)
    for place, settings in (
        (".qwen/settings.json", test_qwen.SETTINGS),
        (".config/opencode/opencode.json", test_opencode.settings(url)),
        (".gemini/settings.json", test_gemini.SETTINGS),
        (".gemini/trustedFolders.json", {str(machine.home): "TRUST_FOLDER"}),
    ):
        file = machine.home / place
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(settings))


@pytest.fixture(scope="module")
def machine(  # noqa: PLR0917 - fixtures
    programs: Path,
    qwen_program: Path,
    opencode_program: Path,
    gemini_program: Path,
    copilot_program: Path,
    machines: list[Machine],
) -> Iterator[Machine]:
    """A machine with all of them."""
    with machine_in(cache_folder(), programs) as machine:
        machines.append(machine)
        with_others(machine, qwen_program, gemini_program, copilot_program, opencode_program)
        test_opencode.at_home(machine)
        yield machine


@pytest.fixture
def here(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> Machine:
    """We read what the machine's agents have written."""
    monkeypatch.setenv("HOME", str(machine.home))
    for name in (*AGENTS.home_variables(), "SMART_FORK_HOME"):
        monkeypatch.delenv(name, raising=False)
    return machine


def written(machine: Machine, agent: str, monkeypatch: pytest.MonkeyPatch) -> tuple[str, Mapping[str, str]]:
    """A session that is there, and where: that of OpenCode in a database beside the one that it works with."""
    if agent == "opencode":
        folder = machine.home / "another"
        if not folder.is_dir():
            database.make(folder / "opencode/opencode.db")
        monkeypatch.setenv("XDG_DATA_HOME", str(folder))
        return database.TOOLS, {"XDG_DATA_HOME": str(folder)}
    if agent in READ_LOGS:
        lay_out(agent, str(machine.project))
        return READERS[agent].id_of(machine.home / below_home(agent)), {}
    return laid_out(agent, machine.project), {}


def laid_out(agent: str, directory: Path, told: Callable[[str], str] = str) -> str:
    """The id of a session of a directory that is where its agent looks for it, as `told` changes what it says."""
    if agent == "opencode":
        database.make(told=lambda text: told(text.replace("/work/depot", str(directory))))
        return database.TOOLS
    source = FIXTURES / SOURCES[agent]
    session = READERS[agent].read(source).session
    assert session is not None
    first = json.loads(source.read_text().splitlines()[0])
    session_id = str({**first, **first.get("data", {})}.get("sessionId") or session.session_id)
    target = AGENTS.copier_of(agent).place(source, NewSession(session_id, directory, _moment(session)))
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(told(source.read_text()))
    if agent == "gemini":
        (target.parents[1] / ".project_root").write_text(str(directory))
    return session_id


def in_turns(said: Iterable[Message]) -> list[Message]:
    """What each side said in a row as one message: some agents send it so."""
    rows = ((role, [one.text for one in row]) for role, row in groupby(said, key=lambda one: one.role))
    return [Message(role, "\n\n".join(texts)) for role, texts in rows]


def _moment(session: Any) -> Any:
    from datetime import datetime

    return datetime.fromisoformat(session.started)


@pytest.mark.parametrize(
    ("agent", "other"),
    [pytest.param(*pair, marks=[] if pair in MAIN else pytest.mark.thorough, id=" to ".join(pair)) for pair in PAIRS],
)
def test_the_other_model_is_sent_what_is_told_and_the_prompt(
    here: Machine, agent: str, other: str, monkeypatch: pytest.MonkeyPatch
):
    session_id, env = written(here, agent, monkeypatch)
    session = session_lookup.read(session_lookup.locate(session_id))
    before = session.source_path.read_bytes() if session.source_path.is_file() else b""
    told = handover(session, len(session.turns) - 1, other)
    prompt = unlike_any_other("Now do the same for the downloader")

    words = ("--as", other, "--cwd", str(here.project), "--in", "process", "--no-brief", "--json", "--", prompt)
    fork = settled(here, json.loads(here.smart_fork("fork", session_id, *words, env=env).stdout))

    expected = [Message("user" if one.user else "assistant", one.text) for one in told.said]
    assert in_turns([*expected, Message("user", prompt)]) == in_turns(heard(here, prompt).said)
    assert f"of {AGENTS.title_of(agent)}" in expected[0].text.splitlines()[1]
    assert (other, session_id, told.handed.exchanges) == (
        fork["agent_type"], fork["resume_session_id"], fork["handed"]["exchanges"],
    )  # fmt: skip
    assert [] == fork["warnings"]
    assert [] == here.model.refused
    wait_until(lambda: session_lookup.locate(fork["new_session_id"]).readable, "the log of the other one")
    family = lineage(fork["new_session_id"]).as_json()
    assert [(agent, session_id), (other, fork["new_session_id"])] == [
        (one["agent_type"], one["session_id"])
        for one in family["sessions"]
        if one["session_id"] in (session_id, fork["new_session_id"])
    ]
    assert before == (session.source_path.read_bytes() if session.source_path.is_file() else b"")

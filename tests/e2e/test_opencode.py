"""The real OpenCode: what its model is sent of sessions that are begun, gone on with and forked, message by message."""

from __future__ import annotations

import json
import sqlite3
import subprocess
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import cache
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import psutil
import pytest

from smart_fork.agents.opencode.database import opened
from smart_fork.workers.registry import Registry
from tests.e2e.agents import SERVER, Machine, machine_in
from tests.e2e.logs import Json
from tests.e2e.model_server import Call, Message, Say
from tests.e2e.programs import OPENCODE_VERSION, cache_folder
from tests.e2e.scenario import (
    ANSWER,
    BEGINNING,
    CONVERSATION,
    EXCHANGES,
    MORE,
    PROMPT,
    answers_from_the_cache,
    first_answer,
    heard,
    settled,
    unlike_any_other,
)
from tests.e2e.terminals import SECONDS, wait_until
from tests.support.processes import command_line

pytestmark = pytest.mark.e2e
NEXT = "Now do the same for the downloader"


def settings(url: str) -> Json:
    model = {"name": "Mock", "limit": {"context": 128_000, "output": 8_000}}
    provider = {"npm": "@ai-sdk/openai-compatible", "name": "Mock", "models": {"mock": model}}
    provider["options"] = {"baseURL": f"{url}/v1", "apiKey": "loopback"}
    chosen = {"model": "mock/mock", "small_model": "mock/mock", "provider": {"mock": provider}}
    return {"autoupdate": False, "share": "disabled", **chosen}


def at_home(machine: Machine) -> None:
    """It has run here before: what its plugins may import is there, so npm is not asked at each start, and nothing moves.

    It knows no models but the one of its settings: to read the list of all takes half the processor time of a start.
    """
    folder, state = machine.home / ".config/opencode", machine.home / ".local/state/opencode"
    (folder / "node_modules").mkdir()
    there = {"packages": {"": {"dependencies": {"@opencode-ai/plugin": OPENCODE_VERSION}}}}
    (folder / "package-lock.json").write_text(json.dumps(there))
    state.mkdir(parents=True)
    (state / "kv.json").write_text(json.dumps({"animations_enabled": False}))
    (machine.home / "models.json").write_text("{}")
    machine.env |= {"OPENCODE_DISABLE_AUTOUPDATE": "1", "OPENCODE_MODELS_PATH": str(machine.home / "models.json")}


@pytest.fixture(scope="module")
def opencode(opencode_program: Path, machines: list[Machine]) -> Iterator[Machine]:
    """A machine with OpenCode alone."""
    with machine_in(cache_folder(), opencode_program) as machine:
        machines.append(machine)
        machine.know_smart_fork()
        folder = machine.home / ".config/opencode"
        folder.mkdir(parents=True)
        (folder / "opencode.json").write_text(json.dumps(settings(machine.model.url)))
        at_home(machine)
        for prompt, answer in EXCHANGES:
            machine.model.when(lambda text, wanted=prompt: text == wanted, answer)
        yield machine


@pytest.fixture(autouse=True)
def _closed(opencode: Machine) -> Iterator[None]:
    """What a test has opened in terminals ends with it."""
    yield
    opencode.close_terminals()


def asked(machine: Machine, prompt: str, *options: str, cwd: Path | None = None) -> str:
    """Ask as a script does, on standard input; the session's id."""
    words = 'printf %s "$1" | { shift; exec opencode run --format json "$@"; }'
    folder = cwd or machine.project
    done = machine.run("sh", "-c", words, "sh", prompt, *options, cwd=folder, env={"PWD": str(folder)})
    session: str = json.loads(done.stdout.splitlines()[0])["sessionID"]
    return session


@pytest.fixture(scope="module")
def parents(opencode: Machine) -> Any:
    """Makes a session once, as we begin one and go on with it without a terminal."""

    def make() -> str:
        new = ours(opencode, "new", "--agent", "opencode", "--in", "process", "--", PROMPT)
        opencode.smart_fork("wait", new["worker_id"])
        ours(opencode, "resume", new["worker_id"], "--in", "process", "--", MORE)
        wait_until(lambda: not running(opencode), "the last word in the database")
        return str(new["session_id"])

    return cache(make)


def rows(machine: Machine, session: str) -> list[tuple[str, str]]:
    """All that the database has of a session."""
    path = machine.home / ".local/share/opencode/opencode.db"
    with opened(path) as db:
        of = "SELECT id, data FROM {} WHERE session_id = ? ORDER BY id"
        return [row for table in ("message", "part") for row in db.execute(of.format(table), (session,))]


@pytest.fixture
def parent(opencode: Machine, parents: Any) -> Iterator[str]:
    """Whatever a test does with it, it stays as it is."""
    session: str = parents()
    before = rows(opencode, session)
    yield session
    assert before
    assert before == rows(opencode, session)


def running(machine: Machine) -> list[psutil.Process]:
    """OpenCode, which writes to its database until it ends."""
    program = str(machine.programs)
    return [one for one in machine.processes() if any(word.startswith(program) for word in command_line(one)[:2])]


def ours(machine: Machine, *words: str, cwd: Path | None = None) -> Json:
    told: Json = json.loads(machine.smart_fork(words[0], "--json", *words[1:], cwd=cwd).stdout)
    return settled(machine, told)


def shown(machine: Machine, session: str) -> list[tuple[str, str]]:
    messages = json.loads(machine.smart_fork("show", session, "--json").stdout)["messages"]
    return [(message["role"], message["text"]) for message in messages]


def answered(machine: Machine, session: str, prompt: str) -> list[tuple[str, str]]:
    """What is shown of a session when that prompt has its answer."""
    answer = f"Noted: {prompt[:60]}"
    wait_until(lambda: any(answer in text for _, text in rows(machine, session)), "the answer in the database")
    said = shown(machine, session)
    assert said[-1] == ("assistant", answer)
    return said


def number_of(machine: Machine, session: str, text: str) -> str:
    messages = json.loads(machine.smart_fork("show", session, "--json").stdout)["messages"]
    (number,) = [message["number"] for message in messages if message["text"] == text]
    return str(number)


def directory_of(machine: Machine, session: str) -> str:
    path = machine.home / ".local/share/opencode/opencode.db"
    with opened(path) as db:
        ((directory,),) = db.execute("SELECT directory FROM session WHERE id = ?", (session,))
    return str(directory)


def test_a_session_begins_without_a_terminal_is_found_and_shown_and_a_fork_knows_what_was_said(opencode: Machine):
    first, prompt = unlike_any_other(PROMPT), unlike_any_other(NEXT)

    new = ours(opencode, "new", "--agent", "opencode", "--in", "process", "--", first)

    session = new["session_id"]
    assert [Message("user", first)] == heard(opencode, first).said
    opencode.smart_fork("wait", new["worker_id"])
    wait_until(lambda: not running(opencode), "the last word in the database")
    before, said = rows(opencode, session), [("user", first), ("assistant", f"Noted: {first[:60]}")]
    assert said == shown(opencode, session)
    assert str(opencode.project) == directory_of(opencode, session)
    words = ("--agent", "opencode", "--include-automated", "--json")
    found = json.loads(opencode.smart_fork("find", first, *words).stdout)["results"]
    assert session in [one["session_id"] for one in found]

    answers_from_the_cache(opencode, prompt)
    fork = ours(opencode, "fork", session, "--in", "process", "--", prompt)

    assert [*(Message(*one) for one in said), Message("user", prompt)] == heard(opencode, prompt).said
    answered(opencode, fork["new_session_id"], prompt)
    assert [] == fork["warnings"]
    cached = {"read_from_cache": 142_000, "written_to_cache": 0, "input": 100, "output": 20}
    assert cached == first_answer(opencode, fork)
    assert before == rows(opencode, session)


@pytest.mark.thorough  # as of other agents
def test_a_session_begins_and_goes_on_without_a_terminal_and_is_listed_and_shown_as_it_was_said(
    opencode: Machine, parent: str
):
    listed = json.loads(opencode.smart_fork("list", "--agent", "opencode", "--include-automated", "--json").stdout)

    assert parent in [one["session_id"] for one in listed["sessions"]]
    assert [Message("user", PROMPT)] == heard(opencode, PROMPT).said
    assert [*BEGINNING, Message("user", MORE)] == heard(opencode, MORE).said
    assert shown(opencode, parent) == [(one.role, one.text) for one in CONVERSATION]
    assert str(opencode.project) == directory_of(opencode, parent)


@pytest.mark.thorough  # as of other agents
def test_a_fork_at_an_earlier_message_into_a_worktree_knows_nothing_of_what_came_later_and_our_plugin_tells_what_it_does(
    opencode: Machine, parent: str
):
    """And who it is that asks. Without a terminal, and without what is set up, below."""
    prompt, number, name = unlike_any_other(NEXT), number_of(opencode, parent, ANSWER), "opencode-elsewhere"
    opencode.set_up("opencode")
    question = Call(SERVER, "smart_fork", {"intent": EXCHANGES[0][0], "auto_fork": False}, Say(f"Noted: {prompt[:60]}"))
    opencode.model.when(prompt, question)

    fork = ours(opencode, "fork", parent, "--at", number, "--worktree-name", name, "--in", "tmux", "--", prompt)

    assert [*BEGINNING, Message("user", prompt)] == heard(opencode, prompt).said
    with Registry(opencode.home / ".smart-fork" / "workers.db") as registry:
        wait_until(lambda: registry.get(fork["worker_id"]).status == "idle", "the plugin to tell of the answer")
        assert fork["new_session_id"] == registry.get(fork["worker_id"]).session_id
    answered(opencode, fork["new_session_id"], prompt)
    assert [] == fork["warnings"]
    worktree = opencode.project / ".worktrees" / name
    assert str(worktree) == fork["cwd"] == directory_of(opencode, fork["new_session_id"])
    assert "" == opencode.run("git", "status", "--porcelain").stdout
    request = opencode.model.wait_for(lambda request: request.last_prompt == prompt and bool(request.our_results))
    assert ["smart_fork"] == [one.tool for one in request.our_results]
    told = f'"calling_session":"{fork["new_session_id"]}"'
    assert any(told in text for _, text in rows(opencode, fork["new_session_id"]))
    words = ("find", EXCHANGES[0][0], "--agent", "opencode", "--include-automated", "--json")
    found = [one["session_id"] for one in json.loads(opencode.smart_fork(*words).stdout)["results"]]
    assert 1 == len({parent, fork["new_session_id"]}.intersection(found))  # one of the family
    opencode.smart_fork("setup", "--agent", "opencode", "--remove")


@pytest.mark.thorough  # as of other agents
def test_a_fork_within_a_budget_is_sent_what_is_kept_and_a_line_for_the_rest(opencode: Machine, parent: str):
    prompt = unlike_any_other(NEXT)

    fork = ours(opencode, "fork", parent, "--budget", "match", "--drop", "1", "--in", "process", "--", prompt)

    line, *own = heard(opencode, prompt).said
    assert [*CONVERSATION[len(BEGINNING) :], Message("user", prompt)] == own
    assert "1 exchange dropped here" in line.text
    assert ANSWER not in line.text
    assert ["nothing", "whole"] == [one["kept"] for one in fork["selection"]["exchanges"]]
    answered(opencode, fork["new_session_id"], prompt)
    assert {parent, fork["new_session_id"]} <= ids_of_the_family(opencode, parent)
    assert [] == opencode.model.refused


def ids_of_the_family(machine: Machine, session: str) -> set[str]:
    """As the index knows it."""
    machine.smart_fork("index", "run")
    path = machine.home / ".smart-fork" / "index.db"
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as db:
        of = "SELECT session_id FROM sessions WHERE root_id = (SELECT root_id FROM sessions WHERE session_id = ?)"
        return {row[0] for row in db.execute(of, (session,))}


@pytest.mark.thorough  # that it names its parent, the rows of a fork of ours say as well
def test_opencodes_own_fork_is_one_of_the_family(opencode: Machine, parent: str):
    prompt = unlike_any_other("Fork it by hand")
    fork = asked(opencode, prompt, "-s", parent, "--fork")

    told = json.loads(opencode.smart_fork("lineage", fork, "--json").stdout)

    assert [*CONVERSATION, Message("user", prompt)] == heard(opencode, prompt).said
    assert parent in json.dumps(told)


def in_bytes(machine: Machine, text: str) -> list[str]:
    folder = machine.home / ".local/share/opencode"
    found = [one for one in folder.rglob("*") if one.is_file() and not one.is_symlink()]
    return [str(one.relative_to(folder)) for one in found if text.encode() in one.read_bytes()]


def others(machine: Machine, session: str) -> list[object]:
    """The rows of all other sessions."""
    with opened(machine.home / ".local/share/opencode/opencode.db") as db:
        tables = [("session", "id"), ("message", "session_id"), ("part", "session_id"), ("event", "aggregate_id")]
        told = "SELECT * FROM {} WHERE {} <> ? ORDER BY id"
        return [
            row for table, column in tables for row in db.execute(told.format(table, column), (session,)).fetchall()
        ]


@contextmanager
def serving(machine: Machine) -> Iterator[str]:
    """OpenCode's server, for as long as it is needed; its address."""
    words = ["opencode", "serve", "--port", "0"]
    with subprocess.Popen(words, cwd=machine.project, env=machine.env, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout
            yield next(word for line in server.stdout for word in line.split() if word.startswith("http://"))
        finally:
            server.terminate()


def post(url: str, **body: Any) -> Json:
    """Ask its server, which a start of the program for each prompt would ask as well."""
    wanted = Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})  # noqa: S310 - on loopback
    with urlopen(wanted, timeout=SECONDS) as answer:  # noqa: S310
        told: Json = json.load(answer)
    return told


@pytest.mark.thorough  # as tests of the cut alone say
def test_what_is_cut_out_is_in_no_byte_and_in_no_request_when_the_session_goes_on(opencode: Machine, parent: str):
    """While a server of it runs nothing is cut. What was cut comes back with a rollback."""
    word = unlike_any_other("zebra").split()[-1].strip(".")
    with serving(opencode) as url:
        session = str(post(f"{url}/session")["id"])
        for prompt in (unlike_any_other("Keep this"), f"cut {word} out", unlike_any_other("And this")):
            post(f"{url}/session/{session}/message", parts=[{"type": "text", "text": prompt}])
        refused = opencode.smart_fork("excise", "cut", "2-3", session, "--yes", check=False)
    assert f"The session is running: {session}" in refused.stderr
    kept = [one for one in shown(opencode, session) if word not in one[1]]
    before, whole = others(opencode, session), rows(opencode, session)
    assert in_bytes(opencode, word)

    done = json.loads(opencode.smart_fork("excise", "cut", "2-3", session, "--yes", "--json").stdout)

    assert ([], []) == (in_bytes(opencode, word), done["left"])
    assert before == others(opencode, session)
    assert kept == shown(opencode, session)
    sound = json.loads(opencode.smart_fork("excise", "verify", session, "--json").stdout)
    assert sound["ok"], sound
    prompt = unlike_any_other(NEXT)
    asked(opencode, prompt, "-s", session)
    request = heard(opencode, prompt)
    assert [*(Message(*one) for one in kept), Message("user", prompt)] == request.said
    assert word not in json.dumps(request.body)
    wait_until(lambda: not running(opencode), "the last word in the database")
    opencode.smart_fork("excise", "rollback", done["snapshot"], "--force")
    assert in_bytes(opencode, word)
    assert whole == rows(opencode, session)

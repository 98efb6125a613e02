"""Tests of `SessionUse`: who has a session open, as each agent records it."""

from __future__ import annotations

import json
import os
import subprocess
import time
from pathlib import Path

import psutil
import pytest

from smart_fork.agents import AGENTS
from smart_fork.errors import ForkRefused
from smart_fork.excise.answer import CutRequest as Request
from smart_fork.excise.cutting import cut
from smart_fork.forking.resume import session_to_resume
from smart_fork.forking.session_use import SessionUse
from smart_fork.system.processes import Machine, Processes, Running
from tests.indexer.transcripts.records import copilot_log, gemini_log, happened, linked, qwen_log, spoken
from tests.smart_fork.forks import NEW, SESSION, FakeProcesses

BORN = 1_795_000_000.0
NOTED = ("claude", "qwen", "copilot")


class Listed(FakeProcesses):
    """Processes with the given command lines, by process id."""

    def __init__(self, *processes: tuple[int, str], born: float = BORN) -> None:
        super().__init__()
        self.processes = {pid: Running(words.split(), born, 1) for pid, words in processes}

    def running(self):
        return self.processes


def write_note(home: Path, agent: str, pid: object, session: str = SESSION, began: float = BORN + 1) -> Path:
    """Write an agent's own record of a process, where that agent keeps it."""
    match agent:
        case "claude":
            path = home / f".claude/sessions/{pid}.json"
            text = json.dumps({"pid": pid, "sessionId": session, "startedAt": began * 1000, "procStart": "1"})
        case "qwen":
            path = qwen_log(home, linked("user", "u1", None, "one"), session=session).with_suffix(".runtime.json")
            text = json.dumps({"pid": pid, "session_id": session, "started_at": began})
        case _:
            path = copilot_log(home, happened("user.message", "u1", content="one"), session=session)
            path = path.with_name(f"inuse.{pid}.lock")
            text = str(pid)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    os.utime(path, (began, began))
    return path


def inside(home: Path, agent: str, processes: FakeProcesses, session: str = SESSION) -> list[int]:
    logs = {
        "claude": home / f".claude/projects/-x/{session}.jsonl",
        "qwen": next(home.glob(".qwen/projects/*/chats"), home) / f"{session}.jsonl",
        "copilot": home / f".copilot/session-state/{session}/events.jsonl",
    }
    return SessionUse(agent, session, logs.get(agent), Machine(processes)).processes


@pytest.mark.parametrize("agent", NOTED)
def test_an_idle_process_is_in_the_session_that_its_agent_notes_for_it(home, agent):
    write_note(home, agent, 12)

    assert [12] == inside(home, agent, Listed((12, f"/usr/bin/{agent}")))
    assert [] == inside(home, agent, Listed((12, f"/usr/bin/{agent}")), NEW)


@pytest.mark.parametrize("agent", NOTED)
def test_a_note_whose_process_has_ended_says_nothing(home, agent):
    write_note(home, agent, 12)

    assert [] == inside(home, agent, Listed((13, f"/usr/bin/{agent}")))


@pytest.mark.parametrize("agent", NOTED)
@pytest.mark.parametrize("words", ["/usr/bin/sleep 600", "vi claude.txt qwen copilot", "python -m smart_fork list"])
def test_a_number_that_another_program_has_now_is_no_process_of_the_agent(home, agent, words):
    write_note(home, agent, 12)

    assert [] == inside(home, agent, Listed((12, words)))


@pytest.mark.parametrize("agent", NOTED)
def test_a_number_that_the_same_program_got_later_is_not_the_process_that_made_the_note(home, agent):
    write_note(home, agent, 12)

    assert [] == inside(home, agent, Listed((12, agent), born=BORN + 3600))


@pytest.mark.parametrize("agent", NOTED)
def test_each_of_two_processes_in_a_session_is_seen(home, agent):
    write_note(home, agent, 12)
    if agent == "qwen":  # it has one note for a session
        return
    write_note(home, agent, 13)

    assert [12, 13] == inside(home, agent, Listed((12, agent), (13, agent)))


@pytest.mark.parametrize("agent", NOTED)
def test_a_process_that_was_told_a_session_and_has_begun_another_is_in_that_one(home, agent):
    """After ``/clear``, the command line still names the old session; so does the process that restarted it."""
    write_note(home, agent, 13, NEW)
    processes = Listed((12, f"node /bin/{agent} --resume {SESSION}"), (13, f"{agent} --resume {SESSION}"))
    processes.processes[13] = processes.processes[13]._replace(parent=12)

    assert [] == inside(home, agent, processes)
    assert [13] == inside(home, agent, processes, NEW)


def test_of_two_notes_of_one_process_the_newer_one_counts(home):
    """A killed process leaves its record, and its process id may be reused for another session."""
    write_note(home, "copilot", 12, SESSION, BORN + 1)
    write_note(home, "copilot", 12, NEW, BORN + 9)

    assert [] == inside(home, "copilot", Listed((12, "copilot")))
    assert [12] == inside(home, "copilot", Listed((12, "copilot")), NEW)


def test_what_qwen_runs_is_called_otherwise_than_its_program(home):
    write_note(home, "qwen", 12)

    words = "/opt/node --expose-gc /lib/node_modules/@qwen-code/qwen-code/cli.js -i hello"
    assert [12] == inside(home, "qwen", Listed((12, words)))


@pytest.mark.parametrize("agent", ["claude", "qwen"])
@pytest.mark.parametrize(
    "text",
    [
        "", "[]", "{", "null", "\x00", '{"pid": true}', '{"pid": -1}', '{"pid": 1e999}', '{"pid": "12"}', "[" * 5000,
        '{"pid": 12, "sessionId": ["x"], "session_id": {}, "startedAt": [], "started_at": null}',
        f'{{"pid": {10**30}, "sessionId": "{SESSION}", "session_id": "{SESSION}"}}',
    ],
)  # fmt: skip
def test_a_note_that_is_none_is_passed_over(home, agent, text):
    write_note(home, agent, 12).write_text(text)

    assert [] == inside(home, agent, Listed((12, agent)))


def test_a_note_that_cannot_be_read_is_passed_over(home):
    folder = home / ".claude/sessions"
    folder.mkdir(parents=True)
    os.mkfifo(folder / "1.json")
    (folder / "2.json").mkdir()
    (folder / "3.json").symlink_to("nowhere")
    write_note(home, "claude", 12)

    assert [12] == inside(home, "claude", Listed((12, "claude")))


def test_notes_of_every_home_count(home, monkeypatch, tmp_path):
    """Records count in the home of ``CLAUDE_CONFIG_DIR`` and in the home of the log."""
    write_note(home, "claude", 12)
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path / "other"))
    assert [12] == inside(home, "claude", Listed((12, "claude")))

    write_note(home, "claude", 12).rename(home / "12.json")
    (tmp_path / "other/sessions").mkdir(parents=True)
    (home / "12.json").rename(tmp_path / "other/sessions/12.json")
    assert [12] == inside(home, "claude", Listed((12, "claude")))


@pytest.mark.parametrize(
    ("line", "occupied"),
    [
        (f"/usr/bin/claude --resume {SESSION}", True),
        (f"/home/x/.local/share/claude/versions/2.1.332 --resume {SESSION}", True),
        (f"claude --session-id {SESSION} -- go", True),
        (f"node --no-warnings /usr/bin/claude --resume {SESSION}", True),
        (f"claude --resume {SESSION} --fork-session", False),
        (f"claude -- what was {SESSION} about", False),
        (f"grep claude {SESSION}", False),
        (f"python -m smart_fork resume {SESSION}", False),
        (f"claude --resume {NEW}", False),
        ("claude", False),
    ],
)
def test_an_agent_that_was_told_to_go_on_in_it_is_in_it(home, line, occupied):
    assert [12] * occupied == inside(home, "claude", Listed((1, "/sbin/init"), (12, line)))


def test_a_process_of_another_user_is_seen_by_its_name(home, posing, monkeypatch):
    pid = posing("claude")

    def hidden(process: psutil.Process) -> list[str]:
        raise psutil.AccessDenied(process.pid)

    monkeypatch.setattr(psutil.Process, "cmdline", hidden)
    monkeypatch.setattr(psutil.Process, "name", lambda process: "claude" if process.pid == pid else "other")
    write_note(home, "claude", pid, began=time.time())

    assert [pid] == inside(home, "claude", Processes())


@pytest.mark.parametrize("force", [False, True])
def test_a_session_that_a_person_has_open_is_not_gone_on_with_and_not_cut(claude_session, home, posing, force):
    os.utime(claude_session, (0, 0))
    pid = posing("claude")
    write_note(home, "claude", pid, began=time.time())

    if force:
        assert SESSION == session_to_resume(SESSION, force=True).session_id
        return
    for how in ({}, {"agent": "claude"}):
        with pytest.raises(ForkRefused, match=f"open elsewhere: process {pid} has it open") as refused:
            session_to_resume(SESSION, **how)
        assert f"smart-fork fork {SESSION}" in refused.value.hint
    with pytest.raises(ForkRefused, match=f"process {pid}"):
        cut(Request(str(claude_session), ids=("a3",), force=True))


@pytest.fixture
def chat(home, shop):
    """Begin a session of Gemini CLI in the shop."""

    def begin(session: str, moment: float) -> Path:
        log = gemini_log(home, spoken("user", "u", "one"), session=session, cwd=str(shop))
        text = time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime(moment))
        log.write_text(log.read_text().replace("2026-07-01T10:00:00.000Z", text))
        os.utime(log, (moment, moment))
        return log

    return begin


def gemini_in(log: Path, session: str, processes: Processes | None = None) -> list[int]:
    return SessionUse("gemini", session, log, Machine(processes or Processes())).processes


def test_gemini_is_in_the_session_that_was_begun_last_in_its_directory(chat, shop, posing):
    pid = posing("gemini", shop)
    now = psutil.Process(pid).create_time()
    old, first = chat("0" + NEW[1:], now - 3600), chat(SESSION, now + 3)
    assert ([], [pid]) == (gemini_in(old, "0" + NEW[1:]), gemini_in(first, SESSION))

    later = chat(NEW, now + 300)  # after /clear
    assert ([], [pid]) == (gemini_in(first, SESSION), gemini_in(later, NEW))


def test_gemini_elsewhere_is_in_no_session_of_this_directory(chat, home, posing):
    pid = posing("gemini", home)

    assert [] == gemini_in(chat(SESSION, psutil.Process(pid).create_time() + 3), SESSION)


@pytest.mark.parametrize("words", ["codex", "node /usr/bin/codex -- hello"])
def test_codex_shows_a_session_that_its_server_has_open_only_while_a_window_is_open(home, words, request):
    """The server keeps a session open for a while after its window closes."""
    session = "01a22361-256a-7ac2-8ff2-9f8b018fa7bd"
    lock = home / f".codex/thread-writer-locks/{session}.lock"
    lock.parent.mkdir(parents=True)
    lock.touch()
    reading = f"exec 3<{lock}; echo begun; exec sleep 600"
    server = subprocess.Popen(["sh", "-c", reading], stdout=subprocess.PIPE)
    request.addfinalizer(lambda: (server.kill(), server.communicate()))
    assert server.stdout.readline()
    listed = (server.pid, "codex app-server --listen unix://"), (13, words), (14, f"codex resume {NEW}")

    def found(*processes: tuple[int, str]) -> list[int]:
        return SessionUse("codex", session, None, Machine(Listed(*processes))).processes

    assert [13] == found(*listed)
    assert [] == found(*listed[::2])
    assert [server.pid] == found((server.pid, "codex exec go"), (13, words))
    assert [] == SessionUse("codex", NEW, None, Machine(Listed(*listed[:2]))).processes


def test_every_agent_that_can_be_started_has_the_facet_of_its_processes():
    assert all(agent.processes for agent in AGENTS if agent.has("starter"))

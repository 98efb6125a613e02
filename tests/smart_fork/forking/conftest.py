"""Forks of one session of each agent, whose programs are played."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from smart_fork.agents.staging import folder_of
from smart_fork.forking.launch import ForkSource, fork
from smart_fork.processes import SystemProcesses
from tests.smart_fork.forks import NEW, SESSION, FakeClock, FakeProcesses, codex_path, codex_records, said, write_log


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def launch(programs, clock, request, home):
    """Fork a session with played programs: they write the log that the real ones would."""

    def run(source: ForkSource, processes: FakeProcesses, **more):
        values = {"prompt": "fix the race", "place": "process", "clock": clock, "processes": processes} | more
        return fork(source, **values)

    return run


def source_of(agent: str, path: Path, repo: Path) -> ForkSource:
    return ForkSource(agent, SESSION, path, str(repo))


def playing(agent: str, clock: FakeClock, home: Path, **meta) -> FakeProcesses:
    processes = FakeProcesses()

    def play(call: dict) -> None:
        argv = call["argv"]
        moment = datetime.fromtimestamp(clock.now(), UTC).isoformat()
        if agent == "claude":
            new = argv[argv.index("--session-id") + 1]
            asked = said("u9", None, "user", argv[-1], sessionId=new, timestamp=moment)
            write_log(folder_of(call["cwd"]) / f"{new}.jsonl", [{"type": "mode", "sessionId": new}, asked])
        else:
            values = {"forked_from_id": SESSION, "timestamp": moment} | meta
            header, *turn = codex_records(NEW, call["cwd"], [argv[-1]], **values)
            write_log(codex_path(home, NEW), [header, *(one | {"timestamp": moment} for one in turn)])

    processes.on_start = play
    return processes


@pytest.fixture
def source(request, agent, repo):
    return source_of(agent, request.getfixturevalue(f"{agent}_session"), repo)


@pytest.fixture
def played(agent, clock, home):
    return playing(agent, clock, home)


class SystemThatHelps(SystemProcesses):
    """Real processes, but for the agents' help."""

    def run(self, argv, **options):
        if argv[-1] == "--help":
            return FakeProcesses().run(argv, timeout=1)
        return super().run(argv, **options)

"""Fixtures that fork a session of each agent with scripted programs."""

from __future__ import annotations

import os
from dataclasses import fields, replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from indexer.transcripts.model import Session
from smart_fork.agents.claude.log_files import folder_of
from smart_fork.agents.log_readers import READERS
from smart_fork.agents.request_fields import Options
from smart_fork.forking.fork_content import ForkContent
from smart_fork.forking.fork_points import ForkPoint
from smart_fork.forking.start import prepare
from smart_fork.forking.worker_spec import WorkerSpec
from smart_fork.system.processes import Machine, Processes
from tests.smart_fork.forks import NEW, SESSION, FakeClock, FakeProcesses, codex_path, codex_records, said, write_log


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def launch(programs, clock, request, home):
    """Fork a session with scripted programs, which write the logs that the real agents would write."""

    def run(source: Session, processes: FakeProcesses, **more):
        said = {one.name: more.pop(one.name) for one in fields(Options) if one.name in more}
        options = Options(**{"prompt": "fix the race", "place": "process"} | said)
        dry_run, env, timer = more.pop("dry_run", False), more.pop("env", None), more.pop("clock", clock)
        machine = Machine(processes, os.environ if env is None else env, timer)
        if at := more.pop("at", None):  # the turn of that id
            more["content"] = ForkContent(point=ForkPoint(0, at))
        prepared = prepare(WorkerSpec("fork", source.agent, source, options, **more), machine, dry_run=dry_run)
        return (prepared.preview() if dry_run else prepared.launch()).as_fork()

    return run


def source_of(agent: str, path: Path, repo: Path) -> Session:
    return replace(READERS[agent].read(path).session, cwd=str(repo))


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


class SystemThatHelps(Processes):
    """Real processes, except that the agents' ``--help`` is scripted."""

    def run(self, argv, **options):
        if argv[-1] == "--help":
            return FakeProcesses().run(argv, timeout=1)
        return super().run(argv, **options)

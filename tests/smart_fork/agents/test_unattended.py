"""Sessions that smart-fork's own workers began: the registry tells them, if the logs do not."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from smart_fork.agents.log_readers import READERS
from smart_fork.workers.registry import Registry
from tests.smart_fork.agents.copilot.test_log import fixture as copilot
from tests.smart_fork.agents.gemini.test_log import fixture as gemini
from tests.smart_fork.agents.qwen.test_log import fixture as qwen

LOGS = {"qwen": (qwen, "print"), "gemini": (gemini, "tools"), "copilot": (copilot, "tools")}
OTHER = "0197f2c7-1a2b-7000-8000-0000000000aa"


@pytest.fixture(params=LOGS)
def log(request, home):
    make, name = LOGS[request.param]
    return request.param, make(home, name)


def began(agent: str, session_id: str, **more: object) -> None:
    with Registry() as registry:
        values = {"source_session_id": "", "place": "process", "cwd": Path("/work"), "kind": "new", **more}
        worker = registry.add(agent, **values)
        registry.set_session_id(worker.id, session_id)


def origin(agent: str, path: Path) -> str:
    session = READERS[agent].read(path).session
    glanced = READERS[agent].glance(path)
    assert session.origin == glanced.origin
    return session.origin


def test_what_a_worker_without_a_terminal_began_is_automated(log):
    agent, path = log
    session_id = READERS[agent].read(path).session.session_id
    assert "person" == origin(agent, path)
    began(agent, OTHER)
    assert "person" == origin(agent, path)

    began(agent, session_id)

    assert "automated" == origin(agent, path)


@pytest.mark.parametrize(
    "how", [{"place": "tmux"}, {"place": "here"}, {"kind": "resume"}, {"kind": "fork", "source_session_id": OTHER}]
)
def test_what_a_person_sees_or_has_begun_is_a_persons(log, how):
    agent, path = log
    began(agent, READERS[agent].read(path).session.session_id, **how)

    assert "person" == origin(agent, path)


def test_a_fork_of_an_automated_session_is_automated(log):
    agent, path = log
    began(agent, OTHER)
    began(agent, READERS[agent].read(path).session.session_id, kind="fork", source_session_id=OTHER)

    assert "automated" == origin(agent, path)


def test_without_a_registry_that_can_be_read_it_is_a_persons(log, home):
    agent, path = log
    began(agent, READERS[agent].read(path).session.session_id)
    broken = home / ".smart-fork/workers.db"
    broken.write_bytes(os.urandom(9000))

    assert "person" == origin(agent, path)

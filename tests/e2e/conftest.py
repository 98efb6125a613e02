"""Fixtures of the end-to-end tests: the real programs, and a machine to run them on."""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Callable, Generator, Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.e2e.agents import Machine, machine_in
from tests.e2e.failure_report import situation
from tests.e2e.logs import Log
from tests.e2e.model_server import Protocol
from tests.e2e.page_fixtures import opened, pytest_runtest_teardown, running, served  # noqa: F401 - fixtures, and what ends them
from tests.e2e.programs import (
    CLAUDE,
    CLAUDE_AND_CODEX,
    COPILOT,
    GEMINI,
    OPENCODE,
    QMD,
    QWEN,
    Bundle,
    Unavailable,
    cache_folder,
    install,
)
from tests.e2e.recall_fixtures import recall, told  # noqa: F401 - fixtures
from tests.e2e.scenario import EXCHANGES
from tests.support.executables import SKIP_MISSING, fail_or_skip
from tests.support.processes import command_line

HERE = Path(__file__).parent
#: All machines of this run.
USED: list[Machine] = []


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A failure tells what was to be seen on the machines of its test."""
    report = yield
    if report.failed:
        used = [one for one in getattr(item, "funcargs", {}).values() if isinstance(one, Machine) and one.root.exists()]
        report.sections += [(f"machine {one.root.name}", situation(one)) for one in used]
    return report


@pytest.fixture(scope="session", autouse=True)
def machines() -> Iterator[list[Machine]]:
    """All machines of this run. When the last one has been shut down, nothing of any of them runs any more."""
    yield USED
    assert [] == [command_line(process) for machine in USED for process in machine.processes()]


@cache
def brought(bundle: Bundle) -> Path | Unavailable:
    """The folder of these programs, or why there is none."""
    try:
        return install(cache_folder(), bundle)
    except Unavailable as error:
        return error


def folder_of(bundle: Bundle) -> Path:
    """That folder; without it the test that asks fails, or is left out where the suite is run without programs."""
    if SKIP_MISSING:
        pytest.skip("SMART_FORK_E2E is skip")
    found = brought(bundle)
    return found if isinstance(found, Path) else fail_or_skip(str(found))


#: The fixtures below, and what each asks for.
BUNDLES = {
    "programs": CLAUDE_AND_CODEX,
    "claude_program": CLAUDE,
    "qwen_program": QWEN,
    "opencode_program": OPENCODE,
    "gemini_program": GEMINI,
    "copilot_program": COPILOT,
    "qmd_program": QMD,
}


def pytest_collection_finish(session: pytest.Session) -> None:
    """They are brought before the first test's time begins to run."""
    if SKIP_MISSING or session.config.option.collectonly:
        return
    ours = (item for item in session.items if item.path.is_relative_to(HERE))  # others have a `programs` of their own
    asked = {name for item in ours for name in getattr(item, "fixturenames", ())}
    for name, bundle in BUNDLES.items():
        if name in asked:
            brought(bundle)


@pytest.fixture(scope="session")
def programs() -> Path:
    """The folder of ``claude`` and ``codex``."""
    if not SKIP_MISSING and not shutil.which("tmux"):
        fail_or_skip("tmux is not installed")
    return folder_of(CLAUDE_AND_CODEX)


@pytest.fixture(scope="session")
def claude_program() -> Path:
    """The folder of a ``claude`` with background sessions."""
    return folder_of(CLAUDE)


@pytest.fixture(scope="session")
def qwen_program() -> Path:
    """The folder of ``qwen``."""
    return folder_of(QWEN)


@pytest.fixture(scope="session")
def opencode_program() -> Path:
    """The folder of ``opencode``."""
    return folder_of(OPENCODE)


@pytest.fixture(scope="session")
def gemini_program() -> Path:
    """The folder of ``gemini``."""
    return folder_of(GEMINI)


@pytest.fixture(scope="session")
def copilot_program() -> Path:
    """The folder of ``copilot``."""
    return folder_of(COPILOT)


@pytest.fixture(scope="session")
def qmd_program() -> Path:
    """The folder of ``qmd`` and of a ``node`` that it runs on."""
    return folder_of(QMD)


@pytest.fixture(scope="module")
def machine(programs: Path, machines: list[Machine]) -> Iterator[Machine]:
    """A fresh home with a repository, both agents and a model, for the tests of one module."""
    with machine_in(cache_folder(), programs) as fresh:
        machines.append(fresh)
        yield fresh


@pytest.fixture(scope="session")
def equipped_machine(programs: Path, machines: list[Machine]) -> Iterator[Machine]:
    """A machine whose agents have our MCP server, for all modules."""
    with machine_in(cache_folder(), programs) as fresh:
        machines.append(fresh)
        del fresh.env["SMART_FORK_PRELOAD"]  # here agents ask us again and again
        fresh.add_smart_fork()
        yield fresh


@pytest.fixture
def equipped(equipped_machine: Machine) -> Iterator[Machine]:
    """The same; what a test has opened in terminals ends with it."""
    yield equipped_machine
    equipped_machine.close_terminals()


@pytest.fixture
def project(equipped: Machine) -> Path:
    """A repository of this test alone."""
    return equipped.repository(f"depot-{uuid.uuid4().hex[:6]}")


@pytest.fixture(scope="session")
def parents(equipped_machine: Machine) -> Callable[[Protocol], Log]:
    """The session of a person, in the machine's first repository, that the forks are made of."""
    return cache(lambda agent: equipped_machine.session_of_before(agent, *EXCHANGES))


@pytest.fixture
def parent(agent: Protocol, parents: Callable[[Protocol], Log]) -> Iterator[Log]:
    """That of an agent. Whatever a test does with it, it stays as it is (F-095)."""
    log = parents(agent)
    before = log.sha256
    yield log
    assert before == log.sha256

"""Every test starts in an empty home of its own: no settings, sessions, keys or repository of whoever runs the suite."""

from __future__ import annotations

import gc
import logging
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any

import hypothesis
import psutil
import pytest

from smart_fork.agents import AGENTS
from tests.support.exhaustive import full_or_sample

ROOT = Path(__file__).resolve().parent.parent

#: Variables with these beginnings steer us, the agents, git, make or the terminal; the tests that need one set it.
FOREIGN = (
    "ANTHROPIC_",
    "CLAUDE",
    "CODEX_",
    "GIT_",
    "ITERM",
    "MAKE",
    "MFLAGS",
    "OPENAI_",
    "SMART_FORK_",
    "TMUX",
    "XDG_",
    *(name for agent in AGENTS for name in (*agent.tells, *agent.session_variables, *agent.project_variables)),
    *(agent.home.variable for agent in AGENTS if agent.home),
)

#: Variables that every test has, beside those of its home.
OWN = {
    "SMART_FORK_PRELOAD": "off",  # each command is the process that a test has started
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_NOSYSTEM": "1",
    **{f"GIT_{who}_NAME": "Test" for who in ("AUTHOR", "COMMITTER")},
    **{f"GIT_{who}_EMAIL": "test@example.com" for who in ("AUTHOR", "COMMITTER")},
}

# Read once, when the libraries are imported: models come from the packaged copy, and output has no colours, in CI either.
os.environ.update(HF_HUB_OFFLINE="1", TOKENIZERS_PARALLELISM="false", NO_COLOR="1")
# Several processes test at a time: threads of one that wait for each other would take the processor from the others.
os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1")
for name in ("FORCE_COLOR", "GITHUB_ACTIONS", "PY_COLORS"):
    os.environ.pop(name, None)

# The programs that tests start by the thousand are compiled once, whatever whoever runs the suite has said of that.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

#: Where the homes are on Linux, if there is room: SQLite waits for a disk at each commit, and no test is about that.
MEMORY, ROOM = Path("/dev/shm"), 4 << 30  # noqa: S108 - the folders in it are pytest's, and private


def has_room(folder: Path) -> bool:
    """Whether programs can be written to a folder in memory, and run from it, for as long as the suite takes."""
    if not os.access(folder, os.W_OK) or psutil.virtual_memory().available < ROOM:
        return False
    told = os.statvfs(folder)
    return told.f_bavail * told.f_frsize > ROOM and not told.f_flag & os.ST_NOEXEC


if sys.platform == "linux" and has_room(MEMORY):
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(MEMORY))

#: How each phase of a test ended, for the fixtures that leave it something to look at when it has failed.
REPORTS = pytest.StashKey[list[pytest.TestReport]]()
_HOMES = count()

# A worker of the suite keeps all that it has collected: to look through that again and again took a tenth of its time.
gc.set_threshold(20_000, 50, 100)

#: On a busy machine to make examples may take seconds, and says nothing.
UNHURRIED = [hypothesis.HealthCheck.too_slow]


def pytest_configure(config: pytest.Config) -> None:
    """Draw fewer examples where the thorough tests are left out as well."""
    few = 10 if "not thorough" in config.getoption("markexpr") else 25
    hypothesis.settings.register_profile(
        "ours", deadline=None, derandomize=True, max_examples=full_or_sample(60, few), suppress_health_check=UNHURRIED
    )
    hypothesis.settings.load_profile("ours")


def pytest_collection_finish() -> None:
    gc.collect()
    gc.freeze()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the files that take long, so that no process is left alone with one at the end: 280 seconds, not 305."""
    long = {item.path for item in items if item.get_closest_marker("slow") or item.get_closest_marker("e2e")}
    items.sort(key=lambda item: item.path not in long)


@cache
def file_or_group(file: str) -> str:
    """Return the `xdist_group` of a file of tests, otherwise the file itself.

    As it is written there: with pytest 9.2, pytest-xdist 3.8 ignores groups (its issue 1386), and collects in other processes.
    """
    found = re.search(r'xdist_group\("([\w-]+)"\)', (ROOT / file).read_text(encoding="utf-8"))
    return found[1] if found else file


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """With ``--dist loadfile``, run the files of an `xdist_group` in one process, too.

    They share what takes seconds to make: PyTorch 7, a machine with two agents 7, a service with the page 7, the servers of a
    team 3, the corpus 3.
    """
    if config.getvalue("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling

    class LoadFileOrGroup(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return file_or_group(super()._split_scope(nodeid))

    return LoadFileOrGroup(config, log)


def move_into(home: Path, patch: pytest.MonkeyPatch) -> None:
    """Make `home` the only home that code and its child processes can see."""
    for name in [name for name in os.environ if name.startswith(FOREIGN) and name not in OWN]:
        patch.delenv(name)
    own = OWN | {"HOME": str(home), "SMART_FORK_HOME": f"{home}/.smart-fork", "TMUX_TMPDIR": str(home)}
    for name, value in own.items():
        if os.environ.get(name) != value:  # a variable costs more to set than to look at
            patch.setenv(name, value)


@pytest.fixture(scope="session", autouse=True)
def _no_ones_home(tmp_path_factory):
    """For the fixtures of a whole session, which are made before the first test has a home."""
    with pytest.MonkeyPatch.context() as patch:
        move_into(tmp_path_factory.mktemp("session"), patch)
        yield


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    item.stash.setdefault(REPORTS, []).append(report)
    return report


@pytest.fixture(autouse=True)
def home(tmp_path_factory, monkeypatch, request) -> Iterator[Path]:
    """The empty home of this test; SMART_FORK_HOME lies in it and does not exist yet. One that has failed leaves it."""
    folder = tmp_path_factory.getbasetemp() / f"home{next(_HOMES)}"  # that no test has had before
    folder.mkdir(mode=0o700)
    move_into(folder, monkeypatch)
    with _no_ones_log_level():
        yield folder
    _forget_consoles()
    monkeypatch.undo()  # of what reads folders
    if not any(report.failed for report in request.node.stash.get(REPORTS, [])):
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _no_ones_log_level() -> Iterator[None]:
    """A command that ran in this process, and set where and how much is logged, decides it for no later test.

    By `setLevel`, for a logger remembers below which level it says nothing until that is called.
    """
    loggers = [logging.getLogger(name) for name in (None, "indexer", "smart_fork")]
    before = [(logger, logger.level, [*logger.handlers]) for logger in loggers]
    yield
    for logger, level, handlers in before:
        if logger.level != level:
            logger.setLevel(level)
        logger.handlers = handlers


def _forget_consoles() -> None:
    """A console keeps for good what it took for a terminal, and would colour what later tests read."""
    if output := sys.modules.get("smart_fork.cli.output"):
        for stream in (output.out, output.err):
            vars(stream).pop("console", None)


@pytest.fixture(scope="session")
def real_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home with the sessions of the corpus, which real people had. A test that changes one puts it back."""
    corpus = ROOT.parent / "shared/corpus"
    if not (corpus / "lay_out.py").is_file():
        pytest.skip("no corpus beside the checkout")
    folder = tmp_path_factory.mktemp("corpus")
    subprocess.run([sys.executable, str(corpus / "lay_out.py"), str(folder)], check=True, capture_output=True)
    return folder / "home"


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Programs of this test end with Ctrl-C or the terminal, also where the suite runs in the background without them."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler), signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    for number, handler in zip((signal.SIGINT, signal.SIGHUP), before, strict=True):
        signal.signal(number, handler)

"""The installed program, as a shell runs it."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.smart_fork.world import World
from tests.support import forkserver
from tests.support.cases import thorough_except_first

pytestmark = pytest.mark.slow

HEAVY = {"anyio", "apsw", "mcp", "numpy", "sentence_transformers", "torch"}


def run(*words: str, **env: str) -> subprocess.CompletedProcess[bytes]:
    return forkserver.run(
        [sys.executable, "-m", "smart_fork", *words], capture_output=True, check=False, env=os.environ | env
    )


#: One after the other in one process: what all of them import, and what those have imported that are said of all commands.
OF_ALL = (["--version"], ["--help"], [])
HELP = """
import contextlib, io, json, sys
from smart_fork.cli.main import main
told = []
for words in json.loads(sys.argv[1]):
    sys.argv = ["smart-fork", *words]
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(out), contextlib.suppress(SystemExit):
        main()
    told.append((out.getvalue(), list(sys.modules)))
print(json.dumps(told))
"""


def test_help_imports_nothing_heavy_and_what_is_said_of_all_commands_none_of_them():
    words = [*OF_ALL, ["find", "--help"], ["index", "--help"], ["mcp", "-h"]]
    command = [sys.executable, "-c", HELP, json.dumps(words)]
    told = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)

    assert len(words) == len([said for said, _ in told if said.strip()])
    assert set() == HEAVY & set(told[-1][1])
    assert set() == {"smart_fork.cli.find", "smart_fork.cli.excise"} & set(told[len(OF_ALL) - 1][1])


def test_it_completes_in_shells():
    assert b"--install-completion" in run("--help", COLUMNS="200").stdout
    # Which shell it is, is seen by the process that it was started from: the suite itself may have been started from none.
    inside = ["bash", "-c", f"{shlex.quote(sys.executable)} -m smart_fork --show-completion; true"]
    assert b"complete" in subprocess.run(inside, capture_output=True, check=True).stdout
    asked = {"_SMART_FORK_COMPLETE": "complete_bash", "COMP_WORDS": "smart-fork fi", "COMP_CWORD": "1"}
    program = Path(sys.executable).with_name("smart-fork")
    if not program.exists():
        pytest.skip("smart-fork is not installed beside this Python")
    assert b"find" in subprocess.run([program], capture_output=True, check=True, env=os.environ | asked).stdout.split()


#: A command beside which one thread works that is waited for, and one that is in a library for good.
BESIDE = """
import atexit, sys, threading
from concurrent.futures import ThreadPoolExecutor
class Library:
    def __del__(self): print("taken down", flush=True)
library, going = Library(), threading.Event()
atexit.register(print, "last words")
threading.Thread(target=threading.Event().wait, daemon=True).start()
ThreadPoolExecutor(1).submit(lambda: (going.wait(), print("finished")))
threading._register_atexit(going.set)
sys.argv = ["smart-fork", "index", "path"]
from smart_fork.__main__ import main
main()
"""


def test_a_thread_that_is_in_a_library_at_the_end_does_not_abort_the_command_and_work_is_waited_for():
    """The library's memory is not freed around the running thread."""
    done = subprocess.run([sys.executable, "-c", BESIDE], capture_output=True, text=True, check=False)

    assert (0, "") == (done.returncode, done.stderr)
    assert ["finished", "last words"] == done.stdout.splitlines()[-2:]


@pytest.mark.parametrize("words", [["list"], ["list", "--json"], ["--help"], ["index", "path"]])
def test_a_reader_that_has_seen_enough_ends_it_quietly(world, shop, words):
    world.claude(shop, "one", "1")
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing) as nobody_reads:
        done = forkserver.run(
            [sys.executable, "-m", "smart_fork", *words], stdout=nobody_reads, stderr=subprocess.PIPE, cwd=shop
        )

    assert (done.returncode, done.stderr) == (0, b"")


def test_file_names_that_are_no_text_are_printed_all_the_same(world):
    folder = os.fsencode(world.repository("shop")) + b"/\xff"
    Path(os.fsdecode(folder)).mkdir()

    done = run("find", "x", "--json", "--project", os.fsdecode(folder))

    assert done.returncode == 3
    assert os.fsencode(json.loads(done.stdout)["project_path"]) == folder


@pytest.mark.parametrize("words", thorough_except_first([["show"], ["resume"], ["lineage"], ["export", "--markdown"], ["excise", "list"], ["forget", "--yes"],
     ["read"], ["wait"], ["close"]], 2), ids=" ".join)  # fmt: skip
def test_an_id_that_is_no_utf8_is_not_found(world, words):
    world.claude(world.repository("shop"), "Paint the logo of the shop blue", "It is blue now")
    done = run(*words, os.fsdecode(b"\xff" * 8))

    assert done.returncode == 3, done.stderr


def test_the_real_model_finds_by_meaning(world, shop):
    knows = world.claude(
        shop, "When the transfer breaks off, try again a few times and wait longer each time", "It does now"
    )
    world.claude(shop, "Paint the logo of the shop blue", "It is blue now")

    assert run("index", "run").returncode == 0
    done = run("find", "retry failed uploads with exponential backoff", "--json", "--project", str(shop))

    answer = json.loads(done.stdout)
    assert done.returncode == 0, done.stderr
    assert answer["search_mode"] == "hybrid"
    assert answer["results"][0]["session_id"] == knows
    assert done.stderr == b""


def test_a_command_is_started_without_the_others():
    """Defining all commands takes as long as a search."""
    code = "import sys; from smart_fork.cli.main import application; application('find'); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert "smart_fork.cli.find" in done.stdout.split()
    assert not {"smart_fork.cli.excise", "smart_fork.cli.workers", "rich"} & set(done.stdout.split())


#: What forks of another kind need, and what takes long to import.
NOT_OF_A_FORK = {
    "filelock", "httpx", "numpy", "psutil", "pydantic", "rich",
    "smart_fork.forking.search_and_fork", "smart_fork.finding.session_library", "smart_fork.sharing", "smart_fork.team.client",
}  # fmt: skip


@pytest.mark.thorough
def test_a_fork_by_its_id_is_ready_without_what_only_other_forks_need(world, shop, programs):
    """Each import before the agent's start makes the person wait."""
    (programs / "claude").write_text("#!/bin/sh\necho '  --fork-session'\n")
    ours = world.claude(shop, "one", "1")
    code = (
        f"import sys; sys.argv = ['smart-fork', 'fork', {ours!r}, '--dry-run', '--in', 'process', '--', 'go on']\n"
        "from smart_fork.cli.main import main\ntry: main()\nfinally: print(*sys.modules, file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=shop, capture_output=True, text=True, check=True)

    assert "--fork-session" in done.stdout
    assert set() == NOT_OF_A_FORK & set(done.stderr.split())


@pytest.mark.parametrize("words", [["list"], ["find", "add retry"], ["show", "SESSION"]])
def test_what_nobody_looks_at_is_written_without_what_draws_for_a_terminal(world, shop, words):
    ours = world.claude(shop, "add\tretry to the uploader", "done", "\U0001f600 and now the tests", "done")
    words = [ours if word == "SESSION" else word for word in words]
    code = (
        f"import sys; sys.argv = ['smart-fork', *{words!r}]\n"
        "from smart_fork.cli.main import main\ntry: main()\nfinally: print(*sys.modules, file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=shop, capture_output=True, text=True, check=True)
    drawn = subprocess.run(
        [sys.executable, "-c", f"from smart_fork.cli.output import out\nout.console\n{code}"],
        cwd=shop, capture_output=True, text=True, check=True,
    )  # fmt: skip

    assert "rich" not in done.stderr.split()
    assert done.stdout == drawn.stdout


def test_what_others_are_owed_is_done_before_it_ends():
    """The process does not wait for its modules to be freed."""
    code = (
        "import atexit, sys; sys.argv = ['smart-fork', '--version']; atexit.register(print, 'the last word')\n"
        "class Module:\n    def __del__(self): print('taken down')\n"
        "sys.modules['x'] = Module()\nfrom smart_fork.__main__ import main; main()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert "the last word" == done.stdout.splitlines()[-1]


@pytest.mark.thorough
def test_a_question_is_answered_before_garbage_is_looked_for(world, shop):
    world.claude(shop, "one", "1")
    code = (
        "import atexit, gc, sys; sys.argv = ['smart-fork', 'find', 'one', '--json']\n"
        "start = sum(one['collections'] for one in gc.get_stats())\n"
        "told = lambda: print(sum(one['collections'] for one in gc.get_stats()) - start, file=sys.stderr)\n"
        "atexit.register(told)\nfrom smart_fork.__main__ import main; main()"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=shop, capture_output=True, text=True, check=True)

    assert int(done.stderr) < 10


def test_a_thread_that_still_works_is_waited_for():
    code = (
        "import sys, threading; sys.argv = ['smart-fork', '--version']\n"
        "def work(): threading.main_thread().join(); print('done')\n"
        "threading.Thread(target=work).start()\nfrom smart_fork.__main__ import main; main()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert "done" == done.stdout.splitlines()[-1]


def test_every_directory_can_be_moved_and_nothing_is_written_elsewhere(home, tmp_path):
    """X-004."""
    names = (
        "SMART_FORK_HOME",
        "CLAUDE_CONFIG_DIR",
        "CODEX_HOME",
        "XDG_CONFIG_HOME",
        "XDG_CACHE_HOME",
        "XDG_DATA_HOME",
        "XDG_STATE_HOME",
    )
    moved = {name: str(home / name.lower()) for name in names}
    env = os.environ | moved | {"HOME": str(tmp_path), "SMART_FORK_INDEXING": "true"}
    World(home).claude(home, "add retry", "done")
    (home / ".claude").rename(home / "claude_config_dir")
    answers = {}
    for words in (("index", "run", "--no-vectors"), ("find", "retry"), ("list",), ("doctor",), ("worktrees",), ("active",),
                  ("service", "print", "--kind", "systemd")):  # fmt: skip
        command = [sys.executable, "-P", "-m", "smart_fork", *words, "--json"]
        answers[words[0]] = forkserver.run(command, env=env, cwd=home, capture_output=True).stdout

    assert 1 == json.loads(answers["list"])["count"] == json.loads(answers["find"])["count"]
    assert str(home / "xdg_config_home/systemd/user") in json.loads(answers["service"])["unit"]
    assert [] == list(tmp_path.rglob("*"))
    assert (home / "smart_fork_home/index.db").exists()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no disk that is always full")
def test_what_cannot_be_printed_is_an_error_and_what_nobody_wants_to_be_told_is_none(monkeypatch):
    monkeypatch.delenv("PYTHONUNBUFFERED", raising=False)  # what was not taken stays in a buffer until the end
    program = f"{shlex.quote(sys.executable)} -m smart_fork"
    # Each beside the others: a start takes longer than what it does.
    shell = f"{program} list --json >/dev/full & {program} list 2>/dev/full & {program} show nobody-is-called-so >&- & "
    statuses = "for one in $(jobs -p); do wait $one; echo $?; done"
    done = subprocess.run(["bash", "-c", shell + statuses], capture_output=True, text=True, check=False)

    assert [*done.stdout.split()] == ["1", "0", "3"]
    assert "The output could not be written: No space left on device" in done.stderr
    assert "nobody-is-called-so" in done.stderr
    assert "Traceback" not in done.stderr

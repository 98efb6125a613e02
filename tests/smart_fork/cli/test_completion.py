"""The completions that a shell offers, with the scripts of `--install-completion`."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest

from smart_fork.cli.quick_answers import completions
from smart_fork.finding import session_notes
from smart_fork.workers.registry import Registry
from tests.smart_fork.world import World
from tests.support import forkserver
from tests.support.cases import thorough_except_first

RETRY = "add retry with backoff to the uploader"
FIRST, SECOND = "60309e1e-0000-4000-8000-000000000001", "71111111-0000-4000-8000-000000000002"
#: What a shell is told that a value stands for.
PURPOSE = {"bash": r"$^", "zsh": r':"[^"]*"', "fish": r"\t.*"}
HOSTILE = "title\"$(touch pwned)`touch pwned`';touch pwned;'\n* ~ :\\ \x1b[31m ünï 漢字"


def asked(shell: str, line: str) -> dict[str, str]:
    """Return the environment in which a shell asks for completions."""
    how = {"_SMART_FORK_COMPLETE": f"complete_{shell}"}
    if shell == "bash":
        at = len(line.split()) - (not line.endswith(" "))
        return how | {"COMP_WORDS": line, "COMP_CWORD": str(at)}
    return how | {"_TYPER_COMPLETE_ARGS": line, "_TYPER_COMPLETE_FISH_ACTION": "get-args"}


@pytest.fixture
def indexed(world: World, shop, monkeypatch) -> World:
    world.claude(shop, RETRY, "done", session_id=FIRST)
    world.claude(shop, "draw the map", "drawn", session_id=SECOND)
    world.find(RETRY, shop)
    monkeypatch.chdir(shop)
    return world


@pytest.mark.parametrize(
    "command",
    thorough_except_first(
        [
            "show",
            "spawn --fork-from",
            "fork",
            "branch",
            "lineage",
            "forget",
            "resume",
            "verdict",
            "tag",
            "pin",
            "archive",
        ],
        2,
    ),
)
def test_sessions_are_offered_with_their_titles_newest_first(indexed, command):
    assert (f"71111111\tclaude draw the map\n60309e1e\tclaude {RETRY}", 0) == completions(
        asked("fish", f"smart-fork {command} ")
    )


def test_each_shell_is_answered_in_its_own_way(indexed):
    zsh = f'_arguments \'*: :(("71111111":"claude draw the map"\n"60309e1e":"claude {RETRY}"))\''

    assert (zsh, 0) == completions(asked("zsh", "smart-fork fork "))
    assert (f"71111111  # claude draw the map\n60309e1e  # claude {RETRY}", 0) == completions(
        asked("bash", "smart-fork fork ")
    )
    assert ("60309e1e", 0) == completions(asked("bash", "smart-fork fork 60"))
    assert (FIRST, 0) == completions(asked("bash", f"smart-fork fork {FIRST[:12]}"))
    assert ("", 0) == completions(asked("fish", "smart-fork fork 6") | {"_TYPER_COMPLETE_FISH_ACTION": "is-args"})
    assert ("", 1) == completions(asked("fish", "smart-fork fork x") | {"_TYPER_COMPLETE_FISH_ACTION": "is-args"})
    assert ("_files", 0) == completions(asked("zsh", "smart-fork fork x"))


def test_what_was_named_already_is_not_offered_again(indexed):
    assert (f"60309e1e\tclaude {RETRY}", 0) == completions(asked("fish", "smart-fork fork 71111111 "))


def test_other_projects_are_offered_only_to_who_has_begun_to_type(indexed, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    assert ("", 0) == completions(asked("fish", "smart-fork fork "))
    assert (f"60309e1e\tclaude {RETRY}", 0) == completions(asked("fish", "smart-fork fork 603"))


@pytest.mark.parametrize(
    "line",
    thorough_except_first(
        [
            "smart-fork -",
            "smart-fork -v fo",
            "smart-fork find ",
            "smart-fork fork --",
            "smart-fork fork --cwd ",
            'smart-fork fork "',
        ]
    ),
)
def test_what_is_no_command_and_no_id_is_left_to_the_command_line_s_library(indexed, line):
    assert completions(asked("fish", line)) is None


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
@pytest.mark.parametrize("line", thorough_except_first(["smart-fork fo", "smart-fork ", "smart-fork x"]))
def test_commands_are_offered_as_the_command_line_s_library_does(shell, line):
    """Only the purpose of a command differs: typer cuts it after 45 characters."""
    said, _ = completions(asked(shell, line))
    library = "from smart_fork.cli.main import main; import sys; sys.argv = ['smart-fork']; main()"

    done = forkserver.run(
        [sys.executable, "-c", library], env=os.environ | asked(shell, line), capture_output=True, text=True
    )

    assert re.sub(PURPOSE[shell], "", done.stdout.strip()) == re.sub(PURPOSE[shell], "", said)


def test_a_command_is_offered_with_what_it_is_for():
    assert ("find\tFind past sessions of this repository that know how.", 0) == completions(
        asked("fish", "smart-fork fin")
    )
    assert ("find", 0) == completions(asked("bash", "smart-fork fin"))


def test_tags_are_offered_where_a_tag_is_meant_and_outcomes_by_the_library(indexed):
    assert ("", 0) == completions(asked("fish", f"smart-fork tag {FIRST} "))
    session_notes.mark("claude", FIRST, ["retry", "area/x", session_notes.PINNED])
    session_notes.mark("claude", SECOND, ["retry"])

    assert ("area/x\tsessions 1\nretry\tsessions 2", 0) == completions(asked("fish", f"smart-fork tag {FIRST} "))
    assert ("retry", 0) == completions(asked("bash", "smart-fork list --tag RE"))
    assert ("retry", 0) == completions(asked("bash", "smart-fork find x --tag r"))
    assert completions(asked("fish", f"smart-fork verdict {FIRST} ")) is None


@pytest.mark.parametrize("shell", thorough_except_first(["bash", "zsh", "fish"]))
@pytest.mark.slow
def test_options_are_completed_with_the_one_command_defined_that_has_them(shell):
    code = (
        "import sys; from smart_fork.cli.main import main; sys.argv = ['smart-fork']\n"
        "try: main()\nfinally: print(*sys.modules, file=sys.stderr)"
    )

    done = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | asked(shell, "smart-fork find --al"),
        capture_output=True,
        text=True,
        check=True,
    )

    assert {"--all-projects", "--also"} == set(re.findall(r"--al[\w-]+", done.stdout))
    assert {"smart_fork.cli.find"} == {"smart_fork.cli.find", "smart_fork.cli.excise"} & set(done.stderr.split())


def test_workers_are_offered_with_what_they_do(indexed, shop):
    with Registry() as registry:
        worker = registry.add("claude", name="retry", source_session_id=FIRST, place="process", cwd=shop, prompt="x")
        registry.set_state(worker.id, "running")
        registry.set_status(worker.id, "waiting", "may I?")

    assert (f"{worker.id}\twaiting retry", 0) == completions(asked("fish", "smart-fork read "))


def test_a_hostile_title_does_nothing_in_a_real_shell(world: World, shop, monkeypatch, tmp_path):
    for session_id in (FIRST, SECOND):
        world.claude(shop, HOSTILE, "done", session_id=session_id)
    world.find(RETRY, shop)
    monkeypatch.chdir(shop)
    script = f'cd {tmp_path}; COMPREPLY=( $(cat) ); eval "_arguments() {{ :; }}; $ZSH"; printf "%s\\n" "${{COMPREPLY[@]}}"; ls'
    (bash, _), (zsh, _) = completions(asked("bash", "smart-fork fork ")), completions(asked("zsh", "smart-fork fork "))

    env = os.environ | {"ZSH": zsh}
    done = subprocess.run(
        ["bash", "-c", f"IFS=$'\\n'; {script}"], env=env, input=bash, capture_output=True, text=True, check=True
    )

    assert bash.splitlines() == done.stdout.splitlines()
    assert "ünï 漢字" in zsh
    assert set() == set(zsh.removeprefix("_arguments '*")) & set("$`;\\*~\x1b")


def test_no_secret_is_offered(world: World, shop, monkeypatch):
    world.claude(shop, "use sk-ant-api03-abcdefghijklmnopqrstuvwxyz0123456789 for it", "done", session_id=FIRST)
    world.find(RETRY, shop)
    monkeypatch.chdir(shop)

    assert "abcdefghij" not in completions(asked("fish", "smart-fork fork "))[0]


#: What takes long to import, and what nobody needs who only looks into a database.
SLOW = {"asyncio", "click", "mcp", "numpy", "orjson", "psutil", "pydantic", "rich", "sqlite_vec", "typer", "uvicorn"}


@pytest.mark.parametrize("how", ["complete", "welcome", "statusline"])
def test_the_answer_imports_little(indexed, shop, how):
    env = os.environ | (asked("bash", "smart-fork fork ") if how == "complete" else {})
    words = ["smart-fork"] if how == "complete" else ["smart-fork", how]
    script = (
        "import os, sys; end = os._exit\n"
        "def told(code): sys.stderr.write(' '.join(sys.modules)); sys.stderr.flush(); end(code)\n"
        f"os._exit = told; sys.argv = {words}\nfrom smart_fork.__main__ import main; main()"
    )

    done = subprocess.run(
        [sys.executable, "-c", script], env=env, input="{}", capture_output=True, text=True, check=True
    )

    imported = set(done.stderr.split())
    assert "smart_fork.cli" in imported
    assert set() == SLOW & imported
    small = {
        "smart_fork",
        "smart_fork.__main__",
        "smart_fork.errors",
        "smart_fork.workers",
        "smart_fork.workers.registry_path",
        "smart_fork.cli",
        *(f"smart_fork.cli.{name}" for name in ("command_table", "launcher", "quick_answers", "session_ids")),
    }
    assert small >= {one for one in imported if one.startswith("smart_fork")}
    assert ("60309e1e" in done.stdout) == (how == "complete")

"""Output for people fits a terminal of 80 columns; output for programs is complete."""

from __future__ import annotations

import re

import pytest
from rich.cells import cell_len

from smart_fork.cli.output import cut_to, out
from smart_fork.workers.registry import Registry
from tests.smart_fork.world import Did, World

TITLES = ["漢字" * 60, "🧵 unravel " * 20, "retry " * 60, "x" * 300]
ESCAPES = re.compile(r"\x1b\[[0-9;]*m")


@pytest.fixture
def narrow(run, monkeypatch):
    """Return a function that runs a command at a terminal of 80 columns and returns its lines without colors."""

    def command(*words: str) -> list[str]:
        monkeypatch.setenv("FORCE_COLOR", "1")
        monkeypatch.setenv("COLUMNS", "80")
        vars(out).pop("console", None)
        return ESCAPES.sub("", run(*words).out).splitlines()

    return command


@pytest.fixture
def titled(world: World, shop) -> World:
    for title in TITLES:
        world.claude(shop, title, "done")
    return world


@pytest.mark.parametrize("command", [("list",), ("list", "-A"), ("find", "retry 漢字"), ("status",), ("active",)])
def test_no_line_is_wider_than_the_terminal(narrow, titled, shop, command):
    with Registry() as registry:
        worker = registry.add(
            "claude", name="名前" * 40, source_session_id="s", place="process", cwd=shop, prompt=TITLES[0]
        )
        registry.set_state(worker.id, "running")

    lines = narrow(*command)

    assert lines
    assert [] == [line for line in lines if cell_len(line) > 80 and "index/claude" not in line]


@pytest.mark.parametrize("agent", ["claude", "codex"])
def test_an_answer_ends_with_what_to_type_next_on_lines_of_their_own(run, world: World, shop, agent):
    knows = getattr(world, agent)(shop, "retry the upload", "done")
    name = knows[: 8 if agent == "claude" else 13]

    *_, fork, show = run("find", "retry the upload").err.splitlines()

    command, note = fork.split("  # ")
    assert command == f'Next: smart-fork fork {name} "PROMPT"'
    assert re.fullmatch(r"continue in a copy: [\d.]+k? tokens", note)
    assert show == f"{f'      smart-fork show {name}':{len(command)}}  # read it first"
    assert all(len(line) <= 80 for line in (fork, show))


def test_a_list_has_one_line_a_session(narrow, titled):
    lines = narrow("list")

    assert len(TITLES) == len(lines)
    assert all(line.endswith("…") for line in lines)


def test_a_family_keeps_its_tree(narrow, world: World, shop):
    parent = world.claude(shop, TITLES[0], "done")
    world.fork_claude(parent, shop, TITLES[1], "done")

    lines = narrow("lineage", parent)

    assert [] == [line for line in lines if cell_len(line) > 80 and not line.startswith("To return")]
    titles = [line for line in lines if line.endswith("…")]
    assert 2 == len(titles)
    assert titles[1].startswith("└── ")


def test_elsewhere_lines_are_whole(run, world: World, shop):
    world.claude(shop, "x" * 90, "done")

    assert "x" * 90 in run("list").out


def test_five_results_and_what_to_type_next_fit_on_a_screen(run, monkeypatch, world: World, shop):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "80")
    vars(out).pop("console", None)
    commit = Did("Bash", {"command": "git commit -m x"}, "[main 1a2b3c4] x")
    for number in range(6):
        edit = Did("Edit", {"file_path": str(shop / f"{number}.py"), "new_string": "retry"})
        world.worked(
            "claude",
            shop,
            f"> Retry the upload {chr(65 + number) * 9}, and say so in the log of the shop, {TITLES[2]}",
            edit,
            commit,
            f"{'retried. ' * 90}",
        )

    run("find", "retry the upload")
    done = run("find", "retry the upload")
    lines = ESCAPES.sub("", f"{done.out}{done.err}").splitlines()

    assert 5 == sum(re.match(r"\d  [<>\d ]+ %  .*  committed  \d+$", line) is not None for line in lines)
    assert [] == [line for line in lines if cell_len(line) > 80]
    assert len(lines) < 16, "\n".join(lines)


def test_what_is_cut_ends_with_a_whole_word_if_more_than_half_of_it_stays():
    assert cut_to("Retry with backoff in the uploader", 29) == "Retry with backoff in the…"
    assert cut_to("Retry with backoff in the uploader", 34) == "Retry with backoff in the uploader"
    assert cut_to("Supercalifragilistic", 10) == "Supercali…"

"""Tests of comparing workers, with real worktrees, logs and registry."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

from indexer.masking import Masked
from smart_fork.cli import workers
from smart_fork.errors import NotFound, SmartForkError
from smart_fork.page.export import comparison, write_comparison
from smart_fork.system.processes import Processes
from smart_fork.workers.comparison import compare, last_fan_out
from smart_fork.workers.registry import Registry, WorkerRecord
from smart_fork.workers.results import Compared
from smart_fork.workers.uncommitted import FileChange
from smart_fork.workers.worktree import Worktree
from tests.smart_fork.commands import command_model, run  # noqa: F401 - fixtures
from tests.smart_fork.mcp_client import answer

PROCESSES = Processes()
START = 1767225600.0  # a world's sessions begin some minutes later
PROMPT = "fix the same race in the api"
HOSTILE = "</pre><script>alert(1)</script><img src=x onerror=alert(1)> & \" ' \x1b[2J"


@dataclass
class Fleet:
    """Workers of a fan-out (one prompt given to several forks)."""

    world: object
    shop: Path
    marked: Callable[[str], int]

    def worker(
        self, name: str, *said: str, agent: str = "claude", prompt: str = PROMPT, at: float = START, **more
    ) -> WorkerRecord:
        made = Worktree.create(self.shop, name, PROCESSES, **more)
        session = getattr(self.world, agent)(made.path, *said) if said else None
        with Registry() as registry:
            worker = registry.add(
                agent, name=name, source_session_id="s", session_id=session, place="process", cwd=made.path, prompt=prompt,
                worktree=made.path, branch=made.branch, base_commit=made.base, now=at,
            )  # fmt: skip
            return registry.set_started(worker.id, command=["x"], pid=self.marked(worker.id))


@pytest.fixture
def fleet(world, shop, marked) -> Fleet:
    (shop / "README.md").write_text("# shop\n")
    return Fleet(world, shop, marked)


@pytest.mark.slow
def test_each_worker_has_its_answer_changes_tokens_and_time(fleet, world):
    first = fleet.worker("one", PROMPT, "I look", "go on", "Fixed it.", with_changes=True)
    second = fleet.worker("two", PROMPT, "It was fixed already.", agent="codex")
    Path(first.worktree, "README.md").write_text("# shop\nfixed\n")
    Path(first.worktree, "new.py").write_text("a\nb\n")
    log = world.log_of(first.session_id)
    log.write_text(log.read_text().replace('"role": "assistant"', '"usage": {"input_tokens": 900, "output_tokens": 20}, "id": "m", "role": "assistant"'))  # fmt: skip

    one, two = compare([first.id, second.session_id], PROCESSES, patch=True)

    assert ("Fixed it.", "It was fixed already.") == (one.answer, two.answer)
    assert (FileChange("README.md", 1, 0), FileChange("new.py", 2, 0)) == one.files
    assert (3, 0, ()) == (one.lines_added, one.lines_removed, two.files)
    assert "+fixed" in one.diff
    assert ("running", 920, 20) == (one.state, one.context_tokens, one.output_tokens)
    assert two.context_tokens is None, "its agent has recorded none"
    assert one.seconds == 60 * int(one.last_activity[14:16])
    assert one.prompt == PROMPT
    assert [] == [*one.notes, *two.notes]


def test_a_worker_that_copied_its_parents_words_has_not_answered_yet(fleet, shop):
    """F-105."""
    copied = fleet.worker("one", PROMPT, "The parent's answer", at=START + 86_400)

    (one,) = compare([copied.id], PROCESSES)

    assert ("", None, None, 0) == (one.answer, one.seconds, one.context_tokens, one.output_tokens)
    assert ("It has not answered yet",) == one.notes


def test_a_process_that_only_has_the_same_number_is_not_the_worker(fleet):
    """X-003: numbers are given again."""
    worker = fleet.worker("one", PROMPT, "Fixed it.")
    with Registry() as registry:
        registry.set_started(worker.id, command=["x"], pid=os.getpid())
        registry.set_status(worker.id, "working")

    (one,) = compare([worker.id], PROCESSES)

    assert ("ended", "") == (one.state, one.status)


def test_secrets_are_masked(fleet):
    key = "ghp_" + "a1B2c3D4e5F6" * 3
    worker = fleet.worker("one", f"{PROMPT} {key}", f"It is {key}", prompt=f"{PROMPT} {key}")
    Path(worker.worktree, "settings.py").write_text(f"TOKEN = '{key}'\n")

    (one,) = compare([worker.id], PROCESSES, patch=True)

    assert "TOKEN" in one.diff
    assert key not in str(one.as_json())


def test_what_is_not_known_is_said(fleet, shop, world):
    with Registry() as registry:
        beside = registry.add("claude", source_session_id="s", place="tmux", cwd=shop, prompt=PROMPT, session_id="7a1c0000-0000-4000-8000-000000000002")  # fmt: skip
        registry.set_state(beside.id, "failed")
        gone = registry.add("codex", source_session_id="s", place="tmux", cwd=shop, worktree=shop / "x", branch="b", base_commit="c", now=START)  # fmt: skip
        registry.set_started(gone.id, command=["x"], pid=2**22 + 1)

    one, two = compare([beside.id, gone.id], PROCESSES)

    assert ("failed", None) == (one.state, one.files)
    assert (
        "It has not written a log yet, or its log is gone",
        "Its changes are not known: it has no worktree of its own",
    ) == one.notes
    assert "ended" == two.state
    assert ("It has no session yet", "Its changes are not known: its worktree is gone") == two.notes
    with pytest.raises(NotFound, match="No such worker"):
        compare(["nobody"], PROCESSES)


@pytest.mark.slow
def test_without_names_the_last_fan_out_is_compared(fleet):
    fleet.worker("older-1", prompt="older", at=START)
    fleet.worker("older-2", prompt="older", at=START + 1)
    fleet.worker("early", at=START + 100)
    fleet.worker("it-10", at=START + 200)
    fleet.worker("it-9", at=START + 259)
    fleet.worker("alone", prompt="alone", at=START + 300)

    assert ["it-9", "it-10"] == [one.name for one in compare([], PROCESSES)]
    with Registry() as registry:
        alone = [worker for worker in registry.workers() if worker.name in ("alone", "early", "it-9")]
    with pytest.raises(NotFound, match="no fan-out to compare"):
        last_fan_out(alone)
    with pytest.raises(NotFound):
        last_fan_out([])


def test_facts_are_words():
    one = Compared(
        worker_id="w", session_id=None, name="n", agent_type="claude", kind="fork", state="running", status="idle",
        prompt=Masked("p"), started_at="t",
    )  # fmt: skip

    assert {
        "state": "running, idle",
        "time": "unknown",
        "changes": "unknown",
        "branch": "none of its own",
    }.items() <= dict(one.facts()).items()
    long = replace(
        one,
        seconds=3725.4,
        context_tokens=12345,
        files=(FileChange("a", 1, 2),),
        lines_added=1,
        lines_removed=2,
        status="",
    )
    assert {
        "state": "running",
        "time": "1 h 2 min",
        "context": "12,345 tokens",
        "changes": "1 file, +1 -2",
    }.items() <= dict(long.facts()).items()
    assert "2 min 5 s" == dict(replace(one, seconds=125).facts())["time"]


@pytest.mark.slow
def test_the_command_compares(run, fleet, tmp_path):  # noqa: F811
    _, second = (fleet.worker(name, PROMPT, f"Answer of {name}") for name in ("one", "two"))
    Path(second.worktree, "new.py").write_text("a\n\x1b[2Jb\n")

    shown = run("compare")
    with_diff = run("compare", "one", second.id, "--diff")
    values = json.loads(run("compare", "--json").out)["workers"]

    assert "Answer of one" in shown.out
    assert "new.py +2 -0" in shown.out
    assert "+a" not in shown.out
    assert "+a" in with_diff.out
    assert "\x1b" not in with_diff.out
    assert [("one", 0), ("two", 2)] == [(one["name"], one["lines_added"]) for one in values]
    assert "diff" not in values[0]
    assert "+a" in json.loads(run("compare", "two", "--diff", "--json").out)["workers"][0]["diff"]
    assert 3 == run("compare", "nobody").code


def test_the_command_says_how_many_files_it_does_not_name(run, fleet, monkeypatch):  # noqa: F811
    worker = fleet.worker("one", PROMPT, "Answer of one")
    for name in ("a.py", "b.py"):
        Path(worker.worktree, name).write_text("a\n")

    for most, said in ((2, []), (1, ["1 more"])):
        monkeypatch.setattr(workers, "MAX_FILES", most)
        assert said == re.findall(r"\d+ more", run("compare", "one").out)


@pytest.mark.slow
def test_the_tool_compares(world, fleet):
    fleet.worker("one", PROMPT, "x" * 5000)
    second = fleet.worker("two", PROMPT, "Answer of two")
    Path(second.worktree, "new.py").write_text("a\n" * 9000)

    one, two = answer(world, "compare_workers")["workers"]
    (full,) = answer(world, "compare_workers", workers=["two"], diff=True)["workers"]

    assert 5000 > len(one["answer"])
    assert "more characters" in one["answer"]
    assert [{"path": "new.py", "added": 9000, "removed": 0}] == two["files"]
    assert "diff" not in two
    assert "+a" in full["diff"]
    assert len(full["diff"]) < 13_000


class Page(HTMLParser):
    """The elements of an HTML page, and their text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.words = ""
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs

    def handle_data(self, data):
        self.words += data


def hostile(**more: object) -> Compared:
    values = dict.fromkeys(
        ("worker_id", "session_id", "name", "state", "status", "prompt", "answer", "branch", "worktree"), HOSTILE
    )
    files = (FileChange(HOSTILE, 1, None),)
    return Compared(**values | {"agent_type": "claude", "kind": "fork", "started_at": "t", "files": files, "diff": f"+{HOSTILE}\n-x\n@@ 1", "notes": (HOSTILE,)} | more)  # fmt: skip


def test_nothing_in_a_page_is_anything_but_text():
    """X-002."""
    seen = Page(comparison([hostile(), hostile(prompt="other")]))

    assert not {"script", "img", "link", "iframe"} & set(seen.tags)
    assert not [name for name, _ in seen.attributes if name.startswith("on") or name in ("src", "href", "style")]
    assert "<script>alert(1)</script>" in seen.words
    assert "\x1b" not in comparison([hostile()])
    assert 2 == seen.tags.count("article")
    (policy,) = [value for name, value in seen.attributes if name == "content" and "default-src" in value]
    assert policy.startswith("default-src 'none'; style-src 'sha256-")


def test_a_page_can_be_used_with_the_keyboard_and_in_the_dark():
    text = comparison([hostile()])

    assert "prefers-color-scheme: dark" in text
    assert 2 == len(re.findall(r'<(?:div|pre)[^>]* tabindex="0"', text)), "the answer, and what it changed"
    assert "<summary>" in text


def test_a_page_is_private_and_replaces_what_was_there(tmp_path):
    target = tmp_path / "elsewhere"
    target.write_text("mine")
    path = tmp_path / "compare.html"
    path.symlink_to(target)

    write_comparison([hostile()], path)

    assert ("mine", False, 0o600) == (target.read_text(), path.is_symlink(), path.stat().st_mode & 0o777)
    assert {"compare.html", "elsewhere"} == {one.name for one in tmp_path.iterdir()}
    with pytest.raises(SmartForkError, match="is a directory"):
        write_comparison([hostile()], tmp_path)
    with pytest.raises(SmartForkError, match="cannot be written"):
        write_comparison([hostile()], tmp_path / "none" / "x.html")


def test_the_command_writes_a_page(run, fleet, tmp_path):  # noqa: F811
    second = fleet.worker("two", PROMPT, "Answer of two")
    Path(second.worktree, "new.py").write_text("<b>\n")

    done = run("compare", "two", "--html", str(tmp_path / "x.html"))

    assert ("", 0) == (done.out, done.code)
    text = (tmp_path / "x.html").read_text()
    assert "added: </span>&lt;b&gt;" in text
    assert "<bdi>new.py</bdi> added" in text

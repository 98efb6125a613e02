"""Tests of the titles of branches (B-027, B-030…B-038)."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from indexer.project import project_of
from smart_fork.agents.claude.log_files import folder_of
from smart_fork.agents.excision.titles import comparable_title
from smart_fork.agents.log_readers import READERS
from smart_fork.forking.branch import FALLBACK, branch_title, branch_titles
from tests.smart_fork.forks import codex_path, codex_records, said, text, write_log

MOMENT = 1_780_000_000_000


def named(name: str | None, parent: str = "", *taken: str) -> str:
    return branch_title(name, parent, {comparable_title(one) for one in taken}, MOMENT)


def test_a_branch_is_called_like_what_it_is_given_else_like_its_parent():
    """B-030, B-033, B-035."""
    assert "try two (Branch)" == named("try two", "parent")
    assert "parent (Branch)" == named(None, "parent")
    assert "parent (Branch)" == named(" \r\n\t", "parent")
    assert f"{FALLBACK} (Branch)" == named(None, "")


def test_the_first_free_number_is_taken_up_to_99_and_then_the_time():
    """B-030, B-031: case and blanks do not tell titles apart."""
    taken = ["X  (branch)", " x (Branch 2) "]
    assert "x (Branch 3)" == named("x", "", *taken)
    taken = ["x (Branch)", *(f"x (Branch {number})" for number in range(2, 100))]
    assert f"x (Branch {MOMENT})" == named("x", "", *taken)
    assert f"x (Branch {MOMENT + 1})" == named("x", "", *taken, f"x (Branch {MOMENT})")


def test_a_branch_of_a_branch_does_not_say_so_twice():
    """B-035."""
    for parent in ("x (Branch)", "x (Branch 12)", "x (branch) (Branch 2)", f"x (Branch {MOMENT})"):
        assert "x (Branch 2)" == named(None, parent, "x (Branch)")
    assert f"{FALLBACK} (Branch)" == named(None, "(Branch 3)")
    assert "Branch (v2) (Branch)" == named("Branch (v2)")


def test_nothing_in_a_title_steers_a_terminal():
    """B-027."""
    assert "red and two lines (Branch)" == named("\x1b[31mred\x1b[0m and\r\ntwo\x07 lines\x9b")


@given(st.text(max_size=400), st.text(max_size=400), st.lists(st.text(max_size=30), max_size=5), st.integers(0, 120))
def test_a_title_is_unlike_all_others_and_never_too_long(name, parent, others, branches):
    """B-030, B-036: whatever it is made of."""
    first = branch_title(name, parent, set(), MOMENT)
    base = first.removesuffix(" (Branch)")
    taken = {comparable_title(one) for one in (*others, first)} | {
        comparable_title(f"{base} (Branch {n})") for n in range(2, branches)
    }

    title = branch_title(name, parent, taken, MOMENT)

    assert comparable_title(title) not in taken
    assert len(title) <= 200
    assert title.split(" (Branch")[-1].rstrip(")").strip().isdigit()
    assert not any(ord(c) < 32 or 127 <= ord(c) < 160 for c in title)


def session_named(repo: Path, number: int, title: str, *, big: bool = False) -> None:
    session = f"60309e1e-0000-4000-8000-{number:012}"
    middle = [said(f"a{i}", "u1", "assistant", text("x" * 5000), cwd=str(repo)) for i in range(60 if big else 1)]
    records = [said("u1", None, "user", f"prompt {number}", cwd=str(repo)), *middle]
    write_log(
        folder_of(repo) / f"{session}.jsonl",
        [*records, {"type": "custom-title", "customTitle": title, "sessionId": session}],
    )


def test_titles_are_found_wherever_agents_keep_them(home, repo):
    """B-031, B-032, B-037: also at the end of a long log, in a prompt, and in Codex's files; not in other projects."""
    session_named(repo, 1, "A title (Branch)")
    session_named(repo, 2, "Long (Branch 7)", big=True)
    session_named(repo, 3, "No such suffix")
    prompt = codex_records(id4 := "60309e1e-0000-4000-8000-000000000004", repo, ["say hi (Branch)"])
    write_log(codex_path(home, id4), prompt)
    name = {"type": "thread_name_updated", "thread_name": "Codex (BRANCH)"}
    id5 = "60309e1e-0000-4000-8000-000000000005"
    write_log(codex_path(home, id5), [*codex_records(id5, repo, ["x"]), {"type": "event_msg", "payload": name}])
    other = home / "other"
    other.mkdir()
    session_named(other, 6, "Elsewhere (Branch)")
    (folder_of(repo) / "60309e1e-0000-4000-8000-000000000007.jsonl").write_text("{broken (Branch)\n")
    (folder_of(repo) / "60309e1e-0000-4000-8000-000000000008.jsonl").mkdir()

    found = branch_titles(READERS, project_of(repo))

    assert {one for one in found if "(branch" in one} == {
        "a title (branch)", "long (branch 7)", "say hi (branch)", "codex (branch)",
    }  # fmt: skip


def test_each_log_is_looked_at_once(home, repo, monkeypatch):
    """B-032: not once for each title that is tried."""
    for number in range(1, 8):
        session_named(repo, number, f"x (Branch{f' {number}' if number > 1 else ''})")
    opened = []
    from smart_fork.forking import branch as branching

    real = branching.open_regular
    monkeypatch.setattr(branching, "open_regular", lambda path: opened.append(path) or real(path))

    taken = branch_titles(READERS, project_of(repo))

    assert "x (Branch 8)" == branch_title("x", "", taken, MOMENT)
    assert 7 == len(opened)


def test_a_project_without_any_session_has_no_titles(home, repo):
    """B-032."""
    assert set() == branch_titles(READERS, project_of(repo))

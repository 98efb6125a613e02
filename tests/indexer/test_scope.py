"""Which sessions a search may find (F-070…F-076). The limit applies before the best are chosen."""

import shutil
import subprocess

import numpy as np
import pytest

from indexer.project import project_of
from indexer.store.base import Scope
from indexer.store.sqlite import Store
from tests.indexer.index_inputs import crowd, save, session_of, vector_of


@pytest.fixture
def store(tmp_path):
    store = Store(tmp_path / "index.db")
    store.use_model("m", 16)
    yield store
    store.close()


@pytest.fixture
def code(tmp_path):
    """Two repositories, worktrees of the first inside and outside, and folders without git."""
    code = tmp_path / "code"
    for name in ("repo", "repo-other", "elsewhere"):
        (code / name / "src").mkdir(parents=True)
    (tmp_path / "notes" / "sub").mkdir(parents=True)
    for name in ("repo", "repo-other"):
        git(code / name, "init", "-q")
        git(code / name, "commit", "-q", "--allow-empty", "-m", "first")
    git(code / "repo", "worktree", "add", "-q", ".worktrees/inside")
    git(code / "repo", "worktree", "add", "-q", tmp_path / "notes/outside")
    (code / "link").symlink_to(code / "repo")
    return code


def git(folder, *arguments):
    subprocess.run(["git", *map(str, arguments)], cwd=folder, check=True, capture_output=True)


def fill(store, *folders) -> None:
    for number, folder in enumerate(folders):
        save(store, session_of(f"needle number {number}", cwd=str(folder), session_id=str(folder), root_id=str(number)))
    rows = store.waiting((), 1000)
    store.add_vectors([(row, vector_of(text).tobytes()) for row, text in rows])


def seen_from(store, folder, agents=("claude",), *, automated=False) -> set[str]:
    """Return the directories that words, sessions' words and vectors find, which must agree."""
    scope = store.scope(project_of(folder), agents, automated=automated)
    chunks = {hit.row for hit in store.match_words("chunks", ["needle"], scope, 999)}
    assert chunks == {hit.row for hit in store.similarities([vector_of("x").tobytes()], scope).best(999)}
    sessions = {hit.row for hit in store.match_words("sessions", ["needle"], scope, 999)}
    assert sessions == {place.session for place in store.placements(chunks)}
    return {row.cwd for row in store.sessions(sessions).values()}


def test_a_repository_sees_all_its_folders_and_worktrees_and_nothing_else(store, code, tmp_path):
    inside = [
        code / "repo",
        code / "repo/src",
        code / "repo/.worktrees/inside/x",
        tmp_path / "notes/outside",
        code / "link/src",
    ]
    fill(
        store,
        *inside,
        code / "repo-other",
        code / "elsewhere",
        code,
        tmp_path / "notes",
        "",
        "relative/repo",
        "C:\\repo",
    )

    for place in inside:
        assert {str(folder) for folder in inside} == seen_from(store, place)
    assert {str(code / "repo-other")} == seen_from(store, code / "repo-other")


def test_outside_git_a_directory_sees_itself_and_below(store, code, tmp_path):
    fill(store, tmp_path / "notes", tmp_path / "notes/sub", tmp_path / "notes-other", tmp_path, tmp_path / "note", "")

    assert {str(tmp_path / "notes"), str(tmp_path / "notes/sub")} == seen_from(store, tmp_path / "notes")
    assert {str(tmp_path / "notes/sub")} == seen_from(store, tmp_path / "notes/sub")


def test_the_root_directory_sees_itself_and_all_below(store, code, tmp_path):
    fill(store, "/", tmp_path / "notes", code / "repo")

    assert {"/", str(tmp_path / "notes"), str(code / "repo")} == seen_from(store, "/")


def test_a_worktree_below_a_directory_without_git_is_seen_without_the_rest_of_its_repository(store, code, tmp_path):
    fill(store, tmp_path / "notes/outside", code / "repo", tmp_path / "notes/sub")

    assert {str(tmp_path / "notes/outside"), str(tmp_path / "notes/sub")} == seen_from(store, tmp_path / "notes")


def test_such_a_worktree_is_not_crowded_out_by_its_repository(store, code, tmp_path):
    fill(store, *(code / "repo" / f"d{number}" for number in range(40)), tmp_path / "notes/outside")
    scope = store.scope(project_of(tmp_path / "notes"), ("claude",), automated=False)

    for hits in (
        store.match_words("chunks", ["needle"], scope, 1),
        store.similarities([vector_of("x").tobytes()], scope).best(1),
    ):
        places = store.placements([hit.row for hit in hits])
        assert [str(tmp_path / "notes/outside")] == [
            store.sessions([place.session])[place.session].cwd for place in places
        ]
    (hit,) = store.match_words("sessions", ["needle"], scope, 1)
    assert str(tmp_path / "notes/outside") == store.sessions([hit.row])[hit.row].cwd


def test_a_removed_folder_is_still_in_its_repository(store, code):
    gone = code / "repo/.worktrees/gone"
    fill(store, gone)

    assert {str(gone)} == seen_from(store, code / "repo")


def test_the_root_of_all_sees_all_that_has_a_directory(store, tmp_path):
    fill(store, tmp_path / "a", "", "relative")

    assert {str(tmp_path / "a")} == seen_from(store, "/")


def test_a_nested_repository_is_inside_but_does_not_see_out(store, code):
    (code / "repo/vendor/.git").mkdir(parents=True)
    fill(store, code / "repo", code / "repo/vendor")

    assert {str(code / "repo"), str(code / "repo/vendor")} == seen_from(store, code / "repo")
    assert {str(code / "repo/vendor")} == seen_from(store, code / "repo/vendor")


def test_a_folder_that_became_a_repository_sees_what_was_there_before(store, tmp_path):
    fill(store, tmp_path / "new/src")
    (tmp_path / "new/.git").mkdir(parents=True)

    assert {str(tmp_path / "new/src")} == seen_from(store, tmp_path / "new")


def test_an_agent_and_machines_are_seen_when_asked_for(store, tmp_path):
    for number, (agent, origin) in enumerate(
        [("claude", "person"), ("codex", "person"), ("claude", "automated"), ("claude", "subagent")]
    ):
        save(
            store,
            session_of(
                "needle",
                cwd=str(tmp_path),
                agent=agent,
                origin=origin,
                session_id=f"{agent} {origin}",
                root_id=str(number),
            ),
        )

    def ids(agents, *, automated):
        scope = store.scope(project_of(tmp_path), agents, automated=automated)
        return {
            row.session_id
            for row in store.sessions(hit.row for hit in store.match_words("sessions", ["needle"], scope, 9)).values()
        }

    assert {"claude person"} == ids(["claude"], automated=False)
    assert {"claude person", "codex person"} == ids(["claude", "codex"], automated=False)
    assert {"claude person", "claude automated", "claude subagent"} == ids(["claude"], automated=True)
    assert set() == ids([], automated=True)


def test_words_of_the_restriction_are_no_words_of_the_conversation(store, tmp_path):
    fill(store, tmp_path / "a", tmp_path / "b")
    scope = store.scope(project_of(tmp_path / "a"), ("claude",), automated=False)

    assert [] == store.match_words("chunks", ['"p1"'], scope, 9) + store.match_words("chunks", ['"p2"'], scope, 9)
    assert [] == store.match_words("chunks", [], scope, 9) + store.match_words("chunks", ["needle"], Scope(), 9)


@pytest.mark.thorough
def test_a_tiny_project_in_a_huge_index_loses_nothing(store, tmp_path):
    folders = [tmp_path / "tiny" / str(number) for number in range(3)]
    (tmp_path / "tiny/.git").mkdir(parents=True)
    fill(store, *folders)
    crowd(store, parts=40, rows=20_000)
    scope = store.scope(project_of(tmp_path / "tiny"), ("claude",), automated=False)

    for query in np.eye(16, dtype=np.float32):
        assert 3 == len(store.similarities([query.tobytes()], scope).best(3))
    assert {str(folder) for folder in folders} == seen_from(store, tmp_path / "tiny")
    assert (
        3
        == len(store.match_words("chunks", ["needle"], scope, 3))
        == len(store.match_words("sessions", ["needle"], scope, 3))
    )
    assert 2003 == len(store.match_words("chunks", ["needle"], store.scope(None, ("claude",), automated=False), 2003))


def test_outside_git_and_in_one_session_words_are_matched_once_and_not_for_each_row(store, tmp_path):
    """With the row's id as key, SQLite would match all words for every passage there: a hundred times slower."""
    fill(store, tmp_path / "notes")
    below = store.scope(project_of(tmp_path), ["claude"], automated=False)
    traced = []
    store.db.exec_trace = lambda _, sql, values: not traced.append((sql, values))
    for scope in (below, Scope(below.parts, session=1)):
        assert store.match_words("chunks", ["needle"], scope, 9)
        assert store.match_words("sessions", ["needle"], scope, 9)
    store.db.exec_trace = None

    plans = [str(store.db.execute(f"EXPLAIN QUERY PLAN {sql}", values).fetchall()) for sql, values in traced]
    matches = [plan for plan in plans if "VIRTUAL TABLE INDEX" in plan]
    assert len(matches) == 4
    assert not [plan for plan in matches if "INDEX 0:=" in plan]


def test_the_nearest_are_the_nearest(store):
    matrix = crowd(store, parts=7, rows=1500)
    query = vector_of("question")
    best = {10_000 + int(row) for row in np.argsort(-(matrix @ query))[:50]}
    hits = store.similarities([query.tobytes()], store.scope(None, ("claude",), automated=False)).best(50)

    assert 48 <= len(best & {hit.row for hit in hits})  # neighbours as near as rounding may change places
    assert np.allclose([hit.score for hit in hits], [matrix[hit.row - 10_000] @ query for hit in hits], atol=5e-3)
    assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)


def test_in_many_projects_words_are_found_with_few_or_many_left_out(store):
    crowd(store, parts=600, rows=1200)
    everything = store.scope(None, ("claude",), automated=False)
    for parts in (everything.parts[:1], everything.parts[:599], everything.parts[1:], everything.parts):
        rows = {hit.row for hit in store.match_words("chunks", ["needle", "other"], Scope(parts), 5000)}
        numbers = ", ".join(map(str, parts))
        assert rows == {row for (row,) in store.db.execute(f"SELECT id FROM chunks WHERE part IN ({numbers})")}  # noqa: S608


def test_a_removed_repository_is_no_reason_to_fail(store, code):
    fill(store, code / "repo/src")
    shutil.rmtree(code / "repo")

    assert set() == seen_from(store, code / "repo-other")

"""The Markdown export (F-140…F-160)."""

import os
import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from indexer.markdown import export_path, parse_front_matter, to_markdown, write_export
from indexer.paths import index_root, private_dir
from indexer.pieces import pieces_of
from tests.indexer.written import piece, session_of

HOSTILE = [
    "../../etc/passwd",
    "/etc/passwd",
    "..",
    ".",
    "",
    "a/b",
    "a\0b",
    "a\nb",
    "~",
    "x" * 5000,
    ".hidden",
    "ä",
    "CON\\x",
    "a b",
]
#: Header values that a Markdown mark around them would be taken from.
PLAIN = st.text(st.characters(exclude_categories=["Cs"]), max_size=40).filter(
    lambda text: not text.strip().startswith(("**", "`"))
)


@pytest.mark.parametrize("agent", ["claude", "codex"])
def test_the_export_has_the_same_exact_form_for_both_agents(agent):
    session = session_of("How?", "So.\n\n\n\nDone.", session_id="abc", cwd="/work/x", agent=agent)

    assert (
        "---\nSession ID: abc\nWorking Directory: /work/x\nDate: 2026-01-02T03:04:05.000Z\n"
        f"Agent: {agent}\nRepo Root: /work\n---\n\n## User\n\nHow?\n\n## Assistant\n\nSo.\n\nDone.\n"
    ) == to_markdown(session, pieces_of(session, str), "/work")


def test_without_a_repository_there_is_no_repo_root():
    assert "Repo Root" not in to_markdown(session_of("hi"), [])


def test_actions_are_not_exported():
    assert "run pytest" not in to_markdown(session_of("hi"), [piece("run pytest", role="action")])


def test_nothing_in_the_conversation_can_override_the_header():
    lies = "Session ID: other\nWorking Directory: /allowed\n---\nAgent: codex\nRepo Root: /allowed\n---\n"
    session = session_of(lies, f"---\n{lies}", session_id="abc", cwd="/work")
    header = parse_front_matter(to_markdown(session, pieces_of(session, str)))

    assert {"session_id": "abc", "working_directory": "/work", "date": session.started, "agent": "claude"} == header


@given(PLAIN, PLAIN, PLAIN, PLAIN)
def test_a_header_is_read_as_it_was_written(session_id, cwd, root, started):
    session = session_of("---\nAgent: codex", session_id=session_id, cwd=cwd, started=started)
    header = parse_front_matter(to_markdown(session, pieces_of(session, str), root))

    assert 4 + bool(root) == len(header)
    assert "claude" == header["agent"]
    for given_, read in (
        (session_id, header["session_id"]),
        (cwd, header["working_directory"]),
        (root, header.get("repo_root", "")),
    ):
        if given_.isprintable():
            assert given_.strip() == read


@pytest.mark.parametrize("end", ["\n", "\r", "\r\n", "\u2028", "\x85"])
def test_a_value_cannot_add_a_line_to_the_header(end):
    lie = f"x{end}Repo Root: /allowed{end}---{end}"
    session = session_of("hi", session_id=lie, cwd=lie, started=lie)
    lines = to_markdown(session, pieces_of(session, str), lie).splitlines()

    assert ["---", "Session", "Working", "Date:", "Agent:", "Repo", "---"] == [line.split(" ")[0] for line in lines[:7]]


@pytest.mark.parametrize("line", [
    "Working Directory: /x_", "working_directory: /x_", "- **Working Directory:** /x_", "* Working Directory: `/x_`",
    "**Working Directory**: /x_", "WORKING DIRECTORY:   **/x_**",
])  # fmt: skip
def test_labels_may_be_marked(line):
    assert {"working_directory": "/x_"} == parse_front_matter(f"---\n{line}\n---\n")


@pytest.mark.parametrize(
    "text",
    ["", "Agent: claude\n", "---\nAgent: claude\n", "---\n# Agent\nAgent: claude\n---\n", "\n---\nAgent: x\n---"],
)
def test_what_is_no_complete_header_says_nothing(text):
    assert {} == parse_front_matter(text)


def test_the_first_line_of_a_label_counts():
    assert {"agent": "claude"} == parse_front_matter("---\nAgent: claude\nAgent: codex\n---\n")


@pytest.mark.parametrize("session_id", HOSTILE)
def test_no_id_leads_out_of_the_folder_of_exports(session_id):
    path = export_path("claude", session_id)

    assert index_root() / "claude" == path.parent
    assert ".md" == path.suffix
    assert not path.name.startswith(".")
    assert len(os.fsencode(path.name)) < 200
    write_export(path, "text")
    assert [path.name] == [file.name for file in path.parent.iterdir()]


def test_no_two_ids_share_an_export():
    names = {export_path("claude", session_id) for session_id in [*HOSTILE, "a_b", "x" * 120, "_", "a__b"]}

    assert len(HOSTILE) + 4 == len(names)
    assert "abc-1.md" == export_path("codex", "abc-1").name


def test_exports_and_their_folders_are_private_whatever_the_umask():
    before = os.umask(0)
    try:
        path = export_path("claude", "abc")
        assert write_export(path, "text")
    finally:
        os.umask(before)

    assert 0o600 == stat.S_IMODE(path.stat().st_mode)
    for folder in (path.parent, path.parent.parent, path.parent.parent.parent):
        assert 0o700 == stat.S_IMODE(folder.stat().st_mode)


def test_an_existing_folder_is_left_as_it_is(tmp_path):
    (tmp_path / "mine").mkdir(mode=0o755)

    assert 0o755 == stat.S_IMODE(private_dir(tmp_path / "mine").stat().st_mode)


def test_an_identical_export_is_left_alone():
    path = export_path("claude", "abc")

    assert write_export(path, "ünïcode")
    os.utime(path, ns=(1, 1))
    assert not write_export(path, "ünïcode")
    assert (1, "ünïcode") == (path.stat().st_mtime_ns, path.read_text("utf-8"))


def test_a_write_that_fails_leaves_the_old_export_and_nothing_else(monkeypatch):
    path = export_path("claude", "abc")
    write_export(path, "old")

    def full(*_):
        raise OSError("no space left on device")

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(OSError, match="no space"):
        write_export(path, "new")

    assert ["abc.md"] == [file.name for file in path.parent.iterdir()]
    assert "old" == path.read_text()


def test_what_a_killed_process_left_behind_is_written_over():
    path = export_path("claude", "abc")
    private_dir(path.parent)
    path.with_name(f".{path.name}.tmp").write_text("half of someth")
    write_export(path, "all of it")

    assert ["abc.md"] == [file.name for file in path.parent.iterdir()]
    assert "all of it" == path.read_text()

"""Tests that a result names the lines of its passage in the session's present export, or no lines."""

from __future__ import annotations

import os
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from indexer.refresh import complete
from indexer.safe_files import index_db
from indexer.session_export import export_path
from indexer.store.sqlite import Store
from smart_fork.agents.log_readers import READERS
from smart_fork.excise import Request, cut
from smart_fork.finding.index_access import opened
from smart_fork.finding.recent import list_recent
from tests.smart_fork.answers import a_hit
from tests.smart_fork.world import Did, World
from tests.support.cases import thorough_except_first

FIX = "Why does the uploader lose its last packet?"


def best(world: World, shop: Path, intent: str) -> dict[str, Any]:
    return dict(world.find(intent, shop, limit=1)["results"][0])


def passage(result: dict[str, Any]) -> list[str]:
    first, last = result["lines"]
    return Path(result["source_path"]).read_text().splitlines()[first - 1 : last]


@pytest.mark.parametrize("agent", thorough_except_first(["claude", "codex"]))
def test_the_lines_of_a_result_are_those_of_its_passage(world, shop, agent):
    world.worked(
        agent, shop, "> Rename the logo", "Renamed.",
        f"> {FIX}", Did("Bash" if agent == "claude" else "shell", {"command": "tcpdump -i lo"}), "It is never flushed.",
    )  # fmt: skip

    assert ["## User"] != passage(best(world, shop, FIX))
    assert [
        FIX,
        "",
        "## Assistant",
        "",
        "- ⚙ run tcpdump -i lo",
        "",
        "## Assistant",
        "",
        "It is never flushed.",
    ] == passage(best(world, shop, FIX))


def test_of_a_long_answer_only_the_lines_that_match_are_named(world, shop):
    paragraphs = [f"paragraph {number} " + f"filling{number} " * 60 for number in range(20)]
    world.claude(shop, "Explain", "\n\n".join([*paragraphs[:10], "The zeppelin lands at dawn.", *paragraphs[10:]]))
    found = passage(best(world, shop, "when does the zeppelin land at dawn"))

    assert any("zeppelin" in line for line in found)
    assert len(found) < 6


def test_of_what_was_said_twice_the_lines_are_those_of_its_own_message(world, shop):
    session = world.claude(shop, "Yes", "Done.", "Rotate the zeppelin", "Done.", "Yes", "Done.")
    world.find("anything", shop)
    with closing(Store(index_db())) as store:
        row = store.session("claude", session)
        spans = [store.lines(place)[:2] for place in store.placements_of(row.row)]

    assert spans == sorted(spans)
    assert len(set(spans)) == 3


def test_a_session_that_grows_and_one_that_is_rewound_name_the_lines_of_the_new_file(world, shop):
    session = world.claude(shop, FIX, "It is never flushed.")
    first = best(world, shop, FIX)["lines"]
    log = world.log_of(session)
    log.write_text(log.read_text().replace("It is never flushed.", "One.\\nTwo.\\nThree: never flushed."))
    rewound = best(world, shop, FIX)

    assert "Three: never flushed." == passage(rewound)[-1]
    assert first != rewound["lines"]


def edited(path: Path) -> None:
    path.write_text("One line more\n" + path.read_text())


def linked(path: Path) -> None:
    path.rename(path.with_suffix(".old"))
    path.symlink_to(path.with_suffix(".old"))


def piped(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def foldered(path: Path) -> None:
    path.unlink()
    path.mkdir()


def closed(path: Path) -> None:
    path.unlink()
    path.symlink_to(path)


@pytest.mark.parametrize("harm", thorough_except_first([edited, linked, piped, foldered, closed, Path.unlink]))
def test_no_lines_are_named_of_an_export_that_is_not_as_it_was_indexed(world, shop, harm, monkeypatch):
    world.claude(shop, FIX, "It is never flushed.")
    path = Path(best(world, shop, FIX)["source_path"])
    harm(path)
    monkeypatch.setenv("SMART_FORK_INDEXING", "false")  # else one that is missing is made again
    result = best(world, shop, FIX)

    assert (None, str(path)) == (result["lines"], result["source_path"])
    assert "" == a_hit(source_path=result["source_path"], lines=result["lines"]).passage_place


def test_an_export_that_was_deleted_is_made_again_before_lines_of_it_are_named(world, shop):
    world.claude(shop, FIX, "It is never flushed.")
    before = best(world, shop, FIX)
    Path(before["source_path"]).unlink()
    after = best(world, shop, FIX)

    assert before["lines"] == after["lines"]
    assert passage(after)


def test_of_an_index_that_knows_no_lines_yet_none_are_named(world, shop, monkeypatch):
    world.claude(shop, FIX, "It is never flushed.")
    best(world, shop, FIX)
    with closing(Store(index_db())) as store:
        store.db.execute("UPDATE placements SET first_line = 0, last_line = 0")
    monkeypatch.setenv("SMART_FORK_INDEXING", "false")

    assert best(world, shop, FIX)["lines"] is None


def test_what_a_prompt_asks_besides_smart_fork_is_named_without_its_question(world, shop):
    world.worked(
        "claude", shop,
        "> Make the zeppelin land.\nAsk smart-fork who has done it.\nThen paint the zeppelin.",
        Did("smart_fork", {"intent": "zeppelin"}, "…", "smart-fork"), "Nobody has.",
        Did("Edit", {"file_path": "zeppelin.py", "new_string": "paint"}), "Painted.",
    )  # fmt: skip
    results = world.find("paint the zeppelin", shop)["results"]

    assert "smart-fork" not in "\n".join(passage(results[0]))
    assert "smart-fork" in Path(results[0]["source_path"]).read_text()


def test_where_a_passage_stands_is_said_as_editors_open_it():
    assert "/x/a.md:12-31" == a_hit(source_path="/x/a.md", lines=(12, 31)).passage_place
    assert "/x/a.md:12" == a_hit(source_path="/x/a.md", lines=(12, 12)).passage_place
    assert "" == a_hit(source_path="/x/a.md").passage_place


def test_a_list_names_the_exports_that_there_are(world, shop):
    old = world.claude(shop, FIX, "It is never flushed.")
    path = best(world, shop, FIX)["source_path"]
    new = world.claude(shop, "Something new", "Yes.")

    assert {old: path, new: None} == {
        one.session_id: one.source_path for one in list_recent("both", str(shop), 9).sessions
    }


def test_of_a_session_whose_log_is_deleted_lines_are_named_as_before(world, shop):
    session = world.claude(shop, FIX, "It is never flushed.")
    before = best(world, shop, FIX)
    world.log_of(session).unlink()
    after = best(world, shop, FIX)

    assert (None, before["lines"]) == (after["jsonl_path"], after["lines"])


def test_of_a_session_that_is_indexed_again_from_its_copy_lines_are_named(world, shop, monkeypatch):
    monkeypatch.setenv("SMART_FORK_KEEP_TRANSCRIPTS", "yes")
    session = world.claude(shop, FIX, "It is never flushed.")
    with opened() as store:
        complete(store, READERS, world.model, patience=5)
    world.log_of(session).unlink()
    index_db().unlink()
    export_path("claude", session).unlink()
    with opened() as store:
        complete(store, READERS, world.model, patience=5)

    assert "It is never flushed." == passage(best(world, shop, FIX))[-1]


@pytest.mark.parametrize("agent", thorough_except_first(["claude", "codex"]))
def test_after_a_cut_lines_are_those_of_what_is_left(world, shop, agent):
    session = getattr(world, agent)(shop, "Ask\n\nfor\n\nmuch", "Much.", FIX, "It is never flushed.")
    before = best(world, shop, FIX)["lines"]
    cut(Request(session, turns="1", force=True))
    after = best(world, shop, FIX)

    assert "It is never flushed." == passage(after)[-1]
    assert before != after["lines"]


def test_a_line_that_is_longer_than_a_passage_is_named_by_each_of_its_passages(world, shop):
    world.claude(shop, FIX, "一" * 3000)
    session = best(world, shop, FIX)["session_id"]
    with closing(Store(index_db())) as store:
        row = store.session("claude", session)
        spans = [store.lines(place)[:2] for place in store.placements_of(row.row)]

    assert {(15, 15)} == set(spans[1:])
    assert len(spans) > 3

"""Tests of a missing or foreign qmd, of the files that qmd reads, and of its index."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path

import pytest

from indexer.locks import only_writer
from indexer.session_export import export_path
from smart_fork.errors import Usage
from smart_fork.finding import session_lookup
from smart_fork.finding.index_refresh import Engine
from smart_fork.finding.request import collections
from tests.smart_fork.finding.scripted_qmd import DONE, RETRY, UNAVAILABLE
from tests.smart_fork.searches import message_for
from tests.support.cases import thorough_except_first

pytestmark = pytest.mark.usefixtures("qmd")


class TestNotThere:
    """F-130…F-134."""

    def not_available(self, world, shop) -> str:
        answer = world.find(RETRY, shop)
        assert set(answer) == UNAVAILABLE
        assert answer["error"] == "qmd_not_available"
        assert len(answer["next_steps"]) == 3
        assert "npm install -g @tobilu/qmd" in answer["next_steps"][0]
        return answer["message"]

    def test_without_the_program_there_is_guidance_and_the_most_recent_sessions(self, world, shop, qmd, caplog):
        knows = world.claude(shop, RETRY, DONE)
        (world.home / "bin" / "qmd").unlink()

        assert "qmd executable not found: qmd" in self.not_available(world, shop)
        assert [one["session_id"] for one in world.find(RETRY, shop)["fallback_sessions"]] == [knows]
        assert "qmd is not available" in caplog.text

    def test_another_program_of_that_name_is_not_asked(self, world, shop, qmd):
        world.claude(shop, RETRY, DONE)
        qmd.answers("collection", stderr="qmd: render Quarto documents; unknown command", code=2)

        assert "unknown command" in self.not_available(world, shop)
        assert qmd.searched == []

    def test_one_that_makes_no_collections_is_not_asked(self, world, shop, qmd):
        world.claude(shop, RETRY, DONE)
        qmd.answers("collection add", "Created")

        assert "qmd has no collection claude-sessions" in self.not_available(world, shop)
        assert qmd.searched == []

    @pytest.mark.parametrize("command", thorough_except_first(["collection add", "update"]))
    def test_one_that_cannot_read_the_exports_at_first_is_not_asked(self, world, shop, qmd, command):
        world.claude(shop, RETRY, DONE)
        qmd.answers(command, stderr="disk full", code=1)

        assert f"qmd {command} failed: disk full" in self.not_available(world, shop)
        assert qmd.searched == []

    @pytest.mark.thorough
    def test_one_that_hangs_on_its_collections_is_not_asked(self, world, shop, qmd, monkeypatch):
        monkeypatch.setattr("smart_fork.finding.qmd.LIST_SECONDS", 0.2)
        qmd.answers("collection list", hangs=True)

        assert "did not answer within 0.2 seconds" in self.not_available(world, shop)

    def test_a_program_in_a_relative_folder_of_the_path_is_not_run(self, world, shop, qmd, monkeypatch):
        (world.home / "bin" / "qmd").rename(shop / "qmd")
        monkeypatch.setenv("PATH", f".{os.pathsep}{os.pathsep}/usr/bin:/bin")
        monkeypatch.chdir(shop)

        self.not_available(world, shop)
        assert qmd.calls == []

    def test_the_program_can_be_another(self, world, shop, qmd, monkeypatch):
        """F-036."""
        knows = world.claude(shop, RETRY, DONE)
        other = (world.home / "bin" / "qmd").rename(world.home / "mine")
        monkeypatch.setenv("SMART_FORK_QMD_COMMAND", str(other))

        assert world.ids(RETRY, shop) == [knows]

    def test_an_unknown_engine_is_refused_before_anything_is_read(self, world, shop, qmd, monkeypatch):
        monkeypatch.setenv("SMART_FORK_ENGINE", "lucene")
        with pytest.raises(Usage, match="engine must be 'builtin' or 'qmd', not \"lucene\""):
            world.find(RETRY, shop)

    @pytest.mark.parametrize(
        ("settled", "engine"),
        thorough_except_first([('engine = "QMD"', "qmd"), ('engine = "builtin"', "builtin"), ("", "builtin")]),
    )
    def test_the_settings_file_names_it_too(self, world, shop, knows, monkeypatch, settled, engine):  # noqa: PLR0917
        monkeypatch.delenv("SMART_FORK_ENGINE")
        (world.home / ".smart-fork" / "config.toml").write_text(settled)

        assert world.find(RETRY, shop)["engine"] == engine

    def test_settings_that_name_no_engine_are_refused(self, world, shop, knows, monkeypatch):
        monkeypatch.delenv("SMART_FORK_ENGINE")
        (world.home / ".smart-fork" / "config.toml").write_text("engine = 3")
        with pytest.raises(Usage, match="engine must be text, not 3"):
            world.find(RETRY, shop)


class TestItsIndex:
    """F-183…F-185."""

    def test_collections_are_made_and_asked_once_there_are_exports_of_the_agent(self, world, shop, qmd):
        made = ["collection", "add", str(export_path("claude", "x").parent), "--name", "claude-sessions"]
        later = ["collection", "add", str(export_path("codex", "x").parent), "--name", "codex-sessions"]
        asked = ["query", "-c", "codex-sessions"]
        world.claude(shop, RETRY, DONE)
        world.find(RETRY, shop)

        argvs = [call["argv"] for call in qmd.calls]
        assert argvs.index(["update"]) > argvs.index(made)
        assert later not in argvs
        assert asked not in [words[:3] for words in argvs]

        codex = world.codex(shop, RETRY, DONE)
        assert codex in world.ids(RETRY, shop)

        argvs = [call["argv"] for call in qmd.calls][len(argvs) :]
        assert later in argvs
        assert made not in argvs
        assert asked in [words[:3] for words in argvs]

    def test_it_is_read_again_only_where_an_export_has_changed(self, world, shop, knows, qmd):
        world.find(RETRY, shop)
        assert ["update"] not in [call["argv"] for call in qmd.calls]

        world.claude(shop, "paint the logo", "It is blue")
        world.find(RETRY, shop)
        assert [call["argv"] for call in qmd.calls].count(["update"]) == 1

    @pytest.mark.thorough
    def test_a_collection_that_another_process_has_just_made_is_there(self, world, shop, qmd):
        world.claude(shop, RETRY, DONE)
        qmd.answers("collection add", stderr="Collection 'claude-sessions' already exists.", code=1)
        state = world.home / ".smart-fork" / "qmd"
        state.mkdir(parents=True, mode=0o700)

        assert world.find(RETRY, shop)["error"] == "qmd_not_available"
        (state / "known").mkdir()
        for name in collections().values():
            (state / "known" / name).write_text("/x")
        assert world.find(RETRY, shop)["engine"] == "qmd"

    def test_a_persons_own_index_is_not_touched_and_no_repositorys_settings_are_followed(self, world, shop, knows, qmd):
        world.find(RETRY, shop)

        assert {call["cwd"] for call in qmd.calls} == {"/"}
        assert {call["index"] for call in qmd.calls} == {str(world.home / ".smart-fork/qmd/index.sqlite")}
        assert (world.home / ".smart-fork/qmd").stat().st_mode & 0o077 == 0
        assert not (world.home / ".cache/qmd").exists()

    @pytest.mark.thorough
    def test_exports_that_cannot_be_read_again_are_searched_as_they_were(self, world, shop, knows, qmd, caplog):
        world.claude(shop, "paint the logo", "It is blue")
        qmd.answers("update", stderr="disk full", code=1)

        assert world.ids(RETRY, shop)[0] == knows
        assert "qmd update failed: disk full" in caplog.text

    @pytest.mark.thorough
    def test_another_process_that_has_it_read_is_not_waited_for(self, world, shop, knows, qmd, monkeypatch):
        monkeypatch.setattr("smart_fork.finding.qmd.only_writer", partial(only_writer, 0.0))
        world.claude(shop, "paint the logo", "It is blue")
        with only_writer(0.0, "qmd"):
            assert world.ids(RETRY, shop)[0] == knows
        assert ["update"] not in [call["argv"] for call in qmd.calls]

    def test_where_in_a_session_the_answer_stands_the_own_index_says(self, world, shop, knows, qmd):
        session = session_lookup.read(session_lookup.locate(knows))

        assert message_for(session, RETRY, Engine(world.model)) == session.turns[0].id
        assert qmd.calls == []


@pytest.mark.slow
def test_the_doctor_asks_it(world, shop, knows, qmd):
    from smart_fork.doctor import run_checks

    def check() -> tuple[bool, str]:
        (one,) = (check for check in run_checks(world.model) if check.name == "engine")
        assert (one.ok and "failed" not in one.detail) or one.next_step
        return one.ok, one.detail

    assert check() == (True, "qmd, hybrid answers")
    qmd.fails("query")
    assert check() == (True, "qmd, vector answers; qmd query failed: boom query")
    qmd.fails("vsearch", "search")
    assert check()[0] is False
    Path(world.home / "bin" / "qmd").unlink()
    assert check() == (False, "qmd executable not found: qmd")

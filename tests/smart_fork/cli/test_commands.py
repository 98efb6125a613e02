"""The commands in this process: their output, its stream, and the exit code."""

from __future__ import annotations

import errno
import json
import os
import re

import pytest

from indexer.session_export import export_path
from smart_fork import doctor
from smart_fork.errors import NotFound
from smart_fork.finding import session_lookup
from smart_fork.forking.request import ForkRequest
from smart_fork.forking.results import Forked
from tests.smart_fork.agents.opencode import database
from tests.smart_fork.answers import a_fork
from tests.smart_fork.forks import told
from tests.smart_fork.world import BrokenModel, Did
from tests.support.cases import thorough_except_first

RETRY = "add retry with backoff to the uploader"
DONE = "The uploader retries five times"


@pytest.fixture
def forked(monkeypatch) -> list[tuple]:
    calls: list[tuple] = []

    def fork_session(request: ForkRequest, _engine: object = None) -> Forked:
        calls.append(told(request))
        return a_fork(
            request.session, session_name="w", terminal_id="@1", command="claude --resume x", place="tmux", log="/x/log",
            attach="tmux attach", warnings=("mind the gap",),
        )  # fmt: skip

    monkeypatch.setattr("smart_fork.cli.fork.fork_session", fork_session)
    return calls


class TestFind:
    def test_results_for_a_person(self, run, world, shop):
        knows = world.claude(shop, RETRY, DONE)

        done = run("find", RETRY)

        assert done.code == 0
        line = rf"1  [<>\d ]+ %  {RETRY}  claude {knows[:8]}  \d+ \w+  \d+\n"
        assert re.fullmatch(line, done.out)
        assert knows not in done.out
        assert done.err.startswith(f"> 99 % sure that it is result 1.\nNext: smart-fork fork {knows[:8]} ")

    def test_the_full_id_and_the_place_of_a_result_are_printed_with_verbose(self, run, world, shop):
        knows = world.claude(shop, RETRY, DONE)

        assert f"    {knows}  {export_path('claude', knows)}:11-15\n" in run("-v", "find", RETRY).out

    def test_why_results_cannot_be_forked_is_said_once(self, run, world, shop):
        world.claude(shop, RETRY, DONE)
        world.claude(shop, f"{RETRY} again", DONE)
        (world.home / "bin/claude").unlink()

        assert run("find", RETRY).out.count("claude was not found") == 1

    def test_what_a_floor_leaves_out_is_not_called_nothing_found(self, run, world, shop):
        world.claude(shop, RETRY, DONE)

        done = run("find", "why is the mail server unreachable", "--min-score", "0.9")

        assert "" == done.out
        assert "Nothing scores 0.9 or more in 1 sessions." in done.err

    def test_how_a_score_came_about_is_said_in_a_line(self, run, world, shop):
        world.claude(shop, RETRY, DONE)

        done = run("find", RETRY, "--explain")

        assert re.search(
            r"\d title \+ [\d.]+ nearest \+ [\d.]+ whole for it, [\d.]+ against it: [01]\.\d\d$", done.out, re.MULTILINE
        )
        assert "against it" not in run("find", RETRY).out

    def test_other_words_are_asked_too_and_what_each_found_is_said(self, run, world, shop):
        world.claude(shop, RETRY, DONE)
        world.claude(shop, "draw the map", "drawn")

        alone = run("find", "hochladen wiederholen")
        done = run("find", "hochladen wiederholen", "--also", RETRY, "--also", "uploader backoff", "--explain")

        assert "Add other phrasings: --also TEXT" in alone.err
        assert "--also" not in done.err
        assert RETRY in done.out.splitlines()[0]
        assert re.search(r"session words.* of it from: uploader backoff$", done.out, re.MULTILINE)
        assert "of it from: hochladen wiederholen" in done.out

    @pytest.mark.parametrize(
        ("also", "said"),
        [
            (["x"] * 9, "also takes at most 8 texts, not 9"),
            (["x"] * 1000, "also takes at most 8 texts, not 1000"),
            (["fine", "x" * 301], "also takes texts of at most 300 characters; number 2 has 301"),
        ],
    )
    def test_too_many_or_too_long_other_words_are_refused(self, run, also, said):
        refused = run("find", RETRY, *(part for text in also for part in ("--also", text)))

        assert refused.code == 2
        assert said in refused.err

    def test_other_words_that_are_blank_are_refused_and_hostile_ones_are_words(self, run, world, shop):
        knows = world.claude(shop, RETRY, DONE)
        blank = run("find", RETRY, "--also", " \n\t")
        hostile = run(
            "find", RETRY, "--also", '" OR part: p1 NOT "', "--also", "\x1b[2J; DROP TABLE sessions", "--explain"
        )

        assert (2, True) == (blank.code, "--also is empty" in blank.err)
        assert hostile.code == 0
        assert knows[:8] in hostile.out
        assert "\x1b[2J" not in hostile.out + hostile.err

    def test_it_is_said_when_nothing_is_likely(self, run, world, shop):
        world.claude(shop, "rename the colours of the theme", "done")

        assert "None of these is a sure match" in run("find", "why is the mail server unreachable").err
        assert "None of these is a sure match" not in run("find", "rename the colours of the theme").err
        assert "This names no work: say which." in run("find", "fix the failing tests").err

    def test_where_nothing_fits_no_fork_is_suggested(self, run, world, shop):
        world.claude(shop, "rename the colours of the theme", "done")

        done = run("find", "why is the mail server unreachable")

        assert "Next: smart-fork fork" not in done.err
        assert "Next: smart-fork new" in done.err
        assert "--also" in done.err
        assert "--all-projects" in done.err
        assert "--all-projects" not in run("find", "why is the mail server unreachable", "--all-projects").err

    def test_where_the_one_that_fits_cannot_be_forked_next_is_to_read_it(self, run, world, shop, monkeypatch):
        knows = world.claude(shop, RETRY, DONE)
        monkeypatch.setenv("PATH", "/usr/bin:/bin")

        err = run("find", RETRY).err

        assert f"Next: smart-fork show {knows[:8]} " in err
        assert "smart-fork fork" not in err

    def test_next_is_the_fork_that_the_result_suggests(self, run, world, shop):
        knows = world.sized_claude(shop, (RETRY, DONE, 44_000), ("new logo", "drawn", 90_000))

        assert f'Next: smart-fork fork {knows[:8]} --at 1 "' in run("find", RETRY).err
        (hit,) = json.loads(run("find", RETRY, "--json").out)["results"]
        assert f"cd {shop} && smart-fork fork {knows} --at 1" == hit["fork_command"]

    @pytest.mark.parametrize(
        ("loads", "options"),
        thorough_except_first(
            [
                ((39_000, 414_000), " --at 3"),
                ((390_000, 414_000), " --budget 30k"),
                ((150_000, 414_000), " --at 3 --budget 30k"),
                ((90_000, 99_000), ""),
            ]
        ),
    )
    def test_a_fork_of_very_much_is_suggested_within_a_budget(self, run, world, shop, loads, options):
        there, whole = loads
        knows = world.sized_claude(
            shop, ("read the readme", "read", 15_000), (RETRY, DONE, there), ("new logo", "drawn", whole)
        )

        done = run("find", RETRY, "--explain")

        assert ("within a budget of 30k" in done.out) is ("--budget" in options)
        assert f'Next: smart-fork fork {knows[:8]}{options} "' in done.err

    @pytest.mark.parametrize(
        ("whole", "suggested"), thorough_except_first([(90_000, " --at 1"), (45_000, ""), (58_000, "")])
    )
    def test_a_fork_at_the_answer_is_suggested_where_it_saves_a_lot(self, run, world, shop, whole, suggested):
        knows = world.sized_claude(shop, (RETRY, DONE, 44_000), ("new logo", "drawn", whole))

        done = run("find", RETRY, "--explain")

        assert f'Next: smart-fork fork {knows[:8]}{suggested} "' in done.err
        assert ("44,000 up to the match" in done.out) == bool(suggested)

    def test_what_became_of_a_session_and_its_price_stand_on_one_line(self, run, world, shop):
        edit = Did("Edit", {"file_path": str(shop / "a.py")})
        commit = Did("Bash", {"command": "git commit -m x"}, "[main 1a2b3c4] x")
        world.worked("claude", shop, f"> {RETRY}", edit, commit, DONE)

        out = run("find", RETRY, "--explain").out

        assert re.search(r"a\.py  claude \w+  \d+ \w+  committed  \d+$", out, re.MULTILINE)
        assert re.search(r" · committed · none of its 1 file changed since · [\d,]+ tokens", out, re.MULTILINE)

    def test_it_is_said_why_results_do_not_stand_in_the_order_of_their_scores(self, run, world, shop):
        world.worked("claude", shop, f"> {RETRY}", DONE, "> and more")
        world.worked("claude", shop, f"> {RETRY}", DONE, DONE)

        done = run("find", RETRY)
        scores = re.findall(r"^\d  +(?:[<>] )?(\d+) %", done.out, re.MULTILINE)

        assert ("better to fork stands first" in done.err) == (scores != sorted(scores, key=int, reverse=True))

    def test_json_is_all_there_is_on_stdout(self, run, world, shop):
        knows = world.codex(shop, RETRY, DONE)

        done = run("find", RETRY, "--json", "--agent", "codex", "--limit", "1", "--no-snippets")

        answer = json.loads(done.out)
        assert [hit["session_id"] for hit in answer["results"]] == [knows]
        assert "snippet" not in answer["results"][0]
        assert done.err == ""

    def test_three_only_where_there_is_no_session_at_all(self, run, world, shop):
        world.claude(world.repository("elsewhere"), RETRY, DONE)
        assert run("find", RETRY).code == 3
        assert run("find", RETRY, "--all-projects").code == 0
        world.claude(shop, RETRY, DONE)
        assert run("find", RETRY, "--min-score", "1").code == 0
        assert run("find", RETRY, "--agent", "codex").code == 3

    def test_what_is_missing_is_said_with_who_completes_it(self, run, world, shop, monkeypatch):
        monkeypatch.setattr("smart_fork.finding.session_library.configured_embedder", BrokenModel)
        world.claude(shop, RETRY, DONE)

        done = run("find", RETRY)

        assert done.code == 0
        assert "Searched by lexical only: vector search failed" in done.err
        assert "Indexed so far: 0 %." in done.err
        assert "`smart-fork index run` completes it" in done.err

    def test_the_rest_is_left_to_a_process_in_the_background(self, run, world, shop, monkeypatch):
        started = []
        monkeypatch.setattr("smart_fork.finding.session_library.configured_embedder", BrokenModel)
        monkeypatch.setattr(
            "smart_fork.system.processes.Processes.start", lambda _, argv, **more: started.append((argv, more))
        )
        monkeypatch.delenv("SMART_FORK_BACKGROUND")
        world.claude(shop, RETRY, DONE)

        done = run("find", RETRY)

        assert "Still indexing: 0 %. Ask again in a few minutes." in done.err
        assert started[0][0][-5:] == ["smart_fork", "index", "run", "--if-idle", f"--project={shop}"]
        assert started[0][1]["log"] == world.home / ".smart-fork/logs/index.log"

    def test_without_an_index_the_recent_sessions_and_the_next_steps(self, run, world, shop, monkeypatch):
        monkeypatch.setenv("SMART_FORK_INDEXING", "false")
        assert run("find", RETRY).code == 3
        knows = world.claude(shop, RETRY, DONE)

        done = run("find", RETRY)

        assert done.code == 1
        assert knows in done.out
        assert "  1. Run `smart-fork index run`" in done.err
        assert json.loads(run("find", RETRY, "--json").out)["error"] == "index_not_available"

    def test_indexing_switched_off_is_said(self, run, world, shop, monkeypatch):
        world.claude(shop, RETRY, DONE)
        run("find", RETRY)
        monkeypatch.setenv("SMART_FORK_INDEXING", "false")

        assert "Newer sessions were not searched." in run("find", RETRY).err

    @pytest.mark.parametrize("intent", thorough_except_first(["--help", "-rf /", "--json", "-"]))
    def test_an_intent_with_a_dash_goes_after_two_dashes(self, run, world, shop, intent):
        world.claude(shop, intent, DONE)

        done = run("find", "--json", "--", intent)

        assert json.loads(done.out)["query"] == intent

    def test_nothing_steers_the_terminal(self, run, world, shop):
        folder = shop / "\x1b]0;owned\x07"
        folder.mkdir()
        session_id = world.claude(folder, "\x1b[31mretry\x9b0m", "\x1b[2J done", gitBranch="\x1b[5m")
        (world.home / "bin/claude").unlink()

        for words in (["find", "retry"], ["list", "-A"], ["show", session_id], ["index", "status"]):
            done = run(*words)
            assert done.code == 0, done
            assert not {"\x1b", "\x07", "\x9b"} & set(done.out + done.err)


class TestErrors:
    @pytest.mark.parametrize(
        ("words", "code", "text"),
        [
            (["find"], 2, "intent"),
            (["find", " "], 2, "INTENT is empty"),
            (["find", "x", "--limit", "0"], 2, "limit"),
            (["find", "x", "--limit", "many"], 2, "--limit"),
            (["find", "x", "--min-score", "nan"], 2, "min_score must be a finite number"),
            (["find", "x", "--agent", "nobody"], 2, "nobody"),
            (["find", "x", "--project", "/no/such"], 2, "/no/such"),
            (["find", "x", "--colour"], 2, "--colour"),
            (["list", "--limit", "0"], 2, "limit"),
            (["show", "short"], 2, "too short"),
            (["show", "12345678"], 3, "12345678"),
            (["fork", "12345678", "--at", "²"], 2, "not a message number"),
            (["fork", "12345678"], 3, "12345678"),
        ],
    )
    def test_each_has_its_code_its_text_and_pure_json(self, run, words, code, text):
        plain, as_json = run(*words), run(*words, "--json")

        assert plain.code == as_json.code == code
        assert plain.out == ""
        assert text in plain.err
        assert text in json.loads(as_json.out)["error"]

    def test_a_damaged_index_is_built_anew_or_says_what_to_do(self, run, world):
        state = world.home / ".smart-fork"
        state.mkdir()
        for words in (["index", "status"], ["index", "run"], ["index", "run"]):
            (state / "index.db").write_bytes(b"this is no database" * 100)
            assert run(*words, "--json").code == 0
        (state / "index.db").write_bytes(b"this is no database" * 100)  # again and again

        done = run("index", "run", "--json")

        assert done.code == 1
        assert f"delete {state}/index.db*" in json.loads(done.out)["hint"]

    def test_what_nobody_thought_of_is_one_line(self, run, monkeypatch):
        monkeypatch.setattr("smart_fork.finding.recent.list_recent", lambda *_, **__: 1 / 0)

        done = run("list", "--json")

        assert done.code == 1
        assert "ZeroDivisionError" in json.loads(done.out)["error"]
        assert "Traceback" not in done.err
        assert "Traceback" in run("--verbose", "list").err

    def test_an_interrupted_command_ends_as_one(self, run, monkeypatch):
        def interrupt(*_: object, **__: object) -> None:
            raise KeyboardInterrupt

        monkeypatch.setattr("smart_fork.finding.recent.list_recent", interrupt)

        assert run("list").code == 130


class TestListAndShow:
    def test_a_list_for_a_person(self, run, world, shop):
        session_id = world.codex(shop, "one", "1")
        world.claude(world.repository("elsewhere"), "two", "2")

        assert run("list").out.split()[:2] == [session_id[:13], "codex"]
        assert len(run("list", "--all-projects").out.splitlines()) == 2
        assert "No sessions here. --all-projects looks everywhere." in run("list", "--agent", "claude").err

    def test_where_a_program_started_all_of_them_a_list_says_how_many_and_how_to_see_them(self, run, world, shop):
        for number in range(3):
            world.claude(shop, f"by a program {number}", "done", entrypoint="sdk-cli", promptSource="sdk", origin=None)

        said = run("list").err
        assert "Automated sessions, hidden: 3. --include-automated shows them." in said
        assert 3 == json.loads(run("list", "--json").out)["hidden_automated"]
        shown = run("list", "--include-automated")
        assert 3 == len(shown.out.splitlines())
        assert "hidden" not in shown.err

    def test_a_conversation_and_a_part_of_it(self, run, world, shop):
        session_id = world.claude(shop, *"abcdefgh")

        assert "## 7 · assistant" in run("show", session_id[:8]).out
        part = run("show", session_id, "--at", "4", "-C", "1").out
        assert [f"## {number} ·" in part for number in range(8)] == [
            False,
            False,
            False,
            True,
            True,
            True,
            False,
            False,
        ]
        assert [
            one["number"] for one in json.loads(run("show", session_id, "--json", "--at", "0").out)["messages"]
        ] == [0, 1, 2, 3]

    def test_what_is_left_of_a_deleted_log(self, run, world, shop):
        session_id = world.claude(shop, RETRY, DONE)
        run("index", "run")
        world.log_of(session_id).unlink()

        assert DONE in run("show", session_id).out
        assert DONE in json.loads(run("show", session_id, "--json").out)["markdown"]


class TestFork:
    def test_everything_reaches_the_library_as_it_was_typed(self, run, forked, monkeypatch):
        monkeypatch.setenv("CLAUDE_CODE_SESSION_ID", "asking")
        done = run(
            "fork",
            "60309e1e",
            "--at",
            "4",
            "--worktree-name",
            "api",
            "--in",
            "process",
            "--cwd",
            "/x",
            "--name",
            "n",
            "--",
            "--fix; it",
        )

        assert forked == [
            (
                "60309e1e",
                "--fix; it",
                {
                    "at": 4, "worktree": "api", "with_changes": False, "place": "process", "cwd": "/x", "name": "n", "dry_run": False,
                    "caller_session_id": "asking",
                },
            )
        ]  # fmt: skip
        assert done.code == 0
        assert "Forked 60309e1e as (id not known yet)" in done.out
        assert "watch it: tmux attach" in done.out
        assert done.err == "note: mind the gap\n"

    def test_a_dry_run_prints_the_command_alone(self, run, forked):
        assert run("fork", "60309e1e", "--dry-run").out == "claude --resume x\n"

    def test_json(self, run, forked):
        assert json.loads(run("fork", "60309e1e", "-w", "--json").out)["worker_id"] == "claude-1"
        assert forked[0][2]["worktree"] is True
        run("fork", "60309e1e", "--with-changes")
        assert (None, True) == (forked[1][2]["worktree"], forked[1][2]["with_changes"])


def test_who_is_in_a_directory_that_was_removed_is_told_so(run, shop, monkeypatch):
    gone = shop / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()

    done = run("list", "--json")

    assert done.code == 3
    assert json.loads(done.out)["error"] == "The current directory was removed"
    assert "was removed" in next(doctor._project()).detail


def test_what_cannot_be_read_is_said_and_is_not_taken_for_deleted(run, world, shop):
    log = database.make()
    database.change(log, "UPDATE session SET directory = ?, permission = NULL", str(shop))
    world.claude(shop, RETRY, DONE)
    rows = run("list").out.splitlines()
    log.write_bytes(log.read_bytes()[:20_000])

    listed, told = json.loads(run("list", "--json").out), run("list").err
    found = run("find", RETRY, "--json")
    refused = [run(command, database.TOOLS) for command in ("show", "fork")]

    assert {"claude", "opencode"} == {row.split()[1] for row in rows}
    assert 1 == len({row.index(" 20") for row in rows})
    assert (1, True) == (listed["count"], "malformed" in listed["unread"][0])
    assert "No session of OpenCode can be read" in told
    assert listed["unread"] == json.loads(found.out)["unread"]
    assert "unread" not in json.loads(run("find", RETRY, "--json", "--agent", "claude").out)
    assert all(done.code == 3 and "No session of OpenCode can be read" in done.err for done in refused)
    with pytest.raises(NotFound, match="cannot be read now"):
        session_lookup.read(session_lookup.Located("opencode", database.TOOLS, None))
    assert "none can be read" in {check.detail for check in doctor._logs()}


def test_a_file_that_cannot_be_read_is_named_without_the_name_of_an_error(run, monkeypatch, tmp_path):
    path = tmp_path / "x"

    def refused(*_):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))

    monkeypatch.setattr("smart_fork.finding.session_lookup.locate", refused)
    said = run("show", "e3185b74")

    assert (1, f"error: {path}: Permission denied\n") == (
        said.code,
        said.err[: len(f"error: {path}: Permission denied\n")],
    )
    assert f"Make {tmp_path} readable and writable for you." in said.err

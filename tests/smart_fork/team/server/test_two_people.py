"""Two people, their machines, and a real server: one pushes, the other forks, and both continue."""

from __future__ import annotations

import json
import secrets
from pathlib import Path

import pytest

from smart_fork.agents.log_readers import READERS
from smart_fork.errors import ForkRefused
from smart_fork.forking.start import LaunchedWorker
from tests.smart_fork.team.server.machines import TeamMachine
from tests.smart_fork.world import git

pytestmark = pytest.mark.slow
PROMPT, ANSWER = "add retry with backoff to the uploader", "The uploader retries five times now."
MORE, MORE_ANSWER = "and the docs", "The docs say so."


def said(agent: str, path: str | Path) -> list[str]:
    return [turn.text for _, turn in READERS[agent].read(Path(path)).session.messages]


def session_of(machine, agent, *said_there):
    make = machine.world.claude if agent == "claude" else machine.world.codex
    return make(machine.repository, *said_there)


@pytest.mark.parametrize("agent", ["claude", "codex"])
def test_what_one_pushes_the_other_forks_and_she_sees_his_fork(alice, bob, agent):
    """C-005, C-030, C-032, C-041."""
    secret = "sk-ant-api03-" + "x7Kq9" * 18
    hers = session_of(alice, agent, PROMPT, ANSWER, f"see {alice.repository}/up.py with {secret}", MORE_ANSWER)

    pushed = alice.team("push", hers, "--public", "--yes")
    forked = bob.team("fork", pushed["session_id"])

    assert pushed["created"]
    assert (4, sum(pushed["masked"].values())) == (pushed["pushed_records"], 1)
    (log,) = forked["files"]
    text = Path(log).read_text()
    assert [PROMPT, ANSWER, f"see {bob.repository}/up.py with [REDACTED:anthropic-key]", MORE_ANSWER] == said(
        agent, log
    )
    assert str(alice.home) not in text
    assert secret not in text
    assert (pushed["session_id"], pushed["session_id"]) == (forked["parent_id"], forked["root_id"])
    assert (pushed["record_count"], pushed["head_digest"]) == (forked["base_count"], forked["base_digest"])
    assert bob.team("push")["up_to_date"]


@pytest.mark.parametrize("agent", ["claude", pytest.param("codex", marks=pytest.mark.thorough)])
def test_what_was_said_since_is_appended_and_nothing_new_is_up_to_date(alice, agent):
    """C-050, C-053."""
    first = alice.team("push", session_of(alice, agent, PROMPT, ANSWER), "--yes")
    go_on(alice, first["files"][0], agent, MORE, MORE_ANSWER)

    second, third = alice.team("push", "--yes"), alice.team("push", "--yes")

    assert first["session_id"] == second["session_id"] == third["session_id"]
    assert (2, 2, 4) == (first["pushed_records"], second["pushed_records"], second["record_count"])
    assert (True, 0, second["head_digest"]) == (third["up_to_date"], third["pushed_records"], third["head_digest"])


def test_a_session_is_private_unless_it_is_said_otherwise(alice, bob):
    """D7, C-002, C-007, C-009: the error equals the error for a session that does not exist."""
    pushed = alice.team("push", session_of(alice, "claude", PROMPT, ANSWER), "--yes")

    hidden = bob.do("team", "fork", pushed["session_id"], "--json")
    nothing = bob.do("team", "fork", "00000000-0000-4000-8000-000000000000", "--json")

    assert "private" == pushed["visibility"]
    assert (3, 3) == (hidden.code, nothing.code)
    assert hidden.out.replace(pushed["session_id"], "ID") == nothing.out.replace(
        "00000000-0000-4000-8000-000000000000", "ID"
    )


def test_each_verb_is_for_one_s_own_or_for_others(alice, bob):
    """C-001 to C-006, C-023."""
    pushed = alice.team("push", session_of(alice, "claude", PROMPT, ANSWER), "--yes", "--public")["session_id"]

    assert_refused(bob, 4, "You don't own this session. Use smart-fork team fork.", "branch", pushed)
    assert_refused(alice, 4, "You own this session. Use smart-fork team branch to create a copy.", "fork", pushed)
    assert_refused(bob, 3, f"Session not found: {pushed}", "pull", pushed)


def test_one_s_own_session_is_pulled_on_another_machine_and_pushed_from_there(alice, second_machine):
    """C-001, C-020, C-041."""
    pushed = alice.team("push", session_of(alice, "claude", PROMPT, ANSWER), "--yes")

    pulled = second_machine.team("pull", pushed["session_id"][:13])
    go_on(second_machine, pulled["files"][0], "claude", MORE, MORE_ANSWER)
    more = second_machine.team("push", "--yes")
    refreshed = alice.team("pull", pushed["session_id"])

    assert pushed["session_id"] == pulled["session_id"] == more["session_id"]
    assert (2, 4) == (more["pushed_records"], more["record_count"])
    assert [PROMPT, ANSWER, MORE, MORE_ANSWER] == said("claude", refreshed["files"][0])
    assert alice.team("push")["up_to_date"]


@pytest.mark.thorough
def test_of_two_machines_that_go_on_the_second_is_told_that_it_has_advanced(alice, second_machine):
    """C-052."""
    pushed = alice.team("push", session_of(alice, "claude", PROMPT, ANSWER), "--yes")
    there = second_machine.team("pull", pushed["session_id"])
    go_on(second_machine, there["files"][0], "claude", MORE, MORE_ANSWER)
    second_machine.team("push", "--yes")
    go_on(alice, pushed["files"][0], "claude", "and the tests", "They pass.")

    assert_refused(alice, 9, "The remote session has advanced (2 -> 4 records).", "push", "--yes")
    assert_refused(alice, 9, "It continued here: 2 records are not pushed.", "pull", pushed["session_id"])


@pytest.mark.thorough
def test_a_push_whose_answer_was_never_seen_is_gone_on_with(alice):
    """C-056: killed after the server has stored it, and before the client has noted it."""
    pushed = alice.team("push", session_of(alice, "claude", PROMPT, ANSWER), "--yes")
    tracking = alice.repository / ".smart-fork/tracking.json"
    before = tracking.read_bytes()
    go_on(alice, pushed["files"][0], "claude", MORE, MORE_ANSWER)
    alice.team("push", "--yes")
    tracking.write_bytes(before)
    go_on(alice, pushed["files"][0], "claude", "and the tests", "They pass.")

    again = alice.team("push", "--yes")

    assert (pushed["session_id"], 2, 6) == (again["session_id"], again["pushed_records"], again["record_count"])


def test_what_was_pushed_and_has_changed_here_is_refused(alice):
    """C-054."""
    pushed = alice.team("push", session_of(alice, "claude", PROMPT, ANSWER), "--yes")
    log = Path(pushed["files"][0])
    log.write_text(log.read_text().replace("five times", "six times"))

    refused = alice.do("team", "push", "--yes")
    forced = alice.team("push", "--yes", "--force")

    assert (9, True) == (refused.code, "Pushed records have changed here" in refused.err)
    assert forced["session_id"] != pushed["session_id"]


@pytest.mark.thorough
def test_of_a_tracked_session_that_was_cut_here_the_alias_stays_and_says_so_and_what_is_shared_stays_as_it_was(alice):
    session = session_of(alice, "claude", PROMPT, ANSWER, MORE, MORE_ANSWER)
    pushed = alice.team("push", session, "--yes")
    alice.team("alias", "set", "retry", pushed["session_id"])
    cut = alice.do("excise", "cut", "2-3", session, "--yes", "--force", "--json")
    assert 0 == cut.code, cut

    (state,) = {one["state"] for one in alice.team("status")["aliases"]}
    refused = alice.do("team", "push", "retry", "--yes")
    there = alice.team("show", "retry")
    forced = alice.team("push", "retry", "--yes", "--force")

    assert ("changed", 9) == (state, refused.code)
    assert "Pushed records have changed here" in refused.err
    assert [PROMPT, ANSWER, MORE, MORE_ANSWER] == [one["text"] for one in there["messages"]]
    assert [PROMPT, ANSWER] == [one["text"] for one in alice.team("show", forced["session_id"])["messages"]]
    assert forced["session_id"] != pushed["session_id"]


@pytest.mark.parametrize("agent", ["claude", pytest.param("codex", marks=pytest.mark.thorough)])
def test_a_branch_has_the_first_messages_alone(alice, agent):
    """C-003, C-021, C-022, C-025, C-032, C-051: and new messages in it are pushed to it."""
    pushed = alice.team("push", session_of(alice, agent, PROMPT, ANSWER, MORE, MORE_ANSWER), "--yes")

    made = alice.team("branch", "--at", "1", "--title", "only the retry", "--tags", " a, ,b")

    assert (True, "only the retry", pushed["session_id"]) == (made["moved"], made["title"], made["parent_id"])
    assert (2, 2) == (made["base_count"], made["record_count"])
    assert [PROMPT, ANSWER] == said(agent, made["files"][0])
    go_on(alice, made["files"][0], agent, "and the tests", "They pass.")
    again = alice.team("push", "--yes")
    assert (made["session_id"], 2) == (again["session_id"], again["pushed_records"])


@pytest.mark.thorough
def test_no_messages_or_more_than_there_are_is_a_wrong_use(alice):
    """C-022."""
    pushed = alice.team("push", session_of(alice, "claude", PROMPT, ANSWER, MORE, MORE_ANSWER), "--yes")

    for number in ("0", "-1", "x", "5"):
        assert 2 == alice.do("team", "branch", pushed["session_id"], f"--at={number}").code, number


def test_a_local_branch_is_made_on_the_server_by_its_first_push(alice, bob):
    """C-027, C-051: and of another person's session it becomes a fork there."""
    pushed = alice.team("push", session_of(alice, "claude", PROMPT, ANSWER), "--yes", "--public")

    made = bob.team("fork", pushed["session_id"], "--local", "--alias", "mine")
    assert (None, None, pushed["session_id"]) == (made["session_id"], made["url"], made["parent_id"])
    assert "sessionId" not in bob.tracking()["aliases"]["mine"]
    go_on(bob, made["files"][0], "claude", MORE, MORE_ANSWER)
    there = bob.team("push", "--yes")

    assert (True, pushed["session_id"], 2, 4, "private") == tuple(
        there[key] for key in ("created", "parent_id", "base_count", "record_count", "visibility")
    )


def test_a_fork_that_the_agent_makes_itself_is_pushed_as_a_branch_of_what_it_goes_on_from(alice):
    parent = session_of(alice, "claude", PROMPT, ANSWER)
    pushed = alice.team("push", parent, "--yes")
    with alice.here():
        fork = alice.world.fork_claude(parent, alice.repository, MORE, MORE_ANSWER)

    there = alice.team("push", fork, "--yes")

    assert (pushed["session_id"], 2, 2, True) == tuple(
        there[key] for key in ("parent_id", "base_count", "pushed_records", "created")
    )


def test_another_project_s_session_is_not_pushed_here(alice):
    elsewhere = alice.home / "private"
    elsewhere.mkdir()
    session = alice.world.claude(elsewhere, PROMPT, ANSWER)

    assert_refused(
        alice, 1, f"That session belongs to another project. It worked in {elsewhere}", "push", session, "--yes"
    )


def test_a_tracking_file_that_the_repository_brings_is_not_believed(alice):
    """It could name any log of a person who clones the repository."""
    assert alice.team("push", session_of(alice, "claude", PROMPT, ANSWER), "--yes")["created"]
    git(alice.repository, "add", "-f", ".smart-fork/tracking.json")
    path = alice.repository / ".smart-fork/tracking.json"
    assert_refused(alice, 1, f"{path} is in the repository, and could name any of your logs.", "push", "--yes")
    git(alice.repository, "rm", "-q", "--cached", ".smart-fork/tracking.json")
    assert alice.team("push", "--yes")["up_to_date"]


def test_the_tracking_file_is_private_kept_out_of_git_and_keeps_what_it_does_not_know(alice):
    """C-040 to C-045."""
    alice.team("push", session_of(alice, "claude", PROMPT, ANSWER), "--yes")
    path = alice.repository / ".smart-fork/tracking.json"
    (name,) = alice.tracking()["aliases"]
    known = alice.tracking() | {"later": {"a": 1}}
    known["aliases"][name]["also"] = [2]
    path.write_text(json.dumps(known))
    go_on(alice, known["aliases"][name]["files"][0], "claude", MORE, MORE_ANSWER)
    alice.team("push", "--yes")

    kept = alice.tracking()

    assert 0o600 == path.stat().st_mode & 0o777
    assert "/.smart-fork/" in (alice.repository / ".git/info/exclude").read_text().splitlines()
    assert ({"a": 1}, [2], name) == (kept["later"], kept["aliases"][name]["also"], kept["current"])
    assert 4 == kept["aliases"][name]["baseCount"]


def test_a_broken_tracking_file_is_an_error_that_names_it(alice):
    path = alice.repository / ".smart-fork/tracking.json"
    path.parent.mkdir()
    path.write_text("{")

    said_ = alice.do("team", "push")

    assert (1, True) == (said_.code, str(path) in said_.err)


def test_without_a_terminal_nothing_is_sent_unless_yes_is_said(alice):
    session = session_of(alice, "claude", PROMPT, ANSWER)

    refused = alice.do("team", "push", session)
    seen = alice.team("push", session, "--dry-run")

    assert (2, 2) == (refused.code, seen["pushed_records"])
    assert not (alice.repository / ".smart-fork/tracking.json").exists()


def test_who_has_not_logged_in_is_told_how(alice):
    """C-058."""
    alice.team("logout")

    assert_refused(alice, 4, "Not authenticated. Please run smart-fork team login first.", "push", "--claude", "--yes")


def test_a_token_is_in_a_private_file_alone_and_ended_by_logging_out(alice, address):
    path = alice.home / ".smart-fork/team/tokens.json"
    path.unlink()
    assert "write" == alice.team("login", address, alice.invitation("alice"))["scope"]
    kept = path.read_text()
    (one,) = json.loads(kept)["servers"].values()

    done = alice.team("logout")

    assert (0o600, True) == (path.stat().st_mode & 0o777, done["revoked"])
    path.write_text(kept)
    assert one["token"].startswith("sft_")
    assert 4 == alice.do("team", "push", session_of(alice, "claude", PROMPT, ANSWER), "--yes").code


def test_a_large_session_is_sent_in_parts(alice, second_machine, monkeypatch):
    monkeypatch.setattr("smart_fork.team.push.MAX_ENCLOSED_BYTES", 10_000)
    words = [f"{word} {number} {secrets.token_hex(15_000)}" for number in range(3) for word in ("do", "done")]
    pushed = alice.team("push", session_of(alice, "claude", *words), "--yes")
    go_on(alice, pushed["files"][0], "claude", MORE, MORE_ANSWER)
    more = alice.team("push", "--yes")

    pulled = second_machine.team("pull", more["session_id"])

    assert (6, 2) == (pushed["pushed_records"], more["pushed_records"])
    assert [*words, MORE, MORE_ANSWER] == said("claude", pulled["files"][0])


def go_on(machine, log, agent, *words):
    """Append later messages to a log, as its agent writes them."""
    path = Path(log)
    records = [json.loads(line) for line in path.read_text().splitlines()]
    if agent == "claude":
        new = machine.world.claude_records(records[0]["sessionId"], machine.repository, *words)
        new[0]["parentUuid"] = next(one["uuid"] for one in reversed(records) if "uuid" in one)
    else:
        session = machine.world.codex("/nowhere", *words)
        made = machine.world.log_of(session)
        new = [json.loads(line) for line in made.read_text().splitlines()][1:]
        for number, record in enumerate(new, len(records)):
            record["ordinal"] = number
        if "ordinal" not in records[0]:
            for record in new:
                del record["ordinal"]
        made.unlink()
    with path.open("a") as file:
        file.writelines(json.dumps(record) + "\n" for record in new)


def assert_refused(machine, code, message, *words):
    said_ = machine.do("team", *words, "--json")
    assert (code, message) == (said_.code, json.loads(said_.out)["error"])


@pytest.fixture
def second_machine(tmp_path, team, alice, address, capsys):
    """A second machine of a person."""
    machine = TeamMachine(tmp_path / "second", "elsewhere/shop", team, capsys)
    machine.invited(address, "alice")
    return machine


@pytest.fixture
def forked(monkeypatch):
    """Record the session and messages of each fork instead of starting it."""
    asked = []

    def launch(prepared, **_):
        session_id = prepared.spec.source.session_id
        (log,) = Path.home().glob(f".c*/**/*{session_id}.jsonl")
        asked.append((session_id, said("claude", log)))
        if prepared.spec.options.prompt == "fail":
            raise ForkRefused("It does not start.")
        return LaunchedWorker(prepared.plan(), "process")

    monkeypatch.setattr("smart_fork.forking.start.PreparedWorker.launch", launch)
    return asked


def test_a_fork_of_a_teammate_s_session_is_a_fork_of_a_copy_of_it(alice, bob, forked):
    pushed = alice.team("push", session_of(alice, "claude", PROMPT, ANSWER), "--yes", "--public")["session_id"]

    first, again = (bob.do("fork", pushed, "do the same") for _ in range(2))

    assert (0, 0) == (first.code, again.code)
    assert [PROMPT, ANSWER] == forked[0][1]
    assert forked[0][0] == forked[1][0]
    (one,) = bob.tracking()["aliases"].values()
    assert (pushed, "fork", None) == (one["parentId"], one["kind"], one.get("sessionId"))


def test_what_was_written_for_a_fork_that_does_not_start_goes_again(alice, bob, forked):
    pushed = alice.team("push", session_of(alice, "claude", PROMPT, ANSWER), "--yes", "--public")["session_id"]

    refused = bob.do("fork", pushed, "fail")

    assert (1, 1) == (refused.code, len(forked))
    assert [] == list(bob.home.glob(".claude/**/*.jsonl"))
    assert {} == bob.tracking()["aliases"]


@pytest.mark.thorough
def test_what_a_worker_says_in_a_fork_is_pushed_as_a_fork_of_hers(alice, bob, forked):
    pushed = alice.team("push", session_of(alice, "claude", PROMPT, ANSWER), "--yes", "--public")["session_id"]
    bob.do("fork", pushed, "do the same")
    (log,) = bob.home.glob(".claude/**/*.jsonl")
    lines = log.read_text().splitlines(keepends=True)
    log.write_text("".join(line for line in lines if '"uuid"' in line))  # as the agent copies it, without its title
    worker = bob.world.fork_claude(forked[0][0], bob.repository, MORE, MORE_ANSWER)

    there = bob.team("push", worker, "--yes")

    assert (pushed, 2, 2, 4) == tuple(
        there[key] for key in ("parent_id", "base_count", "pushed_records", "record_count")
    )


def test_who_means_no_session_of_either_is_told_of_this_machine(bob, forked):
    said_ = bob.do("fork", "00000000-0000-4000-8000-000000000000", "go", "--json")

    assert (3, "00000000-0000-4000-8000-000000000000") == (said_.code, json.loads(said_.out)["error"].split()[-1])
    assert [] == forked


@pytest.fixture
def family(alice, bob):
    """Alice's session, Bob's continued fork of it, and a second fork of his that is not pushed."""
    hers = alice.team("push", session_of(alice, "claude", PROMPT, ANSWER, MORE, MORE_ANSWER), "--yes", "--public")
    his = bob.team("fork", hers["session_id"], "--at", "2", "--title", "his", "--public")
    bob.world._minutes = 60  # he goes on in it an hour later
    go_on(bob, his["files"][0], "claude", "and the tests", "They pass.")
    bob.team("push", "--yes")
    bob.team("fork", hers["session_id"], "--local", "--alias", "draft")
    return hers["session_id"], his["session_id"]


def test_the_family_is_a_tree_of_remote_and_local_members(alice, bob, family):
    """C-035."""
    hers, his = family

    seen_by_bob, seen_by_alice = bob.team("log", his)["sessions"], alice.team("log", hers)["sessions"]

    assert [(hers, 0), (his, 1), (None, 1)] == [(one["session_id"], one["depth"]) for one in seen_by_bob]
    assert "draft" == seen_by_bob[2]["alias"]
    assert [(hers, 0, 4), (his, 2, 4)] == [
        (one["session_id"], one["base_count"], one["record_count"]) for one in seen_by_alice
    ]


def test_where_two_sessions_part_is_told_with_what_each_said_then(alice, family):
    found = alice.team("diff", family[1])

    assert (2, 2, family[1], family[0]) == (
        found["common_records"], found["common_messages"], found["a"]["session_id"], found["b"]["session_id"]
    )  # fmt: skip
    assert [["and the tests", "They pass."], [MORE, MORE_ANSWER]] == [
        [one["text"] for one in found[side]["said"]] for side in "ab"
    ]


def test_a_fork_without_messages_of_its_own_is_shown_as_such(alice, bob):
    hers = alice.team("push", session_of(alice, "claude", PROMPT, ANSWER), "--yes", "--public")
    his = bob.team("fork", hers["session_id"], "--public")

    shown = alice.do("team", "diff", his["session_id"])

    assert 2 == shown.out.count("It has no further messages.")


def test_what_is_shared_is_listed_and_read(alice, bob, family):
    hers, his = family
    alice.team("push", session_of(alice, "codex", PROMPT, ANSWER), "--yes", "--tags", "x,y")

    assert [his, hers] == [one["id"] for one in bob.team("list")["sessions"]]
    assert [his] == [one["id"] for one in bob.team("list", "--mine")["sessions"]]
    assert [hers] == [one["id"] for one in bob.team("list", "--owner", alice_name(alice))["sessions"]]
    assert 1 == alice.team("list", "--tag", "y")["count"] == alice.team("list", "--agent", "codex")["count"]
    first = alice.team("list", "--limit", "2")
    rest = alice.team("list", "--page", first["next_page"])
    assert 3 == len({one["id"] for page in (first, rest) for one in page["sessions"]})
    shown = bob.team("show", hers[:13], "--at", "2")
    assert [(1, PROMPT), (2, ANSWER)] == [(one["number"], one["text"]) for one in shown["messages"]]


def test_the_status_of_each_alias(alice, second_machine, bob):
    pushed = alice.team("push", session_of(alice, "claude", PROMPT, ANSWER), "--yes")
    second_machine.team("pull", pushed["session_id"], "--alias", "same")

    def state(machine):
        return [(one["state"], one["ahead"], one["behind"]) for one in machine.team("status")["aliases"]]

    assert [("up_to_date", 0, 0)] == state(alice) == state(second_machine)
    go_on(second_machine, second_machine.tracking()["aliases"]["same"]["files"][0], "claude", MORE, MORE_ANSWER)
    assert [("ahead", 2, 0)] == state(second_machine)
    second_machine.team("push", "same", "--yes")
    assert [("behind", 0, 2)] == state(alice)
    go_on(alice, pushed["files"][0], "claude", "and the tests", "They pass.")
    assert [("diverged", 2, 2)] == state(alice)


def alice_name(machine):
    (one,) = json.loads((machine.home / ".smart-fork/team/tokens.json").read_text())["servers"].values()
    return one["user"]

"""Withdrawn messages are gone from the server, and from other machines after each person's next command."""

from __future__ import annotations

import contextlib
import gzip
import json
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import zstandard

from indexer import state_db
from smart_fork.sharing import log_register
from tests.smart_fork.team.server.machines import TeamMachine
from tests.smart_fork.team.server.test_rewrite import dump
from tests.smart_fork.team.server.test_two_people import go_on, said, second_machine, session_of  # noqa: F401
from tests.support.cases import thorough_except_first

pytestmark = pytest.mark.slow

SECRET = "quokkapassword7731"
TOKEN, REDACTED = "ghp_" + "a1B2" * 9, "[REDACTED:github-token]"
SAID = (
    "add retry to the uploader",
    "It retries five times.",
    f"the key is {SECRET}",
    f"I use {SECRET}.",
    "and docs",
    "Done.",
)
LEFT = [*SAID[:2], *SAID[4:]]
OWN, OWN_ANSWER = "and the tests", "They pass."


@pytest.fixture
def carol(tmp_path, team, address, capsys):
    team.add("carol")
    machine = TeamMachine(tmp_path / "carol", "shop", team, capsys)
    machine.invited(address, "carol")
    return machine


def later(machine):
    """Let a machine ask its server again now."""
    past = (datetime.now(UTC) - timedelta(minutes=11)).isoformat()
    with machine.here():
        state_db.change("UPDATE facts SET value = json_set(value, '$.at', ?) WHERE name LIKE 'changes of %'", past)


def having(machine, what=SECRET):
    """Return the files of a machine that contain the secret, also compressed."""
    found = []
    for path in machine.home.rglob("*"):
        if not path.is_file():
            continue
        data = path.read_bytes()
        if data.startswith(zstandard.FRAME_HEADER):
            data += zstandard.ZstdDecompressor().decompressobj().decompress(data)
        elif path.suffix == ".gz":
            data += gzip.decompress(data)
        if what.lower().encode() in data.lower():
            found.append(str(path.relative_to(machine.home)))
    return found


@contextlib.contextmanager
def writing(log):
    """Let another process open a log for writing."""
    program = "import sys; f = open(sys.argv[1], 'ab'); print(flush=True); sys.stdin.read()"
    command = [sys.executable, "-c", program, str(log)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        holder.stdout.readline()
        yield
        holder.stdin.close()


@pytest.mark.parametrize("agent", thorough_except_first(["claude", "codex"]))
def test_what_is_excised_is_nowhere_after_everybodys_next_command(request, team, alice, bob, agent):
    """Applied by the next command on each machine."""
    carol, second = map(request.getfixturevalue, ("carol", "second_machine"))
    pushed = alice.team("push", session_of(alice, agent, *SAID), "--public", "--yes")
    forks = {one: one.team("fork", pushed["session_id"])["files"][0] for one in (bob, carol)}
    pulled = second.team("pull", pushed["session_id"])["files"][0]
    go_on(bob, forks[bob], agent, OWN, OWN_ANSWER)
    bob.team("push", "--yes")
    bob.do("index", "run", "--no-vectors")
    go_on(carol, forks[carol], agent, "to be cut here", "and this")
    assert 0 == carol.do("excise", "cut", "6-7", forks[carol], "--yes").code  # leaves a snapshot with the secret
    assert SECRET in dump(team)
    assert min(len(having(bob)), len(having(carol))) > 1

    done = alice.team("excise", "cut", "3-4", pushed["session_id"], "--yes")
    for one in (bob, carol, second):
        later(one)
    again = bob.team("push", "--yes")
    carol.do("team", "fork", pushed["session_id"][:13], "--force")
    second.team("pull", pushed["session_id"])

    assert (2, 2) == (done["cut"], done["descendants"])
    assert again["up_to_date"]
    assert SECRET not in dump(team)
    assert {"bob": [], "carol": [], "second": []} == {
        name: having(one) for name, one in (("bob", bob), ("carol", carol), ("second", second))
    }
    assert [*LEFT, OWN, OWN_ANSWER] == said(agent, forks[bob])
    assert LEFT == said(agent, forks[carol]) == said(agent, pulled)


@pytest.mark.thorough
def test_what_somebody_withdraws_of_his_copy_goes_from_no_copy_of_the_original(alice, bob, carol):
    pushed = alice.team("push", session_of(alice, "claude", *SAID), "--public", "--yes")
    log = Path(bob.team("fork", pushed["session_id"])["files"][0])
    lines = log.read_bytes().splitlines(keepends=True)
    log.write_bytes(b"".join(line.replace(b"add retry", b"add a retry") for line in lines))
    copy = bob.team("push", "--force", "--public", "--yes")
    of_hers, of_his = (carol.team("fork", one["session_id"])["files"][0] for one in (pushed, copy))

    bob.team("excise", "cut", "3-4", copy["session_id"], "--yes")
    carol.team("sync")

    assert SECRET not in str(said("claude", of_his))
    assert list(SAID) == said("claude", of_hers)
    alice.team("excise", "cut", "3-4", pushed["session_id"], "--yes")
    assert [of_hers] == carol.team("sync")["changed"]
    assert [[], []] == [having(bob), having(carol)]


@pytest.mark.parametrize("agent", ["claude", pytest.param("codex", marks=pytest.mark.thorough)])
def test_a_name_that_was_made_of_what_goes_goes_as_well(team, alice, bob, agent):
    pushed = alice.team("push", session_of(alice, agent, f"remember {SECRET}", "I do.", *LEFT), "--public", "--yes")
    fork = bob.team("fork", pushed["session_id"])["files"][0]
    assert SECRET in pushed["title"]

    alice.team("excise", "cut", "1-2", pushed["session_id"], "--yes")
    bob.team("sync")

    assert [] == having(bob)
    assert SECRET not in dump(team)
    assert LEFT == said(agent, fork)


@pytest.mark.thorough
@pytest.mark.parametrize("agent", ["claude", "codex"])
def test_the_names_of_branches_that_were_made_of_what_goes_go_as_well(team, alice, bob, agent):
    name = f"remember {SECRET}"
    source = session_of(alice, agent, name, "I do.", *LEFT)
    pushed = alice.team("push", source, "--title", f"{name} (Branch)", "--public", "--yes")
    fork = bob.team("fork", pushed["session_id"])["files"][0]
    go_on(bob, fork, agent, OWN, OWN_ANSWER)
    bob.team("push", "--title", f"{name} (Branch) (Branch 2)", "--yes")

    alice.team("excise", "cut", "1-2", pushed["session_id"], "--yes")
    bob.team("sync")

    assert SECRET not in dump(team)
    assert [] == having(bob)


@pytest.mark.thorough
def test_a_file_of_records_loses_the_name_that_was_made_of_what_goes(alice, second_machine):  # noqa: F811
    pushed = alice.team("push", session_of(alice, "claude", f"remember {SECRET}", "I do.", *LEFT), "--public", "--yes")
    file = second_machine.team("pull", pushed["session_id"], "--platform", "file")["files"][0]
    assert SECRET in Path(file).read_text()

    alice.team("excise", "cut", "1-2", pushed["session_id"], "--yes")
    second_machine.team("sync")

    assert [] == having(second_machine)


@pytest.mark.thorough
def test_who_goes_on_in_a_fork_pushes_on_top_of_what_is_left(alice, bob):
    pushed = alice.team("push", session_of(alice, "claude", *SAID), "--public", "--yes")
    fork = bob.team("fork", pushed["session_id"])["files"][0]
    go_on(bob, fork, "claude", OWN, OWN_ANSWER)
    alice.team("excise", "cut", "3-4", pushed["session_id"], "--yes")

    taken = bob.team("sync")
    there = bob.team("push", "--yes")

    assert ([fork], [], {}) == (taken["changed"], taken["removed"], taken["put_off"])
    assert (2, 6) == (there["pushed_records"], there["record_count"])
    assert [] == bob.team("sync")["changed"]


def test_a_copy_that_is_open_is_put_off_and_not_pushed_meanwhile(alice, bob):
    pushed = alice.team("push", session_of(alice, "claude", *SAID), "--public", "--yes")
    fork = bob.team("fork", pushed["session_id"])["files"][0]
    alice.team("excise", "cut", "3-4", pushed["session_id"], "--yes")

    with writing(fork):
        taken = bob.team("sync")
        shown = bob.do("team", "sync").out
        refused = bob.do("team", "push", "--yes", "--json")
    assert [fork] == list(taken["put_off"])
    assert f"  put off  {fork}: {taken['put_off'][fork]}\n" in shown
    assert (9, True) == (refused.code, "Withdrawn text is still" in json.loads(refused.out)["error"])
    assert SECRET in Path(fork).read_text()
    assert f"  cut      {fork}\n" in bob.do("team", "sync").out
    assert bob.team("push", "--yes")["up_to_date"]


def test_deleting_everywhere_removes_copies_in_which_nothing_else_is(alice, bob, carol):
    pushed = alice.team("push", session_of(alice, "claude", *SAID), "--public", "--yes")
    forks = {one: one.team("fork", pushed["session_id"])["files"][0] for one in (bob, carol)}
    go_on(bob, forks[bob], "claude", OWN, OWN_ANSWER)
    bob.team("push", "--yes")

    done = alice.team("delete", pushed["session_id"], "--everywhere", "--yes")

    assert 2 == done["descendants"]
    assert [forks[bob]] == bob.team("sync")["changed"]
    assert f"  removed  {forks[carol]}\n" in carol.do("team", "sync").out
    assert [OWN, OWN_ANSWER] == said("claude", forks[bob])
    assert not Path(forks[carol]).exists()
    assert {} == carol.tracking()["aliases"]
    assert bob.team("push", "--yes")["up_to_date"]


def test_a_copy_that_is_a_file_follows(request, alice):
    second = request.getfixturevalue("second_machine")
    pushed = alice.team("push", session_of(alice, "claude", *SAID), "--public", "--yes")["session_id"]
    (file,) = second.team("pull", pushed, "--platform", "file")["files"]
    assert SECRET in Path(file).read_text()
    alice.team("excise", "cut", "3-4", pushed, "--yes")

    assert [file] == second.team("sync")["changed"]
    assert [] == having(second)
    with second.here():
        assert [] == log_register.with_pending_edits()


@pytest.mark.thorough
@pytest.mark.parametrize(("agent", "other"), [("claude", "codex"), ("codex", "claude")])
def test_a_copy_for_another_agent_follows_and_keeps_what_was_said_in_it_since(alice, bob, agent, other):
    allowed = alice.home / ".smart-fork/config.toml"
    allowed.write_text(f'[team]\nallow = ["{TOKEN}"]\n')
    told = (f"and docs, with token={TOKEN}", "Done.")
    pushed = alice.team("push", session_of(alice, agent, *SAID[:4], *told), "--public", "--yes")["session_id"]
    shared, kept = (bob.team("fork", pushed, "--platform", other)["files"][0] for _ in range(2))
    for file in (shared, kept):
        go_on(bob, file, other, OWN, OWN_ANSWER)
    bob.team("push", shared, "--yes")
    allowed.unlink()
    assert (2, 0) == (len(having(bob, SECRET)), len(having(bob, TOKEN)))  # what its owner allows is no other vendor's

    done = alice.team("excise", "cut", "--secrets", pushed, "--yes")
    assert {"github-token": 1} == done["masked"]
    alice.team("excise", "cut", "3-4", pushed, "--yes")
    with writing(kept):
        assert [kept] == list(bob.team("sync")["put_off"])
    assert [kept] == bob.team("sync")["changed"]

    masked = f"and docs, with token={REDACTED}"
    assert [*SAID[:2], masked, "Done.", OWN, OWN_ANSWER] == said(other, shared) == said(other, kept)
    assert [[], []] == [having(bob, SECRET), having(bob, TOKEN)]


@pytest.mark.thorough
def test_a_secret_that_its_owner_masks_is_masked_in_a_teammates_copy(alice, bob):
    allowed = alice.home / ".smart-fork/config.toml"
    allowed.write_text(f'[team]\nallow = ["{TOKEN}"]\n')
    pushed = alice.team("push", session_of(alice, "claude", f"use {TOKEN}", "Done."), "--public", "--yes")["session_id"]
    (file,) = bob.team("fork", pushed)["files"]
    allowed.unlink()

    alice.team("excise", "cut", "--secrets", pushed, "--yes")

    assert [file] == bob.team("sync")["changed"]
    assert [f"use {REDACTED}", "Done."] == said("claude", file)
    assert [] == having(bob, TOKEN)


def test_who_cuts_or_forgets_a_log_that_was_shared_is_told_what_withdraws_it(alice):
    pushed = alice.team("push", session_of(alice, "claude", *SAID), "--yes")
    (log,), shared = pushed["files"], pushed["session_id"]

    cut = alice.do("excise", "cut", "4-5", log, "--yes")
    alice.do("index", "run", "--no-vectors")
    forgotten = alice.do("forget", Path(log).stem, "--yes")

    assert f"smart-fork team excise cut RANGE {shared}" in cut.err
    assert f"smart-fork team delete {shared} --everywhere" in forgotten.err


@pytest.mark.parametrize("agent", ["claude", pytest.param("codex", marks=pytest.mark.thorough)])
@pytest.mark.parametrize("is_first", thorough_except_first([False, True]))
def test_a_shared_session_that_still_has_what_was_cut_here_is_named_until_it_is_withdrawn(alice, bob, agent, is_first):
    pushed = alice.team("push", session_of(alice, agent, *SAID), "--public", "--yes")
    (log,), shared = pushed["files"], pushed["session_id"]
    if is_first:
        alice.team("excise", "cut", "3-4", shared, "--yes")
    turns = alice.do("excise", "list", log, "--json").json["turns"]
    numbers = ",".join(str(one["number"]) for one in turns if SECRET in one["preview"])

    done = alice.do("excise", "cut", numbers, log, "--yes", "--json").json
    found = alice.do("excise", "verify", log, "--json")
    assert SECRET not in Path(log).read_text()
    expected = ([], True, 0) if is_first else ([pushed["url"]], False, 1)
    assert expected == ([one["path"] for one in done["left"]], done["erased"], found.code)
    if not is_first:
        assert [pushed["url"]] == [one["path"] for one in found.json["copies"]]
        alice.team("excise", "cut", "3-4", shared, "--yes")
    assert 0 == alice.do("excise", "verify", log).code
    assert alice.team("push", log)["up_to_date"]


@pytest.mark.thorough
def test_a_copy_of_which_something_was_withdrawn_is_not_forked_before_that_is_out(alice, bob):
    pushed = alice.team("push", session_of(alice, "claude", *SAID), "--public", "--yes")
    fork = Path(bob.team("fork", pushed["session_id"])["files"][0])
    alice.team("excise", "cut", "3-4", pushed["session_id"], "--yes")
    later(bob)

    with writing(fork):
        refused = bob.do("fork", fork.stem, "go on", "--in", "process", "--json")
        assert (9, True) == (refused.code, "Withdrawn text is still" in json.loads(refused.out)["error"])
    assert 9 != bob.do("fork", fork.stem, "go on", "--in", "process", "--dry-run").code
    bob.team("sync")
    assert LEFT == said("claude", fork)


def test_hiding_leaves_what_others_have_made_of_it(alice, bob):
    pushed = alice.team("push", session_of(alice, "claude", *SAID), "--public", "--yes")
    fork = bob.team("fork", pushed["session_id"])["files"][0]

    alice.team("delete", pushed["session_id"], "--yes")

    assert {"changed": [], "removed": [], "put_off": {}} == bob.team("sync")
    assert list(SAID) == said("claude", fork)
    assert 3 == bob.do("team", "fork", pushed["session_id"]).code


def test_privacy_is_the_owners_alone(alice, bob):
    pushed = alice.team("push", session_of(alice, "claude", *SAID), "--yes")["session_id"]

    assert 3 == bob.do("team", "privacy", pushed, "--public", "--yes").code
    assert "public" == alice.team("privacy", pushed, "--public", "--yes")["visibility"]
    assert 4 == bob.do("team", "privacy", pushed, "--private").code
    assert 4 == bob.do("team", "excise", "cut", "1", pushed, "--yes", "--force").code
    assert 4 == bob.do("team", "delete", pushed, "--yes").code
    assert "private" == alice.team("privacy", pushed, "--private")["visibility"]
    assert 2 == alice.do("team", "privacy", pushed).code


@pytest.mark.thorough
def test_messages_that_are_not_there_are_a_wrong_use(alice):
    pushed = alice.team("push", session_of(alice, "claude", *SAID), "--yes")["session_id"]

    for words in (("3-4",), ("0", pushed), ("9", pushed), ("x", pushed), ()):
        assert 2 == alice.do("team", "excise", "cut", *words, "--yes").code, words


def test_a_server_s_word_cuts_nothing_that_was_not_taken_from_it(alice, team):
    """The log of this machine's own agent stays, whatever is withdrawn from its pushed copy."""
    session = session_of(alice, "claude", *SAID)
    pushed = alice.team("push", session, "--public", "--yes")
    before = Path(pushed["files"][0]).read_bytes()

    alice.team("excise", "cut", "3-4", pushed["session_id"], "--yes")

    assert before == Path(pushed["files"][0]).read_bytes()
    go_on(alice, pushed["files"][0], "claude", OWN, OWN_ANSWER)
    assert (2, 6) == tuple(alice.team("push", "--yes")[key] for key in ("pushed_records", "record_count"))


def test_a_server_is_asked_once_in_ten_minutes(alice, bob):
    pushed = alice.team("push", session_of(alice, "claude", *SAID), "--public", "--yes")
    fork = bob.team("fork", pushed["session_id"])["files"][0]
    alice.team("excise", "cut", "3-4", pushed["session_id"], "--yes")

    bob.do("team", "audit")
    assert list(SAID) == said("claude", fork)
    later(bob)
    bob.do("team", "audit")
    assert LEFT == said("claude", fork)


@pytest.mark.thorough
def test_the_audit_says_who_did_what(alice, bob):
    pushed = alice.team("push", session_of(alice, "claude", *SAID), "--public", "--yes")["session_id"]
    bob.team("fork", pushed)
    alice.team("excise", "cut", "3-4", pushed, "--yes")

    lines = alice.team("audit", pushed)

    assert ["excise", "fork", "push"] == [line["verb"] for line in lines]
    assert {"records": 2} == lines[0]["details"]
    assert SECRET not in json.dumps(lines)
    assert ["excise", "push"] == [line["verb"] for line in alice.team("audit", pushed, "--mine")]
    assert [] == alice.team("audit", "--since", "2999-01-01")
    assert 2 == alice.do("team", "audit", "--since", "yesterday").code

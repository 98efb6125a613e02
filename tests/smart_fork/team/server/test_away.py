"""A server that is unavailable, slow or lying costs a moment, once. Withdrawn messages are neither found nor forked."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from indexer.store.base import Scope
from smart_fork.finding.query import Query
from smart_fork.finding.search import QuestionEmbeddings
from smart_fork.forking.start import LaunchedWorker
from smart_fork.team import client
from smart_fork.team.facade import TeamSearch
from smart_fork.team.stored_logins import Account, logged_in_account, remember
from tests.smart_fork.team.server.shared_sessions import INVOICES, UPLOADER, index_all
from tests.smart_fork.team.server.test_withdrawal import later, writing
from tests.smart_fork.world import WordsModel
from tests.support.cases import thorough_except_first

pytestmark = pytest.mark.slow

QUESTION = "retry with backoff in the uploader"


class Peer:
    """A listener in place of a server, which counts connections."""

    def __init__(self, answer: Callable[[socket.socket, threading.Event], None]) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._answer, self.came = answer, 0
        self.asked, self.over = threading.Event(), threading.Event()
        threading.Thread(target=self._listen, daemon=True).start()

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self._listener.getsockname()[1]}"

    def _listen(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                one, _ = self._listener.accept()
                self.came += 1
                self.asked.set()
                with one, contextlib.suppress(OSError):
                    self._answer(one, self.over)

    def close(self) -> None:
        self.over.set()
        self._listener.close()


def say_nothing(_: socket.socket, over: threading.Event) -> None:
    over.wait()


def drip(one: socket.socket, over: threading.Event) -> None:
    """Send one line at a time: each arrives in time, but the answer never ends."""
    one.sendall(b"HTTP/1.1 200 OK\r\n")
    while not over.wait(0.05):
        one.sendall(b"X-Wait: 1\r\n")


def garble(one: socket.socket, _: threading.Event) -> None:
    one.recv(65536)
    one.sendall(b"\x00\xff\x1b[31m is nothing of HTTP\r\n\r\n")


def lie(one: socket.socket, _: threading.Event) -> None:
    one.recv(65536)
    body = b'{"hits": "\x1b[2J all of them"}'
    one.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))


@pytest.fixture(params=thorough_except_first([say_nothing, drip, garble, lie]))
def peer(request) -> Iterator[Peer]:
    one = Peer(request.param)
    yield one
    one.close()


def at(machine, address: str) -> None:
    """Let a machine use this address as its server."""
    with machine.here():
        remember(Account(address, "bob", "sft_" + "x" * 43))


def test_what_answers_in_no_way_of_a_server_is_asked_once_and_ones_own_results_stand(bob, peer):
    bob.world.claude(bob.repository, *INVOICES)
    at(bob, peer.address)
    with bob.here():
        asked = TeamSearch(seconds=0.0)
        query = Query(QUESTION, Scope(), 5, directory=bob.repository)
        asked.begin(query, QuestionEmbeddings(WordsModel(), [QUESTION]))
        peer.asked.wait()  # a slow machine may come later than in time
        said = asked.answer()

    first, second = (bob.do("find", INVOICES[0], "--json").json for _ in range(2))
    words = bob.do("find", INVOICES[0])

    assert ((), True) == (said.hits, bool(said.error) and said.error.isprintable())
    assert 1 == peer.came
    assert [client.ASKED_LATER] * 2 == [first["team_error"], second["team_error"]]
    assert (1, first["results"]) == (len(first["results"]), second["results"])
    assert client.ASKED_LATER.partition(";")[0] in words.err + words.out


def test_where_nobody_listens_is_said_and_another_server_is_asked_all_the_same(bob):
    bob.world.claude(bob.repository, *INVOICES)
    with bob.here():
        there = logged_in_account()
    at(bob, "http://127.0.0.1:9")
    refused = bob.do("find", INVOICES[0], "--json").json
    with bob.here():
        remember(there)

    assert "does not answer" in refused["team_error"]
    assert {"server": there.origin} == {
        key: bob.do("find", INVOICES[0], "--json").json["team"][key] for key in ["server"]
    }


@pytest.fixture
def forks(monkeypatch):
    """Record the session of each fork instead of starting it."""
    started: list[str] = []

    def launch(prepared, **_):
        started.append(prepared.spec.source.session_id)
        return LaunchedWorker(prepared.plan(), "process")

    monkeypatch.setattr("smart_fork.forking.start.PreparedWorker.launch", launch)
    return started


@pytest.fixture
def hers(alice, team):
    """A session of Alice that Bob may read."""
    pushed = alice.team("push", alice.world.claude(alice.repository, *UPLOADER), "--public", "--yes")["session_id"]
    index_all(team)
    return pushed


def test_that_a_server_is_away_is_no_error_where_it_cannot_be_written_down(monkeypatch):
    monkeypatch.setenv("SMART_FORK_HOME", "/dev/null/x")

    client.note_unavailable("http://127.0.0.1:9")

    assert not client.is_unavailable("http://127.0.0.1:9")


def test_a_copy_and_an_alias_are_forked_where_the_server_is_away(bob, hers, forks):
    copy = Path(bob.team("fork", hers, "--alias", "hers")["files"][0]).stem
    with bob.here():
        client.note_unavailable(logged_in_account().origin)
    later(bob)

    said = [bob.do("fork", one, "go on", "--json").json["resolved"] for one in (copy, copy[:8], "hers")]

    assert (["session", "session", "alias"], [copy] * 3) == (said, forks)


def test_an_id_of_the_teams_says_so_and_means_the_whole_of_it_as_it_is_now(alice, bob, hers, forks):
    bob.team("fork", hers, "--at", "1", "--local")

    first = bob.do("fork", hers, "go on", "--json").json
    again = bob.do("fork", hers, "go on", "--json").json

    assert ["team", "team"] == [first["resolved"], again["resolved"]]
    assert forks[0] == forks[1]
    assert "session" == bob.do("fork", forks[0], "go on", "--json").json["resolved"]
    with bob.here():
        from smart_fork.finding import session_lookup

        assert UPLOADER[1] in str(session_lookup.look_into(session_lookup.locate(forks[0])).turns)


def test_what_was_withdrawn_is_taken_out_before_it_is_found(alice, bob, hers):
    """Withdrawals are applied also if a question finds nothing of the team."""
    log = Path(bob.team("fork", hers)["files"][0])
    assert log.stem in str(bob.do("find", UPLOADER[1], "--json").json["results"])
    alice.team("delete", hers, "--everywhere", "--yes")

    before = bob.do("find", UPLOADER[1], "--json").json
    later(bob)
    after = bob.do("find", UPLOADER[1], "--json")

    assert log.stem in str(before["results"]), "it is asked once in ten minutes"
    assert ([], False) == (after.json["results"], log.exists())
    assert [] == [path for path in bob.home.rglob("*") if path.is_file() and UPLOADER[1].encode() in path.read_bytes()]


def test_a_copy_that_is_open_is_neither_found_nor_forked_until_it_is_closed(alice, bob, hers):
    log = Path(bob.team("fork", hers)["files"][0])
    native = bob.world.fork_claude(log.stem, bob.repository, *INVOICES)
    bob.do("find", UPLOADER[1])
    alice.team("delete", hers, "--everywhere", "--yes")
    later(bob)

    with writing(log):
        found = bob.do("find", UPLOADER[1], "--json").json
        ways = [
            ("fork", log.stem, "x"),
            ("fork", log.stem, native, "x", "--no-worktree"),
            ("branch", log.stem, "--start"),
        ]
        refused = [bob.do(*words, "--json") for words in ways]

    assert log.stem not in [hit["session_id"] for hit in found["results"]]
    assert [] == [one for one in refused if not one.code or "Withdrawn text is still" not in one.out]

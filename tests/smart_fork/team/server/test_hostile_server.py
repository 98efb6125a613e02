"""Each command against a server that lies in each of its answers: it prints a sentence, and leaves nothing behind."""

from __future__ import annotations

import json
import re
from contextlib import closing
from itertools import cycle
from pathlib import Path
from unittest.mock import patch

import apsw
import httpx2
import pytest

from smart_fork.team import client
from smart_fork.team.client import Client
from smart_fork.team.server import auth
from tests.smart_fork.team.server.lying_server import Liar, lies
from tests.smart_fork.team.server.machines import serving, team_server
from tests.smart_fork.team.server.shared_sessions import index_all
from tests.smart_fork.team.server.test_two_people import ANSWER, MORE, MORE_ANSWER, PROMPT, go_on, session_of
from tests.support.exhaustive import EXHAUSTIVE

pytestmark = pytest.mark.thorough

#: At each answer so many lies are tried, in turns: `SMART_FORK_DRILLS=all` tries them all.
EACH = 29 if EXHAUSTIVE else 1
STEERING = re.compile(r"[\x00-\x08\x0b-\x1f\x7f\u202e]")
#: What a command may have written before it was lied to.
KEPT = (".lock", "tokens.json", "tracking.json", "exclude", "weights-checked")
#: What in the database of a machine's state says that there are copies.
COPIES = "SELECT id, written FROM pulled UNION ALL SELECT * FROM foreign_ids UNION ALL SELECT session_id, agent FROM unfinished_copies"


@pytest.fixture
def liar(pool, monkeypatch):
    monkeypatch.setattr(client, "MESSAGE_BYTES", 1 << 20)
    monkeypatch.setattr(Client.__init__, "__defaults__", (httpx2.Timeout(5.0), (0.0, 0.0), lambda seconds: None))
    one = Liar(team_server(pool))
    with serving(one) as url:
        yield one, url


@pytest.fixture
def elsewhere():
    """A second server, which records the requests that it gets."""
    asked = []

    async def app(scope, receive, send):
        asked.append(scope["path"])
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"{}"})

    with serving(app) as url:
        yield asked, url


class Files:
    """All files of a person, now and before."""

    def __init__(self, home: Path) -> None:
        self.home, self.before = home, {}
        self.before = self.now()

    def now(self) -> dict[Path, bytes]:
        return {path: path.read_bytes() for path in self.home.rglob("*") if path.is_file() and not path.is_symlink()}

    def changed(self) -> list[str]:
        now = self.now()
        paths = {
            path for path in now.keys() | self.before.keys() if self._said(now, path) != self._said(self.before, path)
        }
        return sorted(str(path) for path in paths if not path.name.endswith(KEPT))

    def _said(self, files: dict[Path, bytes], path: Path) -> object:
        if path.name != "state.db" or path not in files:
            return files.get(path, [] if path.name == "state.db" else None)
        with closing(apsw.Connection(":memory:")) as db:
            db.deserialize("main", files[path])
            return list(db.execute(COPIES))

    def restore(self) -> None:
        for path in self.now().keys() - self.before.keys():
            path.unlink()
        for path, content in self.before.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            if not path.exists() or path.read_bytes() != content:
                path.write_bytes(content)


@pytest.fixture
def words(alice, bob, team, liar):
    """Return the words of a command, and whether a lie in it may go unnoticed."""
    hers = alice.team("push", session_of(alice, "claude", PROMPT, ANSWER), "--yes", "--public")["session_id"]
    with team.pool.transaction() as db:
        invitations = [auth.invite(db, team.people["bob"].name) for _ in range(2)]
    (bob.home / ".smart-fork/team/tokens.json").unlink()
    bob.team("login", liar[1], invitations[0])
    log = session_of(bob, "claude", PROMPT, ANSWER, MORE, MORE_ANSWER)
    mine = bob.team("push", log, "--yes", "--public")
    fork = bob.team("fork", hers)
    go_on(bob, fork["files"][0], "claude", MORE, MORE_ANSWER)
    fresh = session_of(bob, "claude", "print the invoices", "They are printed.")
    index_all(team)
    own, other = mine["session_id"], fork["session_id"]
    return [
        ("team", "list"), ("team", "find", "retry with backoff"), ("team", "show", hers), ("team", "log", own),
        ("team", "diff", other), ("team", "status"), ("team", "audit"), ("team", "fork", hers), ("team", "branch", own),
        ("team", "push", fork["alias"], "--yes"), ("team", "push", fresh, "--yes"), ("team", "pull", own, "--force"),
        ("team", "privacy", own, "--private"), ("team", "excise", "cut", "3-4", own, "--yes"),
        ("team", "sync"), ("team", "delete", own, "--yes"), ("team", "login", liar[1], invitations[1]),
    ]  # fmt: skip


#: Lies that change nothing of what is asked for; and of what is only told they cannot be known for such.
HARMLESS = {"texts that steer", "a name twice"}
ONLY_TOLD = {"list", "find", "status", "audit", "privacy", "log"}
#: Of what was withdrawn: which of another's sessions, at which of its revisions; and of how many a server says that it did.
NOT_KNOWN = {"other ids", "counts", "another project's"}
PLAUSIBLE = {
    "sync": NOT_KNOWN, "excise": NOT_KNOWN, "delete": {"nothing, and no content"},  # which is how it says that
    "audit": {"other types", "another project's"},
    "list": {"slow"}, "status": {"slow"},  # what is known here is told, with why it is not the server's word
}  # fmt: skip


def changes_nothing(answer, lie):
    """Return True if a lie leaves the answer as it was. Content of an answer without a body is never read."""
    status, _, body = answer
    lied = lie(answer)
    return isinstance(lied[2], bytes) and lied[0] == status and (status == 204 or _said(lied[2]) == _said(body))


def _said(body):
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return body


@pytest.mark.timeout(3_600 if EXHAUSTIVE else 300)
def test_whatever_a_server_answers_a_sentence_says_what_to_do_and_nothing_is_written(bob, words, liar, elsewhere):
    one, _ = liar
    turns = cycle(lies(elsewhere[1]).items())
    wrong = []
    for command in words:
        files = Files(bob.home)
        one.recorded.clear()
        done = bob.do(*command, "--json")
        assert 0 == done.code, (command, done)
        files.restore()
        for at in range(len(one.recorded)):
            for _ in range(EACH):
                name, lie = next(turns)
                if changes_nothing(one.recorded[at][1], lie):
                    continue
                seconds = 0.3 if name == "slow" else client.ANSWER_SECONDS
                with one.lying(at, lie), patch.object(client, "ANSWER_SECONDS", seconds):
                    said = bob.do(*command, "--json")
                if one.asked > at:  # it may have had less to ask this time
                    wrong += [(command, at, name, what) for what in _wrong(command, said, name, files)]
                files.restore()
    assert [] == wrong
    assert [] == elsewhere[0]


def _wrong(command, said, name, files):
    """Yield everything that must not be left after a lie."""
    shown = said.out + said.err
    if "Traceback" in shown or said.code not in (0, 1, 2, 3, 4, 9):
        yield f"exit {said.code}: {shown[-600:]}"
    if STEERING.search(re.sub(r"\\u[0-9a-f]{4}", "", shown)):
        yield f"steers: {shown[:300]!r}"
    if said.code == 0:
        plausible = command[1] in ONLY_TOLD and name in ("counts", "digests", "other ids", "another agent's")
        if name not in HARMLESS and name not in PLAUSIBLE.get(command[1], ()) and not plausible:
            yield f"believed: {said.out[:500]}"
        return
    told = json.loads(said.out)
    if said.code == 3 and told.get("results") == []:
        return  # what only a later version could understand is left out
    if not (told.get("error") and told.get("hint")):
        yield f"no sentence: {said.out}"
    if changed := files.changed():
        yield f"written: {changed}"

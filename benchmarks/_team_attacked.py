"""A real server of a team that intruders attack, and what is looked at before and afterwards."""

from __future__ import annotations

import random
import socket
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from itertools import takewhile
from pathlib import Path
from urllib.parse import urlsplit

from _report_of_attack import Report
from _team import TeamServer
from _team_intruder import Intruder
from _team_scene import Scene, lay_out, others

from smart_fork.team.client import Client
from smart_fork.team.login import Account
from smart_fork.team.server.admin import invited
from smart_fork.team.wire import PROTOCOL

KEY, OTHER = "example.org/acme/shop", "example.org/acme/secret"
#: Each token may ask so many times a minute: with fewer tokens the attack would be of that limit alone.
TOKENS = 24
#: Connections that are held while all this happens, a byte of a request a second.
SLOW = 30


def attack(folder: Path, calls: int, seed: int, clients: int) -> Report:
    """Attack a server in `folder`."""
    report = Report()
    with TeamServer(folder, workers=2) as server:
        owner = server.account("alice", [KEY, OTHER])
        accounts = {name: _tokens(server, name, KEY) for name in ("mallory", "rita")}
        accounts["stranger"] = _tokens(server, "stranger", "example.org/elsewhere/x")
        with server.database() as db:
            db.execute("UPDATE members SET role = 'reader' FROM users u WHERE u.id = user_id AND u.name = 'rita'")
        given = {"writer": accounts["mallory"], "reader": accounts["rita"], "stranger": accounts["stranger"]}
        scene = lay_out(owner, KEY, OTHER, given)
        server.settle()
        with server.database() as db:
            rows = db.execute("SELECT id FROM users WHERE name <> 'mallory' ORDER BY id").fetchall()
            people = [row["id"] for row in rows]
            before = others(db, people)
        began = time.perf_counter()
        with _slow(scene):
            threads = [
                threading.Thread(
                    target=_go_on, args=(Intruder(scene, random.Random(f"{seed}/{number}")), calls // clients, report)
                )
                for number in range(clients)
            ]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        report.seconds = time.perf_counter() - began
        _look_after(server, scene, report)
        with server.database() as db:
            for name, there in others(db, people).items():
                if there != before[name]:
                    report.violations.setdefault(f"others' {name} have changed", "")
        print(server.look())
    for found in _said(server, scene):
        report.violations.setdefault(f"the log: {found}", "")
    return report


def _said(server: TeamServer, scene: Scene) -> Iterator[str]:
    """What must not stand in the log: what others keep, and how a request failed."""
    lines = server.log.read_text(errors="replace").splitlines()
    for number, line in enumerate(lines):
        if any(one in line for one in scene.hidden):
            yield line[:300]
        if "a request failed" in line:
            trace = list(takewhile(lambda one: not one.startswith("20"), lines[number + 1 :]))
            yield " ".join(trace[-6:])[:600]


def _tokens(server: TeamServer, name: str, project: str) -> list[str]:
    """Several of one person, as of several machines."""
    found = [server.account(name, [project])]
    with server.database() as db:
        invitations = [invited(db, name)["invite"] for _ in range(TOKENS - 1)]
    with Client(Account(server.url, "", "")) as client:
        return [found[0].token, *(client.login(one, "other").token for one in invitations)]


def _go_on(intruder: Intruder, calls: int, report: Report) -> None:
    for _ in range(calls):
        try:
            name, status, wrong, sent = intruder.attack()
        except OSError as error:
            name, status, wrong, sent = "no answer", 0, type(error).__name__, str(error)
        outcome = "errors" if status >= 500 or wrong else "ok" if 200 <= status < 300 else "refused"
        report.note(name, outcome, wrong, sent)
        report.statuses[status] = report.statuses.get(status, 0) + 1


@contextmanager
def _slow(scene: Scene) -> Iterator[None]:
    """Requests whose bodies come a byte a second."""
    done = threading.Event()
    token = scene.tokens["writer"][-1]
    address = urlsplit(scene.url)

    def dribble() -> None:
        head = f"POST /v1/projects/{scene.key}/push HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n"
        while not done.is_set():
            with (
                suppress(OSError),
                closing(socket.create_connection((address.hostname or "", address.port or 80))) as one,
            ):
                one.sendall(f"{head}Authorization: Bearer {token}\r\n\r\n".encode())
                while not done.wait(1):
                    one.sendall(b" ")

    threads = [threading.Thread(target=dribble) for _ in range(SLOW)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        done.set()
        for thread in threads:
            thread.join()


def _look_after(server: TeamServer, scene: Scene, report: Report) -> None:
    """Whether it is well, and answers who means well."""
    if not server.runs:
        report.violations["the server has ended"] = ""
        return
    with urllib.request.urlopen(f"{scene.url}/healthz", timeout=60) as answer:  # noqa: S310
        if answer.read() != b"ok\n":
            report.violations["not well"] = ""
    with Client(Account(scene.url, "mallory", scene.tokens["writer"][0])) as client:
        if (
            client.hello().protocol != PROTOCOL
            or client.session(scene.key, scene.ids["public"]).session.owner != "alice"
        ):
            report.violations["others' public session is not read any more"] = ""

"""Tests of machines that synchronize simultaneously, and of processes that are killed meanwhile."""

from __future__ import annotations

import os
import shlex
import signal
import sys
from subprocess import PIPE
from unittest.mock import patch

import pytest

from smart_fork.sharing.sync.ref import Ref
from tests.smart_fork.sync.test_sync import SAID, say_more
from tests.smart_fork.sync.two_machines import REF, Machine, Machines, machines
from tests.support import forkserver
from tests.support.exhaustive import full_or_sample

pytestmark = pytest.mark.slow

__all__ = ["machines"]

ROUNDS = full_or_sample(3, 1)
OTHER = ("What about wombats?", "They are shy")

#: Runs `sync`, and is killed before or after a call of that function.
KILLED = """
import importlib, os, signal, sys
owner, name, when = sys.argv.pop(1).split(":")
module, _, kind = owner.partition("/")
there = importlib.import_module(module)
there = getattr(there, kind) if kind else there
real = getattr(there, name)
def call(*given, **more):
    if when == "after":
        real(*given, **more)
    os.kill(os.getpid(), signal.SIGKILL)
setattr(there, name, call)
from smart_fork.cli.main import main
sys.argv[0] = "smart-fork"
main()
"""


def started(machine: Machine, *words: str, code: tuple[str, ...] = ("-m", "smart_fork")) -> forkserver.Popen:
    argv = [sys.executable, *code, *words]
    return forkserver.Popen(argv, cwd=machine.repository, env=os.environ | machine.env, stdout=PIPE, stderr=PIPE)


def killed_at(machine: Machine, point: str) -> None:
    process = started(machine, point, "sync", code=("-c", KILLED))
    _, said = process.communicate()
    assert process.returncode == -signal.SIGKILL, said.decode()


def all_is_even(machines: Machines, sessions: int) -> None:
    """Check that both machines have every session once, and that another synchronization changes nothing."""
    for machine in (machines.laptop, machines.desktop, machines.laptop):
        machine.sync()
    for machine in (machines.laptop, machines.desktop):
        said = machine.sync()
        assert (said["sent"], said["received"], said["withdrawn"], said["failed"]) == ([], [], [], [])
        assert len(machine.ids()) == sessions
    assert len(machines.files()) == sessions + 1


@pytest.mark.thorough
def test_who_is_slower_fetches_and_tries_again(machines):
    machines.laptop.world.claude(machines.laptop.repository, *SAID)
    machines.desktop.world.claude(machines.desktop.repository, *OTHER)
    machines.set_up()
    push, tried = Ref.push, []

    def slower(self, files, before):
        tried.append(before.commit)
        if len(tried) == 1:
            machines.desktop.sync()  # which pushes, too
        return push(self, files, before)

    with patch.object(Ref, "push", slower):
        said = machines.laptop.sync()
    assert len(tried) == 3
    assert (len(said["sent"]), len(said["received"])) == (1, 1)
    all_is_even(machines, 2)


@pytest.mark.thorough
def test_a_withdrawal_wins_over_a_machine_that_sends_the_session_at_the_same_time(machines):
    session = machines.laptop.world.claude(machines.laptop.repository, *SAID)
    machines.set_up()
    machines.laptop.sync()
    (one,) = machines.desktop.sync()["received"]
    say_more(machines.laptop, session, *OTHER)
    push, tried = Ref.push, []

    def slower(self, files, before):
        tried.append(before.commit)
        if len(tried) == 1:
            machines.desktop.sync("withdraw", one["session_id"])
        return push(self, files, before)

    with patch.object(Ref, "push", slower):
        machines.laptop.sync()
    assert machines.desktop.sync()["received"] == []
    assert len(machines.files()) == 1


def test_two_machines_at_the_same_time_lose_nothing(machines):
    machines.set_up()
    for number in range(ROUNDS):
        machines.laptop.world.claude(machines.laptop.repository, f"{SAID[0]} {number}", SAID[1])
        machines.desktop.world.claude(machines.desktop.repository, f"{OTHER[0]} {number}", OTHER[1])
        running = [started(one, "sync") for one in (machines.laptop, machines.desktop, machines.laptop)]
        for process in running:
            _, said = process.communicate()
            assert process.returncode == 0, said.decode()
    all_is_even(machines, 2 * ROUNDS)


SENDING = ["smart_fork.sharing.sync.ref/Ref:push:before", "smart_fork.sharing.sync.ref/Ref:push:after"]
RECEIVING = [
    "smart_fork.sharing.sync.run:write_local:after", "smart_fork.sharing.log_register:store_received:after",
    "smart_fork.sharing.sync.sending:keep_copy:after", "smart_fork.sharing.sync.sending/SyncState:keep:before",
]  # fmt: skip


@pytest.mark.thorough
@pytest.mark.parametrize("point", SENDING)
def test_who_is_killed_while_sending_sends_the_next_time(machines, point):
    machines.laptop.world.claude(machines.laptop.repository, *SAID)
    machines.set_up()
    killed_at(machines.laptop, point)
    all_is_even(machines, 1)


@pytest.mark.thorough
@pytest.mark.parametrize("point", RECEIVING)
def test_who_is_killed_while_receiving_has_each_session_once(machines, point):
    machines.laptop.world.claude(machines.laptop.repository, *SAID)
    machines.set_up()
    machines.laptop.sync()
    killed_at(machines.desktop, point)
    all_is_even(machines, 1)


@pytest.mark.thorough
@pytest.mark.parametrize(
    "point",
    [
        "smart_fork.sharing.sync.run:_written:before",
        "smart_fork.sharing.log_register:store_received:after",
    ],
)
def test_who_is_killed_while_a_copy_grows_has_it_once(machines, point):
    session = machines.laptop.world.claude(machines.laptop.repository, *SAID)
    machines.set_up()
    machines.laptop.sync()
    machines.desktop.sync()
    say_more(machines.laptop, session, *OTHER)
    machines.laptop.sync()
    killed_at(machines.desktop, point)
    all_is_even(machines, 1)
    assert OTHER[1] in machines.desktop.logs()


@pytest.mark.thorough
@pytest.mark.parametrize(
    "point",
    [
        "smart_fork.sharing.log_register/ReceivedLog:store_pending:after",
        "smart_fork.excise.erasure:erase:before",
    ],
)
def test_who_is_killed_while_something_is_withdrawn_has_nothing_of_it_the_next_time(machines, point):
    session = machines.laptop.world.claude(machines.laptop.repository, *SAID)
    machines.set_up()
    machines.laptop.sync()
    machines.desktop.sync()
    machines.laptop.sync("withdraw", session)
    killed_at(machines.desktop, point)
    machines.desktop.sync()
    assert machines.desktop.ids() == set()
    assert SAID[0] not in machines.desktop.logs()


@pytest.mark.thorough
def test_over_ssh_nothing_is_asked_and_the_other_side_is_as_it_is(machines):
    fake = machines.laptop.home / "bin/ssh"
    log = machines.laptop.home / "asked"
    fake.write_text(f'#!/bin/sh\necho "$@" >> {shlex.quote(str(log))}\nfor last; do :; done\nexec sh -c "$last"\n')
    fake.chmod(0o755)
    machines.laptop.world.claude(machines.laptop.repository, *SAID)
    said = machines.laptop.do("sync", "setup", machines.remote.as_uri().replace("file://", "ssh://ann@example.org"))
    assert said.code == 0, said.err
    assert len(machines.laptop.sync()["sent"]) == 1
    asked = log.read_text().splitlines()
    assert all("-oBatchMode=yes" in line for line in asked)
    path = str(machines.remote).replace("'", r"'\''")  # as git quotes
    assert any(f"git-receive-pack '{path}'" in line for line in asked)
    assert machines.git("rev-parse", REF)

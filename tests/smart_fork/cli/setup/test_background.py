"""The service as a part of the setup."""

from __future__ import annotations

import sys

import pytest

from smart_fork.cli.service import installation
from smart_fork.cli.setup import service
from smart_fork.cli.setup.installed_parts import undo_lines
from smart_fork.cli.setup.ledger import Ledger
from smart_fork.cli.setup.plan import lasting_program
from smart_fork.system.processes import Processes
from tests.smart_fork.cli.setup.settings_homes import everything
from tests.smart_fork.service.service_files import FakeSystemd


@pytest.fixture
def program(home, monkeypatch) -> str:
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.delenv("SUDO_USER", raising=False)
    return lasting_program({"PATH": "/bin", "HOME": str(home)})


def test_it_is_installed_and_undone_with_the_folders_that_were_made_for_it(home, program):
    before, systemd, ledger = everything(home), FakeSystemd(), Ledger()
    step = service.planned(program, systemd)

    step.act(ledger)

    assert "new" == step.state
    assert "there" == service.planned(program, systemd).state
    assert [] == [one.error for one in undo_lines(ledger, list(ledger), systemd) if one.error]
    assert ("disable", "--now") == next(words[:2] for words in systemd.changes if words[0] == "disable")
    assert before == everything(home)


def test_one_that_was_there_before_stays(home, program):
    systemd, ledger = FakeSystemd(), Ledger()
    keeper = installation.supervisor(processes=systemd)
    keeper.path.parent.mkdir(parents=True)
    installation.install(keeper, installation.settings_for(keeper))

    step = service.planned("/elsewhere/smart-fork", systemd)
    step.act(ledger)

    assert "changed" == step.state
    assert [] == list(ledger)


def test_where_the_system_does_not_answer_it_is_left_out(program):
    step = service.planned(program, FakeSystemd({"show": (1, "", "Failed to connect to bus")}))

    assert "left" == step.state
    assert "systemd does not answer here" in step.why


def test_on_another_system_it_is_left_out(monkeypatch):
    monkeypatch.setattr(sys, "platform", "freebsd")

    assert "left" == service.planned("/x/smart-fork", Processes()).state

"""Tests of a search program that a service updates after index runs."""

from __future__ import annotations

import threading
from unittest.mock import Mock

import pytest

from indexer.locks import IndexBusyError
from smart_fork.cli.service import after_indexing
from smart_fork.cli.service.after_indexing import Renewal, renew_quietly, renewed
from smart_fork.errors import ProgramFailed
from smart_fork.finding.index_access import opened


class Program:
    """A search program that takes as long as a test lets it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.runs, self.together, self.most = 0, 0, 0
        self.begun, self.may_end = threading.Semaphore(0), threading.Semaphore(0)
        monkeypatch.setattr(after_indexing, "renew_quietly", self.run)

    def run(self) -> None:
        self.runs += 1
        self.together += 1
        self.most = max(self.most, self.together)
        self.begun.release()
        self.may_end.acquire()
        self.together -= 1


@pytest.fixture
def program(monkeypatch) -> Program:
    return Program(monkeypatch)


def test_nothing_is_waited_for_where_nothing_is_due(program):
    Renewal().finish()

    assert program.runs == 0


def test_however_often_it_falls_due_meanwhile_it_runs_one_at_a_time_and_once_more(program):
    renewal = Renewal()
    renewal.soon()
    program.begun.acquire()
    for _ in range(5):
        renewal.soon()
    program.may_end.release(2)
    renewal.finish()

    assert (program.runs, program.most) == (2, 1)


def test_after_it_has_finished_it_runs_again_when_it_is_due(program):
    renewal = Renewal()
    program.may_end.release(2)
    for _ in range(2):
        renewal.soon()
        renewal.finish()

    assert program.runs == 2


def test_who_waits_is_told_that_a_program_reads_the_exports_and_nobody_else(monkeypatch):
    program, told = Mock(), []
    program.name = "qmd"
    monkeypatch.setattr(after_indexing, "configured_engine", lambda: program)

    with opened() as store:
        for progress in (lambda *stage: told.append(stage), None):
            with renewed(store, 3.0, progress):
                pass

    assert [("qmd reads the exports", 0, 1)] == told
    assert 2 == program.renew.call_count


@pytest.mark.parametrize(
    ("problem", "said"),
    [
        (IndexBusyError("another process is indexing"), "another process is indexing, or has the search program read the exports"),
        (ProgramFailed("qmd embed failed: no model", "`qmd pull` brings it."), "qmd embed failed: no model. `qmd pull` brings it."),
        (ValueError("odd"), "the search program has not read the exports"),
    ],
)  # fmt: skip
def test_a_failure_is_logged_with_what_to_do_and_ends_nothing(monkeypatch, caplog, problem, said):
    def fail(*_: object, **__: object) -> None:
        raise problem

    monkeypatch.setattr(after_indexing, "_renew", fail)
    with caplog.at_level("INFO"):
        renew_quietly()

    assert [said] == [record.message for record in caplog.records]

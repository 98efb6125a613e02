"""The service's log."""

from __future__ import annotations

import json
import logging
import stat

import pytest

from smart_fork.cli.service import json_log
from smart_fork.cli.service.json_log import JsonLines, follow, last_lines, log_file, log_to_file

TOKEN = "ghp_" + "a1B2" * 9


@pytest.fixture
def logged(home):
    """Return the records in the service's log."""
    log_to_file()
    yield logging.getLogger("smart_fork.test")
    for handler in logging.getLogger().handlers:
        handler.close()


def test_every_record_is_one_private_line_of_json_with_what_it_was_given(logged):
    logged.info("indexed\n%s logs", 3, extra={"seconds": 1.5})
    logged.error("failed", exc_info=ValueError("wrong\nlines"))

    first, second = (json.loads(line) for line in log_file().read_text().splitlines())
    assert ("info", "smart_fork.test", "indexed\n3 logs", "1.5") == (
        first["level"],
        first["logger"],
        first["message"],
        first["seconds"],
    )
    assert "ValueError: wrong" in second["exception"]
    assert 0o600 == stat.S_IMODE(log_file().stat().st_mode)
    assert [first, second] == last_lines(10)
    assert [second] == last_lines(1)


def test_no_secret_stands_in_it(logged):
    logged.error("the token is %s", TOKEN, extra={"given": TOKEN}, exc_info=ValueError(TOKEN))

    assert TOKEN not in log_file().read_text()


def test_a_file_that_is_full_gives_way_to_a_new_one_and_who_follows_sees_both(logged, monkeypatch):
    monkeypatch.setattr(json_log, "MAX_BYTES", 600)
    logging.getLogger().handlers[0].maxBytes = 600
    logged.info("before anybody looked")
    numbers = iter(range(13))
    following = follow(lambda: logged.info("number %d", next(numbers)))

    seen = [next(following)["message"] for _ in range(12)]

    assert [f"number {number}" for number in range(12)] == seen
    assert 1 < len(list(log_file().parent.glob("service.log*"))) <= 1 + json_log.KEPT_FILES


def test_the_last_lines_are_those_before_the_file_gave_way_too(logged):
    for number in range(3):
        logged.info("number %d", number)
    logging.getLogger().handlers[0].doRollover()
    logged.info("number 3")

    assert ["number 3"] == [one["message"] for one in last_lines(1)]
    assert ["number 2", "number 3"] == [one["message"] for one in last_lines(2)]
    assert 4 == len(last_lines(50))


def test_what_is_no_text_is_logged_all_the_same():
    """The name of a file need not be UTF-8."""
    odd = b"/work/\xff".decode("utf-8", "surrogateescape")
    record = logging.makeLogRecord({"msg": "cannot read %s", "args": (odd,), "given": odd})
    record.exc_info = (OSError, OSError(odd), None)

    line = json.loads(JsonLines().format(record))

    assert (r"cannot read /work/\udcff", r"/work/\udcff") == (line["message"], line["given"])
    assert r"OSError: /work/\udcff" in line["exception"]


def test_nobody_has_logged_yet(home):
    assert [] == last_lines(5)

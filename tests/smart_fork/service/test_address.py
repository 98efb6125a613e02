"""The written address of the service, and its port."""

from __future__ import annotations

import pytest

from indexer.safe_files import state_home
from smart_fork.cli.service.instance import Address, announced, keep_port, publish, wanted_port, withdraw

HERE = Address("127.0.0.1", 8766, 1, "1.0", "2026-01-01T00:00:00+00:00")


def test_a_service_says_where_it_is_and_takes_it_back(home):
    assert announced() is None
    publish(HERE)
    assert announced() == HERE
    withdraw()
    assert announced() is None


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "{}",
        '{"port": 1}',
        '{"host":1,"port":"x","pid":0,"version":0,"started":0}',
        '{"host":"127.0.0.1","port":1,"pid":-1,"version":"1","started":""}',
    ],
)
def test_nonsense_is_no_service(home, text):
    publish(HERE)
    (state_home() / "service.json").write_text(text)
    assert announced() is None


def test_an_address_of_the_newer_internet_is_written_in_brackets():
    assert "http://[::1]:1" == Address("::1", 1, 1, "", "").url


def test_the_port_is_what_the_environment_says_else_what_is_installed_else_what_was_kept(home):
    """F-210: the same rule holds for a started and for an installed service."""
    assert 8766 == wanted_port({})
    keep_port(9000)
    assert 9000 == wanted_port({})
    assert 9002 == wanted_port({}, installed=9002)
    assert 9001 == wanted_port({"SMART_FORK_PORT": " 9001 "}, installed=9002)
    assert 8766 == wanted_port({}, state=home / "another")
    assert ["service-port"] == [file.name for file in state_home().iterdir()]


@pytest.mark.parametrize("text", ["soon", "0", "65536", "-1", "8766.0", "٨٧٦٦", "9" * 5000, "\ud800"])
def test_what_is_no_port_is_told_and_passed_over(home, text, caplog):
    keep_port(9000)
    assert 9000 == wanted_port({"SMART_FORK_PORT": text})
    assert "no port" in caplog.text
    (state_home() / "service-port").write_bytes(text.encode("utf-8", "replace"))
    assert 8766 == wanted_port({})

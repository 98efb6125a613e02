"""A process of a run tells of a test that has passed in one message, not in six.

Each message is packed, sent, unpacked and handed to all plugins in the process that they all report to. For a test of few
milliseconds that took longer than the test. Where more than a dot is wanted of such a test, all is told as it happens.
"""

from __future__ import annotations

import pytest
from _pytest.runner import runtestprotocol


def told(reports: list[pytest.TestReport]) -> list[pytest.TestReport]:
    """Of setup, call and teardown of a test that has passed the call, with the time of all; else what there is."""
    if not all(report.passed for report in reports):
        return reports
    (call,) = (report for report in reports if report.when == "call")
    call.duration = sum(report.duration for report in reports)
    call.processor = reports[-1].processor  # of all, see tests/durations.py
    call.keywords, call.sections = {}, []
    return [call]


class Teller:
    """Runs a test, and reports it afterwards."""

    def pytest_runtest_protocol(self, item: pytest.Item, nextitem: pytest.Item | None) -> bool:
        for report in told(runtestprotocol(item, log=False, nextitem=nextitem)):
            item.ihook.pytest_runtest_logreport(report=report)
        return True


def pytest_configure(config: pytest.Config) -> None:
    option = config.option
    more = option.verbose > 0 or option.xmlpath or {*option.reportchars} & {*"PpA"}
    if hasattr(config, "workerinput") and not more:
        config.pluginmanager.register(Teller(), "teller")

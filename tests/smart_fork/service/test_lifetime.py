"""The limits that the service needs from the system."""

from __future__ import annotations

import resource

from smart_fork.cli.service.server import allow_files
from smart_fork.system.http_limits import Connection


def test_where_few_files_may_be_open_connections_leave_some_for_the_index():
    """Launchd starts programs with a limit of 256 files, and every user of the machine may connect."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
    try:
        allow_files()
        assert 2 * Connection.MAX_CONNECTIONS < resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        allow_files()
        assert (hard, hard) == resource.getrlimit(resource.RLIMIT_NOFILE)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))

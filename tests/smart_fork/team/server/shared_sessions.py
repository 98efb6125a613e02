"""Sessions that a team shares in a test: their messages, as records and in searchable form."""

from __future__ import annotations

from collections.abc import Sequence

from smart_fork.agents import AGENTS
from smart_fork.agents.portable_records import HomePlace
from smart_fork.sharing.canonical import encode
from smart_fork.team.server.search import index_session
from tests.indexer.transcripts.records import assistant, use, user
from tests.smart_fork.team.server.team import Team, new_id, push_of

HERE = HomePlace("/srv/shop", "/home/ada")
UPLOADER = ("Add retry with backoff to the uploader", "The uploader waits twice as long after each failure.")
INVOICES = ("Print the invoices as PDF", "The invoices are drawn with reportlab now, in src/billing/pdf_writer.py.")
LOGIN = ("Why does the login test fail at night?", "It compares local time with UTC; the clock is frozen now.")


def records_of(*said: str, start: int = 0) -> list[bytes]:
    """Return the records of a conversation. The agent edits a file in each answer."""
    converter = AGENTS.converter_of("claude")
    made = []
    for number, text in enumerate(said, start):
        before = f"r{number - 1}" if number else None
        if number % 2:
            made.append(
                assistant(f"r{number}", before, use(f"c{number}", "Edit", file_path=f"src/part_{number}.py"), text)
            )
        else:
            made.append(user(f"r{number}", before, text))
    return [encode(converter.outgoing(record, HERE)) for record in made]


def share(team: Team, who: str, said: Sequence[str], *, indexed: bool = True, **options: object) -> str:
    """Share a session of a person with these messages, and index it."""
    session = str(options.pop("session", "")) or new_id()
    old = options.pop("old", ())
    team.push(who, push_of(session, old, records_of(*said)[len(old) :], **{"visibility": "public", **options}))
    if indexed:
        index_all(team)
    return session


def index_all(team: Team) -> None:
    """Run the index jobs, as the background process does."""
    jobs = "SELECT j.project_id, j.session_id, j.revision FROM jobs j JOIN projects p ON p.id = j.project_id WHERE p.key = %s AND kind = 'index'"
    for job in team.owned.execute(jobs, (team.key,)).fetchall():
        with team.pool.transaction() as db:
            index_session(db, *job)
    team.owned.execute(
        "DELETE FROM jobs USING projects p WHERE p.id = project_id AND p.key = %s AND kind = 'index'", (team.key,)
    )

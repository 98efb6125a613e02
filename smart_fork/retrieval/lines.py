"""On which lines of a session's export a passage stands: said only of the file that is really there."""

from __future__ import annotations

from indexer.markdown import export_path, is_export
from indexer.store.base import Placement, SessionRow, Store


def lines_of(store: Store, session: SessionRow, place: Placement) -> tuple[int, int] | None:
    """The first and the last, from 1; `None` where the export is missing, or not as it was when it was indexed."""
    found = store.lines(place)
    if found is None or not is_export(export_path(session.agent, session.session_id), found.export):
        return None
    return found.first, found.last

"""Vectors that go with a push: those that the own index has of passages that say exactly what is sent.

So the server need not make them once more. Of a text in which a secret was masked, or a path became a mark, there is
none here; that one is made there.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from indexer.light import LightEmbedder
from indexer.paths import index_db
from indexer.store.base import Store
from indexer.transcripts.model import AgentName, Session
from smart_fork.errors import IndexUnavailable, Unshareable
from smart_fork.retrieval.index_access import opened
from smart_fork.sharing import wire
from smart_fork.sharing.passages import halves, hash_of, searched, space_of

#: With one push: a few megabytes. What is left has its vectors made there.
MOST = 4_000

log = logging.getLogger(__name__)


def vectors_here(session: Session, records: Sequence[bytes]) -> wire.Vectors | None:
    """The vectors of what is searched in these records of a session, as far as they are known here."""
    if not records or not index_db().exists():
        return None
    try:
        with opened() as store:
            return known(store, session.agent, session.session_id, records)
    except (IndexUnavailable, Unshareable) as error:  # the server makes them
        log.info("no vectors go with a push: %s", error)
        return None


def known(store: Store, agent: AgentName, session_id: str, records: Sequence[bytes]) -> wire.Vectors | None:
    """The same of an index that is open.

    Raises:
        Unshareable: nothing here reads sessions of that agent.
    """
    row, model = store.session(agent, session_id), LightEmbedder()
    if row is None or store.meta("model") != model.model:
        return None
    sent = searched(records, agent, session_id, session_id)
    texts = {chunk.text for chunk in sent.document.chunks} if sent else set[str]()
    here = store.texts({place.chunk for place in store.placements_of(row.row)})
    same = {text: chunk for chunk, text in here.items() if text in texts}
    made = store.vectors(list(same.values())[:MOST])
    names = [hash_of(text).hex() for text, chunk in same.items() if chunk in made]
    vectors = zip(names, halves(made[chunk] for chunk in same.values() if chunk in made), strict=True)
    return wire.Vectors(
        space=space_of(model.model, model.dimensions),
        vectors=tuple(wire.Vector(chunk=name, e=vector) for name, vector in vectors),
    )

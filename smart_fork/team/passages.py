"""The searchable passages of shared records. Client and server make the same ones.

The client embeds them. The server makes them again, and accepts a vector only by the hash of its text.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path

import orjson

from indexer.pipeline import document_of
from indexer.store.base import Document, Words
from indexer.transcripts.model import Session
from smart_fork.agents import AGENTS
from smart_fork.agents.forms import Becomes, Forms, HomePlace
from smart_fork.agents.readers import READERS
from smart_fork.errors import Unshareable

#: Placeholders for the project's root and the home in searched and quoted text.
_NOWHERE = HomePlace(".", "~")


@dataclass(frozen=True, slots=True)
class Searched:
    """A session in searchable form. `family` is the id of its beginning, the same on every machine. `own` are the words
    that it does not share with its parent, and `shared` the hashes of the passages that it does.
    """

    document: Document
    family: str
    own: Words
    shared: frozenset[bytes] = frozenset()


def searched(
    records: Iterable[bytes], agent: str, session_id: str, root_id: str, *, inherited: int = 0
) -> Searched | None:
    """Return the searchable form of a session; `None` if its reader finds no conversation in these records.

    The parent has the first `inherited` records, and they are found there. Turns are numbered as in a copy without
    thoughts, as another person would pull it. The session has no directory: paths in its records belong to another
    machine, and are not looked up on this one.

    Raises:
        Unshareable: This version does not read sessions of that agent.
    """
    forms = AGENTS[agent].forms if agent in AGENTS else None
    if forms is None or agent not in READERS.names:
        raise Unshareable("This version cannot read sessions of that agent.")
    records = tuple(records)
    session = _read(records, agent, forms, session_id)
    if session is None:
        return None
    whole = replace(session, session_id=session_id, cwd="", head="", root_id=root_id)
    document = document_of(whole, READERS)[0]
    before = _read(records[:inherited], agent, forms, session_id) if inherited else None
    if before is None:
        return Searched(document, session.root_id, document.words)
    parents = document_of(replace(before, session_id=session_id, cwd="", head="", root_id=root_id), READERS)[0]
    names = Words(document.words.title, "", "", "", "", document.words.also_called)
    rest = replace(
        whole,
        turns=whole.turns[len(before.turns) :],
        symbols=tuple(one for one in whole.symbols if one not in set(before.symbols)),
        wrote=tuple(one for one in whole.wrote if one not in set(before.wrote)),
    )
    said = document_of(rest, READERS)[0].words if rest.turns else names
    own = replace(said, title=names.title, also_called=names.also_called)
    return Searched(document, session.root_id, own, frozenset(chunk.hash for chunk in parents.chunks))


def _read(records: Iterable[bytes], agent: str, forms: Forms, session_id: str) -> Session | None:
    told = (forms.arrived(orjson.loads(record), others=True) for record in records)
    made = forms.anew((record for record in told if record is not None), Becomes(session_id, _NOWHERE))
    with tempfile.TemporaryDirectory(prefix="smart-fork-") as folder:
        log = Path(folder) / f"{session_id}.jsonl"
        with log.open("wb") as file:
            file.writelines(orjson.dumps(record) + b"\n" for record in made)
        return READERS[agent].read(log).session


def hash_of(text: str) -> bytes:
    """Return the hash by which a vector names its passage."""
    return sha256(text.encode("utf-8", "replace")).digest()


def space_of(model: str, dimensions: int) -> str:
    """Return the name of a model's vector space. Only vectors of one space can be compared."""
    return "".join(char if "!" <= char <= "~" else "-" for char in f"{model}/{dimensions}")[:200]


def halves(vectors: Iterable[bytes]) -> tuple[bytes, ...]:
    """Convert float32 vectors to 16-bit floats, as they are sent."""
    from indexer.arrays import np

    return tuple(np.frombuffer(one, np.float32).astype(np.float16).tobytes() for one in vectors)

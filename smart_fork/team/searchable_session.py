"""Make the records of a shared session searchable: its words, its text passages, and the vectors of passages.

Client and server use this module. The client can send vectors of text passages. The server makes the passages again,
and accepts a vector only if it names the hash of a passage.
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
from smart_fork.agents.log_readers import READERS
from smart_fork.agents.portable_records import Converter, HomePlace, TargetSession
from smart_fork.errors import Unshareable

#: Replaces the project's root and the home folder in text that is searched and quoted.
_PLACEHOLDER_PATHS = HomePlace(".", "~")


@dataclass(frozen=True, slots=True)
class SearchableSession:
    """A session as the search index needs it: its text, words and passages. `family` is the id of its first ancestor.

    `own` are the words that the session's parent does not have. `shared` are the hashes of the passages that the parent
    has too.
    """

    document: Document
    family: str
    own: Words
    shared: frozenset[bytes] = frozenset()


def searchable_form(
    records: Iterable[bytes], agent: str, session_id: str, root_id: str, *, inherited: int = 0
) -> SearchableSession | None:
    """Return the searchable form of a session; `None` if there is no conversation in the records.

    The first `inherited` records are the parent's, and are found in the parent. Thoughts are left out before turns are
    numbered, as in a teammate's copy. The directory is empty, since it belongs to another machine.

    Raises:
        Unshareable: this version does not read sessions of that agent.
    """
    converter = AGENTS[agent].converter if agent in AGENTS else None
    if converter is None or agent not in READERS.names:
        raise Unshareable("This version cannot read sessions of that agent.")
    records = tuple(records)
    session = _read(records, agent, converter, session_id)
    if session is None:
        return None
    whole = replace(session, session_id=session_id, cwd="", head="", root_id=root_id)
    document = document_of(whole, READERS)[0]
    before = _read(records[:inherited], agent, converter, session_id) if inherited else None
    if before is None:
        return SearchableSession(document, session.root_id, document.words)
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
    return SearchableSession(document, session.root_id, own, frozenset(chunk.hash for chunk in parents.chunks))


def _read(records: Iterable[bytes], agent: str, converter: Converter, session_id: str) -> Session | None:
    told = (converter.arrived(orjson.loads(record), others=True) for record in records)
    made = converter.anew(
        (record for record in told if record is not None), TargetSession(session_id, _PLACEHOLDER_PATHS)
    )
    with tempfile.TemporaryDirectory(prefix="smart-fork-") as folder:
        log = Path(folder) / f"{session_id}.jsonl"
        with log.open("wb") as file:
            file.writelines(orjson.dumps(record) + b"\n" for record in made)
        return READERS[agent].read(log).session


def passage_hash(text: str) -> bytes:
    """Return the SHA-256 hash of a passage's text, by which a vector names the passage."""
    return sha256(text.encode("utf-8", "replace")).digest()


def vector_space(model: str, dimensions: int) -> str:
    """Return a name for an embedding model and its dimensions. Only vectors with equal names are comparable."""
    return "".join(char if "!" <= char <= "~" else "-" for char in f"{model}/{dimensions}")[:200]


def as_float16(vectors: Iterable[bytes]) -> tuple[bytes, ...]:
    """Convert vectors of 32-bit floats to 16-bit floats, the form in which they are sent."""
    from indexer.one_thread_numpy import np

    return tuple(np.frombuffer(one, np.float32).astype(np.float16).tobytes() for one in vectors)

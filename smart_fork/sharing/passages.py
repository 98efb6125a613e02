"""What of shared records is searched: the same passages on both sides, made by the readers of the agents' own logs.

The client makes their vectors, the server makes the passages again and takes a vector only by what its text hashes to.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path

import orjson

from indexer.pipeline import document_of
from indexer.store.base import Document
from smart_fork.agents import AGENTS, READERS
from smart_fork.agents.forms import Becomes, HomePlace
from smart_fork.errors import Unshareable

#: Where the project's root and the home stood, in what is searched and quoted.
_NOWHERE = HomePlace(".", "~")


@dataclass(frozen=True, slots=True)
class Searched:
    """A session as it is searched. `family` is what its reader calls its beginning, on every machine the same."""

    document: Document
    family: str


def searched(records: Iterable[bytes], agent: str, session_id: str, root_id: str) -> Searched | None:
    """The searched form of a session; `None` where its reader sees none in these records.

    It stands in no directory: what the records say of one is of another machine, and is not looked at on this one.

    Raises:
        Unshareable: nothing here reads sessions of that agent.
    """
    forms = AGENTS[agent].forms if agent in AGENTS else None
    if forms is None or agent not in READERS.names:
        raise Unshareable("Sessions of that agent are not read here.")
    made = forms.anew((orjson.loads(record) for record in records), Becomes(session_id, _NOWHERE))
    with tempfile.TemporaryDirectory(prefix="smart-fork-") as folder:
        log = Path(folder) / f"{session_id}.jsonl"
        with log.open("wb") as file:
            file.writelines(orjson.dumps(record) + b"\n" for record in made)
        session = READERS[agent].read(log).session
    if session is None:
        return None
    shared = replace(session, session_id=session_id, cwd="", head="", root_id=root_id)
    return Searched(document_of(shared, READERS)[0], session.root_id)


def hash_of(text: str) -> bytes:
    """By what a vector names the passage that it is of."""
    return sha256(text.encode("utf-8", "replace")).digest()


def space_of(model: str, dimensions: int) -> str:
    """The name of the space in which the vectors of a model can be compared."""
    return "".join(char if "!" <= char <= "~" else "-" for char in f"{model}/{dimensions}")[:200]

"""Retrieval quality where several agents worked: the labelled queries before and after sessions are told to others.

    python benchmarks/mixed_agents.py CORPUS [--also FILE] [--instead] [--words] [--sessions 100] [--seed 1]

CORPUS and ``--also`` as for ``retrieval.py``. So many sessions, chosen by chance, are told to the other agents in
turns, as ``fork --as`` does it, without starting any: beside each of them there is then a session of another agent
that says the same in other records. With ``--instead`` their own logs are gone, and each stands for the one that it was
told from. One whose program would be needed for that is left out. With ``--words`` nothing is embedded. ``--json FILE``
has all figures. A hit is right as in ``retrieval.py``; a session and what was told of it are one family. Last is said
how much of what an index has of the originals it has of what was told as well.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import sys
import tempfile
import uuid
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from itertools import cycle
from pathlib import Path
from typing import Any, NamedTuple

from retrieval import MODES, RATES, Labelled, lay_out, measure, opened
from rich.console import Console
from rich.table import Table

#: How far a rate may be from what it was without the others.
GOAL = 0.01


class Pair(NamedTuple):
    """A session of the index, as which other agent's it was told, and where its own log is."""

    row: Any
    other: str
    told_id: str
    log: Path


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus", type=Path)
    parser.add_argument("--also", type=Path, help="further phrasings of the queries")
    parser.add_argument("--instead", action="store_true", help="take away the logs of what was told")
    parser.add_argument("--words", action="store_true", help="search by words alone")
    parser.add_argument("--sessions", type=int, default=100, help="tell so many to another agent")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--known", type=Path, nargs="*", default=(), help="indexes of which vectors are taken")
    parser.add_argument("--json", type=Path, help="write the figures here as well")
    asked = parser.parse_args()
    modes = MODES[:1] if asked.words else MODES
    with own_copy(asked.corpus) as (laid_out, state):
        embedder = None if asked.words else Remembered(asked.known)
        os.environ["SMART_FORK_HOME"] = str(state / "before")
        before = opened(laid_out, asked.also, embedder, modes)
        figures = measure(before, modes)["figures"]
        if asked.instead:
            os.environ["SMART_FORK_HOME"] = str(state / "after")
        pairs = list(tell(before.store, asked.sessions, random.Random(asked.seed)))
        for pair in pairs if asked.instead else ():
            pair.log.unlink()
        after = opened(laid_out, asked.also, embedder, modes)
        mixed = measure(answered_too(before, after, pairs), modes)["figures"]
        facts = facts_of(before.store, after.store, pairs)
    told = Counter(pair.other for pair in pairs)
    show(figures, mixed, told, facts)
    if asked.json:
        said = {"told": told, "before": figures, "after": mixed, "facts": facts}
        asked.json.write_text(json.dumps(said, indent=1), encoding="utf-8")


@contextmanager
def own_copy(corpus: Path) -> Iterator[tuple[Path, Path]]:
    """The laid-out corpus as this process's home, where logs may be written and taken away; and a place for states."""
    with tempfile.TemporaryDirectory(prefix="smart-fork-bench-") as folder:
        laid_out = lay_out(corpus.resolve(), Path(folder))
        if not laid_out.is_relative_to(folder):
            laid_out = Path(shutil.copytree(laid_out, Path(folder) / "corpus", symlinks=True))
        os.environ["HOME"] = str(laid_out / "home")
        os.environ["SMART_FORK_KEEP_TRANSCRIPTS"] = "false"
        yield laid_out, Path(folder) / "state"


class Remembered:
    """The embedder that is configured, which embeds no text twice, and none of which an index has the vector."""

    def __init__(self, indexes: Iterable[Path]) -> None:
        import numpy as np

        from indexer.embedding import configured_embedder
        from indexer.store.sqlite import SqliteStore

        self._embedder, self._known = configured_embedder(), dict[str, Any]()
        self.model, self.dimensions = self._embedder.model, self._embedder.dimensions
        for index in indexes:
            store = SqliteStore(index)
            if store.meta("model") != self.model:
                sys.exit(f"{index} has vectors of another model")
            vectors = store.vectors(chunk for (chunk,) in store.db.execute("SELECT id FROM chunks"))
            texts = store.texts(vectors)
            self._known |= {texts[row]: np.frombuffer(vector, np.float32) for row, vector in vectors.items()}

    def embed(self, texts: Sequence[str]) -> Any:
        """As `indexer.embedder.Embedder`."""
        import numpy as np

        if new := [text for text in dict.fromkeys(texts) if text not in self._known]:
            self._known |= dict(zip(new, self._embedder.embed(new), strict=True))
        return np.stack([self._known[text] for text in texts])


def tell(store: Any, count: int, chance: random.Random) -> Iterator[Pair]:
    """Write sessions as ones of other agents."""
    from smart_fork import handovers
    from smart_fork.agents import AGENTS
    from smart_fork.agents.copier import NewSession
    from smart_fork.agents.readers import READERS
    from smart_fork.errors import SmartForkError
    from smart_fork.forking.handover import handover, write_told
    from smart_fork.system.processes import Machine, Processes

    machine = Machine(Processes(), os.environ)
    logs = sorted((str(log.path), reader) for reader in READERS for log in reader.discover())
    chance.shuffle(logs)
    others, left = cycle(READERS), count
    for path, reader in logs:
        session = reader.read(Path(path)).session
        row = store.session(reader.name, session.session_id) if session else None
        if not left or not session or not row or not session.cwd or not any(turn.prompt for turn in session.turns):
            continue
        for other in (next(others) for _ in READERS.names):
            if other.name == reader.name:
                continue
            chosen, starter = str(uuid.UUID(int=chance.getrandbits(128), version=4)), AGENTS.starter_of(other.name)
            told_id = chosen if starter.ids.fullmatch(chosen) else starter.new_id()
            becomes = NewSession(told_id, Path(session.cwd), _now())
            try:
                AGENTS.teller_of(other.name)
                write_told(other, handover(session, len(session.turns) - 1, other.name), session, becomes, machine)
            except SmartForkError as error:
                print(f"not told to {other.name}: {error.message}"[:100], file=sys.stderr)
                continue
            # Forks of one session stay one family, also where the session itself is gone.
            family = row.root_id or row.session_id
            handovers.remember(handovers.HandedOver(becomes.id, other.name, reader.name, family))
            left -= 1
            yield Pair(row, other.name, becomes.id, Path(path))
            break


def _now() -> datetime:
    return datetime.now()  # noqa: DTZ005 - files may be named by local time


def answered_too(before: Labelled, after: Labelled, pairs: Sequence[Pair]) -> Labelled:
    """`after` with queries that what was told of a session that answers, or of one of its family, answers as well."""
    family = {row.session_id: row.root_id for row in before.store.sessions(range(1 << 16)).values()}
    told: dict[str, list[tuple[str, str]]] = {}
    for pair in pairs:
        told.setdefault(pair.row.root_id, []).append((pair.other, pair.told_id))
    return after._replace(
        queries=[query | {"gold": [*query["gold"], *_told(query, family, told)]} for query in after.queries]
    )


def _told(
    query: dict[str, Any], family: dict[str, str], told: dict[str, list[tuple[str, str]]]
) -> list[dict[str, Any]]:
    ids = {one for answer in query["gold"] for one in told.get(family.get(answer["session_id"], ""), ())}
    return [{"agent": agent, "session_id": one} for agent, one in sorted(ids)]


def facts_of(before: Any, after: Any, pairs: Sequence[Pair]) -> dict[str, tuple[int, int]]:
    """Of each kind of thing how much is known of what was told, and of the originals."""
    kept, all_of_it = Counter[str](), Counter[str]()
    for pair in pairs:
        row = after.session(pair.other, pair.told_id)
        told, own = (known_of(store, one) if one else {} for store, one in ((after, row), (before, pair.row)))
        for kind, values in own.items():
            all_of_it[kind] += len(values)
            kept[kind] += len(values & told.get(kind, set()))
    return {kind: (kept[kind], number) for kind, number in all_of_it.items()}


def known_of(store: Any, row: Any) -> dict[str, set[str]]:
    """What an index knows of one session."""
    places = store.placements_of(row.row)
    texts = store.texts([place.chunk for place in places])
    edits = store.edits([row.row]).get(row.row)
    lines = {line for place in places for line in texts[place.chunk].split("\n")}
    return {
        "titles": {row.title},
        "passages": set(texts.values()),
        "lines of it": lines,
        "edits": {line for line in lines if line.startswith("edit ")},
        "commands": {line.partition(" -> ")[0] for line in lines if line.startswith("run ")},
        "errors": {line for line in lines if line.startswith(("run ", "edit ", "read ", "search ")) and " -> " in line},
        "files edited": set(edits.files if edits else ()),
        "outcomes": {str(row.outcome)},
    }


def show(before: dict[str, Any], after: dict[str, Any], told: Counter[str], facts: dict[str, tuple[int, int]]) -> None:
    """The rates of both, how far they are from each other, and what is known of what was told."""
    table = Table("", *RATES, *(f"{name} mixed" for name in RATES), "furthest")
    for way, kinds in before.items():
        rates = [kinds["all"][name] for name in RATES]
        mixed = [after[way]["all"][name] for name in RATES]
        furthest = max((other - one for one, other in zip(rates, mixed, strict=True)), key=abs)
        kept = "" if abs(round(furthest, 3)) <= GOAL else "  missed"
        table.add_row(way, *(f"{one:.3f}" for one in (*rates, *mixed)), f"{furthest:+.3f}{kept}")
    Console(width=110).print(table)
    print(f"told to: {', '.join(f'{name} {number}' for name, number in told.most_common())}; goal: within {GOAL}")
    print("known as before:", "; ".join(f"{kind} {kept}/{number}" for kind, (kept, number) in facts.items()))


if __name__ == "__main__":
    main()

"""LoCoMo and LongMemEval-S by session, retrieval only: hit@1, hit@5, recall@5 and MRR, beside what others publish.

    python benchmarks/conversations/run.py FOLDER [--questions N] [--words] [--home DIR] [--seed 1] [--json FILE]

FOLDER (or a file) holds ``locomo10.json``, ``longmemeval_s*.json`` or both, as their makers publish them; nothing is
downloaded. The README beside this file says how the data become sessions, and what each figure means.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from forms import Asked, Data, Haystack, read
from logs import write
from published import PUBLISHED
from rich.console import Console
from rich.table import Table

MODES = ("hybrid", "lexical", "vector")
NAMES: Mapping[str, str] = {"hybrid": "words and meaning", "lexical": "words alone", "vector": "meaning alone"}
FIGURES = ("hit@1", "hit@5", "recall@5", "MRR")
#: A right session further down counts nothing; so others count as well.
DEPTH = 20
DRAWS = 2000
Results = Mapping[str, Sequence[str]]


class Outcome(NamedTuple):
    """A question that was asked: its kind, and its four figures by mode."""

    kind: str
    abstains: bool
    figures: Mapping[str, tuple[float, ...]]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--questions", type=int, help="ask the first N of each file")
    parser.add_argument("--words", action="store_true", help="search by words alone: nothing is embedded")
    parser.add_argument("--home", type=Path, help="keep the logs and indexes here; the next run goes on with them")
    parser.add_argument("--seed", type=int, default=1, help="of the intervals")
    parser.add_argument("--json", type=Path, help="write the figures here as well")
    asked = parser.parse_args()
    found = {path: data for path in _files(asked.folder) if (data := read(path))}
    if not found:
        sys.exit(f"{asked.folder} has no file in the form of LoCoMo or LongMemEval")
    figures = []
    with tempfile.TemporaryDirectory(prefix="smart-fork-bench-") as folder:
        home = (asked.home or Path(folder)).resolve()
        for path, data in found.items():
            outcomes, seconds = measure(data, home / _mark(path), words=asked.words, most=asked.questions)
            if outcomes:
                told = {"file": path.name, "sha256": _digest(path), "benchmark": data.benchmark, "seconds": seconds}
                figures.append(told | summary(outcomes, asked.seed))
                show(figures[-1])
            else:
                print(f"{path.name}: no question names its evidence", file=sys.stderr)
    if asked.json:
        asked.json.write_text(json.dumps(figures, indent=1), encoding="utf-8")


def measure(data: Data, home: Path, *, words: bool, most: int | None = None) -> tuple[list[Outcome], float]:
    """Index each haystack in a home of its own, and ask its questions. Return the outcomes and the seconds a search."""
    outcomes: list[Outcome] = []
    seconds = 0.0
    for number, haystack in enumerate(data.haystacks):
        questions = haystack.questions[: None if most is None else most - len(outcomes)]
        if not questions:
            continue
        with indexed(haystack, home / str(number), words=words) as ask:
            for question in questions:
                began = time.perf_counter()
                found = ask(question.text)
                seconds += time.perf_counter() - began
                outcomes.append(_outcome(question, found))
        print(f"{number + 1}/{len(data.haystacks)} {haystack.name}: {len(outcomes)} questions", file=sys.stderr)
    return outcomes, seconds / max(1, len(outcomes))


@contextmanager
def indexed(haystack: Haystack, home: Path, *, words: bool) -> Iterator[Callable[[str], Results]]:
    """The haystack in an index of its own: a function from a question to chats by mode, best first."""
    from indexer.changes import Report, changed_logs
    from indexer.embedding import configured_embedder
    from indexer.files import index_db
    from indexer.pipeline import embed_waiting, read_logs
    from indexer.project import project_of
    from indexer.store.sqlite import SqliteStore
    from smart_fork.agents.readers import READERS
    from smart_fork.finding import search
    from smart_fork.finding.query import Query
    from smart_fork.finding.search import SecondLook

    for name in [name for name in os.environ if name.startswith(("SMART_FORK_", "CLAUDE", "CODEX_", "XDG_"))]:
        del os.environ[name]
    os.environ |= {"HOME": str(home), "SMART_FORK_HOME": str(home / "state")}
    names = write(haystack, home, home / "project")
    modes = MODES[1:2] if words else MODES
    with closing(SqliteStore(index_db())) as store:
        report, vectors = Report(), dict[str, bytes]()
        read_logs(store, READERS, changed_logs(store, READERS, report), report)
        if not words:
            embedder, texts = configured_embedder(), list(dict.fromkeys(one.text for one in haystack.questions))
            embed_waiting(store, embedder, report)
            vectors = {text: made.tobytes() for text, made in zip(texts, embedder.embed(texts), strict=True)}
        scope = store.scope(project_of(str(home / "project")), READERS.names, automated=True)

        def found(question: str, mode: str) -> list[str]:
            hits = search._search(  # noqa: SLF001 - one mode at a time, without the chain
                store, Query(question, scope, DEPTH), lambda texts: [vectors[text] for text in texts], mode,
                SecondLook(None),
            ).hits  # fmt: skip
            return [names[hit.session.session_id] for hit in hits]

        yield lambda question: {mode: found(question, mode) for mode in modes}


def _outcome(question: Asked, found: Results) -> Outcome:
    return Outcome(
        question.kind, question.abstains, {mode: rates(chats, question.right) for mode, chats in found.items()}
    )


def rates(found: Sequence[str], right: frozenset[str]) -> tuple[float, ...]:
    """hit@1, hit@5, recall@5 and the reciprocal rank of one answer."""
    rank = next((place for place, chat in enumerate(found, 1) if chat in right), 0)
    recalled = len(right.intersection(found[:5])) / len(right)
    return float(rank == 1), float(0 < rank <= 5), recalled, 1 / rank if rank else 0.0


def summary(outcomes: Sequence[Outcome], seed: int) -> dict[str, Any]:
    """The figures of all questions by mode, and of each kind as it is asked by default."""
    answered = [one for one in outcomes if not one.abstains]
    modes = list(outcomes[0].figures)
    rows = {NAMES[mode]: _row([one.figures[mode] for one in answered or outcomes], seed) for mode in modes}
    first = modes[0]
    if answered and len(answered) < len(outcomes):
        rows[f"{NAMES[first]}, with abstention questions"] = _row([one.figures[first] for one in outcomes], seed)
    kinds = sorted({one.kind for one in answered or outcomes})
    return {
        "rows": rows,
        "kinds": {
            kind: _row([one.figures[first] for one in answered or outcomes if one.kind == kind], seed) for kind in kinds
        },
    }


def _row(values: Sequence[Sequence[float]], seed: int) -> dict[str, Any]:
    """Means with the interval that 95 of 100 draws of as many questions fall into."""
    table = np.array(values)
    chance = np.random.default_rng(seed)
    draws = np.array([table[chance.integers(0, len(table), len(table))].mean(axis=0) for _ in range(DRAWS)])
    low, high = np.percentile(draws, (2.5, 97.5), axis=0)
    return {"questions": len(table)} | {
        name: [round(float(one), 3) for one in (mean, down, up)]
        for name, mean, down, up in zip(FIGURES, table.mean(axis=0), low, high, strict=True)
    }


def show(figures: Mapping[str, Any]) -> None:
    """The figures as a table, and below them those of others."""
    table = Table("", "questions", *FIGURES, title=f"{figures['benchmark']}, {figures['file']}, by session")
    for name, row in figures["rows"].items():
        table.add_row(name, *_cells(row))
    table.add_section()
    for kind, row in figures["kinds"].items():
        table.add_row(kind, *_cells(row))
    table.add_section()
    others = PUBLISHED[figures["benchmark"]]
    for number, other in enumerate(others, 1):
        given = (other.hit1, other.hit5, other.recall5, other.mrr)
        table.add_row(
            f"{other.whose} [{number}]", str(other.questions), *(f"{one:.3f}" if one else "" for one in given)
        )
    Console(width=140).print(table)
    for number, other in enumerate(others, 1):
        print(f"[{number}] published, not measured here: {other.source}; {other.differs}.")
    print(
        "hit@k: a session with evidence is among the first k. recall@5: share of the sessions with evidence among the "
        f"first five. MRR: 1 / place of the first of them, to place {DEPTH}. In brackets: 95 %, questions drawn again."
    )


def _cells(row: Mapping[str, Any]) -> list[str]:
    return [str(row["questions"]), *("{:.3f} ({:.3f} to {:.3f})".format(*row[name]) for name in FIGURES)]


def _files(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.json")) if folder.is_dir() else [folder]


def _mark(path: Path) -> str:
    """The name of a file's homes: kept ones belong to exactly this file."""
    return f"{path.stem}-{_digest(path)[:12]}"


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


if __name__ == "__main__":
    main()

"""Which earlier session knew? Asked of public repositories that keep their agents' sessions in git.

    python -m benchmarks.which_session CLONE... [--corpus FOLDER] [--also FILE] [--json FILE] [--seed N] [--keep DIR]

CLONE is a git repository, bare or not, with a branch `entire/checkpoints/v1`. FOLDER has sessions of other projects
and a `lay_out.py`, as for benchmarks/retrieval.py: with it, harm is measured. Nothing is downloaded without --install,
and clones are only read. README.md beside this file has the rules.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from . import figures, harm
from .asked import Tool, tools
from .clone import BRANCH, Clone
from .figures import Asked
from .labels import Question, questions
from .ours import Answer, Kept, SmartFork
from .peers import peers
from .play import Moment, Stage, at_home, keep
from .report import lines
from .transcripts import transcripts
from .wrote import Place, place_of

#: The place where history is played. Paths are part of what transcripts say, so figures depend on it a little.
FOLDER = Path(tempfile.gettempdir()) / "which-session"


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("clones", type=Path, nargs="+", metavar="CLONE")
    parser.add_argument("--json", type=Path, help="write the figures here: ids, hashes, shares, no text")
    parser.add_argument("--seed", type=int, default=1, help="of the bootstrap (1)")
    parser.add_argument(
        "--keep", type=Path, help="keep home and index at each question, and all vectors (transcripts!)"
    )
    parser.add_argument("--peers", type=Path, help="ask the other tools that are installed in this folder as well")
    parser.add_argument("--install", action="store_true", help="install those that are missing there, by pip")
    parser.add_argument("--also", type=Path, help="ask again with further phrasings: lines of {id, also}")
    parser.add_argument("--corpus", type=Path, help="measure harm, with the projects in this folder")
    parser.add_argument("--read", type=Path, help="write here what something speaks about that it cannot know (texts!)")
    parser.add_argument("--only-harm", action="store_true", help="measure nothing else")
    arguments = parser.parse_args()
    if arguments.only_harm and not arguments.corpus:
        parser.error("--only-harm needs --corpus")
    clones = [Clone(path.resolve()) for path in arguments.clones]
    for clone in clones:
        if not (clone.head and clone.checkpoints_ref):
            sys.exit(f"{clone.path} is no clone with a branch {BRANCH}")
    if len({clone.name for clone in clones}) < len(clones):
        sys.exit("Two clones have the same name: rename a folder.")
    with _folder(arguments.keep) as folder:
        told = measure([Stage(clone, transcripts(clone), folder / clone.name) for clone in clones], folder, arguments)
    print("\n".join(lines(told)))
    if arguments.json:
        arguments.json.write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")


def measure(stages: Sequence[Stage], folder: Path, arguments: argparse.Namespace) -> dict[str, Any]:
    """Play each clone's history, ask all tools, measure harm as far as it is asked for, and return the figures."""
    from indexer.default_embedder import configured_embedder

    names = " ".join(stage.source.name for stage in stages)
    told: dict[str, Any] = {
        "command": f"python -m benchmarks.which_session {names} --seed {arguments.seed}"
        f"{' --corpus FOLDER' if arguments.corpus else ''}{' --only-harm' if arguments.only_harm else ''}",
        "seed": arguments.seed,
    }
    embedder = Kept(configured_embedder(), folder / "vectors.db")
    if not arguments.only_harm:
        told |= played(stages, folder, arguments, embedder)
    if arguments.corpus:
        told["harm"] = harm.measure(stages, arguments.corpus, folder, embedder, arguments.read)
    return told


def played(stages: Sequence[Stage], folder: Path, arguments: argparse.Namespace, embedder: Kept) -> dict[str, Any]:
    """Play each clone's history, and ask all tools, also those that are installed in a folder."""
    absent: dict[str, str] = {}
    answers: dict[str, list[Asked]] = defaultdict(list)
    repositories, places = [], list[Place | None]()
    also = _phrasings(arguments.also) if arguments.also else {}
    programs = arguments.peers.resolve() if arguments.peers else None
    for stage in stages:
        with peers(programs, folder / "peers" / stage.source.name, install=arguments.install) as (others, reasons):
            ours = SmartFork(embedder)
            all_tools = (*tools(ours, also), *others)
            repository, asked, some_places = play(stage, ours, all_tools, keeps=bool(arguments.keep))
        repositories.append(repository)
        places += some_places
        absent |= reasons
        for name, some in asked.items():
            answers[name] += some
    for name in absent:
        answers.pop(name, None)  # a row is of all questions or is none
    own, words = answers["smart-fork"], answers["BM25"]
    return {
        "repositories": repositories,
        "questions": [_of_question(one.question) for one in own],
        "tools": {
            name: figures.rates(some, arguments.seed)
            | {"ranks": {one.question.id: [one.rank, one.wide] for one in some}}
            for name, some in answers.items()
        },
        "not asked": absent,
        "smart-fork minus BM25": figures.difference(own, words, arguments.seed),
        "scores": figures.calibration(own, arguments.seed),
        "where": figures.places(places, arguments.seed),
    }


def play(
    stage: Stage, ours: SmartFork, all_tools: Sequence[Tool], *, keeps: bool
) -> tuple[dict[str, Any], dict[str, list[Asked]], list[Place | None]]:
    """Play one clone's history: what it is and took, each tool's answers, and what forks of the best answers know."""
    clone, asked = stage.source, questions(stage.source, stage.known)
    answers: dict[str, list[Asked]] = defaultdict(list)
    places = []
    with at_home(stage.home, stage.state):
        for number, moment in enumerate(stage.moments(asked), 1):
            print(f"{clone.name}: question {number} of {len(asked)}", file=sys.stderr)
            ours.bring_up_to_date()
            for tool in all_tools:
                answers[tool.name].append(_asked(moment, tool.ask(moment)))
            if moment.question.right:
                places.append(place_of(moment.question, next(iter(moment.question.answers)), ours.embedder))
            if keeps:
                keep(stage, moment.question)
    logs = sum(path.stat().st_size for path in stage.home.rglob("*") if path.is_file())
    index = sum(path.stat().st_size for path in stage.state.glob("index.db*"))
    told = {
        "name": clone.name,
        "head": clone.head,
        "checkpoints": clone.git("rev-parse", clone.checkpoints_ref).decode().strip(),
        "commits with checkpoints": len(clone.commits),
        "sessions": len(stage.known),
        "questions": sum(bool(one.right) for one in asked),
        "questions that nothing answers": sum(one.is_none for one in asked),
        "logs, MB": round(logs / 1e6, 1),
        "index, MB": round(index / 1e6, 1),
        "seconds": figures.took(ours.seconds),
    }
    return told, answers, places


def _phrasings(file: Path) -> dict[str, tuple[str, ...]]:
    lines = map(json.loads, file.read_text(encoding="utf-8").splitlines())
    return {line["id"]: tuple(line["also"]) for line in lines}


def _asked(moment: Moment, given: Sequence[str] | Answer) -> Asked:
    answer = given if isinstance(given, Answer) else Answer(tuple(given))
    return figures.asked(moment.question, answer.sessions, answer.score)


def _of_question(question: Question) -> dict[str, Any]:
    return {
        "id": question.id,
        "kind": question.kind,
        "head": question.head,
        "answers": dict(question.answers),
        "wider": dict(question.wider),
    }


@contextmanager
def _folder(kept: Path | None) -> Iterator[Path]:
    """The folder to play in: the one to keep, or one that is removed afterwards."""
    if kept:
        kept.mkdir(parents=True, exist_ok=True, mode=0o700)
        yield kept.resolve()
        return
    try:
        FOLDER.mkdir(mode=0o700)
    except FileExistsError:
        sys.exit(f"{FOLDER} is there: another run uses it, or was stopped. Remove it if none runs.")
    try:
        yield FOLDER.resolve()
    finally:
        shutil.rmtree(FOLDER, ignore_errors=True)


if __name__ == "__main__":
    main()

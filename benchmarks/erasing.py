"""Whether anything is left of what was taken out: processes are killed during `excise cut` and `forget`.

Each is killed at another moment, and after the next indexing every byte of the state home is searched.

    python benchmarks/erasing.py [--kills N] [--json FILE]

A moment is a statement of SQLite, every thousandth step of a long one, and a file that is renamed or removed. The
sessions are made up. A cut that was killed before anything was written is made again, to its end.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

#: Steps of SQLite's machine between two moments of one statement.
STEPS = 1000
SESSION = "60309e1e-0000-4000-8000-000000000001"
SECRET = "quokkazanzibar77"  # noqa: S105 - nobody's
#: Word indexes keep a word without the beginning that it shares with the one before, and without its ending.
SEARCHED = b"kkazanzibar"
SAID = ("add retry to the uploader", "retries are there", f"the passphrase is {SECRET}", "I will remember it")


def main() -> None:
    """Kill, search and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=200, help="how many processes are killed (200)")
    parser.add_argument("--json", type=Path, help="write the figures here as well")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="smart-fork-bench-") as folder:
        figures = measure(Path(folder), arguments.kills)
    for name, value in figures.items():
        print(f"{name:<28} {value}")
    if arguments.json:
        arguments.json.write_text(json.dumps(figures, indent=1), encoding="utf-8")
    if figures["with_bytes_left"]:
        sys.exit("something was left")


def measure(home: Path, kills: int, seed: int = 7) -> dict[str, Any]:
    """Kill so many processes, half of them in a cut and half in forgetting a session."""
    import smart_fork.excise.erasure
    import smart_fork.excise.forgetting  # noqa: F401 - here once, and not in every process

    chance = random.Random(seed)
    before = {name: os.environ.get(name) for name in ("HOME", "SMART_FORK_HOME", "SMART_FORK_KEEP_TRANSCRIPTS")}
    os.environ |= {"HOME": str(home), "SMART_FORK_HOME": f"{home}/state", "SMART_FORK_KEEP_TRANSCRIPTS": "1"}
    try:
        _prepare(home)
        counts: Counter[str] = Counter()
        for name, take_out in (("cut", _cut), ("forget", _forget)):
            moments = _moments(home, take_out)
            counts[f"moments_of_{name}"] = moments
            for _ in range(kills // 2):
                counts += _trial(home, take_out, chance.randint(1, moments))
    finally:
        for variable, value in before.items():
            os.environ.pop(variable) if value is None else os.environ.update({variable: value})
    return {"kills": 0, "not_begun": 0, "bytes_searched": 0, "with_bytes_left": 0} | dict(counts)


def _prepare(home: Path) -> None:
    """A home with one session that has the secret, in all that can have it, and with others that have not."""
    for number in range(12):
        words = [f"question {number} of uploads", " ".join(f"word{number * 7 + at}" for at in range(200))]
        _write_log(home, f"{number:08}-0000-4000-8000-000000000000", *words)
    log = _write_log(home, SESSION, *SAID)
    beside = log.with_suffix("") / "tool-results"
    beside.mkdir(parents=True)
    (beside / "call1.txt").write_text(f"password: {SECRET}")
    _in_child(lambda: (_index(), _register(home), _take_snapshot(log)))
    shutil.copytree(home / "state", home / "state.before")
    shutil.copytree(home / ".claude", home / "claude.before")


def _take_snapshot(log: Path) -> None:
    from smart_fork.agents.cuts import snapshots

    snapshots.take(log, SESSION, datetime.now(UTC))


def _register(home: Path) -> None:
    from smart_fork.workers.registry import Registry

    with Registry() as registry:
        worker = registry.add(
            "claude", source_session_id=SESSION, place="process", cwd=home, prompt=f"use {SECRET}", kind="resume"
        )
        registry.set_started(worker.id, command=["claude", "-p", f"use {SECRET}"])
        registry.set_state(worker.id, "ended")
        output = home / "state/logs/workers" / f"{worker.id}.log"
        output.parent.mkdir(parents=True)
        output.write_text(f"I used {SECRET}")


def _moments(home: Path, take_out: Callable[[], None]) -> int:
    """How many moments there are in it."""
    reading, writing = os.pipe()

    def counted() -> None:
        made = _at_moment(-1)
        take_out()
        os.write(writing, str(made[0]).encode())

    _restore(home)
    _in_child(counted)
    os.close(writing)
    with os.fdopen(reading) as answer:
        return int(answer.read())


def _trial(home: Path, take_out: Callable[[], None], last: int) -> Counter[str]:
    _restore(home)

    def killed() -> None:
        _at_moment(last)
        take_out()

    status = _in_child(killed, check=False)
    _in_child(_index_again)
    begun = SECRET not in _log(home).read_text() or (home / "state/forgotten.jsonl").is_file()
    if not begun:
        _in_child(take_out)
    searched = list(_bytes_of(home / "state", snapshots_too=take_out is _forget))
    return Counter(
        kills=int(os.WIFSIGNALED(status)),
        not_begun=int(not begun),
        bytes_searched=sum(map(len, searched)),
        with_bytes_left=int(any(SEARCHED in data.lower() for data in searched)),
    )


def _bytes_of(state: Path, *, snapshots_too: bool) -> Iterator[bytes]:
    """Every file, copies unpacked; after a cut without the snapshots, which are what it is undone with."""
    import zstandard

    for path in sorted(state.rglob("*")):
        if not path.is_file() or (not snapshots_too and path.match("snapshots/*/[0-9]*.jsonl.gz")):
            continue
        data = path.read_bytes()
        yield data
        if path.suffix == ".zst":
            yield zstandard.ZstdDecompressor().stream_reader(data, read_across_frames=True).read()
        if ".gz" in path.suffixes:
            yield gzip.decompress(data)


def _cut() -> None:
    from smart_fork.excise import Request, cut

    records = [json.loads(line) for line in _log(Path.home()).read_bytes().splitlines()]
    ids = [record["uuid"] for record in records if SECRET in json.dumps(record)]
    cut(Request(SESSION, ids=ids, force=True))


def _forget() -> None:
    import smart_fork

    smart_fork.forget(SESSION)


def _index() -> None:
    from indexer.freshness import complete
    from smart_fork.agents.readers import READERS
    from smart_fork.finding.index_access import opened

    with opened() as store:
        complete(store, READERS, None, patience=30)
        assert not store.owes_erasing()


def _index_again() -> None:
    """What `smart-fork index run` does."""
    from smart_fork.excise.erasure import settle

    _index()
    assert settle()


def _restore(home: Path) -> None:
    """All as it was, and indexed: nothing is owed."""
    for name, before in (("state", "state.before"), (".claude", "claude.before")):
        shutil.rmtree(home / name)
        shutil.copytree(home / before, home / name)
    _in_child(_index)


def _at_moment(last: int) -> list[int]:
    """Have this process killed at that moment; how many there were so far."""
    import apsw

    made = [0]

    def moment(*_: object) -> bool:
        made[0] += 1
        if made[0] == last:
            os.kill(os.getpid(), signal.SIGKILL)
        return True

    def trace(db: Any) -> None:
        db.set_exec_trace(moment)
        db.set_progress_handler(lambda: not moment(), STEPS)

    def hook(event: str, _: object) -> None:
        if event in ("os.rename", "os.remove", "os.truncate", "shutil.rmtree", "os.rmdir"):
            moment()

    apsw.connection_hooks.append(trace)
    sys.addaudithook(hook)
    return made


def _in_child(work: Callable[[], Any], *, check: bool = True) -> int:
    """Do it in a process of its own; how that ended."""
    child = os.fork()
    if not child:
        code = 1
        try:
            work()
            code = 0
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    if check and status:
        raise RuntimeError(f"a process ended with {status}")
    return status


def _log(home: Path) -> Path:
    return home / ".claude/projects/-work-a" / f"{SESSION}.jsonl"


def _write_log(home: Path, session_id: str, *texts: str) -> Path:
    path = _log(home).with_name(f"{session_id}.jsonl")
    path.parent.mkdir(parents=True, exist_ok=True)
    parent: str | None = None
    with path.open("w", encoding="utf-8") as file:
        for number, text in enumerate(texts):
            role = "assistant" if number % 2 else "user"
            identity = str(uuid.uuid5(uuid.NAMESPACE_URL, f"{session_id} {number}"))
            record = {
                "type": role, "uuid": identity, "parentUuid": parent, "sessionId": session_id, "cwd": "/work/a",
                "version": "2.1.0", "timestamp": f"2026-01-02T03:04:{number:02}.000Z",
                "message": {"role": role, "content": text, "id": f"msg{number}", "model": "m"},
            }  # fmt: skip
            file.write(json.dumps(record) + "\n")
            parent = identity
    return path


if __name__ == "__main__":
    main()

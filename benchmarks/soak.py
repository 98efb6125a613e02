"""The service on a large home with many sessions going on at once: how fresh, at what cost, and whether all is there.

    python benchmarks/bench.py soak [--logs 5000] [--gigabytes 5] [--growing 20]
                              [--minutes 20] [--lines 200] [--home DIR] [--json FILE]

A home is made (`_big_home.py`), a real ``smart-fork serve`` started and everything indexed, vectors too. Then the
growing logs get an exchange with a word of its own every few seconds. How long from written until findable is looked
up in the index five times a second; one word in ten is also asked for over MCP. In the end each word must be in the
index exactly once, and the grown sessions as a fresh reading gives them.

The home has about 10 passages a megabyte, a quarter of what our real logs have, so that making vectors of 5 GB takes
minutes and not an hour on two cores: set-up is about a minute for the home and a quarter of an hour for the index. With
more ``--lines`` there are fewer passages.
"""

from __future__ import annotations

import random
import sys
import threading
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Self

import apsw
from _big_home import LINES, BigHome, Log
from _frame import Table, busy_machine, live_at, percentile
from _served import Served

#: Seconds between two exchanges of a log.
PAUSE = (2.0, 6.0)
LOOK_SECONDS, SAMPLE_SECONDS = 0.2, 2.0
#: One word in so many is asked for as well.
ASKED = 10
#: How long all that was written may take to be found, or embedded, in the end.
DRAIN_SECONDS = 120.0
INDEXING_SECONDS = 3 * 3600.0
MEMORY = {
    "started": "started_mb",
    "indexing, at most": "indexing_peak_mb",
    "after a question": "first_query_mb",
    "growing, first fifth": "first_fifth_mb",
    "growing, last fifth": "last_fifth_mb",
    "end": "end_mb",
}


@dataclass(slots=True)
class Word:
    """Something that was written, and when it was found: in the index, and by asking, where it is to be `asked` for."""

    text: str
    log: Log
    asked: bool
    written: float = 0.0
    found: float | None = None
    answered: float | None = None


@dataclass(slots=True)
class Watch:
    """Memory and processor of the service over time: seconds since the start, MB, cores."""

    served: Served
    samples: list[tuple[float, float, float]] = field(default_factory=list)
    _before: tuple[float, float] = (0.0, 0.0)
    _began: float = 0.0

    def begin(self) -> None:
        self._began = time.monotonic()
        self._before = (self._began, self.served.cpu_seconds())

    def look(self) -> None:
        """Take a sample, if it is time for one."""
        (then, used), now = self._before, time.monotonic()
        if now - then >= SAMPLE_SECONDS:
            self._before = (now, self.served.cpu_seconds())
            share = (self._before[1] - used) / (now - then)
            self.samples.append((now - self._began, self.served.megabytes(), share))


def options(parser: ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument("--logs", type=int, default=5_000)
    parser.add_argument("--gigabytes", type=float, default=5.0)
    parser.add_argument("--growing", type=int, default=20, help="logs that grow together (20)")
    parser.add_argument("--minutes", type=float, default=20.0)
    parser.add_argument("--lines", type=int, default=LINES, help="of a tool's output, in the mean (200)")
    parser.add_argument("--idle-seconds", type=float, default=60.0, help="how long nothing happens in the end (60)")
    parser.add_argument("--home", type=Path, help="make the home here, and leave it; it must not exist yet")


def measure(arguments: Namespace, folder: Path) -> dict[str, Any]:
    """Make a home, index it, and let it grow."""
    if arguments.home and arguments.home.exists():
        sys.exit(f"{arguments.home} exists already")
    folder = (arguments.home or folder / "home").resolve()
    figures: dict[str, Any] = {"load_before": busy_machine()}
    home = BigHome(folder)
    began = time.monotonic()
    figures["bytes"], figures["logs"] = home.make(arguments.logs, arguments.gigabytes, arguments.lines), arguments.logs
    figures["making_seconds"] = time.monotonic() - began
    _tell(f"{figures['bytes'] / 1e9:.2f} GB made in {figures['making_seconds']:.0f} s")
    with Served(folder) as served:
        figures |= {"start_seconds": served.start_seconds, "started_mb": served.megabytes()}
        figures |= index_all(served, arguments.logs)
        client = served.client()
        client.call("smart_fork", intent="warm", project_path=str(home.logs[0].project), agent_type="both")
        figures["first_query_mb"] = served.megabytes()
        watch = Watch(served)
        words = _grow(served, home, watch, arguments)
        figures |= _freshness(words) | _costs(watch)
        figures["unfinished"] = _settle(served)
        figures["idle_cpu_share"], figures["end_mb"] = _idle(served, arguments.idle_seconds), served.megabytes()
    figures |= _correctness(folder, words) | {"load_after": busy_machine(), "growing": arguments.growing}
    return figures


def index_all(served: Served, logs: int) -> dict[str, Any]:
    """Wait until everything has been read and embedded."""
    began, peak, read = time.monotonic(), 0.0, 0.0
    used = served.cpu_seconds()
    served.request("GET", "/healthz")  # asks a question: from then on there is an index
    while time.monotonic() - began < INDEXING_SECONDS:
        peak = max(peak, served.megabytes())
        with _reading(served) as index:
            sessions, waiting = index.sessions(), index.waiting()
        if sessions >= logs and not read:
            read = time.monotonic() - began
        if read and not waiting and served.status()["state"] == "idle":
            break
        _tell(f"{served.status()['doing']}; {sessions} sessions, {waiting} passages wait for vectors", last=False)
        time.sleep(min(2.0, INDEXING_SECONDS))
    with _reading(served) as index:
        passages = index.passages()
    _tell(f"{passages:,} passages indexed in {time.monotonic() - began:.0f} s")
    return {
        "reading_seconds": read, "indexing_seconds": time.monotonic() - began, "indexing_peak_mb": peak,
        "indexing_cpu_seconds": served.cpu_seconds() - used, "passages": passages,
        "index_mb": (served.state / "index.db").stat().st_size / 1e6,
    }  # fmt: skip


def _grow(served: Served, home: BigHome, watch: Watch, arguments: Namespace) -> list[Word]:
    rand, words = random.Random(11), list[Word]()
    ends = time.monotonic() + arguments.minutes * 60
    logs = home.growing(arguments.growing)
    due = {log.session_id: time.monotonic() + rand.uniform(*PAUSE) for log in logs}
    to_ask: SimpleQueue[Word | None] = SimpleQueue()
    asker = threading.Thread(target=_ask_for, args=(served, to_ask))
    asker.start()
    watch.begin()
    waiting: list[Word] = []
    with _reading(served) as index:
        while (now := time.monotonic()) < ends or (waiting and now < ends + DRAIN_SECONDS):
            for log in logs if now < ends else ():
                if due[log.session_id] <= now:
                    word = Word(f"unheard{len(words)}x", log, len(words) % ASKED == 0)
                    home.append(log, word.text)
                    word.written = time.monotonic()
                    due[log.session_id] = word.written + rand.uniform(*PAUSE)
                    words.append(word)
                    waiting.append(word)
            for word in [one for one in waiting if index.has(one.text)]:
                word.found = time.monotonic()
                waiting.remove(word)
                if word.asked:
                    to_ask.put(word)
            watch.look()
            _tell(f"{len(words)} exchanges written, {len(waiting)} not found yet", last=False)
            time.sleep(LOOK_SECONDS)
    to_ask.put(None)
    asker.join()
    return words


def _ask_for(served: Served, words: SimpleQueue[Word | None]) -> None:
    """Ask for each word over MCP, as an agent in the log's project would, until it is found."""
    client = served.client()
    while (word := words.get()) is not None:
        gives_up = time.monotonic() + DRAIN_SECONDS
        while word.answered is None and time.monotonic() < gives_up:
            answer = client.call(
                "smart_fork", intent=word.text, project_path=str(word.log.project), agent_type="both", limit=1
            )
            if any(result["session_id"] == word.log.session_id for result in answer["results"]):
                word.answered = time.monotonic()


def _settle(served: Served) -> int:
    """Wait until nothing is left to do; how many passages still wait for vectors."""
    ends = time.monotonic() + DRAIN_SECONDS
    while time.monotonic() < ends:
        with _reading(served) as index:
            waiting = index.waiting()
        if not waiting and served.status()["state"] == "idle":
            break
        time.sleep(0.5)
    return waiting


def _idle(served: Served, seconds: float) -> float:
    used, began = served.cpu_seconds(), time.monotonic()
    time.sleep(seconds)
    return (served.cpu_seconds() - used) / max(time.monotonic() - began, 1e-9)


def _freshness(words: list[Word]) -> dict[str, Any]:
    waits = [word.found - word.written for word in words if word.found is not None]
    answers = [word.answered - word.written for word in words if word.answered is not None]
    return {
        "written": len(words), "missed": len(words) - len(waits), "asked": sum(word.asked for word in words),
        "never_answered": sum(word.asked and word.answered is None for word in words),
        "fresh": _spread(waits), "answered": _spread(answers),
        "waits": [[round(word.written - words[0].written, 1), round(word.found - word.written, 2)]
                  for word in words if word.found is not None],
    }  # fmt: skip


def _spread(seconds: list[float]) -> dict[str, float]:
    return {"p50": percentile(seconds, 0.5), "p95": percentile(seconds, 0.95), "max": max(seconds, default=0.0)}


def _costs(watch: Watch) -> dict[str, Any]:
    shares, memory = [share for _, _, share in watch.samples], [mb for _, mb, _ in watch.samples]
    fifth = max(1, len(memory) // 5)
    return {
        "cpu_share": sum(shares) / max(1, len(shares)),
        "samples": [[round(one, 2) for one in sample] for sample in watch.samples],
        "first_fifth_mb": sum(memory[:fifth]) / fifth, "last_fifth_mb": sum(memory[-fifth:]) / fifth,
        "peak_mb": max(memory, default=0.0),
    }  # fmt: skip


def _correctness(folder: Path, words: list[Word]) -> dict[str, Any]:
    """Words that are not in the index exactly once, and grown sessions that are not as a fresh reading gives them."""
    from indexer.pipeline import document_of
    from smart_fork.agents.log_readers import READERS

    live_at(folder, folder / "state")
    with _Index(folder / "state/index.db") as index:
        odd = sum(index.times(word.text) != (1, 1) for word in words)
        different = 0
        for log in {word.log.session_id: word.log for word in words}.values():
            session = READERS[log.agent].read(log.path).session  # type: ignore[arg-type]
            expected = [chunk.hash for chunk in document_of(session, READERS)[0].chunks] if session else []
            different += index.hashes(log.session_id) != expected
    return {"not_exactly_once": odd, "sessions_that_differ": different}


class _Index:
    """A read-only view of the index."""

    def __init__(self, path: Path) -> None:
        self._db = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
        self._db.set_busy_timeout(10_000)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._db.close()

    def sessions(self) -> int:
        return int(self._db.execute("SELECT count(*) FROM sessions").get)

    def passages(self) -> int:
        return int(self._db.execute("SELECT count(*) FROM chunks").get)

    def waiting(self) -> int:
        return int(self._db.execute("SELECT count(*) FROM chunks WHERE block = 0").get)

    def has(self, word: str) -> bool:
        return bool(self._db.execute("SELECT 1 FROM chunk_words WHERE chunk_words MATCH ? LIMIT 1", (word,)).get)

    def times(self, word: str) -> tuple[int, int]:
        """Count the passages and sessions that contain it."""
        sql = "SELECT count(*) FROM {0} WHERE {0} MATCH ?"
        passages, sessions = (
            int(self._db.execute(sql.format(name), (word,)).get) for name in ("chunk_words", "session_words")
        )
        return passages, sessions

    def hashes(self, session_id: str) -> list[bytes]:
        """The passages of a session in order."""
        rows = self._db.execute(
            "SELECT hash FROM placements JOIN chunks ON chunks.id = chunk JOIN sessions ON sessions.id = session "
            "WHERE session_id = ? ORDER BY position",
            (session_id,),
        )
        return [digest for (digest,) in rows]


def _reading(served: Served) -> _Index:
    return _Index(served.state / "index.db")


def _tell(text: str, *, last: bool = True) -> None:
    if last or sys.stderr.isatty():
        print(text, end="\n" if last else "   \r", file=sys.stderr, flush=True)


def _rows(figures: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield label and figure."""
    size = figures["bytes"]
    yield "logs", f"{figures['logs']:,} ({size / 1e9:.2f} GB), made in {figures['making_seconds']:.0f} s"
    yield "passages", f"{figures['passages']:,}, {figures['passages'] / (size / 1e6):.1f} a megabyte"
    yield "start until it answers", f"{figures['start_seconds']:.2f} s"
    yield "all words indexed", f"{figures['reading_seconds']:.0f} s"
    whole = f"{figures['indexing_seconds']:.0f} s"
    yield "all indexed, with vectors", f"{whole}, {figures['indexing_cpu_seconds']:.0f} s of processor"
    yield "written while it runs", f"{figures['written']:,} exchanges in {figures['growing']} logs together"
    for name, key in (("from written to in the index", "fresh"), ("from written to answered over MCP", "answered")):
        waits = figures[key]
        yield name, f"p50 {waits['p50']:.1f} s, p95 {waits['p95']:.1f} s, at most {waits['max']:.1f} s"
    yield (
        "never found, never answered",
        f"{figures['missed']} of {figures['written']:,}, {figures['never_answered']} of {figures['asked']:,}",
    )
    yield "not in the index exactly once", f"{figures['not_exactly_once']}"
    yield "sessions other than read afresh", f"{figures['sessions_that_differ']}"
    yield "passages left without a vector", f"{figures['unfinished']}"
    yield "processor meanwhile", f"{figures['cpu_share']:.1%} of a core"
    yield "processor when nothing happens", f"{figures['idle_cpu_share']:.2%} of a core"
    for name, key in MEMORY.items():
        yield f"memory, {name}", f"{figures[key]:,.0f} MB"
    yield "index", f"{figures['index_mb']:.0f} MB"
    yield "the machine", f"{figures['load_before']} before, {figures['load_after']} after"


def tables(figures: dict[str, Any]) -> Iterator[Table]:
    """Yield the figures."""
    yield Table(("", ""), _rows(figures))

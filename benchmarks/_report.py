"""From the benchmarks' JSON to docs/explanation/benchmarks.md and its plots. `make bench-report` runs it.

    python benchmarks/_report.py [FOLDER] [--into DOCS]

FOLDER (build/bench) has one JSON a benchmark. Nothing is measured here. In the page, the part between ``<!-- NAME -->``
and ``<!-- /NAME -->`` of each benchmark that has a JSON is replaced. All other text is written by hand and stays.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from indexing import rows as indexing_rows
from load import rows as load_rows
from peers import COLUMNS, footnote
from peers import rows as peers_rows
from service import rows as service_rows
from soak import rows as soak_rows
from which_session.report import lines as which_session_lines

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
#: Benchmark, and what its plot shows.
SECTIONS = {
    "which_session": "",
    "retrieval": "hit@1 and hit@5 by kind of query and way of searching",
    "tuning": "how often a score comes true",
    "search_speed": "time of a search against the size of the index",
    "serving": "",
    "indexing": "MB/s of reading and chunks/s of embedding",
    "service": "",
    "soak": "wait until findable, memory and processor of the service over time",
    "load": "",
    "forking": "",
    "since": "",
    "peers": "quality, time of an answer and time to index, by tool",
}

#: Figures that are published question by question, beside their table.
PUBLISHED = {"which_session"}

Row = Sequence[str]


def main() -> None:
    """Read, draw, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, nargs="?", default=ROOT / "build/bench")
    parser.add_argument("--into", type=Path, default=ROOT / "docs/explanation")
    arguments = parser.parse_args()
    print(report(arguments.folder, arguments.into))


def report(folder: Path, docs: Path) -> Path:
    """Update the parts of ``benchmarks.md``, and ``benchmarks/*.png``, in `docs` from the JSON files in `folder`."""
    import _charts

    page, plots = docs / "benchmarks.md", docs / "benchmarks"
    plots.mkdir(exist_ok=True)
    text = page.read_text(encoding="utf-8")
    for name, picture in SECTIONS.items():
        file, plot = folder / f"{name}.json", plots / f"{name}.png"
        if not file.is_file():
            continue
        figures = json.loads(file.read_text(encoding="utf-8"))
        lines = TABLES[name](figures)
        if picture:
            getattr(_charts, f"draw_{name}")(figures, plot)
            lines = [f"![{picture}](benchmarks/{plot.name})", "", *lines]
        if name in PUBLISHED:
            (plots / file.name).write_bytes(file.read_bytes())
        text = put(text, name, lines)
    page.write_text(text, encoding="utf-8")
    return page


def put(page: str, name: str, lines: Sequence[str]) -> str:
    """Replace the part of that name."""
    before, begin, rest = page.partition(f"<!-- {name} -->\n")
    _, end, after = rest.partition(f"<!-- /{name} -->")
    if not end:
        raise SystemExit(f"The page has no part {name}: add <!-- {name} --> and, below it, <!-- /{name} -->")
    return "\n".join([before + begin, *lines, "", end + after])


def table(header: Row, rows: Iterable[Row], *, right_from: int = 1) -> list[str]:
    """A Markdown table; columns from `right_from` on are aligned to the right."""
    rule = ["---" if number < right_from else "--:" for number in range(len(header))]
    lines = ([cell.strip().replace("|", r"\|") for cell in row] for row in (header, rule, *rows))
    return ["| " + " | ".join(line) + " |" for line in lines]


def retrieval(figures: dict[str, Any]) -> list[str]:
    """Hit rates."""
    rows = [
        [*way.split(maxsplit=1), kind, f"{one['queries']}", *(f"{one[name]:.3f}" for name in ("hit@1", "hit@5", "mrr"))]
        for way, kinds in figures["figures"].items()
        for kind, one in sorted(kinds.items())
    ]
    return [
        f"{figures['queries']} labelled queries, asked in their project (scoped) and everywhere (global).",
        f"{figures['reachable']} can be answered in their project; no log of the others says where it was written.",
        "`also` is with the queries' further phrasings.",
        "",
        *table(("scope", "mode", "kind", "queries", "hit@1", "hit@5", "MRR"), rows, right_from=3),
    ]


def tuning(figures: dict[str, Any]) -> list[str]:
    """Cross-validated hit rates, each part left out, and the calibration."""
    known = [name for one in ("both", "words", "meaning") for name in (one, f"{one} again") if name in figures]
    ways = [(name, figures[name]["places"]) for name in known]
    ways += [(f"both, without {name}", places) for name, places in figures["without"].items()]
    rows = [
        [name, place, *(f"{rate['mean']:.3f} ({rate['sd']:.3f})" for rate in rates.values())]
        for name, places in ways
        for place, rates in places.items()
    ]
    sure = [
        [place, f"{one['share']:.1%}", f"{one['right']:.1%}" if one["share"] else ""]
        for place, one in figures["both"]["first_at_least_half"].items()
    ]
    return [
        f"{figures['queries']} labelled queries, cross-validated in five folds, several divisions: the mean, and the",
        "standard deviation between folds. Queries about one session are never in two folds.",
        "",
        *table(("what speaks for a session", "asked", "hit@1", "hit@5", "MRR"), rows, right_from=2),
        "",
        f"A score is off by {figures['both']['calibration_error']:.3f} in the mean. The first result's score, by where",
        "the query was asked; foreign are projects that do not have the answer:",
        "",
        *table(("asked", "first result at 0.5 or more", "right, of these"), sure),
    ]


def search_speed(figures: dict[str, Any]) -> list[str]:
    """Warm searches by size, with their ratios; then a cold process and the memory of the server."""
    import _charts

    sizes = figures.get("sizes", [])

    def cells(key: str, cell: Callable[[Any], str]) -> list[str]:
        return [cell(one[key]) if one.get(key) is not None else "" for one in sizes]

    rows = [[label, *cells(key, _milliseconds)] for key, label in _charts.SEARCHES.items()]
    for label, above, below in (
        ("ratio: search in a repository / embedding", "scoped_ms", "embedding_ms"),
        ("ratio: search in all / exact scan", "global_ms", "scan_ms"),
        ("ratio: nearest vectors / exact scan", "nearest_ms", "scan_ms"),
        ("ratio: five phrasings / one, embedding and search, processor time", "also_ms", "one_phrasing_ms"),
    ):
        both = [(one.get(above), one.get(below)) for one in sizes]
        rows.append([label, *(f"{up['p50'] / down['p50']:.2f}" if up and down else "" for up, down in both)])
    rows += [
        ["share of the truly nearest that are found", *cells("recall", "{:.3f}".format)],
        ["bytes a vector", *cells("bytes_a_vector", "{:,.0f}".format)],
        ["bytes a chunk, with words and text", *cells("bytes_a_chunk", "{:,.0f}".format)],
    ]
    header = ["p50 (p95)", *(f"{one['chunks']:,} chunks" for one in sizes)]
    text = ["Synthetic indexes; one process, warm.", "", *table(header, (row for row in rows if any(row[1:])))]
    if cold := figures.get("cold"):
        told = f"A cold `smart-fork find` over {cold['chunks']:,} chunks takes {cold['find_s']:.2f} s"
        text += ["", f"{told}: {cold['ratio']:.2f} times a process that loads NumPy and SQLite and asks for the words."]
    if memory := figures.get("memory_mb"):
        told = f"The MCP server over {memory['chunks']:,} chunks has {memory['mcp_before']:.0f} MB resident"
        text += ["", f"{told} before its first search and {memory['mcp_after']:.0f} MB after it."]
    return text


def _milliseconds(times: dict[str, float]) -> str:
    return f"{times['p50']:.1f} ({times['p95']:.1f}) ms" if "p95" in times else f"{times['p50']:.1f} ms"


def serving(figures: dict[str, Any]) -> list[str]:
    """Start, beside a bare server, and answers."""
    rows = []
    for label, key, unit in (("start to tools/list", "start_seconds", "s"), ("resident then", "start_mb", "MB")):
        ours, bare = figures[key], figures[f"bare_{key}"]
        rows.append([f"MCP server, {label}", f"{ours:.2f} {unit}", f"{bare:.2f} {unit}", f"{ours / bare:.2f}"])
    rows += [
        ["`smart-fork find`, cold process", f"{figures['cold_seconds']:.2f} s", "", ""],
        ["MCP tool `smart_fork`, first call", f"{figures['first_seconds']:.2f} s", "", ""],
        ["MCP tool `smart_fork`, warm", f"{figures['warm_seconds'] * 1e3:.0f} ms", "", ""],
        ["resident after it", f"{figures['resident_mb']:.0f} MB", "", ""],
    ]
    return table(("", "smart-fork", "a bare MCP server", "ratio"), rows)


def indexing(figures: dict[str, Any]) -> list[str]:
    """As the benchmark itself prints it."""
    return table(("", "", "ratio"), indexing_rows(figures))


def service(figures: dict[str, Any]) -> list[str]:
    """As the benchmark itself prints it."""
    return [
        "Memory is PSS: of what processes share, each has its part.",
        "",
        *table(("", "", "ratio"), service_rows(figures)),
    ]


def soak(figures: dict[str, Any]) -> list[str]:
    """As the benchmark itself prints it."""
    return table(("", ""), soak_rows(figures))


def load(figures: dict[str, Any]) -> list[str]:
    """As the benchmark itself prints it."""
    return [
        f"{figures['clients']} clients over MCP, {figures['queries']} questions each; {figures['logs']:,} logs,",
        f"{figures['passages']:,} passages.",
        "",
        *table(("", "nothing else to do", "during a full rebuild (ratio)"), load_rows(figures)),
    ]


def _busy(figures: dict[str, Any]) -> str:
    return f"The machine's load average was {figures['load']:.0f} on {os.cpu_count()} cores."


def forking(figures: dict[str, Any]) -> list[str]:
    """Each way beside the bare program."""
    ways = figures["ways"].items()
    rows = [(name, f"{one['seconds']:.2f} s", f"{one['least']:.2f} s", f"{one['ratio']:.2f}") for name, one in ways]
    return [
        f"From the command to the request with the prompt, medians of {figures['rounds']} rounds in turns;",
        "`python benchmarks/forking.py --rounds 7`. Ratios are per round.",
        _busy(figures),
        "",
        *table(("", "median", "least", "ratio"), rows),
    ]


def since(figures: dict[str, Any]) -> list[str]:
    """The note of what has changed, beside git itself."""
    ways = figures["ways"].items()
    rows = [(name, f"{one['cpu_ms']:.0f} ms", f"{one['of_git_status']:.2f}") for name, one in ways]
    return [
        f"{figures['files']:,} files, {figures['commits']:,} commits, a session that knows 40 files; processor time;",
        "`python benchmarks/since.py`.",
        _busy(figures),
        "",
        *table(("", "processor", "of `git status`"), rows),
    ]


def peers(figures: dict[str, Any]) -> list[str]:
    """As the benchmark itself prints it."""
    return [
        f"{figures['logs']} logs; {figures['queries']} of {figures['of_queries']} labelled queries, asked everywhere",
        "and in their project, of each tool in the way that suits it best (`benchmarks/_peers.py`). An answer is the",
        "median of whole processes. The weights of smart-fork's ranking were found with these queries; the other tools",
        "have never seen them.",
        "",
        *table(COLUMNS, peers_rows(figures)),
        "",
        footnote(figures),
    ]


def which_session(figures: dict[str, Any]) -> list[str]:
    """What each tool finds of what people typed."""
    return [
        "Asked are the first prompts of sessions in public repositories that keep their agents' sessions in git, as",
        "typed. Right are the earlier sessions that wrote the lines which these sessions went on to change. History",
        "is played in order. [The README][which] has the rules and the steps for your own clone.",
        "[The JSON](benchmarks/which_session.json) has the answers and places of each question.",
        "",
        "The ranking was fitted with these repositories among others: the weight of files and names (`work`), and the",
        "scores. The other tools have no such weights.",
        "",
        "The last table shows harm: what happened in other projects is asked where no session can know it. Projects",
        "with a number are the largest ones of a collection of real sessions.",
        "",
        "[which]: https://github.com/smart-fork/smart-fork/blob/main/benchmarks/which_session/README.md",
        "",
        *which_session_lines(figures),
    ]


TABLES: dict[str, Callable[[dict[str, Any]], list[str]]] = {
    "which_session": which_session,
    "retrieval": retrieval, "tuning": tuning, "search_speed": search_speed, "serving": serving, "indexing": indexing,
    "service": service, "soak": soak, "load": load, "forking": forking, "since": since, "peers": peers,
}  # fmt: skip


if __name__ == "__main__":
    main()

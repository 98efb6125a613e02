"""The benchmarks' own parts that decide what their figures mean, and the report that is drawn from them."""

from __future__ import annotations

import importlib
import json
import struct
import sys
from pathlib import Path
from types import ModuleType

import pytest

pytestmark = pytest.mark.thorough  # of the benchmarks, which no user runs

BENCHMARKS = Path(__file__).resolve().parent.parent / "benchmarks"

RATES = {"queries": 4, "hit@1": 0.5, "hit@5": 0.75, "mrr": 0.6}
ANSWERS = {"hit@1": 0.25, "hit@5": 0.5, "answer_seconds": 0.12, "failed": 0}
TUNED = {
    "places": {"scoped": {name: {"mean": 0.8, "sd": 0.05} for name in ("hit@1", "hit@5", "mrr")}},
    "calibration": [{"score": 0.1, "right": 0.2, "share": 0.75}, {"score": 0.9, "right": 0.8, "share": 0.25}],
    "calibration_error": 0.1,
    "first_at_least_half": {"scoped": {"share": 0.5, "right": 0.9}, "foreign": {"share": 0.0, "right": 0.0}},
}
SPREAD = [0.5, 0.25, 0.75]
ASKED = dict.fromkeys(("hit@1", "hit@5", "MRR", "nDCG@5", "hit@1, wider label"), SPREAD)
KINDS = {kind: ASKED | {"questions": 2} for kind in ("all", "plan", "typed")}
EXAMPLES = {
    "which_session": {
        "command": "python -m benchmarks.which_session harbor --seed 1",
        "repositories": [
            {"name": "harbor", "head": "0" * 40, "checkpoints": "1" * 40, "sessions": 9, "questions": 2, "logs, MB": 1.5,
             "questions that nothing answers": 1, "index, MB": 0.5, "seconds": {"index, median": 0.5, "answer, median": 0.1}}
        ],
        "tools": {"smart-fork": KINDS | {"ranks": {"harbor:1": [1, 1]}}, "BM25": KINDS},
        "smart-fork minus BM25": {"all": ASKED},
        "scores": {"mean score": SPREAD, "expected calibration error": None},
        "where": {"questions": 2, "edits kept within 30k": SPREAD},
        "not asked": {"a tool": "not installed"},
    },
    "retrieval": {
        "queries": 4,
        "reachable": 3,
        "seconds_a_search": 0.01,
        "figures": {
            f"{scope} {mode}": {"all": RATES, "keyword": RATES}
            for scope in ("scoped", "global")
            for mode in ("lexical", "vector", "hybrid")
        },
    },
    "tuning": {
        "queries": 4,
        **dict.fromkeys(("both", "words", "meaning"), TUNED),
        "without": {"title": TUNED["places"]},
    },
    "search_speed": {
        "sizes": [
            {"chunks": size, "scoped_ms": {"p50": 1.5, "p95": 2}, "global_ms": {"p50": size / 5000}, "recall": 0.99}
            for size in (10_000, 100_000)
        ],
        "memory_mb": {"chunks": 100_000, "mcp_before": 60, "mcp_after": 90},
    },
    "serving": {
        "start_seconds": 0.1, "bare_start_seconds": 0.4, "start_mb": 30, "bare_start_mb": 60,
        "cold_seconds": 0.5, "first_seconds": 0.3, "warm_seconds": 0.02, "resident_mb": 120,
    },
    "soak": {
        "logs": 50, "bytes": 2e9, "making_seconds": 1, "passages": 4000, "start_seconds": 0.5, "reading_seconds": 3,
        "indexing_seconds": 9, "indexing_cpu_seconds": 8, "written": 7, "growing": 2, "missed": 0, "never_answered": 0,
        "asked": 1, "not_exactly_once": 0, "sessions_that_differ": 0, "unfinished": 0, "cpu_share": 0.25,
        "fresh": {"p50": 1.5, "p95": 2, "max": 3}, "answered": {"p50": 1, "p95": 2, "max": 3}, "idle_cpu_share": 0.001,
        "index_mb": 3, "load_before": "1", "load_after": "1", "waits": [[0, 1.5], [60, 2]],
        "samples": [[0, 100, 0.1], [60, 101, 0.2]],
        **dict.fromkeys(("started_mb", "indexing_peak_mb", "first_query_mb", "first_fifth_mb", "last_fifth_mb", "end_mb"), 9),
    },
    "load": {
        "clients": 50, "queries": 200, "logs": 500, "passages": 7000, "between_mb": 100, "after_mb": 110,
        "load_between": "1", "load_after": "1",
        **{name: {"answers": 10, "errors": 0, "p50": 0.5, "p99": 1 + number, "max": 3, "took": 5, "modes": {"hybrid": 10},
                  "cpu_share": 0.5, "rebuilds": number} for number, name in enumerate(("idle", "busy"))},
    },
    "indexing": {
        "megabytes": 200.0, "logs": 9, "sessions": 8, "skipped": {"no conversation": 1}, "failed": 0, "broken_lines": 1,
        "chunks": 900, "orjson_seconds": 1.0, "reading_seconds": 4.0, "reading_peak_mb": 30, "many_logs": 5000,
        "listing_seconds": 0.01, "unchanged_many_seconds": 0.02, "grown_log_megabytes": 1, "grown_seconds": 0.1,
        "tables_mb": {"chunks": 3, "files": 0.01},
    },
    "service": {
        "servers": 10, "health_seconds": 1, "first_query_seconds": 0.5, "preloaded_seconds": 0.5, "alone_seconds": 2,
        "idle_mb": 50, "after_query_mb": 60, "frameworks_mb": 500, "preloaded_mb": 250, "all_alone_mb": 900,
        "alone_mb": 100, "bare_mb": 400,
    },
    "forking": {"rounds": 7, "load": 2.0, "ways": {"smart-fork fork": {"seconds": 0.6, "least": 0.5, "ratio": 1.2}}},
    "since": {"files": 50, "commits": 1000, "load": 2.0, "ways": {"git status": {"cpu_ms": 139, "of_git_status": 1}}},
    "peers": {
        "queries": 40,
        "of_queries": 124,
        "claude_queries": 31,
        "logs": 12,
        "peers": [
            {"name": "smart-fork", "claude_only": False, "status": "", "index_seconds": 3.2,
             "global": ANSWERS, "scoped": ANSWERS},
            {"name": "grep | sort", "claude_only": True, "status": "", "index_seconds": None,
             "global": ANSWERS, "scoped": None},
            {"name": "absent", "claude_only": False, "status": "not installed"},
        ],
    },
}  # fmt: skip


@pytest.fixture
def benchmark(monkeypatch):
    """A script of the folder, which is no package, as a module."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    before = set(sys.modules)
    yield importlib.import_module
    for name in set(sys.modules) - before:
        if str(BENCHMARKS) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]


@pytest.fixture
def report(benchmark) -> ModuleType:
    return benchmark("bench")


def write(folder: Path, names: tuple[str, ...] = tuple(EXAMPLES)) -> Path:
    folder.mkdir()
    (folder.parent / "docs").mkdir(exist_ok=True)
    if not (page := folder.parent / "docs/benchmarks.md").exists():
        page.write_text((BENCHMARKS.parent / "docs/explanation/benchmarks.md").read_text())
    for name in names:
        (folder / f"{name}.json").write_text(json.dumps(EXAMPLES[name]))
    return folder


def size_of(png: Path) -> tuple[int, int]:
    head = png.read_bytes()[:24]
    assert head.startswith(b"\x89PNG")
    return struct.unpack(">II", head[16:24])


def test_the_report_has_a_table_and_a_plot_for_what_was_measured(report, tmp_path):
    page = report.report(write(tmp_path / "json"), tmp_path / "docs").read_text()

    assert "| scoped | hybrid | keyword | 4 | 0.500 | 0.750 | 0.600 |" in page
    assert "| search in all | 2.0 ms | 20.0 ms |" in page
    assert "| MCP server, start to tools/list | 0.10 s | 0.40 s | 0.25 |" in page
    assert "| smart-fork | 3.2 s | 0.25 | 0.50 | 0.12 s | 0.25 | 0.50 | 0.12 s |" in page
    assert "| absent | not installed |" in page
    assert "| from written to in the index | p50 1.5 s, p95 2.0 s, at most 3.0 s |" in page
    assert "| an answer, p99 | 1.00 s | 2.00 s (2.00) |" in page
    assert "31 of these 40 queries" in page
    assert "| logs to words and exports | 4.00 s, 50.0 MB/s | 0.250 of decoding |" in page
    assert "| the same with a preloader | 0.50 s | 0.25 |" in page
    assert "| smart-fork fork | 0.60 s | 0.50 s | 1.20 |" in page
    assert "50 files, 1,000 commits, a session that knows 40 files; processor time;" in page
    assert "| BM25 | 2 | 0.500 [0.250, 0.750] |" in page
    assert "| expected calibration error | - |" in page
    assert "\n\nNot asked: a tool (not installed)." in page
    assert "Shown to be better than BM25 (interval above zero): hit@1; hit@5; MRR; nDCG@5; hit@1, wider label." in page
    assert EXAMPLES["which_session"] == json.loads((tmp_path / "docs/benchmarks/which_session.json").read_text())
    for name in ("retrieval", "search_speed", "soak", "peers"):
        assert f"(benchmarks/{name}.png)" in page
        assert min(size_of(tmp_path / f"docs/benchmarks/{name}.png")) > 200


def test_every_part_of_the_page_has_an_example_here(report):
    assert set(report.SECTIONS) == set(EXAMPLES)


def test_every_benchmark_tells_its_options(report, capsys):
    for name in report.NAMES:
        with pytest.raises(SystemExit, match="0"):
            report.main(name, "--help")
        printed = capsys.readouterr().out
        assert f"benchmarks/bench.py {name}" in printed
        assert "--json FILE" in printed


def test_a_benchmark_that_is_not_there_is_refused_with_the_names_of_all(report):
    with pytest.raises(SystemExit, match=r"NAME is one of retrieval, .*, instructions"):
        report.main("reading")


def test_a_benchmark_prints_its_tables_and_writes_its_figures(report, tmp_path, capsys, monkeypatch):
    for name in ("GIT_CONFIG_GLOBAL", "GIT_CONFIG_NOSYSTEM"):  # it sets them for its own process
        monkeypatch.setenv(name, "")
    report.main("since", "--files", "200", "--commits", "2200", "--rounds", "1", "--json", str(tmp_path / "since.json"))

    assert "│ git status " in capsys.readouterr().out
    assert 200 == json.loads((tmp_path / "since.json").read_text())["files"]


def test_what_is_written_by_hand_or_was_not_measured_again_stays(report, tmp_path):
    less = write(tmp_path / "less", ("serving",))
    before = (tmp_path / "docs/benchmarks.md").read_text().split("<!-- ")
    after = report.report(less, tmp_path / "docs").read_text().split("<!-- ")

    changed = {new.partition(" ")[0] for old, new in zip(before, after, strict=True) if old != new}
    assert {"serving"} == changed


def test_a_page_without_the_part_of_a_benchmark_is_refused(report, tmp_path):
    less = write(tmp_path / "less", ("serving",))
    (tmp_path / "docs/benchmarks.md").write_text("# Benchmarks\n\n<!-- serving -->\n")

    with pytest.raises(SystemExit, match="<!-- /serving -->"):
        report.report(less, tmp_path / "docs")


def test_the_plot_of_indexing_shows_what_is_known(report, benchmark, tmp_path):
    known = {"megabytes": 200.0, "orjson_seconds": 1.0, "reading_seconds": 4.0, "chunks": 900}

    benchmark("_charts").draw_indexing(known, tmp_path / "words.png")
    benchmark("_charts").draw_indexing(known | {"embedding_seconds": 30.0}, tmp_path / "vectors.png")

    assert size_of(tmp_path / "words.png")[0] < size_of(tmp_path / "vectors.png")[0]


def test_a_cell_cannot_break_the_table(report, tmp_path):
    page = report.report(write(tmp_path / "json"), tmp_path / "docs").read_text()

    assert r"| grep \| sort ¹ | - | 0.25 | 0.50 | 0.12 s | not offered |" in page


def test_a_tool_that_shortens_ids_is_understood(benchmark):
    peers = benchmark("peers")

    assert 2 == peers.rank(["00000000", "2cfdacb8-93"], ["2cfdacb8-9317-430f-8975-0709d2837d1c"])
    assert 0 == peers.rank(["00000000"], ["2cfdacb8-9317-430f-8975-0709d2837d1c"])
    assert 0 == peers.rank([], ["2cfdacb8-9317-430f-8975-0709d2837d1c"])


def test_a_rate_is_a_share_of_the_queries_and_a_miss_counts_in_none(benchmark):
    assert {"hit@1": 0.25, "hit@5": 0.5, "mrr": 0.34375} == benchmark("_frame").rates_of([1, 4, 8, 0])


def test_a_sample_of_queries_is_spread_evenly(benchmark):
    queries = [{"n": number} for number in range(10)]

    assert [0, 3, 6] == [query["n"] for query in benchmark("peers").sample(queries, 3)]
    assert queries == benchmark("peers").sample(queries, 0)


def test_grep_ranks_by_how_many_different_words_a_log_has(benchmark):
    few, many = "11111111-1111-1111-1111-111111111111", "22222222-2222-2222-2222-222222222222"
    printed = f"/x/{few}.jsonl\nretry\nretry\nRetry\n\n/y/rollout-2026-{many}.jsonl\nretry\nupload\n"

    assert [many, few] == benchmark("_peers").most_words(printed)


def test_a_tool_that_hangs_is_ended_with_its_children(benchmark, tmp_path):
    peers = benchmark("peers")
    hangs = "import threading; threading.Event().wait()"
    script = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {hangs!r}])"

    with pytest.raises(peers.PeerFailed, match="no answer"):
        peers.run([sys.executable, "-c", script], {}, tmp_path, 0.2)


def test_a_tool_that_fails_says_its_last_word(benchmark, tmp_path):
    peers = benchmark("peers")

    with pytest.raises(peers.PeerFailed, match="exit 7: no database"):
        peers.run(
            [sys.executable, "-c", "import sys; print('no database', file=sys.stderr); exit(7)"], {}, tmp_path, 60
        )

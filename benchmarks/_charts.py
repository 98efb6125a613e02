"""The plots of docs/explanation/benchmarks.md: one function a plot, from a benchmark's JSON to a PNG.

The background is transparent and the ink a middle grey, so that they read on light and on dark pages; the colours are
those of Okabe and Ito, which colour-blind people tell apart. What a JSON does not have is not drawn.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from search_speed import SEARCHES

INK = "#7d8590"
BLUE, ORANGE, GREEN, PURPLE, SKY = "#0a84c6", "#e69f00", "#009e73", "#cc79a7", "#56b4e9"
COLOURS = (BLUE, ORANGE, GREEN, PURPLE, SKY)
STYLE: dict[str, Any] = {
    "axes.edgecolor": INK, "axes.labelcolor": INK, "axes.titlecolor": INK, "xtick.color": INK, "ytick.color": INK,
    "text.color": INK, "legend.labelcolor": INK, "legend.frameon": False, "axes.spines.top": False,
    "axes.spines.right": False, "grid.color": INK, "grid.alpha": 0.25, "axes.axisbelow": True, "font.size": 10,
    "axes.titlesize": 11, "savefig.transparent": True, "savefig.dpi": 144,
}  # fmt: skip

MODES = ("lexical", "vector", "hybrid")
MODE_NAMES = {"lexical": "words", "vector": "meaning", "hybrid": "both"}
KINDS = {"all": "all", "keyword": "exact words", "paraphrase": "other words", "multilingual": "other languages"}


def draw_retrieval(figures: dict[str, Any], path: Path) -> None:
    """hit@1 by kind of query and way of searching, in the project and everywhere; a pale cap shows hit@5."""
    with rc_context(STYLE):
        figure = Figure(figsize=(9, 3.4), layout="constrained")
        left, right = figure.subplots(1, 2, sharey=True)
        for axes, scope, title in ((left, "scoped", "in the project"), (right, "global", "in all projects")):
            ways = {mode: figures["figures"].get(f"{scope} {mode}", {}) for mode in MODES}
            kinds = [kind for kind in KINDS if any(kind in way for way in ways.values())]
            for number, (mode, way) in enumerate(ways.items()):
                at = [place + (number - 1) * 0.27 for place in range(len(kinds))]
                first, five = ([way.get(kind, {}).get(name, 0) for kind in kinds] for name in ("hit@1", "hit@5"))
                axes.bar(at, five, 0.25, color=COLOURS[number], alpha=0.35)
                axes.bar(at, first, 0.25, color=COLOURS[number], label=MODE_NAMES[mode])
            counts = [max(way.get(kind, {}).get("queries", 0) for way in ways.values()) for kind in kinds]
            labels = [f"{KINDS[kind]}\n({count} queries)" for kind, count in zip(kinds, counts, strict=True)]
            axes.set_xticks(range(len(kinds)), labels, fontsize=8)
            axes.set(title=title, ylim=(0, 1.05))
            axes.grid(axis="y")
        left.set_ylabel("share of queries: right session\nfirst (solid), in the first five (pale)")
        figure.legend(*left.get_legend_handles_labels(), loc="outside lower center", ncols=len(MODES))
        figure.savefig(path)


def draw_tuning(figures: dict[str, Any], path: Path) -> None:
    """Share of right results against their score; the larger the dot the more results."""
    rows = figures["both"]["calibration"]
    with rc_context(STYLE):
        figure = Figure(figsize=(4.5, 4), layout="constrained")
        axes = figure.subplots()
        axes.plot([0, 1], [0, 1], "--", color=INK, label="as promised")
        scores, right = [row["score"] for row in rows], [row["right"] for row in rows]
        sizes = [20 + 180 * row["share"] for row in rows]
        axes.plot(scores, right, "-", color=BLUE, alpha=0.5)
        axes.scatter(scores, right, sizes, color=BLUE, label="measured, by tenths", zorder=3)
        axes.set(xlabel="score", ylabel="share that is right", xlim=(-0.03, 1.03), ylim=(-0.03, 1.03))
        axes.grid()
        axes.legend(loc="upper left", fontsize=9)
        figure.savefig(path)


def draw_search_speed(figures: dict[str, Any], path: Path) -> None:
    """Time against size: the median as a line, up to the 95th percentile as a band."""
    sizes = sorted(figures.get("sizes", []), key=lambda one: one["chunks"])
    with rc_context(STYLE):
        figure = Figure(figsize=(8, 4), layout="constrained")
        axes = figure.subplots()
        for number, (key, label) in enumerate(SEARCHES.items()):
            points = [(one["chunks"], one[key]["p50"], one[key].get("p95")) for one in sizes if one.get(key)]
            if not points:
                continue
            chunks, p50, p95 = zip(*points, strict=True)
            axes.plot(chunks, p50, "o-", color=COLOURS[number], label=label)
            if None not in p95:
                axes.fill_between(chunks, p50, p95, color=COLOURS[number], alpha=0.2, linewidth=0)
        axes.set(xscale="log", yscale="log", xlabel="chunks in the index", ylabel="milliseconds, p50 to p95")
        _plain_numbers(axes, [one["chunks"] for one in sizes])
        axes.grid(which="both")
        axes.legend(fontsize=9)
        figure.savefig(path)


def draw_indexing(figures: dict[str, Any], path: Path) -> None:
    """Speed of reading and of embedding, each beside what no indexer can do without."""
    megabytes = figures["megabytes"]
    read = [("decoding JSON alone", megabytes, "orjson_seconds"), ("logs to index", megabytes, "reading_seconds")]
    chunks = figures.get("embedded", figures.get("chunks", 0))
    embed = [("the model alone", chunks, "model_alone_seconds"), ("chunks to vectors", chunks, "embedding_seconds")]
    with rc_context(STYLE):
        measured = [
            (unit, {name: amount / figures[key] for name, amount, key in work if figures.get(key)})
            for unit, work in (("MB/s", read), ("chunks/s", embed))
        ]
        panels = [(unit, speeds) for unit, speeds in measured if speeds]
        figure = Figure(figsize=(4.5 * len(panels), 1.9), layout="constrained")
        for axes, (unit, speeds) in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels, strict=True):
            colours = [BLUE if name.endswith(("index", "vectors")) else ORANGE for name in speeds]
            bars = axes.barh(list(speeds), list(speeds.values()), 0.7, color=colours)
            axes.bar_label(bars, fmt="{:,.0f}", padding=3, color=INK)
            axes.set_xlabel(unit)
            axes.margins(x=0.15)
            _rows_from_the_top(axes, len(speeds))
        figure.savefig(path)


def draw_peers(figures: dict[str, Any], path: Path) -> None:
    """Quality, time of an answer and time to index, a row a tool that ran."""
    peers = [peer for peer in figures["peers"] if not peer["status"]]
    everywhere = [peer["global"] for peer in peers]
    colours = [BLUE if peer["name"].startswith("smart-fork") else ORANGE for peer in peers]
    with rc_context(STYLE):
        figure = Figure(figsize=(10, 1.1 + 0.36 * len(peers)), layout="constrained")
        hits, answers, index = figure.subplots(1, 3)
        places = range(len(peers))
        five = hits.barh(places, [one["hit@5"] for one in everywhere], 0.7, color=colours, alpha=0.35)
        hits.barh(places, [one["hit@1"] for one in everywhere], 0.7, color=colours)
        labels = [f"{one['hit@1']:.2f} / {one['hit@5']:.2f}" for one in everywhere]
        hits.bar_label(five, labels, padding=3, color=INK, fontsize=9)
        hits.set(
            xlim=(0, 1.35),
            xticks=(0, 0.5, 1),
            xlabel="share of queries: right session\nfirst (solid), in the first five (pale)",
        )
        hits.set_yticks(places, [peer["name"] for peer in peers])
        _dots(answers, [one["answer_seconds"] for one in everywhere], colours)
        answers.set_xlabel("an answer, whole process: seconds")
        _dots(index, [peer["index_seconds"] for peer in peers], colours)
        index.set_xlabel("the first index: seconds")
        for axes in (hits, answers, index):
            _rows_from_the_top(axes, len(peers))
        figure.savefig(path)


def draw_soak(figures: dict[str, Any], path: Path) -> None:
    """Over time: how long what was written waited to be found, the service's memory, and its share of a core."""
    with rc_context(STYLE):
        figure = Figure(figsize=(8, 5), layout="constrained")
        waits, memory, processor = figure.subplots(3, 1, sharex=True)
        if figures["waits"]:
            written, seconds = zip(*figures["waits"], strict=True)
            waits.plot([at / 60 for at in written], seconds, ".", color=BLUE, markersize=2)
        if figures["samples"]:
            at, megabytes, cores = zip(*figures["samples"], strict=True)
            minutes = [moment / 60 for moment in at]
            memory.plot(minutes, megabytes, color=GREEN)
            processor.plot(minutes, cores, color=ORANGE, linewidth=0.8)
        waits.set_ylabel("until findable: s")
        memory.set_ylabel("memory: MB")
        processor.set(ylabel="cores", xlabel="minutes")
        for axes in (waits, memory, processor):
            axes.set_ylim(bottom=0)
            axes.grid()
        figure.savefig(path)


def _dots(axes: Axes, values: Sequence[float | None], colours: Sequence[str]) -> None:
    """A dot a row, since bars on a logarithmic axis would begin nowhere; `None` is something that does not apply."""
    axes.set(xscale="log", yticks=[])
    for place, (value, colour) in enumerate(zip(values, colours, strict=True)):
        if value is not None:
            axes.plot(value, place, "o", color=colour, markersize=8)
            offset = {"xytext": (8, 0), "textcoords": "offset points", "va": "center"}
            axes.annotate(f"{value:.2g}" if value < 10 else f"{value:,.0f}", (value, place), fontsize=9, **offset)
    axes.margins(x=0.25)
    axes.xaxis.set_major_formatter("{x:g}")
    axes.xaxis.set_minor_formatter("")


def _rows_from_the_top(axes: Axes, rows: int) -> None:
    axes.set_ylim(rows - 0.5, -0.5)
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="x")


def _plain_numbers(axes: Axes, ticks: Sequence[float]) -> None:
    axes.set_xticks(ticks, [f"{tick:,.0f}" for tick in ticks])
    axes.set_xticks([], minor=True)
    axes.yaxis.set_major_formatter("{x:g}")

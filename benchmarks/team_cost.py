"""What so many sessions take on the team's server: bytes, rows, indexes, questions a second. Computed, not measured.

    python benchmarks/team_cost.py [--json FILE]

The assumptions are printed first. Those of sizes come from real sessions and from one machine; change them for yours.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict, dataclass
from pathlib import Path

SESSIONS = (10_000, 100_000, 1_000_000, 10_000_000, 100_000_000)
GIB = 1 << 30


@dataclass(frozen=True)
class Assumed:
    """Of the average session, of PostgreSQL, and of people."""

    raw_bytes: int = 600_000
    compressed_to_one_in: float = 5.7
    segment_bytes: int = 256 << 10
    chunks: int = 27
    chunk_text_bytes: int = 900
    chunk_words_bytes: int = 700
    vector_bytes: int = 384 * 2 + 8
    row_overhead_bytes: int = 60
    index_bytes_a_row: int = 70
    hnsw_bytes_a_vector: int = 1_100
    vectors_compared_exactly: int = 50_000
    exact_ms_for_100_000: float = 56.0
    hnsw_ms: float = 3.0
    words_ms_for_40_000: float = 112.0
    sessions_a_project: int = 2_000
    cores: int = 8
    sessions_a_person_a_day: float = 5.0
    questions_a_session: float = 2.0
    days_kept: int = 365


def cost(sessions: int, of: Assumed) -> dict[str, float]:
    """The figures for so many sessions."""
    segments = sessions * max(1.0, of.raw_bytes / of.segment_bytes)
    chunks = sessions * of.chunks
    rows = sessions * 2 + segments * 2 + chunks * 3
    in_project = min(sessions, of.sessions_a_project) * of.chunks
    exact = in_project <= of.vectors_compared_exactly
    meaning = of.exact_ms_for_100_000 * in_project / 100_000 if exact else of.hnsw_ms
    search = meaning + of.words_ms_for_40_000 * min(1.0, in_project / 40_000)
    people = sessions / (of.sessions_a_person_a_day * of.days_kept)
    asked = people * of.sessions_a_person_a_day * of.questions_a_session / (8 * 3600)
    stored = sessions * of.raw_bytes / of.compressed_to_one_in
    texts = chunks * (of.chunk_text_bytes + of.chunk_words_bytes + of.vector_bytes + 3 * of.row_overhead_bytes)
    indexes = rows * of.index_bytes_a_row + chunks * of.chunk_words_bytes * 0.4
    indexes += 0 if exact else chunks * of.hnsw_bytes_a_vector
    return {
        "sessions": sessions,
        "people": round(people),
        "pushed_gib": round(sessions * of.raw_bytes / GIB, 1),
        "segments_gib": round(stored / GIB, 1),
        "search_gib": round(texts / GIB, 1),
        "indexes_gib": round(indexes / GIB, 1),
        "rows_millions": round(rows / 1e6, 1),
        "search_ms": round(search, 1),
        "searches_a_second": round(of.cores * 1000 / search),
        "asked_a_second": round(asked, 2),
    }


def main() -> None:
    """Print the assumptions and a line for each number of sessions."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path)
    said = parser.parse_args()
    of = Assumed()
    print("Assumed:")
    for name, value in asdict(of).items():
        print(f"  {name.replace('_', ' '):<28} {value:>12,}")
    lines = [cost(sessions, of) for sessions in SESSIONS]
    print("\n" + "  ".join(f"{name:>17}" for name in lines[0]))
    for line in lines:
        print("  ".join(f"{value:>17,}" for value in line.values()))
    if said.json:
        said.json.write_text(json.dumps({"assumed": asdict(of), "lines": lines}), encoding="utf-8")


if __name__ == "__main__":
    main()

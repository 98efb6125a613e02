"""How well secrets are masked: how many of what people paste, how much that is none, how fast.

    python benchmarks/masking.py [CORPUS] [--seed N] [--lines N] [--show] [--json FILE]

80 shapes in five surroundings with values that are made up; lines of the sessions of CORPUS, an unpacked corpus,
drawn by chance, in which anything that is masked is shown with --show, to be looked at; how much longer twice as much
takes, on texts that are made to be slow; and MB/s on the texts of CORPUS.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from _pasted import SHAPES, samples, shows

from indexer.masking import mask

#: Pieces of which texts are made that a pattern may read again and again.
SLOW = (
    "password=", "pass: ", "token: a = ", "api_key='", '"auth": "', "://a:", "eyJ", "sk-", "ghp_", "dp.st.", "a.", "1/",
    "mysql -u a -", "curl -u a", "machine a login b ", "authorization: ",
    "cookie: a=", '\\\\"', "\\u200b", "&quot;", "%3D",
    "\u200b", "a\u200b", "\x1b[", "\u00a0", "-----BEGIN PRIVATE" + " KEY-----", "<password>", "identified by ", "key",
)  # fmt: skip
SIZE = 250_000


def found(seed: int) -> dict[str, Any]:
    """How many samples are masked, and which are not."""
    shown = [sample for sample in samples(seed) if shows(sample.secret, mask(sample.text))]
    total = len(list(samples(seed)))
    return {"samples": total, "masked": total - len(shown), "missed": [[one.shape, one.text] for one in shown]}


def texts(corpus: Path) -> Iterator[str]:
    """All texts in the records of the sessions of a corpus."""
    for path in sorted(corpus.rglob("*.jsonl")):
        with path.open(encoding="utf-8", errors="replace") as file:
            for line in file:
                try:
                    waiting = [json.loads(line)]
                except ValueError:
                    continue
                while waiting:
                    value = waiting.pop()
                    if isinstance(value, str):
                        yield value
                    elif isinstance(value, (dict, list)):
                        waiting += value.values() if isinstance(value, dict) else value


def false_masks(corpus: Path, number: int, seed: int) -> tuple[int, list[tuple[str, str]]]:
    """Different lines drawn by chance, and those that are changed."""
    lines = sorted({line for text in texts(corpus) for line in text.splitlines() if 20 <= len(line) <= 2000})
    drawn = random.Random(seed).sample(lines, min(number, len(lines)))
    return len(drawn), [(line, masked) for line in drawn if (masked := mask(line)) != line]


def seconds(text: str) -> float:
    """The least of three."""
    times = []
    for _ in range(3):
        began = time.process_time()
        mask(text)
        times.append(time.process_time() - began)
    return min(times)


def growth() -> dict[str, float]:
    """How much longer twice as much takes: 2 is linear."""
    return {
        piece: round(seconds(piece * (2 * SIZE // len(piece))) / max(1e-6, seconds(piece * (SIZE // len(piece)))), 2)
        for piece in SLOW
    }


def speed(corpus: Path, most: int = 30_000_000) -> float:
    """MB/s on texts of more than a few words."""
    chosen, size = [], 0
    for text in texts(corpus):
        if len(text) > 40:
            chosen.append(text)
            size += len(text)
        if size > most:
            break
    mask("warm sk-" + "x" * 30)
    began = time.process_time()
    for text in chosen:
        mask(text)
    return size / 1e6 / (time.process_time() - began)


def main() -> None:
    """Measure, and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus", type=Path, nargs="?")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--lines", type=int, default=2000)
    parser.add_argument("--show", action="store_true")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    figures: dict[str, Any] = {"shapes": len(SHAPES), **found(args.seed)}
    print(f"{figures['masked']} of {figures['samples']} samples in {figures['shapes']} shapes are masked")
    for shape, text in figures["missed"] if args.show else ():
        print(f"  {shape}: {text!r}")
    slow = figures["growth"] = growth()
    worst = max(slow, key=lambda piece: slow[piece])
    middle = sorted(slow.values())[len(slow) // 2]
    print(f"twice as much takes {slow[worst]} times as long at most ({worst!r}), {middle} times in the middle")
    if args.corpus:
        lines, changed = false_masks(args.corpus, args.lines, args.seed)
        kinds = Counter(masked[masked.index("[REDACTED:") :].split("]")[0][10:] for _, masked in changed)
        figures |= {
            "lines": lines,
            "changed": len(changed),
            "kinds": kinds,
            "mb_per_second": round(speed(args.corpus), 1),
        }
        print(f"{len(changed)} of {lines} lines of the corpus are changed: {dict(kinds)}")
        for line, masked in changed if args.show else ():
            print(f"  {line[:300]!r}\n    {masked[:300]!r}")
        print(f"{figures['mb_per_second']} MB/s")
    if args.json:
        args.json.write_text(json.dumps(figures, indent=1))
    sys.exit(figures["masked"] < 0.98 * figures["samples"])


if __name__ == "__main__":
    main()

"""Record docs/images/*.svg: real commands on the demo's sessions, as animated pictures for light and dark screens.

``make recording`` runs it. It needs Claude Code on PATH. A fork is started and ended immediately: it has no login.
"""

from __future__ import annotations

import os
import pty
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from html import escape
from pathlib import Path

from rich.text import Text

from smart_fork.cli.demo import DemoHome, write_demo_home

IMAGES = Path(__file__).resolve().parent.parent / "docs/images"
COLUMNS, CHARACTER, LINE, MARGIN = 108, 7.25, 17, 14
TASK = "let the downloader retry with backoff"
FIND = ["find", TASK, "-n", "2"]
#: The commands of each picture. SESSION is the one that answers.
PICTURES = {
    "run": [FIND, ["fork", "SESSION", TASK, "--in", "process", "--no-brief"]],
    "first-fork": [
        FIND,
        ["show", "SESSION", "--at", "20", "--context", "0"],
        ["fork", "SESSION", TASK, "--no-brief", "--dry-run"],
    ],
}
#: A line of a progress bar, which a terminal erases.
_PROGRESS = "━"
#: Seconds from one command to the next, and per typed character.
PAUSE, TYPING = 2.5, 0.03
STYLE = """
svg { background: #fff; border-radius: 8px }
text { font: 12px ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; white-space: pre; fill: #1f2328 }
.bold { font-weight: 700 } .dim { fill: #6e7781 } .prompt { fill: #0969da } .shown { animation: show both }
@keyframes show { from { visibility: hidden } to { visibility: visible } }
@media (prefers-color-scheme: dark) {
  svg { background: #0d1117 } text { fill: #e6edf3 } .dim { fill: #8b949e } .prompt { fill: #58a6ff }
}
"""


def main() -> None:
    """Run the commands in a temporary demo home, and write the pictures."""
    with tempfile.TemporaryDirectory(prefix="demo-") as folder:
        demo = write_demo_home(Path(folder))
        programs = demo.home / ".local/bin"  # where nothing tells whose machine it is
        programs.mkdir(parents=True)
        (programs / "claude").symlink_to(shutil.which("claude") or sys.exit("Claude Code is not on PATH"))
        _ran(demo, ["index", "run"])
        for name, commands in PICTURES.items():
            asked = [[demo.expected_session_id[:8] if one == "SESSION" else one for one in words] for words in commands]
            steps = [(_typed(words), [_plain(line, folder) for line in _ran(demo, words)]) for words in asked]
            (IMAGES / f"{name}.svg").write_text(picture(steps), "utf-8")
        _ran(demo, ["stop", "--all"])


def _argv(words: list[str]) -> list[str]:
    return [sys.executable, "-m", "smart_fork", *words]


def _around(demo: DemoHome) -> dict[str, object]:
    kept = {"LANG": "C.UTF-8", "PATH": f"{demo.home}/.local/bin:{os.environ['PATH']}"}
    screen = {"COLUMNS": str(COLUMNS), "LINES": "50", "TERM": "xterm-256color"}
    return {"cwd": demo.project, "env": {**kept, **screen, "HOME": str(demo.home), "ANTHROPIC_API_KEY": "none"}}


def _typed(words: list[str]) -> str:
    return " ".join(["smart-fork", *(f'"{word}"' if " " in word else word for word in words)])


def _ran(demo: DemoHome, words: list[str]) -> list[Text]:
    """What a command prints at a terminal."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(_argv(words), **_around(demo), stdin=theirs, stdout=theirs, stderr=theirs)  # type: ignore[call-overload]
    os.close(theirs)
    said = b""
    while chunk := _read(ours):
        said += chunk
    if process.wait():
        sys.exit(f"{_typed(words)} failed:\n{said.decode()}")
    lines = [line.rsplit("\r", 1)[-1] for line in said.decode().replace("\r\n", "\n").splitlines()]
    return [Text.from_ansi(line) for line in lines if _PROGRESS not in line and line.strip("\x1b[0123456789;?AKhlm")]


def _read(descriptor: int) -> bytes:
    try:
        return os.read(descriptor, 1 << 16)
    except OSError:  # the other end was closed
        return b""


def _plain(line: Text, folder: str) -> Text:
    """The line without the name of the temporary folder."""
    at = line.plain.find(folder)
    return line if at < 0 else Text.assemble(line[:at], "~", _plain(line[at + len(folder) :], folder))


def picture(steps: list[tuple[str, list[Text]]]) -> str:
    """Return the SVG: every step is shown when its command has been typed."""
    parts: list[str] = []
    rows, seconds = 0, 0.0
    for typed, lines in steps:
        seconds += PAUSE
        parts += _typing(typed, rows, seconds)
        seconds += TYPING * len(typed) + 0.4
        rows += 1
        shown = "".join(_line(line, rows + number) for number, line in enumerate(lines))
        parts.append(f'<g class="shown" style="animation-delay:{seconds:.2f}s">{shown}</g>')
        rows += len(lines) + 1
    label = escape("A terminal: " + ", then ".join(typed for typed, _ in steps))
    width, height = COLUMNS * CHARACTER + 2 * MARGIN, rows * LINE + 2 * MARGIN
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height}" width="{width:.0f}" '
        f'role="img" aria-label="{label}"><style>{STYLE}</style>{"".join(parts)}</svg>\n'
    )


def _typing(typed: str, row: int, seconds: float) -> Iterator[str]:
    y = MARGIN + (row + 1) * LINE
    yield f'<text x="{MARGIN}" y="{y}" class="prompt">$</text>'
    for number, letter in enumerate(typed):
        at = MARGIN + (number + 2) * CHARACTER
        delay = seconds + TYPING * number
        yield f'<text x="{at:.2f}" y="{y}" class="shown" style="animation-delay:{delay:.2f}s">{escape(letter)}</text>'


def _line(line: Text, row: int) -> str:
    """A line of a terminal, each run of one style at its column."""
    spans, at = "", 0
    for run in line.divide(sorted({edge for span in line.spans for edge in (span.start, span.end)})):
        styles = " ".join(str(span.style) for span in run.spans)
        kind = " ".join(name for name in ("bold", "dim") if name in styles)
        spans += (
            f'<tspan x="{MARGIN + at * CHARACTER:.2f}" class="{kind}">{escape(run.plain)}</tspan>' if run.plain else ""
        )
        at += len(run.plain)
    return f'<text y="{MARGIN + (row + 1) * LINE}">{spans}</text>'


if __name__ == "__main__":
    main()

"""A comparison as one page for a browser. All its text is from elsewhere: escaped, and nothing is loaded or run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path

from indexer.files import replace_file
from smart_fork.errors import SmartForkError
from smart_fork.snippets import printable
from smart_fork.workers.compared import Compared
from smart_fork.workers.comparison import counted, facts

_STYLE = """
:root { color-scheme: light dark; --back: #fff; --text: #1f2328; --faint: #59636e; --line: #d1d9e0; --soft: #f6f8fa;
  --added: #dafbe1; --removed: #ffebe9; --at: #ddf4ff; }
@media (prefers-color-scheme: dark) { :root { --back: #0d1117; --text: #f0f6fc; --faint: #9198a1; --line: #3d444d;
  --soft: #151b23; --added: #12261e; --removed: #25171c; --at: #121d2f; } }
* { box-sizing: border-box; }
body { margin: 0; padding: 1.5rem; background: var(--back); color: var(--text); font: 1rem/1.5 system-ui, sans-serif; }
h1 { font-size: 1.3rem; margin: 0 0 .5rem; } h2 { font-size: 1.1rem; margin: 0; } h3 { font-size: 1rem; }
.prompt { color: var(--faint); white-space: pre-wrap; max-width: 60rem; overflow-wrap: anywhere; }
main { display: flex; gap: 1rem; align-items: flex-start; overflow-x: auto; padding: 4px; }
article { flex: 1 0 22rem; min-width: 0; max-width: 60rem; border: 1px solid var(--line); border-radius: 8px;
  padding: 1rem; }
dl { display: grid; grid-template-columns: auto 1fr; gap: .1rem 1rem; margin: .5rem 0; }
dt { color: var(--faint); } dd { margin: 0; overflow-wrap: anywhere; }
.answer { white-space: pre-wrap; overflow-wrap: anywhere; background: var(--soft); padding: .75rem; border-radius: 6px;
  max-height: 30rem; overflow-y: auto; }
ul { padding-left: 1.2rem; overflow-wrap: anywhere; }
summary { cursor: pointer; font-weight: 600; }
pre { overflow: auto; max-height: 40rem; margin: .5rem 0 0; font: .85rem/1.4 ui-monospace, monospace; }
pre span { display: block; min-width: max-content; }
.added { background: var(--added); } .removed { background: var(--removed); } .at { background: var(--at); }
.faint { color: var(--faint); }
:focus-visible { outline: 2px solid #0969da; outline-offset: 2px; }
@media (max-width: 45rem) { main { flex-direction: column; align-items: stretch; } article { flex: none; } }
"""


def page(workers: Sequence[Compared]) -> str:
    """The page: a column for each worker."""
    prompts = list(dict.fromkeys(one.prompt for one in workers if one.prompt))
    title = f"{len(workers)} workers compared"
    asked = f'<p class="prompt">{_text(prompts[0])}</p>' if len(prompts) == 1 else ""
    columns = "\n".join(_column(one, number, shown=len(prompts) > 1) for number, one in enumerate(workers, 1))
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n"
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="referrer" content="no-referrer">\n'
        f"<title>{title}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n"
        f"<header><h1>{title}</h1>{asked}</header>\n<main>\n{columns}\n</main>\n</body>\n</html>\n"
    )


def write_page(workers: Sequence[Compared], path: Path) -> None:
    """Write the page to a private file; what is there is replaced, and a symbolic link is not followed.

    Raises:
        SmartForkError: it cannot be written.
    """
    if path.is_dir():
        raise SmartForkError(f"{path} is a directory", "Name a file: --html compare.html")
    try:
        replace_file(path, [page(workers).encode("utf-8", "replace")])
    except (OSError, ValueError) as error:
        raise SmartForkError(f"{path} cannot be written: {error}", "Name another file.") from error


def _column(one: Compared, number: int, *, shown: bool) -> str:
    ids = [("worker", one.worker_id), ("agent", one.agent_type), ("session", one.session_id or "unknown")]
    rows = "".join(f"<dt>{_text(key)}</dt><dd>{_text(value)}</dd>" for key, value in [*ids, *facts(one)])
    parts = [f'<article aria-labelledby="w{number}">\n<h2 id="w{number}">{_text(one.name)}</h2>\n<dl>{rows}</dl>']
    if shown and one.prompt:
        parts.append(f'<p class="prompt">{_text(one.prompt)}</p>')
    parts += [f'<p class="faint">{_text(note)}.</p>' for note in one.notes]
    if one.answer:
        label = f'tabindex="0" role="region" aria-label="Last answer of {_text(one.name)}"'
        parts.append(f'<h3>Last answer</h3>\n<div class="answer" {label}>{_text(one.answer)}</div>')
    if one.files:
        items = "".join(f"<li>{_text(file.path)} <span class=faint>{counted(file)}</span></li>" for file in one.files)
        parts.append(f"<h3>Files</h3>\n<ul>{items}</ul>")
    if one.diff:
        label = f'tabindex="0" role="region" aria-label="Diff of {_text(one.name)}"'
        lines = "".join(_diff_lines(one.diff))
        parts.append(f"<details open>\n<summary>Diff</summary>\n<pre {label}>{lines}</pre>\n</details>")
    return "\n".join(parts) + "\n</article>"


def _diff_lines(diff: str) -> Iterator[str]:
    kinds = {"+": "added", "-": "removed", "@": "at"}
    for line in diff.split("\n"):
        heading = line.startswith(("+++ ", "--- "))
        kind = "" if heading else kinds.get(line[:1], "")
        yield f'<span class="{kind}">{_text(line) or " "}</span>' if kind else f"<span>{_text(line) or ' '}</span>"


def _text(text: str) -> str:
    return escape(printable(text), quote=True)

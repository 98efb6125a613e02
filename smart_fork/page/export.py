"""Files of a session or of compared workers, to read or send without the service. They load and run nothing.

An HTML file uses the page's templates and is masked like the page. A session can also be written as Markdown.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Literal

from markdown_it import MarkdownIt

from indexer.json_values import Value, rare, record
from indexer.masking import NOTHING
from indexer.safe_files import replace_file, write_new
from indexer.transcripts.lines import bounded
from indexer.transcripts.model import AgentName, Session
from smart_fork.agents import AGENTS
from smart_fork.errors import SmartForkError, Usage
from smart_fork.finding import session_lookup
from smart_fork.finding.results import title
from smart_fork.page.agent_steps import FileDiff, PageStep
from smart_fork.page.conversation_page import ConversationPage, ShownMessage, reading
from smart_fork.page.renderer import Shown, own_style, written
from smart_fork.workers.results import Compared

# Nothing that was said passes for a heading, a step or a message of a Markdown file of ours: every line is quoted,
# so that no block of it reaches beyond its own message; and what would be HTML is text.

#: The start of HTML with the backslashes before it. An odd number of backslashes makes it text already.
_TAG = re.compile(r"(\\*)<(?=[A-Za-z/!?])")
_CODE = ("fence", "code_block")
#: The longest text in which code blocks are searched. The search takes quadratic time for some texts.
_MAX_CHARACTERS = 40_000


def quoted_lines(text: str) -> Iterator[str]:
    """Yield `text` as lines of a Markdown quotation. HTML outside code blocks is escaped."""
    lines = [f"> {line}".rstrip() for line in text.splitlines()]
    in_code = _code_lines(lines)
    yield from (
        lines
        if in_code is None
        else (line if number in in_code else _as_text(line) for number, line in enumerate(lines))
    )


def in_line(text: str) -> str:
    """Return `text` as part of a Markdown line, with HTML escaped."""
    return _as_text(" ".join(text.split()))


def code(text: str) -> str:
    """Return `text` as inline Markdown code, whatever backticks it contains."""
    longest = max(map(len, re.findall("`+", text)), default=0)
    marks, room = "`" * (longest + 1), " " if longest else ""
    return f"{marks}{room}{text}{room}{marks}" if text else ""


def _as_text(line: str) -> str:
    return _TAG.sub(lambda found: found[0] if len(found[1]) % 2 else f"{found[1]}\\<", line)


def _code_lines(lines: Sequence[str]) -> frozenset[int] | None:
    """Return the indices of lines in code blocks, where HTML must not be escaped; `None` if no line needs escaping."""
    if not any(_TAG.search(line) for line in lines):
        return None
    if sum(map(len, lines)) > _MAX_CHARACTERS:
        return frozenset()
    blocks = _reader().parse("\n".join(lines))
    tokens = (token for block in blocks for token in (block, *(block.children or ())))
    if not any(token.type.startswith("html") for token in tokens):
        return None
    return frozenset(n for block in blocks if block.type in _CODE and block.map for n in range(*block.map))


@cache
def _reader() -> MarkdownIt:
    return MarkdownIt("commonmark", {"html": True})


FileFormat = Literal["html", "markdown"]
_SIGNS = {"added": "+", "removed": "-", "same": " ", "gap": "@"}


@record
class SessionFile(Value):
    """The answer of ``smart-fork export``: facts about the export, and its `file`, or its `text` without a file."""

    session_id: str
    agent_type: AgentName
    title: str
    format: str
    file: str | None
    characters: int
    left_out: str = rare("")
    text: str = rare("")


@bounded(0.4)  # it is read for less time than it is written
def exported(reference: str, form: FileFormat, file: Path | None = None, *, force: bool = False) -> SessionFile:
    """Export a session: write it to `file`, or return its text if no file is given.

    With `force`, an existing file is replaced.

    Raises:
        Usage: the reference is ambiguous or invalid, or the file exists already.
        SmartForkError: the file cannot be written.
    """
    located = session_lookup.locate(reference)
    if not located.readable:
        session, name, markdown = None, located.session_id, session_lookup.exported(located)
    else:
        session = session_lookup.look_into(located, keep_raw=True)
        name, markdown = title(session.title) or located.session_id, NOTHING
    codec = AGENTS[located.agent].codec
    read = reading(session, codec=codec, whole=True) if session else None
    if form == "html":
        shown = {"title": name, "agent_type": located.agent, "session_id": located.session_id, "session": session}
        text = written("export.html", shown, {"reading": read, "export": markdown, "style": own_style()})
    else:
        text = "\n".join(_markdown(name, session, read)) + "\n" if session and read else markdown
    if file is not None:
        write_private(file, text, force=force)
    return SessionFile(
        session_id=located.session_id, agent_type=located.agent, title=name, format=form,
        file=None if file is None else str(file), characters=len(text),
        left_out=session_lookup.left_out(session) if session else "", text=text if file is None else "",
    )  # fmt: skip


def side_by_side(workers: Sequence[Compared]) -> Shown:
    """Return the values of the template that compares workers: the workers, and their different prompts."""
    return {"compared": workers, "prompts": list(dict.fromkeys(one.prompt for one in workers if one.prompt))}


def comparison(workers: Sequence[Compared]) -> str:
    """Render compared workers (agents that smart-fork started) as one HTML file, with a column for each."""
    return written("comparison.html", side_by_side(workers), {"style": own_style()})


def write_comparison(workers: Sequence[Compared], path: Path) -> None:
    """Write a comparison of workers to an HTML file that only its owner can read, also over an existing one."""
    write_private(path, comparison(workers), force=True)


def write_private(file: Path, text: str, *, force: bool) -> None:
    """Write `text` to a file that only its owner can read. With `force`, replace an existing file.

    Raises:
        Usage: `file` is a directory, or exists already.
        SmartForkError: the file cannot be written.
    """
    write = replace_file if force else write_new
    try:
        write(file.absolute(), [text.encode("utf-8", "replace")])
    except (OSError, ValueError) as error:
        if file.is_dir():
            raise Usage(f"{file} is a directory", "Name a file in it.") from error
        if isinstance(error, FileExistsError):
            raise Usage(f"The file exists: {file}", "Name another one, or replace it: --force.") from error
        why = getattr(error, "strerror", None) or error
        raise SmartForkError(f"{file} cannot be written: {why}", "Name another file.") from error


def _markdown(name: str, session: Session, read: ConversationPage) -> Iterator[str]:
    about = (AGENTS.title_of(session.agent), session.session_id, session.last_activity)
    yield from (f"# {in_line(name)}", "", " · ".join(map(str, about)))
    for exchange in read.exchanges:
        entry = exchange.entry
        yield from ("", f"## {entry.place}. {in_line(entry.question) or 'Before the first question'}")
        for message in exchange.messages:
            yield from _message(message, "You" if message.role == "user" else AGENTS.title_of(session.agent))


def _message(message: ShownMessage, who: str) -> Iterator[str]:
    yield from ("", f"**{who}** (message {message.number})")
    if message.text:
        yield from ("", *quoted_lines(message.text))
    if message.steps:
        yield ""
    for step in message.steps:
        yield from _step(step)


def _step(step: PageStep) -> Iterator[str]:
    how = (
        f", failed: {in_line(step.note)}" if step.failed else f", exit {step.status}" if step.status is not None else ""
    )
    yield f"- {step.kind} {code(' '.join(step.line.split()))}{how}"
    for part in step.parts:
        yield f"  - {in_line(part.text)}{f' ({in_line(part.state)})' if part.state else ''}"
    if step.last:
        yield from _fenced("", step.last)
    for diff in step.diffs:
        yield from _diff(diff)


def _diff(diff: FileDiff) -> Iterator[str]:
    lines = [f"{_SIGNS[line.kind]}{line.text}" for line in diff.lines]
    more = [diff.note] if diff.note else [f"and {diff.hidden} more lines"] if diff.hidden else []
    yield f"  {code(' '.join(diff.path.split()))}: {diff.how}, {diff.added} added, {diff.removed} removed" + "".join(
        f", {one}" for one in more
    )
    if lines:
        yield from _fenced("diff", lines)


def _fenced(language: str, lines: Sequence[str]) -> Iterator[str]:
    """Yield `lines` as a Markdown code block, with a fence longer than any run of backticks in them."""
    longest = max((len(run) for line in lines for run in line.split() if set(run) == {"`"}), default=0)
    fence = "`" * max(3, longest + 1)
    yield f"  {fence}{language}"
    yield from (f"  {line}" for text in lines for line in text.splitlines() or [""])
    yield f"  {fence}"

"""Secrets are masked before a text is cut: no output shows a piece of a secret, wherever the cut is."""

from __future__ import annotations

import ast
import logging
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from indexer.masking import beginning, ending, mask, mask_cut, mask_screen, shorten
from indexer.transcripts.actions import describe, describe_raw, error_note
from indexer.transcripts.model import Session, Turn
from indexer.transcripts.texts import title_of
from smart_fork.agents.codex.codec import failure_of
from smart_fork.agents.excision.cutter import preview
from smart_fork.agents.screen import Screen
from smart_fork.cli.service.json_log import JsonLines
from smart_fork.display_text import plain_name, quoted
from smart_fork.errors import Usage
from smart_fork.finding.conversation import Message
from smart_fork.finding.result_snippets import snippet
from smart_fork.forking.worker_spec import name_of
from smart_fork.page.conversation_page import QUESTION_CHARACTERS, reading
from smart_fork.system.processes import Completed, Machine
from smart_fork.workers.observation import Observation, WorkerReader
from smart_fork.workers.registry import Registry
from smart_fork.workers.worker_place import ProcessPlace, WorkerLocation
from tests.indexer.masking.invented_secrets import BASE64_LINES, KEY_BEGIN, made_up
from tests.support.cases import thorough_except_first
from tests.support.exhaustive import full_or_sample

SECRETS = {
    "a long token": ("", "sk-" + "ant-api03-" + made_up(95)),
    "a token": ("", "ghp" + "_" + made_up(36)),
    "a password in an address": ("https://anna:", made_up(24) + "@host"),
    "a password with a name": ("PASSWORD=", made_up(24)),
    "a JWT": ("Bearer ", f"eyJ{made_up(30)}.eyJ{made_up(60)}.{made_up(43)}"),
    "a key": ("", f"{KEY_BEGIN.format('')}\n{BASE64_LINES}"),
}
every_secret = pytest.mark.parametrize(("before", "secret"), thorough_except_first(SECRETS.values(), 4), ids=SECRETS)
#: So much of a token says what it is, not what is in it.
PREFIX = 12
#: Every offset is tried with some of the limits; `SMART_FORK_DRILLS=all` tries it with each.
EACH = full_or_sample(1, 7)


def shown_in(secret: str, text: str) -> list[str]:
    """Return the pieces of a secret with six characters that a text contains, except for the beginning of its kind."""
    body = secret.rpartition("-----")[2].replace("\n", " ")[PREFIX:]
    return [body[i : i + 6] for i in range(len(body) - 5) if body[i : i + 6] in text.replace("\n", " ")]


def texts(before: str, secret: str, limit: int) -> Iterator[str]:
    """Yield texts with a secret at or near the cut at `limit`: one seventh of all offsets, which depends on the limit."""
    words = "fix the retry of the uploader that gave up on us again " * (limit // 50 + 2)
    first = max(0, limit - len(before) - min(len(secret), 250) - 6)
    for start in range(first + limit % EACH, limit + 6, EACH):
        filler = words[:start]
        yield f"{filler[:-1]} {before}{secret} and so on, said at some length to be longer than that {words}"


def message_of(text: str) -> str:
    return Message.of(0, Turn("a", None, "user", "", text=text), 300).text


def place_of(text: str) -> str:
    turns = (Turn("a", None, "user", "", text=text, prompt=True), Turn("b", "a", "assistant", "", text="done"))
    return reading(Session("claude", "s", Path("s.jsonl"), turns)).outline[0].question


def logged(text: str) -> str:
    record = logging.makeLogRecord({"msg": text, "name": "smart_fork", "levelname": "INFO", "said": text})
    return JsonLines().format(record)


def refused(text: str) -> str:
    return str(Usage(f"no such session: {quoted(text)}", text))


WAYS_OUT: dict[str, tuple[int, Callable[[str], str]]] = {
    "title": (100, title_of),
    "title made of a prompt": (100, lambda text: title_of("", [text])),
    "action": (240, lambda text: describe("Bash", {"command": text})),
    "action of one text": (240, lambda text: describe_raw("exec", text)),
    "note": (200, error_note),
    "note with a status": (200, lambda text: failure_of(f"Exit code: 1\nWall time: 1 s\nOutput:\n{text}")),
    "excise list": (120, preview),
    "excise list of a result": (120, lambda text: preview("", ["Bash"], [text])),
    "snippet": (240, lambda text: snippet(mask(text), ["uploader"], 240)),
    "show": (300, message_of),
    "place on the page": (QUESTION_CHARACTERS, place_of),
    "error": (80, refused),
    "log line": (4000, logged),
    "name": (200, plain_name),
    "name of a fan-out": (27, name_of),
    "program's complaint": (500, lambda text: Completed((), 1, b"", text.encode()).complaint),
    "first characters": (90, lambda text: beginning(mask(text), 90)),
    "last characters": (90, lambda text: ending(mask(text), 90)),
    "question": (2000, lambda text: Screen().question(mask_screen(f"{text}\n❯ 1. Yes\n  2. No\n\nEsc to cancel")).text),
}


@pytest.mark.parametrize(("before", "secret"), thorough_except_first(SECRETS.values()), ids=SECRETS)
@pytest.mark.parametrize(("limit", "shown"), WAYS_OUT.values(), ids=WAYS_OUT.keys())
def test_no_cut_shows_a_piece_of_a_secret(limit, shown, before, secret):
    found = {piece for text in texts(before, secret, limit) for piece in shown_in(secret, shown(text))}
    assert set() == found


@every_secret
def test_a_workers_prompt_is_masked_before_it_is_shortened(home, before, secret):
    with Registry() as registry:
        for text in list(texts(before, secret, 200))[:: 9 // EACH]:
            worker = registry.add("claude", source_session_id="s", place="tmux", cwd=home, prompt=text, name=text)
            told = WorkerReader.described(worker, Observation("running", "working", ""))
            assert [] == shown_in(secret, told.prompt + told.name)


@every_secret
def test_a_token_that_was_cut_before_we_saw_it_is_masked(before, secret):
    for length in range(PREFIX + 6, len(secret)):
        for dots in ("", "…", "...")[length % EACH :: EACH]:
            assert [] == shown_in(secret, mask_cut(f"fix it with {before}{secret[:length]}{dots}"))


@every_secret
def test_a_token_in_the_title_that_an_agent_has_cut_is_masked(before, secret):
    for length in range(PREFIX + 6, len(secret), EACH):
        assert [] == shown_in(secret, title_of(f"{before}{secret[:length]}…"))


@pytest.mark.parametrize("name", thorough_except_first(["a long token", "a token", "a JWT", "a password with a name"]))
def test_a_token_that_a_screen_wraps_or_cuts_is_masked(name):
    before, secret = SECRETS[name]
    for width in range(50, 120, EACH):
        command = f"run {before}{secret}"
        lines = [command[start : start + width] for start in range(0, len(command), width)]
        wrapped = "\n".join(f"│ {line:{width}} │" for line in [*lines, "Proceed?"])
        assert [] == shown_in(secret, mask_screen(wrapped))
        assert ("Proceed?" in mask_screen(wrapped)) or len(lines[-1]) >= 40
        assert [] == shown_in(secret, mask_screen(f"│ {command[:width]}… │\n│ Proceed? │"))


def test_the_end_of_a_token_that_a_long_log_begins_with_is_not_shown(home):
    log = home / "worker.log"
    secret = "ghp" + "_" + made_up(36)
    place = ProcessPlace()
    for cut in range(1, 40):
        log.write_text(f"{secret} and {'words ' * 20_000}"[: 64_000 + cut])
        assert [] == shown_in(secret, place.ended(WorkerLocation(pid=1, log=log), Machine(_Gone(), {})))
    log.write_text(f"{'words ' * 20_000}\nbad credentials {secret}"[-64_000:])
    assert place.ended(WorkerLocation(pid=1, log=log), Machine(_Gone(), {})).endswith(
        "bad credentials [REDACTED:github-token]"
    )


class _Gone:
    def environment(self, pid: int) -> None:
        return None


def test_a_mask_is_never_cut_in_two():
    text = mask(f"{'x ' * 20}{'ghp' + '_' + made_up(36)}{' y' * 20}")
    for limit in range(len(text)):
        for shown in (shorten(text, limit), beginning(text, limit), ending(text, limit)):
            assert shown.count("[RED") == shown.count("token]") == shown.count("REDACTED")


@pytest.mark.slow
def test_only_the_masking_functions_make_a_masked_text():
    """A masked text is only made by the masking functions, and by unpacking a stored text that was masked."""
    root = Path(__file__).parents[2]
    makers = {
        str(path.relative_to(root))
        for package in ("indexer", "smart_fork")
        for path in (root / package).rglob("*.py")
        if "Masked" in (source := path.read_text())
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Masked"
    }
    assert {
        "indexer/masking/__init__.py",
        "indexer/pipeline.py",  # as its reader masked it
        "indexer/transcripts/reader_state.py",
        "indexer/transcripts/texts.py",
        "smart_fork/finding/session_notes.py",  # as it was stored
        "smart_fork/finding/recent.py",
    } == makers

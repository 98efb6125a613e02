"""The help pages, as people read them: short sentences, and examples that can be typed."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from typing import Any

import pytest

from smart_fork.cli.command_table import COMMANDS
from smart_fork.cli.help_pages import EXAMPLES, dress
from smart_fork.cli.main import command_line
from tests.cases import each
from tests.smart_fork.commands import command_model, run  # noqa: F401 - fixtures

MOST_WORDS = 12
BANNED = ("whose", "whoever", "somebody", "nobody", "anew", "at once", "that of", "those of", "as far as", "told of")


def pages(group: Any, above: str = "") -> Iterator[tuple[str, Any]]:
    for name, command in group.commands.items():
        if not command.hidden:
            yield (path := f"{above}{name}"), command
            yield from pages(command, f"{path} ") if hasattr(command, "commands") else ()


ALL = command_line(*COMMANDS)
PAGES = dict(pages(ALL))


def said(command: Any) -> list[str]:
    """What a help page says in sentences, without its examples and lists of names."""
    texts = [(command.help or "").partition("\n\n")[0], *(getattr(one, "help", "") or "" for one in command.params)]
    return [re.sub(r": [a-z]+(, [\w -]+)+", "", text) for text in texts]


@each("page", PAGES)
def test_every_help_page_ends_with_two_examples(page):
    dress(PAGES[page], page)

    assert len(set(EXAMPLES[page])) == 2
    assert all(f"smart-fork {example}" in PAGES[page].epilog for example in EXAMPLES[page])


@each("example", sorted({example for pair in EXAMPLES.values() for example in pair}))
def test_the_examples_are_commands_that_are_understood(example):
    words = shlex.split(re.split(r" [<|]", example)[0])
    command: Any = ALL
    while words and words[0] in getattr(command, "commands", ()):
        command, words = command.commands[words[0]], words[1:]

    command.make_context("smart-fork", words)


@each("page", PAGES)
def test_no_sentence_of_a_help_page_is_long(page):
    sentences = [one for text in said(PAGES[page]) for one in re.split(r"[.!?:] ", text)]

    assert [] == [one for one in sentences if len(one.split()) > MOST_WORDS]


@each("page", PAGES)
def test_a_help_page_speaks_plainly(page):
    words = " ".join(said(PAGES[page])).lower()

    assert [] == [one for one in BANNED if re.search(rf"\b{one}\b", words)]


@pytest.mark.parametrize("page", ["find", "excise cut", "team user token revoke"])
def test_help_prints_the_page_of_a_command(run, page):  # noqa: F811
    assert run("help", *page.split()).out == run(*page.split(), "--help").out
    assert f"smart-fork {page}" in run("help", *page.split()).out


@pytest.mark.parametrize("words", [["nonsense"], ["excise", "nonsense"]])
def test_help_of_what_is_no_command_is_a_wrong_use(run, words):  # noqa: F811
    done = run("help", *words)

    assert (done.code, "nonsense" in done.err) == (2, True)

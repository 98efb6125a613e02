"""The help pages: short sentences, and examples that people can type."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from typing import Any

import pytest

from smart_fork.cli.command import add_examples, examples
from smart_fork.cli.command_table import COMMANDS
from smart_fork.cli.main import command_line
from tests.smart_fork.commands import command_model, run  # noqa: F401 - fixtures
from tests.support.cases import parametrize_subtests

MOST_WORDS = 12
BANNED = ("whose", "whoever", "somebody", "nobody", "anew", "at once", "that of", "those of", "as far as", "told of")


def pages(group: Any, above: str = "") -> Iterator[tuple[str, Any]]:
    for name, command in group.commands.items():
        if examples(f"{above}{name}"):
            yield (path := f"{above}{name}"), command
            yield from pages(command, f"{path} ") if hasattr(command, "commands") else ()


ALL = command_line(*COMMANDS)
PAGES = dict(pages(ALL))


def said(command: Any) -> list[str]:
    """Return the sentences of a help page, without its examples and lists of names."""
    texts = [(command.help or "").partition("\n\n")[0], *(getattr(one, "help", "") or "" for one in command.params)]
    return [re.sub(r": [a-z]+(, [\w -]+)+", "", text) for text in texts]


@parametrize_subtests("page", PAGES)
def test_every_help_page_ends_with_two_examples(page):
    add_examples(PAGES[page], page)

    assert len(set(examples(page))) == 2
    assert all(f"smart-fork {example}" in PAGES[page].epilog for example in examples(page))


@parametrize_subtests("example", examples())
def test_the_examples_are_commands_that_are_understood(example):
    words = shlex.split(re.split(r" [<|]", example)[0])
    command: Any = ALL
    while words and words[0] in getattr(command, "commands", ()):
        command, words = command.commands[words[0]], words[1:]

    command.make_context("smart-fork", words)


@parametrize_subtests("page", PAGES)
def test_no_sentence_of_a_help_page_is_long(page):
    sentences = [one for text in said(PAGES[page]) for one in re.split(r"[.!?:] ", text)]

    assert [] == [one for one in sentences if len(one.split()) > MOST_WORDS]


@parametrize_subtests("page", PAGES)
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


AGENTS_RUN = {"choices", "recall", "statusline", "mcp", "serve", "hook", "logs"}


def listed(text: str) -> set[str]:
    return set(re.findall(r"^│ (\w+)", text, re.MULTILINE)) & set(COMMANDS)


@parametrize_subtests("word", ("--help", "help"))
def test_the_list_has_what_people_type_and_begins_with_examples(run, word):  # noqa: F811
    told = run(word).out

    assert set(COMMANDS) - AGENTS_RUN - {"welcome"} == listed(told)
    assert 3 == told.partition("Options")[0].count("\n smart-fork ")
    assert "smart-fork help --all" in told


def test_all_commands_are_listed_for_who_asks_for_all(run):  # noqa: F811
    assert set(COMMANDS) == listed(run("help", "--all").out)

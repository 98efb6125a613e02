"""The output of `find` for a person: a line for each result, quotations of the first ones, and notices."""

from __future__ import annotations

import io
import json
import re
from dataclasses import replace

import pytest
from rich.cells import cell_len
from rich.console import Console

from smart_fork.cli.output import out
from smart_fork.cli.result_list import print_found, print_hits
from smart_fork.finding.answer import EmbeddedShares
from smart_fork.finding.hit import Price
from tests.smart_fork.answers import STATE, a_hit, an_answer

WIDE = "上传器在网络不稳定时重试并使用指数退避，还要写进日志 🚀🚀🚀"
SAID = "Retries wait twice as long each time, and give up after the fifth; the log says which file it was. " * 4


@pytest.fixture
def terminal(monkeypatch):
    """Return a function that prints results on a terminal of some columns, without colors."""

    def shown(*hits, columns=80, **how):
        file = io.StringIO()
        console = Console(
            file=file,
            width=columns,
            force_terminal=True,
            color_system="standard",
            no_color=False,
            highlight=False,
            soft_wrap=True,
        )
        monkeypatch.setitem(vars(out), "console", console)
        print_hits(hits, **how)
        return file.getvalue()

    yield shown
    vars(out).pop("console", None)


def lines(text: str) -> list[str]:
    return re.sub(r"\x1b\[[0-9;]*m", "", text).splitlines()


@pytest.mark.parametrize(
    "headline", [WIDE, "x" * 200, "\x1b]0;owned\x07\n\rretry\u202e", "Retry the upload 👩‍👩‍👧‍👦" * 9]
)
@pytest.mark.parametrize("columns", [40, 80, 120])
def test_a_result_is_one_line_at_any_width_whatever_its_title_is(terminal, headline, columns):
    hits = [a_hit(headline=headline, rank=rank, price=Price(103_000), outcome="committed") for rank in (1, 2)]

    said = lines(terminal(*hits, columns=columns))

    assert 2 == len(said)
    assert {True} == {cell_len(line) <= columns for line in said}
    assert not {"\x1b", "\x07", "\u202e", "\r"} & set("".join(said))


def test_a_line_says_what_it_was_how_old_it_is_what_came_of_it_and_what_it_costs(terminal):
    hit = a_hit(0.98, "88db7fea-0", outcome="committed", price=Price(103_000), last_activity="2020-01-01T00:00:00Z")

    (said,) = lines(terminal(hit))

    assert re.fullmatch(r"1  98 %  Add retry to the uploader +  claude 88db7fea  \d years  committed  103k", said)


def test_what_is_not_known_has_no_column(terminal):
    said = terminal(a_hit(), a_hit(rank=2))

    assert not any(word in said for word in ("known", "cached", "0 tokens", "now"))


def test_the_first_three_are_quoted_in_two_lines_that_end_between_words(terminal):
    said = lines(terminal(*(a_hit(rank=rank, snippet=SAID, said_by="assistant") for rank in range(1, 6))))

    passages = [line for line in said if line.startswith("    │ ")]
    assert [5 + 6, 6] == [len(said), len(passages)]
    assert all(line.rstrip("…").removeprefix("    │ ") in SAID for line in passages[:1])
    assert re.search(r"\w$", passages[0])
    assert all(passage.endswith("…") for passage in passages[1::2])


def test_a_passage_that_says_the_headline_again_is_left_out(terminal):
    assert 1 == len(lines(terminal(a_hit(snippet="Add retry to the uploader", said_by="user"))))


def test_unlikely_results_are_one_line(terminal):
    hits = [a_hit(score, f"session-{rank}", rank=rank) for rank, score in enumerate((0.9, 0.02, 0.009, 0.001), 1)]

    assert [4, "2 more, unlikely: --explain prints them"] == [len(said := lines(terminal(*hits))) + 1, said[-1]]
    assert "more, unlikely" not in terminal(*hits, known=False)


def test_only_what_is_likely_is_green_and_the_rest_is_dim(terminal):
    likely, unlikely = terminal(a_hit(0.31), a_hit(0.29, rank=2)).splitlines()

    assert ["\x1b[1;32m1" in likely, "\x1b[2m2" in unlikely, "32m" in unlikely] == [True, True, False]


def test_edited_files_stand_where_all_of_their_names_fit(terminal):
    hit = a_hit(edited_files=("parcel/uploader.py", "parcel/retry.py", "tests/test_retry.py"))

    wide, narrow = (terminal(hit, columns=columns) for columns in (120, 60))

    assert ["uploader.py, retry.py, test_retry.py" in wide, "retry.py" in narrow] == [True, False]


@pytest.mark.parametrize(
    ("state", "more", "said"),
    [
        ({"seconds_left": 310}, {"background_notice": "on it"}, "Still indexing: 13 %, about 5 minutes left. Ask again then."),
        ({}, {"background_notice": "on it"}, "Still indexing: 13 %. Ask again in a few minutes."),
        ({}, {}, "Indexed so far: 13 %. `smart-fork index run` completes it."),
    ],
)  # fmt: skip
def test_the_state_of_the_index_is_one_sentence(capsys, state, more, said):
    answer = an_answer(a_hit(), early_notice="early", unread_notice="unread", **more)
    index = replace(STATE, complete=False, covered=EmbeddedShares(0.5, 0.26), unread_logs=3, **state)

    print_found(replace(answer, index=index))

    shown = capsys.readouterr()
    assert [said] == [line for line in shown.err.splitlines() if "ndex" in line and "Next" not in line]
    assert "%" not in shown.out


def test_a_title_that_says_nothing_gives_way_to_the_prompt_that_matched(run, world, shop):
    world.claude(shop, "whoami", "root", "publish the cask from the release job", "It is published.")

    (hit,) = json.loads(run("find", "publish the cask", "--json").out)["results"]

    assert ("whoami", "publish the cask from the release job") == (hit["title"], hit["headline"])
    assert "publish the cask from the release job" in run("find", "publish the cask").out.splitlines()[0]

"""Tests that nothing a person types is an operator (F-035)."""

from __future__ import annotations

import re

import apsw
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from smart_fork.finding.query import (
    MAX_CHARACTERS,
    branch_words,
    is_of_this_branch,
    names_of,
    plain,
    terms_of,
    words_of,
)
from smart_fork.finding.results import is_mostly_not_latin
from tests.support.cases import parametrize_subtests

HOSTILE = [
    'say "hello" AND NOT world',
    'NEAR(a b, 3) OR "',
    "col: value part:p1 -part:p2",
    "x* ^y {z} (w",
    "'; DROP TABLE chunks; --",
    "--help",
    "nul\0byte",
    "half \ud800 surrogate",
    "🚀🚀🚀",
    "the and of",
    "???",
    "_ __ ___",
    "数据库 迁移 naïve Ünïcode",
    "a.b.c.d/e:f-g_h" * 20,
]


@pytest.fixture(scope="module")
def index():
    db = apsw.Connection(":memory:")
    db.execute("CREATE VIRTUAL TABLE t USING fts5(part, text, tokenize='porter unicode61 remove_diacritics 2')")
    db.execute("INSERT INTO t VALUES('p1', 'add retry to src/upload.py'), ('p2', 'add retry to src/upload.py')")
    return db


def any_of(text):
    return " OR ".join(terms_of(text))


def matches(index, query: str) -> list[str]:
    return [
        part for (part,) in index.execute("SELECT part FROM t WHERE t MATCH ?", (f"part: (p1) AND -part: ({query})",))
    ]


@given(st.one_of(st.text(), st.sampled_from(HOSTILE)))
@example("x" * 100_000)
@example("a." * 50_000)
@example("_" * 100_000)
def test_any_text_is_a_query_that_sqlite_takes_and_that_stays_in_its_part(index, text):
    query = any_of(plain(text))

    if query:
        assert matches(index, query) in ([], ["p1"])


@given(st.text())
def test_whatever_is_typed_stands_between_quotes(text):
    terms = re.sub(r'"[\w ]+"', "T", any_of(plain(text)))

    assert re.fullmatch(r"(T( OR T)*)?", terms)


def test_words_are_found_and_compounds_count_twice(index):
    assert matches(index, any_of("Upload")) == ["p1"]
    assert any_of("src/upload.py") == '"src" OR "upload" OR "py" OR "src upload py"'


def test_a_run_without_spaces_is_searched_by_its_pairs_of_characters():
    assert words_of("验证码 v2 の検索") == ("验证", "证码", "v2", "の検", "検索")
    assert words_of("退") == ("退",)
    assert terms_of("登录页/upload.py")[-1] == '" 登录 录页  upload py"'
    assert names_of("登录页.tsx") == ('" 登录 录页  tsx"',)


def test_stop_words_are_left_out_unless_nothing_else_was_typed():
    assert words_of("add the retry to our uploader") == ("add", "retry", "uploader")
    assert words_of("what is this") == ("what", "is", "this")


def test_an_intent_is_bounded_and_free_of_what_no_program_takes():
    assert plain(" a\0b \ud800 ") == "a b ?"
    assert len(plain("x" * 100_000)) == MAX_CHARACTERS
    assert len(any_of("word" * 1000)) < 100


@parametrize_subtests(
    ("text", "foreign"),
    [
        ("add retry to the uploader", False),
        ("Füge Wiederholungen naïve Ünïcode hinzu", False),
        ("повторять загрузку при ошибке", True),
        ("上传失败时重试", True),
        ("アップロードを retry する", True),
        ("fix upload.py: ошибка", False),
        ("", False),
        ("🚀 123 ---", False),
    ],
)
def test_a_question_is_in_the_script_of_most_of_its_letters(text, foreign):
    assert is_mostly_not_latin(text) is foreign


def test_files_and_names_of_code_are_the_names_in_a_text():
    text = "Why does `@src/shop/upload.py` call retryUpload, MAX_RETRIES and http.client? See README.md, and e.g. this."

    assert [name.strip('"') for name in names_of(text)] == [
        "src shop upload py", "retryupload", "max retries", "readme md", "e g",
    ]  # fmt: skip


def test_of_a_deep_path_the_end_is_looked_for():
    assert names_of("/srv/one/two/three/four/five/six/seven/upload.py") == (
        '"two three four five six seven upload py"',
    )


@given(st.one_of(st.text(), st.sampled_from(HOSTILE)))
def test_any_name_is_a_query_that_sqlite_takes(index, text):
    for name in names_of(plain(text)):
        matches(index, name)


@parametrize_subtests(
    ("asked", "is_of_it"),
    [
        ("look at the changes in this branch", True),
        ("check the PR comments", True),
        ("where were we?", True),
        ("go on where I left off", True),
        ("check PR #12", False),
        ("merge request 7 broke the map", False),
        ("a branching rate limiter", False),
        ("what does the branch change?", True),
        ("I opened a PR, describe it", True),
        ("run my tests", True),
        ("fix the failing test", True),
        ("lint is failing", True),
        ("CI is red", True),
        ("resolve the merge conflicts", True),
        ("merge it into the main branch", False),
        ("add tests for the uploader", False),
        ("describe how a build is made", False),
    ],
)
def test_a_question_may_be_of_the_branch_that_is_checked_out(asked, is_of_it):
    assert is_of_this_branch(asked) is is_of_it


@parametrize_subtests(
    ("branch", "says"),
    [
        ("feature/add-retry_to-upload", "add retry to upload"),
        ("ann/fix/round-maps", "round maps"),
        ("issue-42-naïve-Ünïcode", "issue naïve Ünïcode"),
        ("main", ""),
        ("master", ""),
        ("", ""),
    ],
)
def test_the_name_of_a_branch_says_words_of_its_work(branch, says):
    assert branch_words(branch) == says


@parametrize_subtests(
    ("asked", "terms"),
    [
        ("https://git.example/shop/till/pull/12/files review", '"review" OR "pull 12" OR "pr 12"'),
        ("review PR #12", '"review" OR "pull 12" OR "pr 12"'),
        ("merge request !7", '"pull 7" OR "pr 7"'),
        ("https://git.example/shop/till/issues/5#c1", '"issue 5"'),
    ],
)
def test_the_address_and_number_of_a_pull_request_are_no_words_of_others(asked, terms):
    assert any_of(asked) == terms

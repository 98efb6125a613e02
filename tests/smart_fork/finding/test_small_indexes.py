"""Tests that the smallest index answers any question."""

from __future__ import annotations

import pytest

from indexer.safe_files import index_db
from indexer.store.schema import connect
from smart_fork.finding.index_refresh import Engine
from smart_fork.finding.request import FindRequest
from tests.smart_fork.finding.test_query import HOSTILE
from tests.smart_fork.searches import find
from tests.smart_fork.world import BrokenModel
from tests.support.cases import parametrize_subtests, thorough_except, thorough_except_first

pytestmark = pytest.mark.slow

QUESTIONS = [
    *HOSTILE,
    "retry",
    "retry the uploader",
    "the",
    "getUserById",
    "src/upload.py",
    "x" * 10_000,
    "a b " * 3000,
]


def answered(world, shop, question: str) -> dict:
    answer = world.find(question, shop)
    assert ("hybrid", False) == (answer["search_mode"], answer["fallback_used"]), answer.get("search_error")
    by_words = find(FindRequest(question), Engine(BrokenModel()), shop).as_json()
    assert "lexical" == by_words["search_mode"], by_words.get("search_error")
    return answer


@pytest.mark.parametrize("words", thorough_except(range(9), 0, 8))
@pytest.mark.parametrize("sessions", thorough_except_first([2, 1]))
def test_an_index_of_few_words_is_searched_by_words_and_meaning(world, shop, words, sessions):
    for number in range(sessions):
        world.claude(shop, " ".join(["retry", *("abcdefgh"[i] * (4 + number) for i in range(words))]))

    for question in ("retry", "retry cccc", "nothing of it", "cccc getUserById"):
        answered(world, shop, question)
    assert sessions == world.find("retry", shop)["count"]


def test_rows_of_six_words_on_average_are_ranked_by_the_words_that_they_have(world, shop):
    """FTS5 gives no rank for such rows."""
    one = world.claude(shop, "retry alpha beta gamma")
    other = world.claude(shop, "retry delta beta kappa")
    world.find("anything", shop)
    db = connect(index_db())
    ranks = [
        rank for (rank,) in db.execute("SELECT bm25(chunk_words, 0.0, 1.0) FROM chunk_words('part:(p1) AND retry')")
    ]
    db.close()
    assert [None, None] == ranks, "the case that is meant"

    assert one == world.find("retry gamma", shop)["results"][0]["session_id"]
    assert other == world.find("retry kappa", shop)["results"][0]["session_id"]


@parametrize_subtests(
    ("question", "said"),
    [
        ("验证码", "登录页面的验证码刷新失败"),
        ("修复验证码", "登录页面的验证码刷新失败"),
        ("指数退避", "上传失败时改用指数退避重试"),
        ("ページング", "検索結果のページングを直してください"),
        ("検索のページングが壊れた", "検索結果のページングを直してください"),
        ("결제", "주문서의결제수단을 고쳐줘"),
        ("upload按钮", "登录页面upload按钮没有反应"),
    ],
)
def test_words_inside_a_run_without_spaces_are_found(world, shop, question, said):
    right = world.claude(shop, said)
    for other in ("订单列表导出", "在庫一覧を並べ替える", "retry the uploader", "회원 가입"):
        world.claude(shop, other)

    best = find(FindRequest(question), Engine(BrokenModel()), shop).as_json()["results"][0]
    assert right == best["session_id"]
    assert best["match"]["words"]


@parametrize_subtests("question", QUESTIONS)
def test_any_question_is_answered_from_no_session(world, shop, question):
    answered_from_none = world.find(question, shop)
    assert [] == answered_from_none["results"]
    assert "search_error" not in answered_from_none


def test_any_question_is_answered_from_one_session(world, shop):
    world.claude(shop, "retry the uploader now please")
    for question in QUESTIONS:
        answered(world, shop, question)

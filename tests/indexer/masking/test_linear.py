"""Texts that are made to be slow take time in proportion to their length."""

import gc
import time

import pytest

from indexer.masking import mask as redact
from tests.indexer.masking.invented_secrets import EVERY_TOKEN, KEY_BEGIN
from tests.support.cases import parametrize_subtests
from tests.support.exhaustive import full_or_sample

#: Characters of a text. `SMART_FORK_DRILLS=all` tries longer ones.
LONG, LONGER = full_or_sample((100_000, 100_000), (6_000, 12_000))
#: Four times the text may take this many times as long: 16 where time grows with the square of the length.
MOST_TIMES = 10
#: Processor time below which a measurement says too little.
MEASURABLE_SECONDS = 0.2


def filled(piece: str, length: int) -> str:
    return piece * (length // len(piece))


def masked_and_seconds(text: str) -> tuple[str, float]:
    """Mask a text. Return it with the seconds of this thread, without those of garbage collection."""
    gc.disable()
    try:
        before = time.thread_time()
        return redact(text), time.thread_time() - before
    finally:
        gc.enable()


ADVERSARIAL = [
    *(
        "eyJ",
        "eyJ-",
        "eyJaaaaaaaa.",
        "sk-",
        "sk-a1",
        "AKIA",
        "AKIAAAAAAAAAAAAAAAAA-",
        "://",
        "://a:",
        "://a:b",
        "//:_authToken=",
    ),
    *("a", "A", "0", "-", "_", " ", "\n", "\\n", '"', "=", ":", "@", "\0", "é"),
    *(
        "token",
        "token=",
        'token="',
        "token = ",
        "token: a = ",
        "--token ",
        "password=token=",
        "pwd:'",
        "api_key",
        "_key",
    ),
    *(
        "xoxb-1-",
        "1-",
        "12345678:AA",
        "AC0",
        "M.",
        "a-us1",
        "ghp_",
        "AccountKey=",
        "aws key '",
        "bearer ",
        "authorization: ",
    ),
    *(
        "-----",
        KEY_BEGIN.format(""),
        KEY_BEGIN.format("") + "\n",
        "Private-Lines: 1\n",
        "curl -u ",
        "curl a:",
        "[REDACTED:",
        "[REDACTED:jwt]",
    ),
    *(
        "password is ",
        "pw ist ",
        "password:\n",
        "api key ",
        "token <<<",
        "password: {",
        "password || ",
        "creds a:",
        "creds ",
    ),
    *(
        "kind: Secret\ndata:\n  a: b\n",
        "recovery codes ",
        "recovery codes: a1b2-c3d4 ",
        "| password |\n|---|\n",
        "a,password\n",
    ),
    *("insert into t (a, password) values ('a', 'b1c2d3e4'), ", "a\tTRUE\t/\tTRUE\t1\tb\ta1B2c3D4e5F6g7H8i9J0k1\n"),
    *(
        "a1B2c3D4e5F6g7H8i9J0k1\\\n",
        '"a1B2c3D4e5F6g7H8i9J0k1"\n',
        "cGFzc3dvcmQ9",
        "$6$a$",
        "login('a', ",
        "$ cat password\n",
    ),
    *(
        "password? ",
        "password?\n",
        "heslo je ",
        "Kennwort auf ge\u00e4ndert Tulipan_42 ",
        "jwt.sign({",
        "mnemonic amber ",
        "{name: 'session', value: '",
    ),
    *(
        "key[] = {0x1a, ",
        'key = "\\x1a',
        "x / y user ",
        "getBytes(new a.bytes(",
        "token = a1B2c3D4e5F6G7 |\n  a1B2c3D4 |",
        "password is Aa-Bb-",
    ),
    *(
        "k7Q2m9X4aB3dk7Q2m9X4aB3d/",
        "what's the pw\nme: ",
        "pw ",
        "use amber2 as password ",
        "echo YWRt | base64 ",
        "code for the door ",
        "einloggen mit a und ",
        "\u043f\u0430\u0440\u043e\u043b\u044c \u043e\u0442 ",
        "secret = a1B2c3D4e5 |\n|     | ",
    ),
    *("softlayer key ", "discord MMMMMMMMMMMMMMMMMMMMMMMMMM.", "glpat-", "SG.", "AKC"),
]


def is_proportional(short: str, text: str) -> bool:
    """Return True if the time is proportional to the length.

    Beside other work one measurement may take twice as long.
    """
    once, whole = masked_and_seconds(text)
    assert len(once) <= 20 * len(text)
    return whole <= MEASURABLE_SECONDS or whole <= MOST_TIMES * masked_and_seconds(short)[1]


def takes_time_in_proportion(long: int, first: str, repeated: str, last: str = "") -> None:
    short, text = (first + filled(repeated, length) + last for length in (long // 4, long))
    assert any(is_proportional(short, text) for _ in range(3)), repeated


@pytest.mark.thorough
@parametrize_subtests("piece", ADVERSARIAL)
def test_a_long_text_made_to_backtrack_takes_time_in_proportion_to_its_length(piece):
    takes_time_in_proportion(LONG, "", piece)


@pytest.mark.thorough
@parametrize_subtests("piece", ADVERSARIAL)
def test_so_does_a_longer_one_and_one_that_begins_like_that_or_stands_behind_the_name_of_a_secret(piece):
    takes_time_in_proportion(LONGER, "", piece)
    takes_time_in_proportion(LONGER, piece, "a1")
    takes_time_in_proportion(LONGER, piece, " ")
    takes_time_in_proportion(LONGER, "token", piece, "!")


@pytest.mark.thorough
@parametrize_subtests("token", [token for _, token in EVERY_TOKEN])
def test_a_long_text_of_tokens_is_masked_to_the_last(token):
    assert token[-30:] not in redact(filled(token + ", ", LONG // 2))
    redact(filled(token, LONG // 2))

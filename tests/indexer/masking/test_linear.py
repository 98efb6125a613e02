"""Texts that are made to be slow end."""

import pytest

from indexer.masking import mask as redact
from tests.indexer.masking.invented import EVERY_TOKEN, KEY_BEGIN

token_ids = [f"{kind}-{number}" for number, (kind, _) in enumerate(EVERY_TOKEN)]


def filled(piece: str) -> str:
    return piece * (100_000 // len(piece))


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
    *("softlayer key ", "discord MMMMMMMMMMMMMMMMMMMMMMMMMM.", "glpat-", "SG.", "AKC"),
]


@pytest.mark.parametrize("piece", ADVERSARIAL)
def test_a_long_text_made_to_backtrack_ends(piece):
    for text in (filled(piece), piece + filled("a1"), piece + filled(" "), "token" + filled(piece) + "!"):
        once = redact(text)
        assert len(once) <= 20 * len(text)


@pytest.mark.parametrize("token", [token for _, token in EVERY_TOKEN], ids=token_ids)
def test_a_long_text_of_tokens_is_masked_to_the_last(token):
    assert token[-30:] not in redact(filled(token + ", "))
    redact(filled(token))

"""Secrets in code by what is done with them: calls with a password or a key among their arguments."""

from __future__ import annotations

import re

from indexer.masking.phrase import QUOTE, Phrase, by_sign
from indexer.masking.spans import HIDDEN

_TEXT = rf"(?:Some\()?{QUOTE}([^\"'`\\\n{HIDDEN}]{{4,256}}){QUOTE}"
_OTHER = rf"(?:[bf@]?{QUOTE}[^\"'`\n]{{0,128}}{QUOTE}|[\w.:$>\[\]-]{{1,60}})\s{{0,4}},\s{{0,12}}[bf@]?"


def _called(names: str, others: int | str, least: str = "strong", kind: str = "password", words: str = "") -> Phrase:
    """A secret behind so many other arguments."""
    pattern = rf"(?i:{names.replace('.', '[.]')})\(\s{{0,12}}[bf@]?(?:{_OTHER}){{{others}}}{_TEXT}"
    return Phrase(
        kind,
        "|".join(f"{name.lower()}(" for name in names.split("|")),
        pattern,
        least,
        begins=True,
        words=words or re.sub(r"\W|_", " ", names),
    )


#: By a literal that a text has in which some of these are.
CALLS = by_sign(
    _called("login", 1),
    _called("credential|credentials", 1, words="credential credentials networkcredential usernamepasswordcredentials"),
    _called("mysqli|pdo|connect|mysqli_connect|mysql_connect", 2, "told", words="mysqli pdo connect"),
    _called("smtp.start", 4, "told", words="smtp"),
    _called("pgp_sym_decrypt|pgp_sym_encrypt|aes_encrypt|aes_decrypt", 1, "any", words="pgp aes"),
    _called("auth", 0, "told"),
    _called(
        "hashpw|crypt|password|hash::make|hash::check|bcrypt.hash|bcrypt.hashsync|bcrypt.compare|argon2.hash", 0, "hard"
    ),
    _called("client|restclient|client.new|api|apiclient", "0,1", "key", "api-key", "client restclient api apiclient"),
    _called("cookieparser|cookiesession", 0, "long", "secret"),
    _called("jwt.sign|jwt.verify|jwt.encode|jwt.decode", 1, "hard", "secret", "jwt"),
    _called("getconnection", 2),
    _called("passwordencoder.encode|encoder.encode", 0, words="passwordencoder encoder"),
    _called("basic_auth|basicauth", 1, words="basic basicauth"),
    _called(
        "fernet|secretkeyspec|aes.new|aesgcm|secretbox|chacha20poly1305|hmac.new|signwith|createcipheriv|"
        "createdecipheriv|createhmac|hmac|hash_hmac|openssl_encrypt|openssl_decrypt",
        "0,2",
        "long",
        "secret",
        "fernet secretkeyspec aes aesgcm secretbox chacha20poly1305 hmac signwith createcipheriv "
        "createdecipheriv createhmac hash openssl",
    ),
    _called("create_superuser|create_user|createuser", "1,2", "hard", words="superuser createuser"),
    _called("wifi.begin", 1, "worded", words="wifi"),
)

"""Checks that tell a secret from a name or placeholder by its form, and words for secrets in many languages."""

from __future__ import annotations

import base64
import binascii
import re
from typing import Literal, NamedTuple

from indexer.lazy_compilation import late
from indexer.masking.rules import alternations, expanded

#: How a value is written. ``literal``: exactly, as in an environment or option. ``string``: in quotes, assigned.
#: ``entry``: behind a colon, in quotes or alone on its line. ``line``: alone behind an equals sign. ``code``: within
#: other code, where it is more often a variable than a value.
Form = Literal["literal", "string", "entry", "line", "code"]

_STANDS_FOR = late(expanded("{stands_for}"))
_UUID = late(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
#: Keys for one-time passwords, in base32.
_BASE32 = late(r"(?=[A-Z]*[2-7])[A-Z2-7]{16,}=*")
_HEX = late(r"(?:0x)?[0-9a-fA-F]+")
#: Formats with a place for a value; options; addresses.
_FORMAT = late(r"%[sdif]|\$\{|\$\w+\b|^-|=|[<>(){}|;,]|^[\w.-]+@[\w.-]+$|&&|\*\*|/\w+/")
#: Names that programs give to things, such as "item_3".
_ID = late(r"[a-z]{2,20}[_-][A-Za-z0-9]+|[A-Za-z]+(?:[_.-][A-Za-z]+)*[_.-]?\d{1,2}")
#: A hexadecimal checksum behind a name.
_SUM_BEHIND = late(r"[a-z][._-][0-9a-f]{32,}$")
#: Hexadecimal bytes with colons, as in certificates and fingerprints.
_PAIRS = late(r"[0-9a-fA-F]{2}(?::[0-9a-fA-F]{2})+:?")
_BASE64 = late(r"(?=[A-Za-z0-9/+]{0,64}?[A-Z])(?=[A-Za-z0-9/+]{0,64}?[a-z])[A-Za-z0-9/+]+={0,2}")
_REFERENCE = late(expanded("{reference}"))
_NAME = late(expanded("{identifier}"))
_AMONG_CAPITALS = late(r"[A-Z]\d+[A-Z]")
_WORDS = late(expanded("{naming}"))
_NO_NAME = late(expanded("{no_name}"))
#: Signs of regular expressions.
_CLASS = late(r"[\[\\]|\(\?")
_NO_PASSWORD = late(expanded("{no_password}"))
_LOWER_WORDS = late(expanded("{lower_words}"))
_TWO_WORDS = late(expanded("{words_and_number}"))
_COINED, _TITLED = late(expanded("{coined}")), late(expanded("{titled}"))
#: Signs within a password; below, formats and paths, which have such signs and are no passwords.
_SIGNS_OF_PASSWORDS = late(r"[!#$%^&*+=?~@;:,.<>(){}\[\]|_-](?=[A-Za-z0-9])")
_FORMAT_OR_PATH = late(expanded("{format_or_path}"))
#: A sign among letters of both cases.
_SIGNED = late(r"(?=[^a-z]*[a-z])(?=[^A-Z]*[A-Z])\S+[#$%^*~@+!?]\S*[A-Za-z]\Z")
_SEVERAL_WORDS = late(expanded("{several_words}"))
_FUNCTION_WORDS = late(expanded("{function_words}"))
_STRUCTURED = late(r"[\s\"'{}<>]")
_KINDS = late(r"[a-z](?=[A-Z0-9])|[A-Z](?=[a-z0-9])|[0-9](?=[A-Za-z])")
#: The pieces of a name in camel case, and a vowel.
_PIECES, _VOWEL = late(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])"), late(r"(?i)[aeiouy]")
_CASES, _CAPITALS = late(r"[a-z](?=[A-Z])|[A-Z](?=[a-z])"), late(r"[A-Z]{2,}")
_SIGNS = frozenset("!#$%^&*+=?~@/|-")
_STRONG_SIGNS = frozenset("!#$%^&*+?~@")
#: Signs in passwords that people think up. Code, queries and addresses have the other signs as well.
_CHOSEN_SIGNS = frozenset("!#$%^*~@")


def placeholder(value: str) -> bool:
    """Return True if `value` stands in place of a secret, such as "<token>", "$TOKEN" or "xxxxxx"."""
    return _STANDS_FOR.search(value[:256]) is not None or value[:1] in "<$" or len(set(value)) <= 2


def is_secret(text: str, kind: str, form: Form, *, amazon: bool = False) -> bool:
    """Return True if `text`, assigned to a name that hints at a secret, is a secret of this `kind`.

    `form` says how the value is written. Keys of Amazon (`amazon`) may look like a path.
    """
    if len(text) < 6 or placeholder(text):
        return False
    least = 3 if amazon else len(text) // 7
    if len(text) >= 32 and _BASE64.fullmatch(text) and alternations(text) >= least:  # it may begin like a path
        return True
    if _refers(text, kind, form):
        return False
    if _UUID.fullmatch(text):
        return form in ("literal", "string", "entry")
    if text.isdigit():
        return kind == "password" and form != "code"
    if _HEX.fullmatch(text) and len(text) >= 16:
        return alternations(text) >= 2
    if kind == "password":
        return _is_password(text, form)
    if form == "literal":
        return len(text) >= 16 or (len(text) >= 8 and is_mixed(text)) or (kind == "secret" and len(text) >= 8)
    if form != "code" and (
        is_chosen(text) or is_tangled(text) or _is_jumbled(text) or (kind == "secret" and _BASE32.fullmatch(text))
    ):
        return True
    least = {"string": 8, "entry": 10, "line": 12, "code": 16}[form]
    return len(text) >= least and looks_random(text, lenient=form == "string" or len(text) >= 20)


def _is_jumbled(text: str) -> bool:
    """Return True if the text has a digit, and its upper and lower case letters alternate otherwise than in words."""
    cases = len(_CASES.findall(text))
    return (
        len(text) >= 12
        and is_mixed(text)
        and (3 * cases >= len(text) or (alternations(text) >= 2 and cases >= 3 and not is_name(text)))
        and text.replace("_", "").replace("-", "").isalnum()
    )


def is_chosen(text: str) -> bool:
    """Return True if the text looks like a password that a person thought up: words with a number, or with signs."""
    mixed = is_mixed(text)
    signs = sum(c in _CHOSEN_SIGNS for c in (text if mixed else text.strip("*~!#"))[1:])
    cases = not text.islower() and not text.isupper()
    if (_TWO_WORDS.fullmatch(text) or _LOWER_WORDS.fullmatch(text)) and not is_name(text):
        return True
    return len(text) >= 8 and (signs >= 1 if mixed else signs >= 2 and cases) and not _CLASS.search(text)


def _is_password(text: str, form: Form) -> bool:
    if form == "literal":
        return True
    mixed, signs = is_mixed(text), any(c in _STRONG_SIGNS for c in text[1:])
    if form in ("string", "entry"):
        if form == "string" and text.isalpha():
            return len(text) >= 6 and not is_name(text)
        if is_scrambled(text):
            return True
        if (_SEVERAL_WORDS.fullmatch(text) and not is_name(text)) or is_coined(text):
            return True
        return (any(c.isdigit() for c in text) or signs or is_tangled(text)) and (
            not _NAME.fullmatch(text)
            or is_chosen(text)
            or looks_random(text)
            or _AMONG_CAPITALS.search(text) is not None
        )
    if (_NAME.fullmatch(text) and not (form == "line" and text[-1].isdigit())) or is_name(text):
        return False
    if form == "line":
        return (
            mixed
            or is_tangled(text)
            or is_coined(text)
            or (signs and _CASES.search(text) is not None)
            or sum(c in _CHOSEN_SIGNS for c in text[1:]) >= 2
        )
    return mixed and (signs or (len(text) >= 6 and alternations(text) >= 1))


def _refers(text: str, kind: str, form: Form) -> bool:
    if not _REFERENCE.match(text):
        return False
    if form in ("string", "entry") or kind == "password":  # a sign may be the first of a password
        rest = text[1:]
        return not (
            text[0] in "@&*%$/[({"
            and any(c in "!#^&*?~$%@)}]" for c in rest)
            and is_mixed(rest)
            and not text.startswith(("${", "$(", "{{", "%(", "[["))
        )
    return True


def is_name(text: str) -> bool:
    """Return True if the text can be a name of a variable, a field or a label, and so is no secret."""
    return _WORDS.search(text) is not None and not _NO_NAME.match(text)


def is_coined(text: str) -> bool:
    """Return True if the text is a password made of several words, such as "CorrectHorseBattery"."""
    return _TITLED.fullmatch(text) is not None or (_COINED.fullmatch(text) is not None and is_worded(text))


def is_mixed(text: str) -> bool:
    """Return True if the text has both letters and digits."""
    return any(map(str.isdigit, text)) and any(map(str.isalpha, text))


def is_tangled(text: str) -> bool:
    """Return True if upper and lower case letters alternate more often than in any name."""
    return len(text) >= 12 and 3 * len(_CASES.findall(text)) >= len(text) and len(_CAPITALS.findall(text)) >= 2


def is_scrambled(text: str) -> bool:
    """Return True if the text's letters form no words: three parts, split by case, are too short or have no vowel."""
    pieces = _PIECES.findall(text) if len(text) >= 12 and text.isalpha() else []
    return sum(len(one) < 3 or not _VOWEL.search(one) for one in pieces) >= 3


def is_strong(text: str) -> bool:
    """Return True if the text is no plain word and no reference to a variable: it has a digit or a sign such as "!"."""
    return len(text) >= 4 and any(c.isdigit() or c in _STRONG_SIGNS for c in text) and not _REFERENCE.match(text)


def is_hard(text: str) -> bool:
    """Return True if the text is hard to guess: no word, number or name."""
    return (is_mixed(text) and is_strong(text)) or is_tangled(text) or is_chosen(text)


def is_alone(text: str) -> bool:
    """Return True if the text looks like a secret even without words around it, as the whole output of a command."""
    if _HEX.fullmatch(text):
        return len(text) >= 32 and is_mixed(text)
    return (
        is_hard(text)
        and not _PAIRS.fullmatch(text)
        and not _REFERENCE.match(text)
        and not _NO_PASSWORD.fullmatch(text)
        and not _CLASS.search(text)
    )


def is_unlike_words(text: str) -> bool:
    """Return True if the text is evidently a password or key: letters, digits and signs, or long and random."""
    signs = any(c in "!#$%^*~" for c in text[1:]) or sum(c == "@" for c in text[1:]) == 1
    if not is_alone(text) or is_identity(text) or _FORMAT.search(text):
        return False
    return (is_mixed(text) and signs) or (len(text) >= 20 and looks_random(text) and not text.islower())


def is_strange(text: str) -> bool:
    """Return True if the text cannot be a name: mixed letters and digits, also with signs, or words with a number."""
    # None of what follows is without a digit, as most words of code are.
    if len(text) < 8 or not any(map(str.isdigit, text)):
        return False
    if not is_alone(text) or _HEX.fullmatch(text) or _FORMAT.search(text) or is_name(text):
        return False
    if _TWO_WORDS.fullmatch(text) and not (text.isalnum() and text.islower()):  # people are called so, too
        return True
    if _ID.fullmatch(text) or _SUM_BEHIND.search(text):
        return False
    if is_unlike_words(text):
        return True
    bare = text.replace("_", "").replace("-", "").replace(".", "").replace("+", "").replace("/", "")
    if not bare.isalnum() or bare.islower() or bare.isupper():
        return False
    return is_mixed(bare) and (alternations(bare) >= 3 or _is_jumbled(text))


def is_key_pair(said: str) -> bool:
    """Return True if the decoded text `said` is the id of a key, a colon and the key."""
    _, colon, key = said.partition(":")
    return bool(colon) and 16 <= len(key) < 200 and (is_thrown_together(key) or is_strange(key))


def is_made_up(text: str) -> bool:
    """Return True if the text, next to a word such as "password", is one: no name or id, with capitals or signs."""
    return (
        len(text) >= 8
        and is_alone(text)
        and not _FORMAT.search(text)
        and (not _ID.fullmatch(text) or sum(map(str.isupper, text)) >= 2)
        and not is_name(text)
        and not is_identity(text)
        and any(c.isupper() or not c.isalnum() for c in text[1:])
    )


def is_thrown(text: str) -> bool:
    """Return True for a random mix of digits and letters of one case: a long key that is no git hash."""
    if _HEX.fullmatch(text):
        return len(text) >= 32 and is_mixed(text)
    if _LOWER_WORDS.fullmatch(text):
        return True
    return len(text) >= 20 and text.isalnum() and text.isascii() and alternations(text) >= 5


def is_thrown_together(text: str) -> bool:
    """Return True if upper case letters, lower case letters and digits are mixed randomly, which is rare in names."""
    return (
        alternations(text) >= 2
        and sum(map(str.isupper, text)) >= 3
        and not text.isupper()
        and len(_KINDS.findall(text)) >= 0.4 * len(text)
    )


def goes_on(secret: str, rest: str) -> bool:
    """Return True if `rest`, at the beginning of the next line, continues a `secret` that a line end splits."""
    return is_thrown_together(rest) or (is_mixed(rest) and _HEX.fullmatch(secret + rest) is not None)


def is_dense(text: str) -> bool:
    """Return True if the text is like a generated password: letters of both cases, mixed with signs or digits."""
    kinds = (any(c.isupper() for c in text), any(c.islower() for c in text), any(c.isdigit() for c in text))
    return sum(kinds) >= 2 and len(_SIGNS_OF_PASSWORDS.findall(text)) >= 2 and not _FORMAT_OR_PATH.search(text)


def is_number(text: str) -> bool:
    """Return True for a hexadecimal number that is as long as a key."""
    return len(text) in (32, 40, 48, 64) and is_mixed(text) and _HEX.fullmatch(text) is not None


def is_told(text: str) -> bool:
    """Return True if the text looks like a password that a person mentions: letters and digits, signs, joined words."""
    return (
        (is_mixed(text) or is_coined(text) or _SIGNED.match(text) is not None)
        and not placeholder(text)
        and not _REFERENCE.match(text)
        and not _NO_PASSWORD.fullmatch(text)
        and not _CLASS.search(text)
        and not is_name(text)
    )


def is_sentence(text: str) -> bool:
    """Return True if the words form sentences: "the", "is" and such words are among them."""
    return _FUNCTION_WORDS.search(text.lower()) is not None


def is_worded(text: str) -> bool:
    """Return True if the text can be a password of one or several words, but no sentence."""
    if is_strong(text):
        return True
    words = re.split("[ -]", text)
    if len(words) > 2:
        return not is_sentence(text) and not any(map(_WORDS.fullmatch, words))
    return len(text) >= 6 and text.isalpha() and not is_name(text)


def is_long(text: str) -> bool:
    """Return True if the text looks like a signing key: long, with letters and digits in turn, and no name."""
    return len(text) >= 16 and is_mixed(text) and alternations(text) >= 2 and not _NAME.fullmatch(text)


def is_uuid(text: str) -> bool:
    """Return True if the text is a UUID."""
    return _UUID.fullmatch(text) is not None


def is_identity(text: str) -> bool:
    """Return True if the text is a UUID, or a hexadecimal hash as long as a git commit's (SHA-1, SHA-256)."""
    return is_uuid(text) or (_HEX.fullmatch(text) is not None and len(text) in (40, 64))


def is_opaque(value: str) -> bool:
    """Return True if the text is random, and neither a UUID nor a hexadecimal number."""
    return looks_random(value, lenient=len(value) >= 32) and not _UUID.fullmatch(value) and not _HEX.fullmatch(value)


def looks_random(value: str, *, lenient: bool = False) -> bool:
    """Return True if letters and digits are mixed randomly. `lenient` is for places where a secret is likely."""
    count = alternations(value)
    mixed = not value.islower() and not value.isupper() and any(c.isdigit() for c in value)
    if count >= 4 or (value.isalnum() and mixed and (count >= 1 if len(value) >= 20 else count >= 3)):
        return True
    if lenient and len(value) >= 20 and len(_STRONG_SIGNS.intersection(value)) >= 4 and not _CLASS.search(value):
        return True
    return lenient and count >= 2 and (mixed or any(c in _SIGNS for c in value)) and not _NAME.fullmatch(value)


def is_base64_pair(value: str, *, told: bool = False) -> bool:
    """Return True if `value` is name:password in base64. If the text says so (`told`), the name may be missing."""
    try:
        said = base64.b64decode(value + "=" * (-len(value) % 4), validate=True).decode()
    except (binascii.Error, ValueError):
        return False
    name, colon, password = said.partition(":")
    if told and (_STRUCTURED.search(said) or not said.isprintable() or not is_told(password if colon else said)):
        return False
    return told or (bool(colon) and len(password) >= 1 and said.isprintable() and bool(name or password))


#: Words for secrets in lower case, by the kind of secret.
_CALLED = {
    "password": (
        "kennwort contrasena clave senha wachtwoord heslo hesla haslo parola losenord salasana salasanaksi jelszo "
        "jelszava jelszavam lozinka lozinku geslo gesla sifre adgangskode kodeord passord mdp parool psk sandi sandinya"
    ),
    "secret": "geheim geheimnis segredo secreto segreto sekret cred creds credential credentials zugangsdaten",
    "token": "jeton salt seed pepper bearer",
    "api-key": "schluessel chave chiave cle sleutel klucz nyckel avain",
}
#: Words for secrets with letters beyond ASCII, in any case: patterns in values.rules.
_CALLED_ABROAD = {kind: expanded(f"{{abroad_{kind.replace('-', '_')}}}") for kind in _CALLED}
#: Those of these words that mean something else in English as well.
ENGLISH = frozenset(b"cred creds credential credentials salt seed pepper bearer".split())
STEM_WORDS = {word.encode(): kind for kind, words in _CALLED.items() for word in words.split()}
PASSWORD_WORDS = [word for word, kind in STEM_WORDS.items() if kind == "password" and word not in ENGLISH]
_ABROAD = late("(?i)" + "|".join(f"(?P<{kind.replace('-', '_')}>{words})" for kind, words in _CALLED_ABROAD.items()))
#: The letters beyond ASCII in those words. A text without any of them has none of the words.
_LETTERS = frozenset(c for words in _CALLED_ABROAD.values() for c in words + words.upper() if not c.isascii())
_ORDINARY = bytes(range(128))


class Noun(NamedTuple):
    """The position of a word that means a secret ("password" in any language), and the kind of secret."""

    start: int
    end: int
    kind: str


def speaks_abroad(text: str) -> bool:
    """Return True if a text has letters beyond ASCII that occur in words for secrets, such as "пароль"."""
    rare = text.encode("utf-8", "surrogatepass").translate(None, _ORDINARY).decode("utf-8", "surrogatepass")
    return not _LETTERS.isdisjoint(rare)


def nouns_in(text: str) -> list[Noun]:
    """Return the words for secrets in a text that have letters beyond ASCII, such as "пароль"."""
    if not speaks_abroad(text):
        return []
    return [
        Noun(found.start(), found.end(), (found.lastgroup or "").replace("_", "-")) for found in _ABROAD.finditer(text)
    ]

"""What people call a secret, in many languages: data that names, sentences and what stands near are known by."""

from __future__ import annotations

from typing import NamedTuple

from indexer.masking.rules import expanded
from indexer.patterns import late

#: Whole words in lower case, and what their values are.
_CALLED = {
    "password": (
        "kennwort contrasena clave senha wachtwoord heslo hesla haslo parola losenord salasana salasanaksi jelszo "
        "jelszava jelszavam lozinka lozinku geslo gesla sifre adgangskode kodeord passord mdp parool psk sandi sandinya"
    ),
    "secret": "geheim geheimnis segredo secreto segreto sekret cred creds credential credentials zugangsdaten",
    "token": "jeton salt seed pepper bearer",
    "api-key": "schluessel chave chiave cle sleutel klucz nyckel avain",
}
#: The same with characters beyond ASCII, of which small and large ones are alike: patterns of values.rules.
_CALLED_ABROAD = {kind: expanded(f"{{abroad_{kind.replace('-', '_')}}}") for kind in _CALLED}
#: Of these some mean something else in English as well.
ENGLISH = frozenset(b"cred creds credential credentials salt seed pepper bearer".split())
STEM_WORDS = {word.encode(): kind for kind, words in _CALLED.items() for word in words.split()}
PASSWORD_WORDS = [word for word, kind in STEM_WORDS.items() if kind == "password" and word not in ENGLISH]
_ABROAD = late("(?i)" + "|".join(f"(?P<{kind.replace('-', '_')}>{words})" for kind, words in _CALLED_ABROAD.items()))
#: Without one of these characters a text has none of those words.
_LETTERS = frozenset(c for words in _CALLED_ABROAD.values() for c in words + words.upper() if not c.isascii())
_ORDINARY = bytes(range(128))


class Noun(NamedTuple):
    """Where such a word is, and what its value is."""

    start: int
    end: int
    kind: str


def speaks_abroad(text: str) -> bool:
    """Return whether a text has letters of such words."""
    rare = text.encode("utf-8", "surrogatepass").translate(None, _ORDINARY).decode("utf-8", "surrogatepass")
    return not _LETTERS.isdisjoint(rare)


def nouns_in(text: str) -> list[Noun]:
    """What is called a secret in letters beyond ASCII."""
    if not speaks_abroad(text):
        return []
    return [
        Noun(found.start(), found.end(), (found.lastgroup or "").replace("_", "-")) for found in _ABROAD.finditer(text)
    ]

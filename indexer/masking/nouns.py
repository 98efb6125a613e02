"""What people call a secret, in many languages: data that names, sentences and what stands near are known by."""

from __future__ import annotations

from typing import NamedTuple

from indexer.patterns import late

#: Whole words in lower case, and what their values are.
_CALLED = {
    "password": (
        "kennwort contrasena clave senha wachtwoord heslo haslo parola losenord salasana jelszo lozinka geslo sifre "
        "adgangskode kodeord mdp parool psk sandi"
    ),
    "secret": "geheim geheimnis segredo secreto segreto sekret cred creds credential credentials zugangsdaten",
    "token": "jeton salt seed pepper bearer",
    "api-key": "schluessel chave chiave cle sleutel klucz nyckel avain",
}
#: The same with characters beyond ASCII, of which small and large ones are alike.
_CALLED_ABROAD = {
    "password": (
        "contraseña|hasło|lösenord(?:et)?|jelszó|şifre|mật khẩu|парол[ьяею]|пароля|密码|密碼|口令|パスワード|비밀번호|"
        "암호|รหัสผ่าน|كلمة المرور|סיסמה|κωδικός|暗証番号"
    ),
    "secret": "секрет|シークレット|시크릿|비밀 ?키|秘密鍵|秘钥",
    "token": "токен|令牌|トークン|토큰",
    "api-key": "schlüssel|clé|ключ|密钥|密鑰|キー|鍵|(?<=api)[ ]?키|(?<=api)[ ]?key",
}
#: Of these some mean something else in English as well.
ENGLISH = frozenset(b"cred creds credential credentials salt seed pepper bearer psk".split())
STEM_WORDS = {word.encode(): kind for kind, words in _CALLED.items() for word in words.split()}
_ABROAD = late("(?i)" + "|".join(f"(?P<{kind.replace('-', '_')}>{words})" for kind, words in _CALLED_ABROAD.items()))
#: Without one of these characters a text has none of those words.
_LETTERS = frozenset(c for words in _CALLED_ABROAD.values() for c in words + words.upper() if not c.isascii())
_ORDINARY = bytes(range(128))


class Noun(NamedTuple):
    """Where such a word is, and what its value is."""

    start: int
    end: int
    kind: str


def nouns_in(text: str) -> list[Noun]:
    """What is called a secret in letters beyond ASCII."""
    rare = text.encode("utf-8", "surrogatepass").translate(None, _ORDINARY).decode("utf-8", "surrogatepass")
    if _LETTERS.isdisjoint(rare):
        return []
    return [
        Noun(found.start(), found.end(), (found.lastgroup or "").replace("_", "-")) for found in _ABROAD.finditer(text)
    ]

"""Words for a secret in people's own languages."""

from __future__ import annotations

from indexer.masking import mask
from tests.indexer.masking.invented_secrets import made_up
from tests.support.cases import parametrize_subtests

CALLED = {
    "password": (
        "kennwort contrasena clave senha wachtwoord heslo haslo parola losenord salasana jelszo lozinka geslo sifre "
        "adgangskode kodeord mdp parool psk sandi contraseña hasło lösenord lösenordet jelszó şifre пароль пароля "
        "密码 密碼 口令 パスワード 비밀번호 암호 รหัสผ่าน סיסמה κωδικός 暗証番号"
    ),
    "secret": (
        "geheim geheimnis segredo secreto segreto sekret cred creds credential credentials zugangsdaten "
        "секрет シークレット 시크릿 秘密鍵 秘钥"
    ),
    "token": "jeton salt seed pepper bearer токен 令牌 トークン 토큰",
    "api-key": "schluessel chave chiave cle sleutel klucz nyckel avain schlüssel clé ключ 密钥 密鑰 キー 鍵",
}


@parametrize_subtests("kind, word", [(kind, word) for kind, words in CALLED.items() for word in words.split()])
def test_a_secret_is_known_by_its_name_in_many_languages(kind, word):
    for name in (word, word.upper()):
        assert f"{name} = [REDACTED:{kind}]\n" == mask(f"{name} = {made_up(30)}\n")


def test_what_is_made_up_is_masked_behind_its_name_also_without_a_digit():
    for name in ("Kennwort ist", "la contrasena es"):
        assert f"{name} [REDACTED:password] now" == mask(f"{name} R^kOEvS_b^y!q now")


@parametrize_subtests(
    "text", ["das Kennwort steht in MainActivity", "la clave es Monkey-Island", "wifi is at Coffee-House there"]
)
def test_a_word_behind_it_that_is_only_a_name_stays(text):
    assert text == mask(text)

"""Secrets in pasted texts about networks, clouds, files and commands, and look-alikes."""

import string
import uuid

from indexer.masking import mask
from tests.indexer.masking.invented_secrets import ALNUM, HEX, KEY_BEGIN, KEY_END, made_up
from tests.support.cases import parametrize_subtests

IDENTITY = str(uuid.UUID(int=2**127 + 777))
LOWER = string.ascii_lowercase + string.digits
URL64, BASE64 = ALNUM + "_-", ALNUM + "+/"
LINE = made_up(64, BASE64)
SALT = made_up(64, ALNUM + "!#%*+-_?@^~|;:,.<>{}[]()&")

PASTED = [
    ("FCM={}", made_up(22) + ":APA" + "91b" + made_up(134, URL64)),
    ("Authorization: key={}", "AAAA" + made_up(7, URL64) + ":APA" + "91b" + made_up(134, URL64)),
    ("https://api.telegram.org/bot{}/getMe", "123456789:" + "AA" + made_up(33)),
    ("irc password {}", "oauth" + ":" + made_up(30, LOWER)),
    ("{}", "eyJ" + made_up(40) + ".." + made_up(16) + "." + made_up(60) + "." + made_up(22)),
    ("{}", "b3BlbnNzaC1r" + "ZXktdjEA" + made_up(48, BASE64) + "\n" + LINE + "\n" + made_up(20, BASE64) + "=="),
    ('network={{\n  ssid="home"\n  psk="{}"\n}}', "Copper-Falcon 99"),
    ('"  psk=\\"{}\\"\\n"', "copper falcon nine"),
    ("[wifi-security]\npsk={}\n", "copperfalcon99"),
    ("wpa-psk {}\n", made_up(64, HEX)),
    ("wpa_passphrase home {} > wpa.conf", "copperfalcon99"),
    ("nmcli dev wifi connect home password {}", "copperfalcon"),
    ("net use \\\\host\\x /user:anna {}", "hunter22X!"),
    ("net use Z: \\\\host\\x {} /user:anna", "hunter22X!"),
    ('ConvertTo-SecureString "{}" -AsPlainText -Force', "hunter22X!"),
    ("token: {}", IDENTITY),
    ('{{"token": "{}"}}', IDENTITY),
    ("-H 'X-Auth-Token: {}'", IDENTITY),
    ("bash <(curl -s https://codecov.io/bash) -t {}", IDENTITY),
    ("snyk auth {}", IDENTITY),
    ("ngrok config add-authtoken {}", "2" + made_up(26) + "_" + made_up(20)),
    ('Client("AC1", "{}")', made_up(32, HEX)),
    ("Authorization: AccessKey {}", made_up(25)),
    (
        'cast wallet import --mnemonic "{}"',
        "legal winner thank year wave sausage worth useful legal winner thank yellow",
    ),
    ("Unseal Key 1: {}", made_up(44, BASE64)),
    ("?sv=2022-11-02&sig={}", made_up(43) + "%3D"),
    ("https://host/data?appid={}", made_up(32, HEX)),
    ("postgres://app:{}@db:5432/shop", "pa/ss9#wOrd"),
    ("jdbc:oracle:thin:scott/{}@db:1521:x", "t1gerZZ"),
    ("curl -s -b 'theme=dark; session={}' https://host", made_up(40)),
    ("laravel_session={} of https://host", made_up(40)),
    ("stringData:\n  DB_PASS: {}\n", "hunter22x"),
    ("      MYSQL_ROOT_PASSWORD: {}\n", "harborlight"),
    ('    keyPassword "{}"\n', "hunter22x"),
    ('SECRET_KEY = "{}"', "k^3!z@9$qwe7%rt&yu*i(o)p_asd+fgh-jkl#"),
    ('btoa("anna:{}")', "hunter22x"),
    ("echo -n anna:{} | base64", "hunter22x"),
    ("login: anna / {}", "Hunter22x!"),
    ("mot de passe : {}", "Hunter22x!"),
    ("contraseña: {}", "Hunter22x!"),
    ("Kennwort: {}", "Hunter22x!"),
    ("Fastly-Key: {}\n", made_up(32)),
    ("-Dsonar.login={} -Dsonar.host.url=https://host", made_up(40, HEX)),
    ("api_secret={}\n", "0mQGTB2IqoiEdCiE"),
    (f"     1→{KEY_BEGIN.format('RSA ')}\n     2→{{}}\n     3→", LINE),
    ("olcRootPW: {{SSHA}}{}", made_up(32, BASE64)),
    ("the hash is {{SSHA512}}{} of it", made_up(96, BASE64)),
    ("anna:{{SHA}}{}", made_up(27, BASE64) + "="),
    ("define( 'AUTH_SALT',        '{}' );", SALT),
    ("define('LOGGED_IN_KEY', '{}');", SALT),
    ("NONCE_SALT='{}'", SALT),
    ("sudo -S ls <<< '{}'", "hunter2x"),
    ("vault login -no-print - <<< {}", made_up(20)),
    ('docker login -u anna --password-stdin <<< "{}"', "hunter2x"),
    (f"> so it begins\n> {{}}\n> {KEY_END.format('RSA ')}", LINE),
    ("The password was changed from the default to {} after the audit.", "Tuesday-Secret-Pancake"),
    ("> What password did you set?\nI set it to {}", "hunter29moon"),
    ("Wie lautet das Passwort?\n\nEs ist {}.", "Moor_im_Nebel_40"),
    ("J'ai remis le mot de passe de l'admin à {} ce matin", "Galette_du_29"),
    ("heslo pro uživatele spravce je {}", "Knedlik_41"),
    ("सर्वर का पासवर्ड {} है", "Lassi@Pune22"),
    ("{{ name: '__Host-session', value: '{}' }}", made_up(64, URL64)),
    ("OANDA bearer for the bot: {}", f"{made_up(32, HEX)}-{made_up(32, HEX)}"),
    ("jwt.sign({{ id: user.id }}, '{}', {{ expiresIn: '7d' }})", made_up(32)),
    ("  ┃ aws_secret_access_key = {} ┃", f"k7Q2m9X4aB3dE+5fG/7hJ9k ┃\n  ┃ {made_up(18)}   "),
]

LEFT_ALONE = [
    "define( 'AUTH_SALT', 'put your unique phrase here' );",
    'sudo -S ls <<< "$PASSWORD"',
    "userPassword is {SSHA} and base64",
    "wc -l <<< hunter2x",
    f"a token begins with gh{'p_'}\n{made_up(36)[:20]}",
    f"session={IDENTITY}",
    f"claude --resume {IDENTITY}",
    f'{{"nextPageToken": "{IDENTITY}"}}',
    f"Idempotency-Key: {IDENTITY}",
    f"pubkey-{made_up(40, HEX)}",
    f"session={made_up(40, HEX)}",
    'Authorization: Digest username="a"',
    "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
    "Surrogate-Key: blog-post-42-v7",
    f"cache-key: node-modules-{made_up(40, HEX)}",
    "psk = read_psk(path)",
    'psk="${WIFI_PSK}"',
    "wpa_passphrase ssid [passphrase]",
    "nmcli dev wifi connect home password $PSK",
    "net use Z: /delete",
    "login: anna / see 1Password",
    "POST /login / 200 in 12ms",
    "snyk auth --help",
    "codecov -t unit-tests",
    "ngrok config add-authtoken $NGROK_AUTHTOKEN",
    "oauth:callback_handler_for_google",
    'btoa(user + ":" + pass)',
    '--mnemonic "your twelve words here"',
    "https://host/?key=sort_by_created_at_desc",
    "http://localhost:3000/@scope/pkg",
    "postgres://localhost:5432/db?owner=anna@host.example",
    "INVALID_PASSWORD: invalid",
    "PASS: test_login_rejects_wrong_password2",
    "le mot de passe : obligatoire",
    "Kennwort: vergessen",
    "keyPassword rootProject.ext.pw2",
    "session_state=anonymous_visitor_of_the_start_page_2",
    "1→ -----BEGIN PUBLIC KEY-----",
    ":root { --key-color: #1f2d3d; --token-bg: rgba(0,0,0,.4); --pass: #34d399; }",
    "what is the password? see Room_42 of the handbook",
    "password" + "?" * 5000,
    "I changed the password check on web-prod-01",
    "{ name: 'session', value: 'Sessions-of-the-user' }",
    "jwt.sign({ id: 1 }, config.get('jwt.secret2'), { algorithm: 'HS256' })",
]


@parametrize_subtests("text, secret", PASTED)
def test_what_is_pasted_with_a_secret_in_it_shows_nothing_of_it(text: str, secret: str):
    masked = mask(text.format(secret))

    assert not [part for part in (secret, secret[: len(secret) // 2], secret[len(secret) // 2 :]) if part in masked]
    assert "[REDACTED:" in masked


@parametrize_subtests("text", LEFT_ALONE)
def test_what_only_looks_like_it_is_left_alone(text: str):
    assert text == mask(text)


@parametrize_subtests(
    "token",
    [
        "gh" + "p_" + made_up(36),
        "github" + "_pat_" + made_up(82),
        "gl" + "pat-" + made_up(20),
        "sk" + "-ant-api03-" + made_up(90),
        "xo" + "xb-123456789012-" + made_up(24),
    ],
)
def test_a_token_that_no_word_begins_like_is_masked_right_behind_a_word(token):
    assert token not in mask(f"/proc/self/environ{token} there")
    assert token[-12:] not in mask(f"export TOKEN_{token}")


@parametrize_subtests(
    "beginning, length", [("gh" + "p_", 36), ("github" + "_pat_", 82), ("gl" + "pat-", 20), ("AI" + "za", 35)]
)
@parametrize_subtests("line_end", ["\n", "\r\n", "\n    ", "\n> ", "\n+"])
def test_what_is_missing_of_a_token_at_a_line_end_is_masked_in_the_next_line(beginning, length, line_end):
    token = made_up(length)
    for first in (4, length // 2, length - 4):
        masked = mask(f"use {beginning}{token[:first]}{line_end}{token[first:]} for it")

        assert token[:first] not in masked
        assert token[first:] not in masked
        assert masked.endswith(" for it")


def test_a_word_below_a_whole_token_is_left_alone():
    token = "gh" + "p_" + made_up(36)

    assert mask(f"{token}\nharbor42").endswith("\nharbor42")

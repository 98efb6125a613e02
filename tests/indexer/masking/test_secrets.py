"""Texts in which secrets are masked, and texts that stay unchanged."""

import hashlib
import json
import re
import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from indexer.masking import mask as redact
from indexer.masking import mask_parts
from tests.indexer.masking.invented_secrets import (
    ALNUM,
    BASE64_LINES,
    EVERY_TOKEN,
    HEX,
    KEY_BEGIN,
    KEY_END,
    UPPER,
    made_up,
)
from tests.support.cases import parametrize_subtests

any_token = st.sampled_from(EVERY_TOKEN)
#: Text that cannot be a part of a token, nor a name to which one is assigned.
plain_text = st.text(alphabet=st.characters(exclude_categories=["Cs"], exclude_characters="-_:=/+.\\\"'`"), max_size=40)

ASSIGNMENTS = {
    "password": [
        ("password=", "hunter2", "\n"),
        ("the file has password=", "hunter2", " in it"),
        ("pass: ", "hunter22", "\n"),
        ("pass: ", "falcon_9916", "\n"),
        ("user=anna\npassword=", "ember_2719", "\n"),
        ("the door code for the office: ", "4711", "\n"),
        ("settings of the staging machine\npass: ", "harbor_4711", "\n"),
        ("db_password: ", "harbor_4711", "\n"),
        ('password="', "swordfish", '"'),
        ("DB_PASS=", "a!b#c$9d", "\n"),
        ("password: '", "p@$$w0rd!", "'"),
        ("password: '", "&xK9mQ2!z", "'"),
        ("mysql -u root -p", "hunter2x", " shop"),
        ("mysqldump --all -p'", "hunter 2x", "' > all.sql"),
        ("login with anna and ", "x7#Kq2!p", " there"),
        ("sshpass -p ", "hunter2x", " ssh anna@host"),
        ("redis-cli -h cache -a ", "hunter2x", " ping"),
        ("docker login -u anna -p ", "hunter2x", " ghcr.io"),
        ("ldapsearch -x -w ", "hunter2x", " -b dc=host"),
        ("sqlcmd -S host -U sa -P ", "hunter2x!", " -Q x"),
        ("7z a -p", "hunter2x", " all.7z"),
        ("openssl enc -pass pass:", "hunter2x", " -in a"),
        ("echo '", "hunter2x", "' | sudo -S ls"),
        ("echo anna:", "hunter2x", " | chpasswd"),
        ("machine host login anna password ", "hunter2x", "\n"),
        ("machine host\n  login anna\n  password ", "hunter2x", "\n"),
        ("db:5432:shop:anna:", "hunter2x", "\n"),
        ("db:6432:shop:anna:", "hunter2x", "\n"),
        ("CREATE USER anna IDENTIFIED BY '", "swordfish", "';"),
        ("ALTER ROLE anna WITH LOGIN PASSWORD '", "swordfish", "';"),
        ("Server=db;User Id=sa;Password=", "Str0ng!pw", ";Encrypt=true"),
        ("jdbc:mysql://db/shop?user=anna&password=", "swordfish", "&ssl=1"),
        ("<password>", "hunter2x", "</password>"),
        ("- name: DB_PASSWORD\n  value: ", "hunter2x", "\n"),
        ('{"name": "DB_PASSWORD", "value": "', "hunter2x", '"}'),
        ('<add key="DbPassword" value="', "hunter2x", '" />'),
        ("ENV DB_PASSWORD ", "hunter2x", "\n"),
        ("set -gx DB_PASSWORD ", "hunter2x", "\n"),
        ('$env:DB_PASSWORD = "', "hunter2x", '"'),
        ("define('DB_PASSWORD', '", "hunter2x", "');"),
        ('.password("', "hunter2x", '")'),
        ("password => '", "hunter2x", "',"),
        ('requests.get(url, auth=("anna", "', "hunter2x", '"))'),
        ("'password': '", "abcd efgh ijkl mnop", "'"),
        ("**Password:** `", "hunter2x", "`"),
        ("my password is ", "hunter2x", " by the way"),
        ("kubectl create secret generic x --from-literal=password='", "hunter2x", "'"),
        ("-Ddb.password=", "hunter2x", " -jar a.jar"),
        ("DB_PASSWORD=", "hunter2hunter", "\n"),
        ("export PGPASSWORD='", "Tr0ub4dor&3", "'"),
        ('{"password": "', "Tr0ub4dor&3", '"}'),
        ('{\\"password\\": \\"', "Tr0ub4dor&3", '\\"}'),
        ("password: ", "hunter2x", "\nuser: anna"),
        ("https://host/login?user=anna&password=", "swordfish", "&next=home"),
        ("run --password=", "swordfish", " --verbose"),
        ("run --db-password ", "sw0rdfish", " --verbose"),
        ('password: str = "', "hunter2x", '"'),
        ('config["db_password"] = "', "hunter2x", '"'),
        ("curl -s -u anna:", "sw0rdfish", " https://host"),
        ("PASSWORD=", "12345678", "\n"),
        ("DB_PWD=", "swordfish", "\n"),
        ('passphrase: "', "Tr0ub4dor&3", '"'),
        ("mysql_pass = '", "hunter2x", "'"),
        ('password = """', "hunter2x", '"""'),
        ("password = '''", "hunter2x", "'''"),
        ('let password = String::from("', "hunter2x", '");'),
        ('String password = new String("', "hunter2x", '");'),
        ("the password for staging is '", "amber lanterns drift north", "'"),
        ("the wifi password is '", "purple monkey dishwasher lamp", "'"),
        ("PASSWORD='", "Tiger lily over 9 moons", "'"),
        ('["curl", "-s", "-u", "anna:', "sw0rdfish", '", "https://host"]'),
        ("| user | password |\n|---|---|\n| k7Rm2xQp9z | ", "k7Rm2xQp9z", " |\n"),
    ],
    "api-key": [
        ("api_key=", made_up(32, HEX), "\n"),
        ("aws_secret_access_key = ", "/" + made_up(38) + "+", "\n"),
        ("AWS_SECRET_ACCESS_KEY=", "+" + made_up(39), "\n"),
        ('"SecretAccessKey": "', "/" + made_up(20) + "/" + made_up(18), '"'),
        ("DD_APP_KEY=", made_up(40, HEX), "\n"),
        ("PrivateKey = ", made_up(43) + "=", "\n"),
        ("API_KEY=", made_up(24), "\n"),
        ("  api_key: ", made_up(32, HEX), "\n"),
        ('apiKey: "', made_up(32), '",'),
        ('apiKey: "', "abcdEFGHijklMNOPqrst7", '",'),
        ("-H 'X-Api-Key: ", made_up(32), "'"),
        ('os.environ["API_KEY"] = "', made_up(32), '"'),
        ("https://host/v1?api_key=", made_up(32, HEX), "&q=1"),
        ("ibm_api_key = '", made_up(44), "'"),
        ("softlayer_api_key: ", made_up(64, HEX), "\n"),
        ("aws_secret_access_key = ", made_up(40, ALNUM), "\n"),
        ("AWS_SECRET_ACCESS_KEY=", made_up(38) + "/+", "\n"),
        ("AccountKey=", made_up(86) + "==", ";EndpointSuffix=core"),
    ],
    "docker-auth": [
        ('"ghcr.io": {"auth": "', "YW5uYTpodW50ZXIyeA==", '"}'),
        ("_auth=", "YW5uYTpodW50ZXIyeA==", "\n"),
    ],
    "heroku-key": [("HEROKU_API_KEY=", str(uuid.UUID(int=2**127 + 54321)), "\n")],
    "cookie": [("Cookie: theme=dark; session_id=", made_up(32), "; lang=en")],
    "signature": [("https://x.blob.core.windows.net/a?sv=1&sig=", made_up(40) + "%3D", "&se=2")],
    "token": [
        ('"token": "', made_up(40, HEX), '"'),
        ("GITLAB_TOKEN=", made_up(24), " make"),
        ('"refresh_token": "', made_up(40), '"'),
        ("access_token = ", made_up(40), "\n"),
        ("https://host/hook?token=", made_up(24), "&x=1"),
    ],
    "secret": [
        ("JWT_SECRET=", "supersecretvalueforsigning", "\n"),
        ('client_secret: "', made_up(32), '"'),
    ],
    "password-in-url": [
        ("postgres://anna:", "s3cr3t!", "@db.internal:5432/app"),
        ("redis://:", "s3cr3t", "@localhost"),
        ("amqp://anna:", "p@ss:w0rd", "@mq/"),
    ],
    "authorization": [
        ("Authorization: Bearer ", made_up(32), "\n"),
        ("Authorization: Basic ", made_up(20) + "==", "\n"),
        ('"authorization": "token ', made_up(20), '"'),
        ("curl -H 'bearer ", made_up(40), "'"),
    ],
    "npm-token": [
        (f"//registry.example.com/:{name}=", str(uuid.UUID(int=2**127 + 12345)), "\n")
        for name in ("_authToken", "_authtoken")
    ],
}
EVERY_ASSIGNMENT = [(kind, *parts) for kind, rows in ASSIGNMENTS.items() for parts in rows]

LEFT_ALONE = [
    "--- PASS: TestFindCheckpointUUID/tool1 (0.00s)",
    "pass: 12, fail: 0, skip: 3",
    "bypass: true, compass: north2",
    "token_count=4096",
    "max_tokens: 128000",
    "key: value2",
    "sort_key=2026-01-02T03:04:05Z-item42",
    "PRIMARY_KEY=user_id_2",
    "password_reset_url=https://host/reset/12",
    "password: user.password2",
    "password=form.password1.value",
    "const password = req.body.password2;",
    "if (password !== password2) return",
    "password = settings.DB_PASSWORD_2",
    "docker run -p 8080:80 nginx",
    "mkdir -p src/app2 && ssh -p 2222 host",
    "mysql -u root -p shop",
    "curl -u anna https://host",
    "Extensions are identified by signature2026.",
    "machine learning and the login password2",
    "Authorization: Bearer ${TOKEN}",
    'headers = {"Authorization": f"Bearer {token2}"}',
    '"auth": "required"',
    'auth: [ "user", "admin" ]',
    "git clone https://github.com/anna/project2.git",
    "https://host/path?signature=none&token=abc",
    "<password></password> <token>${TOKEN}</token>",
    "basic understanding2024 of it",
    "cookie: theme=dark; lang=en",
    'os.getenv("API_TOKEN", "none")',
    'password: "Passwort"',
    "the password is required, 2 times",
    "secret_santa_2024_list",
    "keyboard=us-intl-2024 monkey=1234567890abcdef",
    "password = get_password()",
    'password = getpass("Password: ")',
    "token: str",
    "token: str | None = None,",
    "def login(user: str, password: str) -> Token:",
    'os.environ["API_KEY"]',
    'api_key = os.environ["MY_SERVICE_API_KEY_2"]',
    'api_key=os.environ.get("API_KEY", "")',
    "const token = process.env.TOKEN",
    "token = process.env.GITHUB_TOKEN_2024_09_A1B2C3",
    "CSRF_TOKEN=12345678",
    "ghp_" + "0" * 36,
    "QUJD" + "AKIA" + made_up(16, UPPER),
    "12345678:" + made_up(35) + " and :AA",
    "[REDACTED:aws-access-key] '" + made_up(40) + "'",
    'password: "hunter2 is what he always takes"',
    '"password": "confirmation"',
    "the next token a1b2c3d4e5f6g7h8 of the list",
    "token = a1b2c3d4e5f6g7h8i9(line)",
    "access_token = previous_access_token_value",
    "API_KEY=<your-key>",
    'api_key: "your-api-key-1234567890"',
    "TOKEN=xxxxxxxxxxxxxxxx",
    "ghp_" + "x" * 36,
    "AKIA" + "X" * 16,
    "PASSWORD=REDACTED",
    "PASSWORD=$DB_PASSWORD",
    "PASSWORD=${DB_PASSWORD:-none}",
    "password: {{ vault_db_password }}",
    "https://anna:${TOKEN}@host/x.git",
    "https://<user>:<pass>@host",
    "https://user:password@host",
    "curl -u $USER:$PASS https://host",
    "docker run -u 1000:1000 image",
    "http://localhost:8080/a@b",
    "regex = '://[^:]+:([^@]+)@'",
    "Authorization: Bearer $TOKEN",
    "Authorization: Bearer <token>",
    "the bearer of bad news returns",
    "max_tokens=200000 token_count: 123456",
    "TOKENIZERS_PARALLELISM=false",
    'token: "design-system-2024"',
    'token_url: "https://host/oauth2/token1"',
    "file_path=a1B2c3D4e5F6g7H8i9J0k1L2",
    "PWD=/home/anna/projects/app",
    "self.password = password",
    "password: hashed(user1)",
    "password=password123_from_form(form)",
    "if token == other_token_2: pass",
    'label: "Enter your password, at least 8 characters"',
    "primary_key=True, foreign_key = user_id_2",
    "key = 1a2b3c4d5e6f7a8b9c0d",
    "secret_name: projects/1234567890/secrets/db-password-v1",
    "private_key_id: " + made_up(40, HEX),
    "password_hash = hash_password(password, rounds=12)",
    f"if '{KEY_BEGIN.format('RSA ')}' in text:",
    f"{KEY_BEGIN.format('')}\n...\n{KEY_END.format('')}",
    "task-force-risk-assessment-2024-Summary-of-Things",
    "sk-learn-pipeline-with-standard-scaler",
    "hf_hub_download_and_cache_the_model_v2",
    "eyJ is how base64 of a JSON object begins",
    "SG.A is no SendGrid key, AC and SK are no Twilio keys",
    "tests/indexer/test_redact.py::test_long_name_of_a_test_with_number_12345",
    "C:\\Users\\anna\\AppData\\Local\\Programs\\Python311",
    "sha256:" + hashlib.sha256(b"layer").hexdigest(),
    "claude --resume 0f8fad5b-d9cb-469f-a165-70867728950e",
    "rollout-2026-01-02T03-04-05-019b8a2c-1d2e-7f30-8a4b-5c6d7e8f9a0b.jsonl",
    "a password is needed; the secret is a token: see README",
    "",
]


@parametrize_subtests("kind, token", EVERY_TOKEN)
def test_a_token_known_by_its_shape_is_replaced_by_its_kind(kind, token):
    assert f"see [REDACTED:{kind}] there" == redact(f"see {token} there")


@parametrize_subtests("kind, token", EVERY_TOKEN)
def test_a_token_is_found_in_a_quoted_script_with_escaped_line_ends(kind, token):
    escaped = token.replace("\n", "\\n")
    assert f'"a = 1\\n[REDACTED:{kind}]\\nb = 2"' == redact(f'"a = 1\\n{escaped}\\nb = 2"')


@parametrize_subtests("kind, before, value, after", EVERY_ASSIGNMENT)
def test_an_assigned_secret_is_masked_and_nothing_around_it(kind, before, value, after):
    assert f"{before}[REDACTED:{kind}]{after}" == redact(before + value + after)


@parametrize_subtests("text", LEFT_ALONE)
def test_code_ids_paths_and_placeholders_are_left_alone(text):
    assert text == redact(text)


def test_a_private_key_whose_end_is_missing_is_masked_up_to_its_last_line():
    text = f"before\n{KEY_BEGIN.format('')}\n{BASE64_LINES}\nand then prose"
    assert "before\n[REDACTED:private-key]\nand then prose" == redact(text)


def test_a_private_key_whose_beginning_is_missing_is_masked_from_its_first_line():
    body = "aB3dE6gH" * 8 + "\n" + "xY9zQ1wE" * 8 + "\nabcd1234=\n"
    end = "-----END RSA PRIVATE KEY-----"

    assert "so it ends:\n[REDACTED:private-key]\n" == redact(f"so it ends:\n{body}{end}\n")
    assert "[REDACTED:private-key]" == redact(json.dumps(body)[1:-1] + end)
    assert f"prose alone\n{end}" == redact(f"prose alone\n{end}")


def test_the_private_lines_of_a_putty_key_are_masked():
    text = f"PuTTY-User-Key-File-3: ssh-ed25519\nPrivate-Lines: 6\n{BASE64_LINES}\n!"
    assert "PuTTY-User-Key-File-3: ssh-ed25519\nPrivate-Lines: 6\n[REDACTED:private-key]!" == redact(text)


def test_two_keys_in_one_file_leave_the_text_between_them():
    block = f"{KEY_BEGIN.format('')}\n{BASE64_LINES}\n{KEY_END.format('')}"
    assert "[REDACTED:private-key] between [REDACTED:private-key]" == redact(f"{block} between {block}")


def test_a_quoted_aws_secret_is_found_by_the_name_before_it():
    text = f'aws_credentials(key="{made_up(40)}")'
    assert 'aws_credentials(key="[REDACTED:aws-access-key]")' == redact(text)


def test_a_discord_token_is_found_where_discord_is_spoken_of():
    token = "M" + made_up(24) + "." + made_up(8)[:6] + "." + made_up(27)
    assert "discord [REDACTED:discord-token]" == redact(f"discord {token}")


def test_the_more_telling_kind_names_a_secret_that_is_known_twice():
    for kind, token in EVERY_TOKEN:
        if kind not in ("private-key", "jwt", "api-key"):
            assert f"MY_API_KEY=[REDACTED:{kind}]" == redact(f"MY_API_KEY={token}")


@parametrize_subtests("token", ["ghp" + "_" + made_up(60), "AIza" + made_up(60), "npm" + "_" + made_up(50)])
def test_a_token_that_is_longer_than_its_pattern_leaves_no_tail(token):
    assert "a [REDACTED] b" == re.sub(":[a-z-]+", "", redact(f"a {token} b"))


def test_a_secret_inside_a_longer_one_does_not_end_it():
    value = "a1/" + "AKIA" + made_up(16, UPPER) + "/the-tail-of-it"
    assert "Authorization: Bearer [REDACTED:authorization]\n" == redact(f"Authorization: Bearer {value}\n")


def test_several_secrets_of_one_line_are_all_masked():
    text = f"login -u anna --password=swordfish1 https://anna:sesame99@host {'ghp' + '_' + made_up(36)}"
    expected = "login -u anna --password=[REDACTED:password] https://anna:[REDACTED:password-in-url]@host [REDACTED:github-token]"
    assert expected == redact(text)


def test_a_letter_whose_lower_case_is_two_characters_shifts_nothing():
    assert "İİİ — PASSWORD=[REDACTED:password]" == redact("İİİ — PASSWORD=swordfish")


def test_a_lone_surrogate_is_no_obstacle():
    assert "\ud800 PASSWORD=[REDACTED:password]" == redact("\ud800 PASSWORD=swordfish")


@given(any_token, plain_text, plain_text)
@pytest.mark.slow
def test_the_text_around_a_secret_survives(kind_and_token, before, after):
    kind, token = kind_and_token
    before += ","  # the beginning of a token at the end of a line is one that goes on in the next
    assert f"{before}\n[REDACTED:{kind}]\n{after}" == redact(f"{before}\n{token}\n{after}")


pieces = st.one_of(
    any_token.map(lambda row: row[1]),
    st.sampled_from([before + value + after for _, before, value, after in EVERY_ASSIGNMENT]),
    st.sampled_from(LEFT_ALONE),
    st.sampled_from(
        [
            "[REDACTED:jwt]",
            "[REDACTED:",
            "]",
            "token=",
            "aws key '",
            "password: ",
            "://a:",
            "@",
            '"',
            "'",
            "\n",
            " ",
            "-",
        ]
    ),
    st.text(max_size=12),
)


@given(st.lists(pieces, max_size=8).map("".join))
@pytest.mark.slow
def test_doing_it_again_changes_nothing(text):
    once = redact(text)
    assert once == redact(once)


@given(
    st.uuids(),
    st.sampled_from(
        ["{}", "session_id={}", "token {}", "resume {} now", '"sessionId": "{}"', "token={}", "12345678:{}"]
    ),
)
def test_a_uuid_is_never_altered(identifier, form):
    for text in (form.format(identifier), form.format(str(identifier).upper())):
        assert text == redact(text)


@given(st.binary(), st.sampled_from(["{}", "commit {}", "sha256:{}", "token {}", "key: {}", "{}-us-east"]))
def test_a_commit_or_content_hash_is_never_altered(content, form):
    for digest in (hashlib.sha1(content).hexdigest(), hashlib.sha256(content).hexdigest()):  # noqa: S324
        assert form.format(digest) == redact(form.format(digest))


def test_a_key_that_is_cut_in_the_midst_of_a_line_leaves_no_piece():
    key = "-----BEGIN PRIVATE" + " KEY-----\n" + "MIIEvQIBADANBgkqhkiGwBAQEFAASCBKcwggSjAgEAAoIBAQ\n" * 3 + "MIIEvQIBAD"

    assert redact(key) == "[REDACTED:private-key]"


@parametrize_subtests(
    "parts",
    [
        ["it begins", "DB_PASSWORD=kX7m", "Q2zanW9pL4", "the end"],
        ["curl -u app:kX7mQ2", "zanW9pL4 https://api.internal"],
        ["name: DB_PASSWORD", 'value: "kX7mQ2zanW9pL4"'],
    ],
)
def test_a_secret_that_goes_from_one_part_into_the_next_leaves_no_piece(parts: list[str]):
    masked = mask_parts(parts)

    assert len(masked) == len(parts)
    assert not [piece for piece in ("kX7m", "Q2zan", "W9pL4") if piece in "".join(masked)]

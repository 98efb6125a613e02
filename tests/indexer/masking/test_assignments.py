"""The text around a name and its value decides if the value is a secret, and where it ends."""

from __future__ import annotations

from indexer.masking import mask
from tests.indexer.masking.invented_secrets import made_up
from tests.support.cases import parametrize_subtests

VALUE = "Hunter22x!"
KEY = made_up(20)


@parametrize_subtests(
    "text, kind",
    [
        *((f"{name}{sign}{{}}\n", "password") for name in ("bindpw", "rootpw", "userpw") for sign in (" ", "=", ": ")),
        *((f"{before}server.pw {{}}\n", "password") for before in ("", "\n", "x\n", "x" * 90 + "\n")),
        ("requirepass {}\n", "password"),
        ("echo ${{DB_PASS:-{}}}", "password"),
        ("?pass={}&page=1", "password"),
        ("a=1;pass={};b=2", "password"),
        *(
            (f'{who} = "x", secret: "{{}}"', "secret")
            for who in ("user", "user_name", "login", "host", "server", "email")
        ),
        ('the "password" field is "{}"', "password"),
    ],
)
def test_the_value_of_a_name_is_masked_and_nothing_else(text, kind):
    assert text.format(f"[REDACTED:{kind}]") == mask(text.format(VALUE))


@parametrize_subtests("name", ["key", "app_key", "KEY"])
def test_a_key_beside_an_account_is_that_of_the_account(name):
    account = f'"account": "x"\n{name} = '

    assert f'{account}"[REDACTED:api-key]"' == mask(f'{account}"{KEY}"')


@parametrize_subtests(
    "text", ["x;token=get_token(user1)", "a=1;pass=read(12)", "token=abc}", "server pw rules\n", "${DB_PASS:-}"]
)
def test_a_name_without_a_value_of_its_own_stays(text):
    assert text == mask(text)


@parametrize_subtests(
    "beside",
    [
        '"keyName": "x"', '"id": "/secrets/x"', '"httpOnly": true', '"type": "SecureString"', '"sensitive": true',
        '"secure": true', '"type": "secret"', '"type":"secret"', '"secret": true',
    ],
)  # fmt: skip
def test_a_value_is_secret_if_a_field_beside_it_says_so(beside):
    for text in (f'{{{{{beside}, "value": "{{}}"}}}}', f'{{{{"value": "{{}}", {beside}}}}}'):
        assert text.format("[REDACTED:secret]") == mask(text.format(made_up(12)))
    assert '{"name": "x", "value": "k7Q2m9X4aB3d"}' == mask('{"name": "x", "value": "k7Q2m9X4aB3d"}')


#: Values, from what only might be a password to what is one wherever it is assigned.
VALUES = ("harbor-light", "harborlight", "Passkey5", "hunter22x")
#: From which of these values on one is masked in these texts.
PLACES = {
    "harbor-light": (
        'PASSWORD="{}"', "PASSWORD={}", "export DB_PASSWORD={}", "ENV PASSWORD {}", "setx PASSWORD {}", "--password={}",
        '--password "{}"', "--password {}", "?password={}&x=1", "a;password={};b", "Server=x;Password={};",
        "name: PASSWORD\nvalue: {}\n", 'name: PASSWORD, value: "{}"',
    ),
    "harborlight": (
        'PASSWORD = "{}"', 'password = "{}"', 'password := "{}"', 'password => "{}"', 'f(password="{}")',
        'user: "x", password: "{}"', 'host = "x", password: "{}"', "<password>{}</password>", "DB_PASSWORD: {}",
    ),
    "Passkey5": (
        'password: "{}"', "password: {}\n", "  password: {}", '{{"password": "{}"}}', '"DB_PASSWORD": "{}"',
        "('DB_PASSWORD', '{}')", "password:\n  value: {}\n", '<add key="Password" value="{}" />', "| password | {} |",
    ),
    "hunter22x": (
        "password={}", "password={}\n", "password={} ok", "x password={}, y", "f(password={})", "password {}\n",
        'password "{}"', "set password {}", "user: x, password: {}", "password -> {}",
    ),
}  # fmt: skip


@parametrize_subtests(
    "value",
    [
        *("changeme-Kx83hd", "ChangeMe!2031", "changeme_7dq2", "k4example9021", "Example-Zk3mP0q", "YourHarbor846"),
        *("mysecret8945!", "SuperSecret77", "Passw0rd", "p4ssw0rd-x9", "S3cr3t-harbor1"),
    ],
)
def test_a_password_in_which_a_placeholder_or_a_name_is_only_a_part_is_masked_in_each_form(value):
    for text in (
        *("password={}\n", "DB_PASSWORD={}", 'password: "{}"', "smtp_password = {}\n", '{{"password": "{}"}}'),
        *("<password>{}</password>", "--password={}", "mysql -u root -p{} shop", "redis://:{}@cache:6379/0"),
        *("the password is {}", "Das Passwort lautet {}", "le mot de passe est {}", "la contraseña es {}"),
    ):
        assert value not in mask(text.format(value)), text


@parametrize_subtests(
    "value",
    [
        *("changeme", "CHANGE_ME", "example", "example-password", "your-256-bit-secret", "replace-with-a-long-string"),
        *("<changeme>", "${EXAMPLE}", "{{ example }}", "xxxxxxxx", "********", "YOUR_PASSWORD_HERE", "dummy-token"),
    ],
)
def test_a_placeholder_that_is_the_whole_value_stays(value):
    for text in ("password={}\n", 'password: "{}"', "DB_PASSWORD={}", "the password is {}"):
        assert text.format(value) == mask(text.format(value))


@parametrize_subtests("least, text", [(least, text) for least, texts in PLACES.items() for text in texts])
def test_how_much_a_value_must_be_like_a_password_depends_on_how_it_is_assigned(least, text):
    first = VALUES.index(least)
    for value in VALUES[:first]:
        assert text.format(value) == mask(text.format(value))
    for value in VALUES[first:]:
        assert text.format("[REDACTED:password]") == mask(text.format(value))

"""Secrets as people paste them: 80 shapes, each with invented values and in five surroundings."""

from __future__ import annotations

import base64
import json
import random
import string
import uuid
from collections.abc import Callable, Iterator
from typing import NamedTuple

ALNUM, HEX = string.ascii_letters + string.digits, string.digits + "abcdef"
UPPER, LOWER = string.ascii_uppercase + string.digits, string.ascii_lowercase + string.digits
URL64, BASE64 = ALNUM + "-_", ALNUM + "+/"
SIGNS = "!#$%^&*+?~@-_"
_WORDS = [
    "harbor",
    "velvet",
    "copper",
    "lantern",
    "meadow",
    "falcon",
    "granite",
    "willow",
    "ember",
    "saffron",
    "thunder",
    "marble",
]


class Sample(NamedTuple):
    """A text with a secret in it."""

    shape: str
    text: str
    secret: str


class Shape(NamedTuple):
    """A way to write a secret: ``{}`` in `form` stands for the value that `make` invents."""

    name: str
    form: str
    make: Callable[[random.Random], str]


def some(length: int, alphabet: str = ALNUM, before: str = "", after: str = "") -> Callable[[random.Random], str]:
    """Return characters of an alphabet, with a digit and a letter near the beginning."""

    def make(chance: random.Random) -> str:
        letters = [c for c in alphabet if c.isalpha()]
        digits = [c for c in alphabet if c.isdigit()]
        head = [chance.choice(letters), chance.choice(digits), chance.choice(letters)] if letters and digits else []
        return before + "".join(head + chance.choices(alphabet, k=length - len(head))) + after

    return make


def password(chance: random.Random) -> str:
    """Return a password of a person or a generator: a word and a number, or letters, digits and signs."""
    if chance.random() < 0.5:
        return (
            chance.choice(_WORDS)
            + chance.choice(SIGNS[:6] + "_") * chance.randint(0, 1)
            + str(chance.randint(10, 9999))
        )
    return (
        chance.choice(string.ascii_letters)
        + "".join(chance.choices(ALNUM + SIGNS[:4], k=9))
        + str(chance.randint(10, 99))
    )


def signed(chance: random.Random) -> str:
    """Return a password with signs in its middle."""
    return some(4)(chance) + chance.choice("!#^*?") + some(4)(chance) + chance.choice("!#^*?~")


def basic(chance: random.Random) -> str:
    """Return a name and a password in base64."""
    return base64.b64encode(f"{chance.choice(_WORDS)}:{password(chance)}".encode()).decode()


def identity(chance: random.Random) -> str:
    """Return a UUID."""
    return str(uuid.UUID(int=chance.getrandbits(128), version=4))


def token(chance: random.Random) -> str:
    """Return a JSON web token."""
    return f"eyJ{some(33)(chance)}.eyJ{some(60)(chance)}.{some(43, URL64)(chance)}"


def aws(chance: random.Random) -> str:
    """Return an AWS secret key. A third of them begin with a sign."""
    return chance.choice(["/", "+", ""]) + some(39, BASE64)(chance) + "x"


def block(chance: random.Random) -> str:
    """Return a private key block."""
    lines = "\n".join(some(64, BASE64)(chance) for _ in range(5))
    return "-----BEGIN RSA PRIVATE" + f" KEY-----\n{lines}\n-----END RSA PRIVATE" + " KEY-----"


SHAPES = (
    # vendors
    *(
        Shape(name, "{}", make)
        for name, make in {
            "anthropic": some(90, URL64, "sk-" + "ant-api03-"),
            "openai": some(60, URL64, "sk-" + "proj-"),
            "github": some(36, ALNUM, "ghp" + "_"),
            "github fine": some(70, ALNUM, "github" + "_pat_"),
            "gitlab": some(20, URL64, "glpat" + "-"),
            "doppler": some(43, ALNUM, "dp" + ".pt."),
            "figma": some(40, URL64, "figd" + "_"),
            "grafana": lambda chance: some(32)(chance).join(["glsa" + "_", "_"]) + some(8, HEX)(chance),
            "heroku": some(58, URL64, "HRKU" + "-AA"),
            "mailgun": some(32, HEX, "key" + "-"),
            "notion": some(43, ALNUM, "secret" + "_"),
            "postman": lambda chance: "PMAK" + f"-{some(24, HEX)(chance)}-{some(34, HEX)(chance)}",
            "sentry": some(100, BASE64, "sntrys" + "_eyJ"),
            "square": some(60, URL64, "EAAA"),
            "supabase": some(40, HEX, "sbp" + "_"),
            "planetscale": some(43, URL64, "pscale" + "_tkn_"),
            "replicate": some(37, ALNUM, "r8" + "_"),
            "databricks": some(32, HEX, "dapi"),
            "atlassian": some(180, URL64, "ATATT3" + "xFfGF0", "=1A2B3C4D"),
            "new relic": some(27, UPPER, "NRAK" + "-"),
            "fly": some(80, BASE64, "fm2" + "_"),
            "stripe": some(24, ALNUM, "sk" + "_live_"),
            "slack": lambda chance: (
                "xoxb" + f"-{chance.randint(10**11, 10**12)}-{chance.randint(10**12, 10**13)}-{some(24)(chance)}"
            ),
            "digitalocean": some(64, HEX, "dop" + "_v1_"),
            "shopify": some(32, HEX, "shpat" + "_"),
            "linear": some(40, ALNUM, "lin" + "_api_"),
            "hubspot": lambda chance: "pat" + f"-na1-{identity(chance)}",
            "airtable": lambda chance: f"pat{some(14)(chance)}.{some(64, HEX)(chance)}",
            "docker": some(27, URL64, "dckr" + "_pat_"),
            "pulumi": some(40, HEX, "pul" + "-"),
            "terraform": lambda chance: f"{some(14)(chance)}.atlasv1.{some(67)(chance)}",
            "tailscale": some(40, ALNUM, "tskey" + "-auth-"),
            "brevo": lambda chance: "xkeysib" + f"-{some(64, HEX)(chance)}-{some(16)(chance)}",
            "azure": lambda chance: f"{some(3)(chance)}8Q~{some(34, URL64)(chance)}",
            "aws id": some(16, UPPER, "AKIA"),
            "google": some(35, URL64, "AIza"),
        }.items()
    ),
    # settings
    Shape("env password", "DB_PASSWORD={}", password),
    Shape("export", "export PGPASSWORD='{}'", password),
    Shape("lower-case password", "password={}", password),
    Shape("double quotes", 'password = "{}"', password),
    Shape("yaml", "  db_password: {}", password),
    Shape("yaml pass", "pass: {}", password),
    Shape("ini", "passwd = {}", password),
    Shape("properties", "spring.datasource.password={}", password),
    Shape("signs", "DB_PASS={}", signed),
    Shape("signs in quotes", "'password': '{}',", signed),
    Shape("json", '{{"username": "anna", "password": "{}"}}', password),
    Shape("json token hex", '"token": "{}"', some(40, HEX)),
    Shape("api key hex", "api_key={}", some(32, HEX)),
    Shape("api key camel", 'apiKey: "{}"', some(32)),
    Shape("client secret", '"client_secret": "{}"', some(32, URL64)),
    Shape("secret key", "SECRET_KEY = '{}'", some(50, ALNUM + "!@#^&*")),
    Shape("aws secret", "aws_secret_access_key = {}", aws),
    Shape("aws secret env", "AWS_SECRET_ACCESS_KEY={}", aws),
    Shape("aws secret json", '"SecretAccessKey": "{}"', aws),
    Shape("docker auth", '"auths": {{"ghcr.io": {{"auth": "{}"}}}}', basic),
    Shape("npmrc", "//registry.example.org/:_authToken={}", identity),
    Shape("kubernetes", "- name: DB_PASSWORD\n  value: {}", password),
    Shape("compose", "      - POSTGRES_PASSWORD={}", password),
    Shape("terraform variable", 'db_password = "{}"', password),
    Shape("powershell", '$env:API_TOKEN = "{}"', some(32)),
    Shape("docker file", "ENV API_TOKEN {}", some(32)),
    Shape("appsettings", '"Default": "Server=db;User Id=sa;Password={};Encrypt=true"', password),
    Shape("azure storage", "DefaultEndpointsProtocol=https;AccountName=x;AccountKey={}", some(86, BASE64, after="==")),
    Shape("xml", "<password>{}</password>", password),
    Shape("wireguard", "PrivateKey = {}", some(43, BASE64, after="=")),
    # files, commands, addresses, statements
    Shape("netrc", "machine api.example.org login anna password {}", password),
    Shape("mysql", "mysql -u root -p{} shop", password),
    Shape("sshpass", "sshpass -p {} ssh anna@host", password),
    Shape("redis-cli", "redis-cli -h cache -a {} ping", password),
    Shape("curl user", "curl -s -u anna:{} https://api.example.org", password),
    Shape("option", "deploy --password {} --verbose", password),
    Shape("bearer", "curl -H 'Authorization: Bearer {}' https://api.example.org", some(40)),
    Shape("basic", "Authorization: Basic {}", basic),
    Shape("header", "X-Api-Key: {}", some(32)),
    Shape("address", "postgres://anna:{}@db.internal:5432/shop", some(16)),
    Shape("query", "https://api.example.org/v1?access_token={}&page=2", some(32)),
    Shape("sql", "CREATE USER anna IDENTIFIED BY '{}';", password),
    Shape("jwt", "session={}", token),
    Shape("private key", "{}", block),
)


def _bare(text: str) -> str:
    return f"{text}\n"


def _told(text: str) -> str:
    return f"This is what I have at the moment, and it does not work:\n\n{text}\n\nWhat is wrong with it?"


def _fenced(text: str) -> str:
    return f"```\n# settings of the staging machine\n{text}\n```"


def _nested(text: str) -> str:
    return json.dumps({"role": "user", "content": f"# settings\n{text}\nport=8080"})


def _twice_nested(text: str) -> str:
    return json.dumps({"line": json.dumps({"output": f"line one\n{text}\nline three"})})


SURROUNDINGS = (_bare, _told, _fenced, _nested, _twice_nested)


def samples(seed: int = 1) -> Iterator[Sample]:
    """Return each shape in each of the surroundings, equal for an equal seed."""
    chance = random.Random(seed)  # noqa: S311 - always the same
    for shape in SHAPES:
        for around in SURROUNDINGS:
            secret = shape.make(chance)
            yield Sample(f"{shape.name}, {around.__name__.strip('_')}", around(shape.form.format(secret)), secret)


def shows(secret: str, text: str) -> bool:
    """Return True if a text shows a secret, or half of one."""
    half = len(secret) // 2
    wanted = {secret, secret[:half], secret[half:]} if half >= 8 else {secret}
    written = {
        form for piece in wanted for form in (piece, json.dumps(piece)[1:-1], json.dumps(json.dumps(piece)[1:-1])[1:-1])
    }
    return any(form in text for form in written)

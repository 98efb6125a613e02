"""Secrets that are invented while a test runs, so that no file has a string that looks like a key."""

import random
import string

UPPER = string.ascii_uppercase + string.digits
ALNUM = string.ascii_letters + string.digits


def made_up(length: int, alphabet: str = ALNUM, seed: int = 7) -> str:
    """Return characters as random as a real token's, equal at each run. The first eight have letters and digits."""
    head = "k7Q2m9X4" if alphabet == ALNUM else ""
    return head + "".join(random.Random(seed).choices(alphabet, k=length - len(head)))  # noqa: S311


HEX = string.digits + "abcdef"
BASE64_LINES = "\n".join(made_up(64, ALNUM + "+/", seed) for seed in range(6))
KEY_BEGIN = "-----BEGIN {}PRIVATE" + " KEY-----"
KEY_END = "-----END {}PRIVATE" + " KEY-----"

TOKENS = {
    "anthropic-key": ["sk-" + "ant-api03-" + made_up(80)],
    "api-key": [
        "sk-" + "proj-" + made_up(60),
        "sk-" + made_up(20) + "T3BlbkFJ" + made_up(20),
        "sk-" + "or-v1-" + made_up(64, HEX),
        "gsk" + "_" + made_up(52),
        "xai" + "-" + made_up(80),
    ],
    "artifactory-token": ["AKC" + made_up(70)],
    "aws-access-key": [
        "AKIA" + made_up(16, UPPER),
        "ASIA" + made_up(16, UPPER),
        "AKIA" + made_up(16, string.ascii_uppercase),
    ],
    "github-token": [
        *("gh" + kind + "_" + made_up(36) for kind in "pousr"),
        "github" + "_pat_" + made_up(22) + "_" + made_up(59),
    ],
    "gitlab-token": ["glpat" + "-" + made_up(20), "gloas" + "-" + made_up(64)],
    "google-key": ["AIza" + made_up(35), "GOCSPX" + "-" + made_up(28), "ya29" + "." + made_up(60)],
    "huggingface-token": ["hf" + "_" + made_up(34)],
    "npm-token": ["npm" + "_" + made_up(36)],
    "sendgrid-key": ["SG" + "." + made_up(22) + "." + made_up(43)],
    "slack-token": [
        "xoxb" + "-123456789012-1234567890123-" + made_up(24),
        "xapp" + "-1-" + made_up(60),
        "https://hooks.slack.com" + "/services/T0A1B2C3D/B0A1B2C3D/" + made_up(24),
    ],
    "square-secret": ["sq0csp" + "-" + made_up(43)],
    "stripe-key": ["sk" + "_live_" + made_up(24), "rk" + "_live_" + made_up(90), "sk" + "_test_" + made_up(24)],
    "telegram-token": ["123456789:" + "AA" + made_up(33)],
    "twilio-key": ["AC" + made_up(32, HEX), "SK" + made_up(32, HEX)],
    "mailchimp-key": [made_up(32, HEX) + "-us" + "12"],
    "pypi-token": ["pypi" + "-AgEIcHlwaS5vcmc" + made_up(90)],
    "vault-token": ["hvs" + "." + made_up(40)],
    "age-key": ["AGE-SECRET" + "-KEY-1" + made_up(58, UPPER)],
    "jwt": [f"eyJ{made_up(30)}.eyJ{made_up(60)}.{made_up(43)}"],
    "private-key": [
        f"{KEY_BEGIN.format(kind)}\n{BASE64_LINES}\n{KEY_END.format(kind)}" for kind in ("", "RSA ", "EC ", "OPENSSH ")
    ],
}
EVERY_TOKEN = [(kind, token) for kind, tokens in TOKENS.items() for token in tokens]

"""Secrets that are known by the words around them: headers, addresses, statements, files of programs."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping

from indexer.masking.phrase import IDENTITY, QUOTE, VALUE, Phrase, by_sign, found_in
from indexer.masking.printed import PRINTED
from indexer.masking.prose import PROSE
from indexer.masking.spans import HIDDEN, Span
from indexer.masking.vendors import VENDORS

_CHARACTER = "[A-Za-z0-9_-]"
#: A line end, with what says that a line or a string goes on, and what quotes, diffs and indents put before the next.
_BREAK = r"(?:(?:\\{0,2}|=|[\"'][ \t]{0,4}[+.&\\]?[ \t]{0,4})\r?\n[ \t>+|#-]{0,12}[\"']?|%0[aA])"
#: Two halves of a longer token have one that is long by itself.
_LONG, _LEAST_BEGINNING = 40, 4


def _phrase(kind: str, beginning: str, length: int) -> Phrase:
    pattern = (
        rf"(?<![A-Za-z0-9])({re.escape(beginning)}(?=(?:{_CHARACTER}|{_BREAK}){{{length + 1}}})"
        rf"{_CHARACTER}{{1,{length - 1}}}+{_BREAK}{_CHARACTER}{{4,}}+)"
    )
    sign = re.split(r"[^a-z0-9]", beginning.lower())[0]
    return Phrase(
        kind, beginning.lower(), pattern, "random", begins=True, words="" if sign == beginning.lower() else sign
    )


WRAPPED = by_sign(
    *(
        _phrase(vendor.kind, beginning, vendor.length)
        for vendor in VENDORS
        for beginning in vendor.beginnings
        if vendor.length
        and len(beginning) >= _LEAST_BEGINNING
        and len(beginning) + vendor.length < _LONG
        and not beginning.isalpha()
        and beginning[0].isalpha()
    )
)


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


_PASSWORD_FILE = (
    Phrase(
        "password",
        ":5432:|:6432:|:*:",
        r"(?m:^)\s{0,8}[^\s:#]{1,256}:(?:\d{4,5}|\*):[^\s:]{1,128}:[^\s:]{1,128}:((?:[^\s:\\]|\\.){3,256}+)(?m:$)",
    ),
)
_DIALLED = (
    Phrase(
        "password",
        " *",
        rf"(?m:^)\s{{0,8}}\"?[\w.@-]{{1,64}}\"?[ \t]+(?:\*|"
        rf"\"?[\w.-]{{1,64}}\"?)[ \t]+(?:{QUOTE})?([^\s\"'{HIDDEN}]{{6,128}}+)(?:{QUOTE})?"
        r"[ \t]+\*[ \t]*(?m:$)",
        "strong",
    ),
)
_SALTED = (
    Phrase("password-hash", "{ssha|{smd5}|{sha}", r"\{(?:SSHA(?:256|384|512)?|SMD5|SHA)\}([A-Za-z0-9+/]{22,}+={0,2})"),
)
_WORDPRESS = (
    Phrase(
        "secret",
        "_salt|auth_key|logged_in_key|nonce_key",
        r"(?:AUTH|LOGGED_IN|NONCE)_(?:KEY|SALT)[\"']?\s{0,4}[,=:]\s{0,20}(?:'([^'\n]{32,256}+)'|"
        r"\"([^\"\n]{32,256}+)\")",
        "mixed",
    ),
)
_WORDS = (
    Phrase(
        "recovery-phrase",
        "mnemonic|phrase|seed|wallet",
        rf"(?i:mnemonic|seed|recovery|wallet)(?i:[ _-]?(?:phrase|words))?(?:{QUOTE})?"
        rf"(?:\s{{0,4}}(?:[:=(]|is:?)\s{{0,4}}(?:{QUOTE})?|\s{{1,4}}(?:{QUOTE}))"
        r"((?:[a-z]{3,8} ){11,23}[a-z]{3,8})",
        reach=300,
    ),
    Phrase(
        "recovery-phrase",
        "mnemonic|phrase|seed|wallet",
        r"(?i:mnemonic|seed|recovery|wallet)[^\n]{0,60}\n((?:\s{0,6}\d{1,2}[.):]?\s{1,4}[a-z]{3,8}(?=\s|\Z)){12,24})",
        reach=600,
    ),
)
_SIGNATURE = (
    Phrase(
        "signature", "signature=|sig=", r"[?&](?:amp;)?(?:[A-Za-z-]{0,20}[Ss]ignature|sig)=([A-Za-z0-9%+/=_-]{32,}+)"
    ),
)
#: Before a name and a password between a colon.
_PAIR = rf"[bB]?(?:{QUOTE})[^\"'`:\s{HIDDEN}]{{1,64}}:([^\"'`\s{HIDDEN}]{{4,128}}+)(?:{QUOTE})"
_ENCODED = (
    Phrase(
        "password", "btoa(|b64encode(|buffer.from(", rf"(?:btoa|b64encode|Buffer\.from)\(\s{{0,4}}{_PAIR}", "strong"
    ),
    Phrase(
        "password",
        " base64",
        r"(?:echo|printf)\s+(?:-n\s+)?[\"']?[\w.@-]{1,64}:([^\s\"'|]{4,128})[\"']?\s*\|\s*base64",
        "strong",
    ),
)
#: What other languages call a password.
_ABROAD = "mot de passe|contrase|senha|wachtwoord|kennwort|parola|heslo"
_PASSWORDS_ABROAD = (
    Phrase(
        "password",
        _ABROAD,
        rf"(?i:mot de passe|contrase\w{{1,3}}a|senha|wachtwoord|kennwort|parola|heslo)(?:{QUOTE})?"
        rf"\s{{0,3}}[:=]\s{{0,3}}(?:{QUOTE})?([^\s\"'`,;]{{6,64}})",
        "mixed",
    ),
)
#: A name and a password that are given together.
_PAIRED = (
    Phrase(
        "password",
        "auth(|auth=(|auth = (|creds = (|creds=(|auth: [|login(|entials(|ation(|token(",
        rf"(?i:auth|\.login|creds|credentials?|authentication(?:token)?)\s{{0,4}}(?:[=:]\s{{0,4}})?[(\[]\s{{0,40}}"
        rf"{QUOTE}[^\"'\n{HIDDEN}]{{1,80}}{QUOTE}\s{{0,4}},\s{{0,40}}{QUOTE}([^\"'\\\s{HIDDEN}]{{4,128}}){QUOTE}\s{{0,40}}[)\],]",
        "strong",
    ),
)
#: By a literal that a text has in which some of these are.
PHRASES: Mapping[bytes, tuple[Phrase, ...]] = {
    b"auth": (
        Phrase("authorization", "digest ", r"Digest [^\n]{0,400}?response=\\{0,3}\"([0-9a-f]{32,64})"),
        Phrase("npm-token", "authident", rf"npmAuthIdent:\s+(?:{QUOTE})?[\w.-]{{1,64}}:([^\s\"']{{4,128}})"),
        Phrase(
            "github-token",
            "-oauth|-token",
            r"(?:github|gitlab|bitbucket)-(?:oauth|"
            r"token)\\{0,3}\"\s{0,4}:\s{0,4}\{[^{}]{0,80}?:\s{0,4}\\{0,3}\"([A-Za-z0-9_-]{16,})",
        ),
        Phrase(
            "authorization",
            "authorization",
            r"(?i:authorization)\\{0,3}[\"']?\s{0,4}(?:[:=,]|=>)\s{0,4}[bfru]?\\{0,3}[\"'`]?"
            r"(?i:basic|bearer|token|digest|apikey|api-key|ssws|bot|key|oauth|splunk|geniekey|negotiate)"
            r"\s{1,4}(?:token=\\?\"?|(?!username=))([A-Za-z0-9._~+/=:|%-]{8,}+)",
        ),
        Phrase(
            "authorization",
            "authorization",
            r"(?i:authorization)\\{0,3}[\"']?\s{0,4}[:=]\s{0,4}\\{0,3}[\"'`]?(?:[A-Za-z][A-Za-z-]{1,24}\s{1,4})?"
            r"([A-Za-z0-9._~+/=:-]{16,}+)",
            "random",
        ),
        Phrase(
            "docker-auth",
            "auth",
            rf"auth(?<![A-Za-z0-9]auth)(?:{QUOTE})?\s{{0,4}}[:=]\s{{0,4}}(?:{QUOTE})?([A-Za-z0-9+/]{{6,}}+={{0,2}})",
            "pair",
        ),
        *_PAIRED,
        Phrase("authorization", "basic ", r"(?i:(?<![a-z])basic)\s{1,4}([A-Za-z0-9+/]{8,}+={0,2})", "pair"),
    ),
    b"creds": _PAIRED,
    b"bearer": (
        Phrase(
            "authorization",
            "bearer",
            r"(?i:bearer)\s{1,4}(?=[A-Za-z._~+/-]{0,64}[0-9])([A-Za-z0-9._~+/=-]{20,}+)",
        ),
    ),
    b"://": (
        Phrase(
            "password-in-url",
            "://",
            rf"://[^\s/:@\"'`<>\[\]{{}}\\{HIDDEN}]{{0,128}}:([^\s/\"'`<>\[\]{{}}\\{HIDDEN}]{{1,256}})@",
        ),
        Phrase("password-in-url", "://", r"://([A-Za-z0-9_-]{20,256}+)(?::[\w-]{0,20})?@", "random"),
        Phrase(
            "webhook",
            "hooks.zapier.com|maker.ifttt.com",
            r"(?:hooks\.zapier\.com/hooks/catch/\d{4,12}/|maker\.ifttt\.com/trigger/[^/\s]{1,60}/(?:json/)?with/key/)"
            r"([A-Za-z0-9_-]{6,}+)",
        ),
        Phrase(  # signs that should have been escaped
            "password-in-url",
            "postgres|mysql|mariadb|mongodb|redis|amqp|mssql|sqlserver",
            r"(?:postgres(?:ql)?|mysqlx?|mariadb|mongodb|rediss?|amqps?|mssql|sqlserver)(?:\+[a-z0-9_]{1,20})?://"
            rf"[^\s/:@\"'`{HIDDEN}]{{0,128}}:(?!\d{{1,5}}/)([^\s\"'`{HIDDEN}]{{3,200}}?)@[\w.-]{{1,100}}(?:[:/]|"
            rf"(?![\w.@-]))",
        ),
        Phrase(
            "cookie",
            " -b| --cookie",
            r"curl\s[^\n|;]{0,300}?(?:-b|--cookie)[ =]?[\"']?(?:[\w.-]{1,64}=[^;\s\"']{0,200};\s{0,2}){0,8}?"
            r"[\w.-]{1,64}=([^\s;,\"'\\]{16,}+)",
            "random",
        ),
        Phrase(
            "cookie", "session=", r"(?<![A-Za-z0-9])[A-Za-z0-9_.-]{0,40}session=([A-Za-z0-9%+/=_.-]{32,}+)", "opaque"
        ),
        *_SIGNATURE,
        Phrase(
            "api-key", "key=|appid=|app_id=|auth=", r"[?&](?:auth|key|app_?key|app_?id)=([A-Za-z0-9_-]{20,}+)", "random"
        ),
    ),
    b"rtmp": (Phrase("api-key", "rtmp", r"rtmps?://[^\s\"']{4,80}/([A-Za-z0-9_-]{16,}+)(?![/\w])", "any"),),
    b"azurewebsites": (Phrase("api-key", "code=", r"[?&]code=([A-Za-z0-9_%/+-]{40,}+={0,2})"),),
    b"334 u": (  # an exchange with a server of mail
        Phrase("password", "334 u", r"334 UGFzc3dvcmQ6\s{1,4}(?:\S{1,4} )?([A-Za-z0-9+/]{8,}+={0,2})", whole=True),
    ),
    b"&sig": _SIGNATURE,
    b"-signature=": (Phrase("signature", "-signature=", r"X-(?:Amz|Goog)-Signature=([0-9a-f]{64,}+)"),),
    b"thin:": (Phrase("password", "thin:", r"thin:[\w.$-]{1,64}/([^\s@\"'/]{3,128})@"),),
    b"psk": (
        Phrase("password", "psk", r"(?:^|[\s{;,#\\n])psk\s{0,4}=\s{0,4}\\{0,3}\"([^\"\\\n]{8,63})\\{0,3}\""),
        Phrase(
            "password",
            "psk",
            r"(?:^|[\s{;,#\\n])(?:psk\s{0,4}=\s{0,4}|wpa-psk\s{1,4})([^\s\"'\\]{8,64})(?=\s|\\n|\"|$)",
            "strong",
        ),
    ),
    b"nmcli": (
        Phrase(
            "password",
            "nmcli",
            rf"nmcli\s[^\n]{{0,200}}?\s(?:password|wifi-sec\.psk|802-11-wireless-security\.psk)\s+{VALUE}",
        ),
    ),
    b"/user:": (
        Phrase("password", "net use", rf"net use\s[^\n]{{0,200}}?/user:[^\s{HIDDEN}]{{1,64}}\s+{VALUE}", "strong"),
        Phrase(
            "password",
            "net use",
            rf"net use\s(?:\S{{1,3}}\s)?\\\\[^\s{HIDDEN}]{{1,128}}\s+([^\s/{HIDDEN}]\S{{3,128}})\s+/user:",
            "strong",
        ),
    ),
    b"asplaintext": (
        Phrase(
            "password",
            "securestring",
            rf"(?i:ConvertTo-SecureString)\s+(?i:-String\s+)?(?:{QUOTE})([^\"'`\n]{{4,128}})(?:{QUOTE})",
        ),
    ),
    b"btoa": _ENCODED,
    b"b64encode": _ENCODED,
    b"buffer.from": _ENCODED,
    b"| base64": _ENCODED,
    b"codecov": (Phrase("token", "codecov", rf"codecov[^\n]{{0,120}}?\s(?:-t|--token)[ =]?({IDENTITY})"),),
    **dict.fromkeys((word.encode() for word in _ABROAD.split("|")), _PASSWORDS_ABROAD),
    b"cookie": (
        Phrase(
            "cookie",
            "cookie",
            r"(?<![\w.%&?-])(?!_ga|_gid|_fb|__utm|_hj|ajs_|amp_|mp_)[\w.%-]{1,80}=([^\s;,\"'\\(]{16,}+)",
            "random",
        ),
    ),
    b"pass": (
        Phrase(
            "password",
            "pass",
            rf"(?i:pass(?:_?phrase|word|wd)?)(?:{QUOTE})?\s{{0,4}}[:=]\s{{0,4}}(?:{QUOTE})"
            rf"((?!\w+ your)[a-z]{{3,10}}(?:[ -][a-z]{{3,10}}){{3,11}})(?:{QUOTE})",
        ),
        Phrase(
            "password",
            "wpa_passphrase",
            rf"wpa_passphrase\s+(?:\"[^\"\n]{{1,64}}\"|'[^'\n]{{1,64}}'|[^\s{HIDDEN}]{{1,64}}+)\s+{VALUE}",
            "strong",
        ),
        Phrase(
            "password",
            "machine |default login",
            rf"(?:machine\s+\S{{1,256}}+|default)(?:\s+(?:login|account|user)\s+\S{{1,256}}+){{0,2}}\s+passw(?:or)?d\s+"
            rf"([^\s{HIDDEN}]{{3,256}}+)",
            whole=True,
        ),
        Phrase(
            "password",
            "password '|password='|password = '|password=n'|password for",
            r"(?i:with|encrypted|set|login|role|user|superuser|"
            r"for)\s[^\n;]{0,120}?(?i:password)(?:\s{0,4}=\s{0,4}|\s{1,4})"
            r"(?i:password\s{0,2}\(\s{0,2})?[EN]?'([^'\n]{3,256})'",
        ),
    ),
    b"<<<": (
        Phrase(
            "password",
            "<<<",
            r"(?:sudo -S|kinit|cryptsetup|smbpasswd|\bsu -|-stdin|-with-token|passphrase-fd|passwd|"
            r"\blogin\s[^<\n]{0,60}-\s)"
            rf"[^<\n]{{0,120}}<<<\s{{0,4}}{VALUE}",
        ),
    ),
    b"{ssha": _SALTED,
    b"{smd5}": _SALTED,
    b"{sha}": _SALTED,
    b"_salt": _WORDPRESS,
    b"auth_key": _WORDPRESS,
    b"logged_in_key": _WORDPRESS,
    b"nonce_key": _WORDPRESS,
    b"secret": (
        Phrase("secret", "aws configure", rf"aws configure set\s+aws_(?:secret_access_key|session_token)\s+{VALUE}"),
    ),
    b"token": (),
    b"sqlplus": (
        Phrase(
            "password",
            "sqlplus|sqlldr|expdp|impdp",
            r"(?:sqlplus|sqlldr|expdp|impdp)\s+(?:-\w+\s+)*[\"']?[\w.$-]{1,64}/([^\s@\"'/]{3,128})(?=@|[\"']|\s|$)",
        ),
    ),
    b"@//": (Phrase("password", "connect", r"(?i:connect)\s+[\w.$-]{1,64}/([^\s@\"'/]{3,128})@//"),),
    b"l2tpd": _DIALLED,
    b"pptpd": _DIALLED,
    b"client": _DIALLED,
    b"identified": (
        Phrase(
            "password",
            "identified",
            rf"(?i:identified\s+(?:with\s+[\w'\"]{{1,60}}\s+)?by)\s+(?i:password\s+|"
            rf"values\s+)?(?:{QUOTE})([^\s\"'`\\]{{3,256}})(?:{QUOTE})",
        ),
    ),
    b":5432:": _PASSWORD_FILE,
    b":6432:": _PASSWORD_FILE,
    b":*:": _PASSWORD_FILE,
    b"mnemonic": _WORDS,
    b"wallet": _WORDS,
    b"phrase": _WORDS,
    b"key": (
        Phrase(
            "heroku-key", "heroku", r"(?i:heroku)[^\n]{0,60}?([0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12})"
        ),
        Phrase(
            "vault-key",
            "unseal key",
            r"(?i:unseal key)s?(?: \d)?(?: \(\w{1,10}\))?\s{0,4}[:=]\s{0,4}([A-Za-z0-9+/=]{40,}+)",
        ),
    ),
    b"</": (
        Phrase(
            "password",
            "word>|ecret>|token>|key>|pass>",
            r"(?i:password|passwd|pass|passphrase|secret|secretkey|token|api-?key|"
            r"accesskey)(?:\s[^<>\n]{0,200})?>\s{0,40}"
            r"([^<>\s]{4,512}+)\s{0,40}</",
            "worded",
            whole=True,
        ),
    ),
}
#: The same of all rooms, by the literal.
_ALL: dict[bytes, tuple[Phrase, ...]] = {}
for _rows in (PHRASES, CALLS, PRINTED, PROSE, WRAPPED):
    for _sign, _phrases in _rows.items():
        _ALL[_sign] = (*_ALL.get(_sign, ()), *_phrases)
_KNOWN_BY_WORDS = frozenset(
    word.encode()
    for rows in (CALLS, PRINTED, PROSE, WRAPPED)
    for phrases in rows.values()
    for phrase in phrases
    for word in phrase.words.split()
)
#: Literals, and whole words: of these a text has one in which there is a phrase.
PHRASE_SIGNS, PHRASE_WORDS = tuple(_ALL.keys() - (_KNOWN_BY_WORDS - PHRASES.keys())), _KNOWN_BY_WORDS

_LITERALS = frozenset(PHRASE_SIGNS)


def phrases_in(text: str, lower: bytes, signs: Collection[bytes]) -> Iterator[Span]:
    """The secrets in `text`, which is `lower` with one byte a character and no capitals, and has these of its signs."""
    absent = _LITERALS.difference(signs)  # a word may still be a part of another
    for phrase in dict.fromkeys(phrase for sign in signs for phrase in _ALL.get(sign, ())):
        yield from found_in(phrase, text, lower, absent)

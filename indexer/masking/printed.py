"""Secrets that programs print and files hold in their own form: hashes of passwords, answers of commands, codes."""

from __future__ import annotations

from collections.abc import Iterator

from indexer.masking.phrase import QUOTE, VALUE, Phrase, by_sign
from indexer.masking.spans import HIDDEN, SHAPE, Span, monotone
from indexer.patterns import late

_CRYPT = late(
    r"\$((?:[1-9]|y|gy|apr1|argon2(?:id|i|d)|scrypt|pbkdf2(?:-sha\d{1,3})?|sha1|2[abxy]|krb5\w{2,8}|DCC2)\$"
    r"(?:[A-Za-z0-9./+=,_#*@-]{1,64}\$){0,4}[A-Za-z0-9./+=_$-]{20,}+)"
)
#: What is written or given to somebody else: to a program that takes secrets, or into a file of that name.
_GIVEN = (
    Phrase(
        "password",
        "echo |printf |write-output ",
        rf"(?i:echo|printf|write-output)\s+(?:-\w{{1,2}}\s+|"
        rf"(?:{QUOTE})[^\"'\n]{{0,40}}%s[^\"'\n]{{0,20}}(?:{QUOTE})\s+)*{VALUE}\s*"
        r"(?:\|\s*(?:sudo -S|(?:sudo\s+)?(?:passwd|kinit|smbpasswd|cryptsetup|openssl enc|vncpasswd)|[^|"
        r"\n]{0,120}(?:-stdin|passphrase-fd|with-token))|"
        r"\|(?!\s*(?:e?grep|sed|awk|cut|wc|tr|xargs|sha\w+|md5\w*|shasum)\b)[^|\n]{0,60}?\b(?:secrets?|"
        r"passwords?|tokens?|credentials?|login|env)\b|"
        r">>?\s*[^\s|;&]{0,80}(?i:passw(?:or)?d|pass|secret|token|[._-]key|credentials?)(?:\.(?:txt|key|pem|env|"
        r"conf|json))?(?=\s|$|[\"';&]))",
        "given",
        words="echo printf output",
    ),
    Phrase(
        "password",
        "chpasswd",
        r"(?:echo|printf)\s+[\"']?[\w.-]{1,64}:([^\s\"'|]{3,128})[\"']?\s*\|\s*(?:sudo\s+)?chpasswd",
        words="chpasswd",
    ),
    Phrase(
        "password",
        "htpasswd",
        rf"htpasswd\s+-[a-zA-Z]*b[a-zA-Z]*\s+(?:\S+\s+){{1,2}}{VALUE}",
        words="htpasswd",
    ),
    Phrase(
        "password",
        "secret|put-parameter|credential|token|password",
        r"(?i:secrets?|put-parameter|credentials?|tokens?|passwords?)[ :]\s*(?:set|put|add|create\w*|update|"
        r"store|upsert|edit)?[^\n|]{0,160}?"
        rf"\s(?:-b|-v|-w|--body|--value|--secret-string|--string-value|--content|--data|--plaintext|"
        rf"--secret-value)[ =]?{VALUE}",
        "hard",
        begins=True,
        words="secret secrets parameter credential credentials token tokens password passwords",
    ),
    Phrase(
        "password",
        "set password for",
        r"(?i:set password for)\s[^\n=;]{1,80}=\s?(?i:password\()?'([^'\n]{3,256})'",
        begins=True,
        words="password",
    ),
)
#: By a literal that a text has in which some of these are.
PRINTED = by_sign(
    *_GIVEN,
    Phrase(
        "password-hash",
        "pbkdf2|:1$|scrypt$",
        r"((?:pbkdf2_sha\d{1,3}|pbkdf2:sha\d{1,3}:\d{1,8}|bcrypt_sha256|scrypt:\d{1,8}:\d{1,3}:\d{1,3}|scrypt)"
        r"\$(?:[A-Za-z0-9./+=,_-]{1,64}\$){0,3}[A-Za-z0-9./+=_-]{24,}+)",
        words="pbkdf2 scrypt sha256",
    ),
    Phrase(
        "password",
        "community",
        r"(?:snmp-server community|r[ow]community6?)[ \t]+(\S{6,64})(?: (?:RO|RW|ro|rw|view|\d)|\s*$)",
        words="snmp rocommunity rwcommunity",
    ),
    Phrase("password", "word 7 |secret 7 ", r"(?:password|secret) 7 ([0-9A-F]{8,64})", words="7"),
    Phrase(
        "wandb-key",
        "wandb",
        r"wandb(?: login\s+(?:--?\w[\w=-]*\s+){0,3}|\.login\([^)\n]{0,60}key=[\"'])([0-9a-f]{40})",
        words="wandb",
    ),
    Phrase("password", "mysqladmin", rf"mysqladmin[^\n]{{0,120}}? password {VALUE}", "strong", words="mysqladmin"),
    Phrase("password", "net user ", rf"net user \S{{1,64}} {VALUE}", "strong", words="net"),
    Phrase(
        "password",
        " config",
        rf"(?:poetry|composer) config (?:-g |--global )?http-basic\.\S{{1,64}} \S{{1,64}} {VALUE}",
        words="poetry composer",
    ),
    Phrase(
        "secret",
        "consul kv put|etcdctl put",
        rf"(?:consul kv|etcdctl) put \S{{0,100}}(?:pass|secret|token|key)\S{{0,40}} {VALUE}",
        "strong",
        words="consul etcdctl",
    ),
    Phrase("secret", "config set --secret", rf"config set --secret \S{{1,64}} {VALUE}", words="pulumi"),
    Phrase(
        "secret",
        "--value",
        rf"(?:SecureString|keyvault secret set)[^\n]{{0,200}}?--value[ =]{VALUE}",
        words="securestring keyvault",
    ),
    Phrase(
        "password",
        "encrypt_string",
        rf"ansible-vault encrypt_string\s+(?:--?\S+\s+){{0,6}}?[\"']([^\"'\n{HIDDEN}]{{4,256}})[\"']",
        words="encrypt",
    ),
    Phrase(
        "secret",
        "<<<|<(echo|<(printf",
        r"(?i:secret|pass|token|key|pwd)[^\n]{0,100}(?:<<<\s*|<\((?:echo|"
        r"printf)\s+(?:-n\s+)?)[\"']?(?:[\w.-]{1,32}:)?([^\s\"')]{6,256})[\"']?",
        "hard",
    ),
    Phrase(  # what a script types where a password is asked for
        "password",
        "send",
        r"\bsend(?:line)?\s+(?:--\s+)?\\{0,3}[\"{]([^\s\"\\}]{4,128})\\{1,4}[rn]\\{0,3}[\"}]",
        "told",
        words="send sendline",
    ),
    Phrase(
        "password",
        "@tcp(|@unix(|@udp(",
        rf"(?:^|[\s\"'`=])[\w.-]{{1,64}}:([^\s\"'`{HIDDEN}]{{1,128}})@(?:tcp|unix|udp)\(",
        words="tcp unix udp",
    ),
    Phrase(
        "token",
        "totp|2fa|mfa|otp|authenticator",
        r"(?i:totp|2fa|mfa|otp|authenticator)\b[^\n]{0,40}?[ :='\"`](?=[A-Za-z ]{0,40}[2-7])([A-Z2-7]{16,64}|"
        r"[a-z2-7]{4}(?: [a-z2-7]{4}){3,7}|[A-Z2-7]{4}(?: [A-Z2-7]{4}){3,7})(?![A-Za-z0-9])",
        words="totp 2fa mfa otp authenticator",
    ),
    Phrase(
        "api-key",
        "licen|serial|product key|activation",
        r"(?i:licen[cs]e|serial|product key|"
        r"activation)[^\n]{0,40}?[ :='\"`]([A-Z0-9]{4,8}(?:-[A-Z0-9]{4,8}){3,7})(?![A-Za-z0-9-])",
        "random",
        words="license licence serial product activation",
    ),
    Phrase(
        "password",
        "mkpasswd|openssl passwd|hash-password",
        rf"(?:mkpasswd|openssl passwd|hash-password)\s+(?:-\S+\s+|sha-\d+\s+){{0,4}}{VALUE}",
        "hard",
        words="mkpasswd passwd hash",
    ),
    Phrase(
        "private-key",
        "kty",
        r"\"(?:d|k|p|q|d[pq]|qi)\\{0,3}\"\s{0,4}:\s{0,4}\\{0,3}\"([A-Za-z0-9_-]{20,}+)",
        whole=True,
        words="kty",
    ),
    Phrase("vault-key", "unseal ", r"unseal\s+([A-Za-z0-9+/=]{40,}+)", words="unseal"),
    Phrase(
        "password",
        "pass",
        rf"(?i:pass\w{{0,8}}[-_]?(?:command|cmd|eval))[=\s]{{1,3}}(?:{QUOTE})?(?:echo|"
        rf"printf)\s+(?:-n\s+)?([^\s\"'`|;\\]{{4,128}})",
        begins=True,
        words="command cmd passcmd passwordeval passcommand",
    ),
    Phrase(
        "password",
        "rabbitmqctl",
        rf"rabbitmqctl\s+(?:add_user|change_password)\s+\S{{1,64}}\s+{VALUE}",
        words="rabbitmqctl",
    ),
    Phrase(  # a name and a password, whatever the program
        "password",
        " -p",
        rf"\s-{{1,2}}(?i:u(?:ser(?:name)?)?|login)[ =]?[^\s=-]\S{{0,64}}\s[^\n|;&]{{0,60}}?(?<=\s)-[pP]\s?{VALUE}",
        "told",
        words="u user username login",
    ),
    Phrase(
        "password",
        "/p:|/pass",
        rf"/u(?:ser(?:name)?)?:\S{{1,64}}\s[^\n]{{0,80}}?/p(?:ass(?:word)?)?:{VALUE}",
        "strong",
        words="u user username",
    ),
    Phrase(
        "cookie",
        "erlang|setcookie",
        r"(?i:erlang[._]cookie[\"']?\s{0,3}[=:]?\s{0,3}[\"']?|-setcookie\s+)([A-Za-z0-9]{16,}+)",
        reach=60,
        words="cookie setcookie",
    ),
    Phrase("password", "wifi:", r"WIFI:[^\n]{0,80}?P:((?:[^;\\\n]|\\.){4,63});", words="wifi"),
    Phrase(
        "wallet-key",
        "solana|keypair|private|secret",
        r"(?i:solana|keypair|private_?key|"
        r"secret_?key)[^\[{]{0,120}(\[(?:\s{0,8}\d{1,3}\s{0,4},){31,63}\s{0,8}\d{1,3}\s{0,8}\])",
        begins=True,
        words="solana keypair private secret",
    ),
    Phrase(  # a word that says what it is, in settings of machines and in what is typed to servers
        "password",
        "pass|pw|secret|key|psk|eap|xauth|identify|oper|auth|login|community|createuser",
        r"(?i:(?<![a-z])(?:password|passwd|passphrase|pass|pw|pwd|secret|key|psk|eap|xauth|identify|auth|"
        r"community|(?:oper|login|createuser) \S{1,64}))"
        rf"[ \t]{{1,4}}(?:(?:\d|ENC|(?i:md5|sha\d*)|is|"
        rf"was)[ \t]{{1,4}})?(?:{QUOTE})?([^\s\"'`,;{HIDDEN}]{{8,128}}+)(?:{QUOTE})?(?=[\s;,.)]|$)",
        "strange",
        begins=True,
        words="password passwd passphrase pass pw pwd secret key psk eap xauth identify auth community oper login "
        "createuser",
    ),
    Phrase(
        "password",
        "static:|]:",
        rf"(?:static:|\]:\d{{2,5}}\s{{1,8}})[\w.@-]{{1,64}}:([^\s\"'{HIDDEN}]{{6,128}}+)",
        "told",
        words="static smtp",
    ),
    Phrase("password", ">", r"(?i:(?:set)?user) \S{1,64} on [^>\n]{0,80}>([^\s\"']{4,128})", words="user setuser"),
    Phrase(
        "password", "auth ", r"(?m:(?:^|> ))AUTH (?:[\w.-]{1,40} )?([^\s\"']{8,128}+)[ \t]*(?m:$)", "hard", words="auth"
    ),
    Phrase(  # a name and a password in an option
        "password",
        " -",
        r"\s-{1,2}(?i:auth|user|credentials?|login|userpass|creds)[ =][\"']?[\w.@-]{1,64}:([^\s\"'/]{6,128}+)",
        "hard",
        words="auth user credential credentials login userpass creds",
    ),
    Phrase(  # the only option that is written so
        "password",
        " -p ",
        r"\s-P '([^'\n]{6,64})'",
        "hard",
    ),
    Phrase(
        "password",
        "login |auth test |<<< ",
        r"(?:(?i:login|auth test) \S{1,64}|<<<) '([^'\n]{6,64})'",
        "hard",
        words="login auth password",
    ),
    Phrase(  # a name and a password before a machine
        "password",
        "@",
        r"(?<![\w/:.])[\w.+-]{2,64}:([^\s:@/\"']{6,64}+)@[\w-]{1,60}\.[\w.-]{2,60}(?![\w@])",
        "told",
        words="register sip smtp relay account",
    ),
    Phrase("password", "yes ", rf"\byes {VALUE}\s*\|\s*(?:sudo )?(?:passwd|smbpasswd)", words="passwd smbpasswd"),
    Phrase(
        "password",
        "echo ",
        rf"\(echo {VALUE}\s*;[^\n)]{{0,80}}\)\s*\|\s*(?:sudo )?(?:passwd|smbpasswd)",
        words="passwd smbpasswd",
    ),
    Phrase(
        "password",
        "psk|eap|xauth",
        r"(?i:psk|eap|xauth)[ \t]{1,4}\"([^\"\n]{6,128})\"",
        "hard",
        begins=True,
        words="psk eap xauth",
    ),
    Phrase("password", "bundle_", rf"BUNDLE_[A-Z0-9_]{{3,80}}[:=]\s?(?:{QUOTE})?[\w.-]{{1,64}}:([^\s\"']{{6,128}})"),
    Phrase(
        "password",
        "<auth-user-pass>",
        r"<auth-user-pass>\s{0,4}\n[^\n]{1,80}\n([^\n]{4,128})\n",
        begins=True,
        words="auth",
    ),
    Phrase(
        "password",
        "snmp",
        rf"snmp\w{{0,12}}\s[^\n]{{0,200}}?\s-[AX] ?{VALUE}",
        "strong",
        words="snmpwalk snmpget snmpset snmpbulkwalk",
    ),
    Phrase(
        "secret",
        "nsupdate",
        r"nsupdate\s[^\n]{0,80}?-y\s+(?:[\w.-]{1,40}:){1,2}([A-Za-z0-9+/=]{16,}+)",
        words="nsupdate",
    ),
    Phrase(
        "password",
        "chpasswd:",
        r"chpasswd:\s{0,8}(?:list:\s{0,4}\|?\s{0,16})?[\w.-]{1,64}:(\S{6,128})",
        begins=True,
        words="chpasswd",
    ),
    Phrase(
        "password",
        "new value|new password|new secret",
        r"(?i:new (?:value|password|secret)):\s{1,4}(\S{8,128})",
        "hard",
        begins=True,
        words="value password secret",
    ),
    Phrase(
        "password",
        "pragma key",
        r"(?i:pragma key)\s{0,4}=\s{0,4}[\"']([^\"'\n]{4,256})[\"']",
        begins=True,
        words="pragma",
    ),
    Phrase("password", "masterauth", r"(?m:^)\s{0,8}masterauth\s+[\"']?([^\s\"']{6,256}+)", "hard", words="masterauth"),
)


def hashes_in(text: str, lower: bytes) -> Iterator[Span]:
    """Hashes of passwords as files of users and programs hold them."""
    for match in _CRYPT.finditer(text) if b"$" in lower else ():
        if not monotone(match[1]):
            yield Span(match.start(1), SHAPE, match.end(1), "password-hash")

"""What a secret looks like: providers' keys by their own marks, and random-looking values where the words around say what they are.

Owns finding secrets in a text, and the words Kind and Match. Refuses to replace anything (`redaction` does), and knows nothing of
the second scan (`leaks`), which must not share its mistakes. Over-eager patterns spoil training data, so each needs a mark of its
own: a prefix, or a name and a value that is no code. Sources are the providers' own descriptions of their key formats.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise


class Kind(StrEnum):
    SECRET = "secret"
    EMAIL = "email"
    PHONE = "phone"
    CARD = "card"
    IBAN = "iban"
    IP = "ip"
    NATIONAL_ID = "national_id"


@dataclass(frozen=True, slots=True)
class Match:
    kind: Kind
    start: int
    end: int
    label: str
    """What exactly it is: openai_key, jwt, password, ..."""


_TOKENS = {
    "anthropic_key": r"sk-ant-[\w-]{20,}",
    "openai_key": r"sk-(?!ant-)(?:[a-z]+-)?[A-Za-z0-9_-]{20,}",
    "aws_key_id": r"(?:AKIA|ASIA|ABIA|ACCA)[A-Z0-9]{16}",
    "github_token": r"gh[pousr]_[A-Za-z0-9]{36,}|github_pat_\w{50,}",
    "gitlab_token": r"gl(?:pat|dt|rt|ptt|ft|imt|agent|oas|cbt|soat|ffct)-[\w-]{20,}(?:\.[\w-]{2,})*",
    "slack_token": r"xox[abeoprs]-[A-Za-z0-9-]{10,}|xapp-\d-[A-Za-z0-9-]{20,}",
    "google_key": r"AIza[\w-]{35}",
    "google_token": r"ya29\.[\w-]{20,}|GOCSPX-[\w-]{28}",
    "huggingface_token": r"(?:hf_|api_org_)(?=[a-z0-9]*[A-Z])[A-Za-z0-9]{34,}",
    "npm_token": r"npm_[A-Za-z0-9]{36}",
    "pypi_token": r"pypi-[\w-]{50,}",
    "sendgrid_key": r"SG\.[\w-]{16,}\.[\w-]{16,}",
    "stripe_key": r"(?:sk|rk|pk)_(?:live|test)_[A-Za-z0-9]{16,}|whsec_[A-Za-z0-9+/=]{24,}",
    "twilio_key": r"SK[0-9a-f]{32}",
    "databricks_token": r"dapi[0-9a-f]{32}(?:-\d)?",
    "digitalocean_token": r"do[opr]_v1_[0-9a-f]{64}",
    "shopify_token": r"shp(?:at|ca|pa|ss)_[0-9A-Fa-f]{32}",
    "model_host_key": r"gsk_[A-Za-z0-9]{40,}|xai-[A-Za-z0-9]{60,}|r8_[A-Za-z0-9]{37}|pplx-[A-Za-z0-9]{40,}|fw_[A-Za-z0-9]{20,}"
    r"|nvapi-[\w-]{50,}",
    "tracing_key": r"lsv2_(?:pt|sk)_[0-9a-f]{32}_[0-9a-f]{10}|[sp]k-lf-[0-9a-f-]{36}|sntry[su]_[\w+/=]{40,}|NRAK-[A-Z0-9]{27}"
    r"|gl(?:sa|c)_[\w=]{32,}",
    "workspace_token": r"lin_(?:api|oauth)_[A-Za-z0-9]{32,}|ntn_[A-Za-z0-9]{40,}|PMAK-[0-9a-f]{24}-[0-9a-f]{34}|figd_[\w-]{40}"
    r"|ATATT3[\w=-]{50,}",
    "vault_token": r"hv[sbr]\.[\w-]{24,}|[A-Za-z0-9]{14}\.atlasv1\.[\w-]{60,}|dp\.(?:pt|st|ct|scim|audit)\.[\w.-]{40,}"
    r"|pul-[0-9a-f]{40}",
    "telegram_token": r"\d{8,10}(?::|%3A)AA[\w-]{33}",
    "mailing_key": r"key-[0-9a-f]{32}|[0-9a-f]{32}-us\d{1,2}",
    "age_key": r"AGE-SECRET-KEY-1[0-9A-Z]{58}",
    "jwt": r"eyJ[\w-]{8,}\.eyJ[\w-]{8,}\.[\w-]*",
    "slack_webhook": r"https://hooks\.slack\.com/services/[\w/]{20,}",
}
_TOKEN = re.compile(
    rf"(?:\b|(?<=%[0-9A-F]{{2}}))(?=[\w.%:/+=-]{{20}})(?:{'|'.join(rf'(?P<{label}>{regex})' for label, regex in _TOKENS.items())})(?!\w)"
)
_WORDLIKE = frozenset(["openai_key", "npm_token", "pypi_token", "model_host_key", "sendgrid_key"])
_PRIVATE_KEY = re.compile(
    r"-----BEGIN [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----"
    r"(?:.{0,20000}?-----END [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----|(?:\s*[A-Za-z0-9+/=]{16,})*)",
    re.DOTALL,
)
"""With its end, or what there is of the body where a log cut it off."""
_URL_PASSWORD = re.compile(
    r"(?::|%3A)(?://|%2F%2F)(?:[^\s:/@\"'<>%]|%(?!3A|40)){0,64}(?::|%3A)"
    r"(?P<value>(?!\*|%[(s])(?:[^\s/@\"'<>$\{%]|%(?!40)){1,256})(?:@|%40)[\w\[]"
)
_AUTHORIZATION = re.compile(r"\b(?:[Bb]earer|BEARER|[Bb]asic|[Tt]oken)\s+(?P<value>[A-Za-z0-9._~+/-]{16,}=*)")
_USER_OPTION = re.compile(r"(?<=\s)(?:-u|--user)[ =]*[\"']*[\w.@-]+:(?P<value>[^\s\"']{6,128})")
_AWS_SECRET_AFTER_ID = re.compile(
    r"(?:AKIA|ASIA)[A-Z0-9]{16}\W(?:[^\n]{0,60}?\W)??(?:[^\n]{0,40}\n[^\n]{0,60}?\W)??(?P<value>[A-Za-z0-9+/]{40})(?![\w+/=])"
)
"""Two are always handed out together: in one line or in the next."""

_NAME = re.compile(r"pass(?:word|wd|phrase|code)|pwd|secret|token|key|credentials?|authorization")
"""The last word of a name, on text in lower case."""
_SECRET_NAME = re.compile(
    r"(?:pass(?:word|wd|phrase|code)|pwd|secret|token|credentials?|authorization"
    r"|(?:api|secret|access|private|account|auth|signing|encryption|master|service|shared|storage|subscription|client|license|deploy"
    r"|admin|ssh|host|webhook|maps)[_. -]?key)$"
)
_ANY_TOKEN = re.compile(r"(?<!access_)(?<!refresh_)(?<!auth_)(?<!bearer_)(?<!session_)(?<!secret_)token$")
"""Pages, sums and parsers have tokens too: such a value has to look like a secret."""
_SEPARATOR = re.compile(r"[\"'\])]*[ \t]*(?:=>|:=|=|:(?!:))[ \t]*|[\"']*,?\s{1,40}[\"']*value[\"']*:[ \t]*")
"""Between a name and its value; also as Kubernetes and HAR files write it, `name: X` and then `value: ...`."""
_SAID = re.compile(r"[ \t]{1,2}(?:\w+[ \t]){0,4}?(?:is|was|be|to|are)[ \t]*:?[ \t]|[ \t](?:\w+[ \t]?){1,5}:[ \t]")
_QUOTED = re.compile(r"[a-zA-Z]{0,2}([\"'`])\1*(?P<value>[^\s\"'`]{6,256})\1")
_PLAIN = re.compile(r"[\"'`]*(?P<value>[^\s\"'`,;<>(){}\[\]|]{6,2000}+)(?![(\[{\w])")
_OPTION = re.compile(r"(?<!\w)--?[\w-]*$")
_SPACE = re.compile(r"[ \t]")
_QUERY_PART = re.compile(r"[?&][\w.-]*$")
_CODE = re.compile(
    r"[A-Za-z_]\w*(?:(?:\.|::|->|\?\.)[A-Za-z_]\w*)+|\d+[a-z]{0,3}|[A-Z][A-Z_]*\d?|(?:\.{0,2}/)?(?:[\w.-]+/)+[\w.-]*"
    r"|[a-z_]+_v?\d+|[A-Z][A-Za-z]*\d+[A-Z][a-z]+|[\w.]+=.*|v?\d+(?:\.\d+)+|https?://.*|\#[0-9A-Fa-f]{3,8}"
)
"""An attribute, amount, constant, path, numbered name, type, keyword argument or version: no password and no token."""
_IDENTIFIER = re.compile(r"[A-Za-z]+\d{0,3}(?:_[A-Za-z]+\d{0,3})+")
_PLACEHOLDER = re.compile(
    r"x{4}|\*{3}|\.{3}|\byour|your[_-]|change[_-]?me|example|placeholder|dummy|^[<${]|^%\(|^%s$|^%\w+%$|\$\{|\{\{|^(.)\1*$",
    re.IGNORECASE,
)
_WORD_NEAR = re.compile(r"(?<![\w+/=.-])[A-Za-z0-9+/_-]{24,128}={0,2}(?![\w+/=-])")
_NEAR_CHARS = 64
_MIN_RANDOM_CHARS = 20
_MIN_CHANGES_SHARE = 0.3
"""Random base62 changes between upper case, lower case and digits at 0.62 of its places, random letters at half."""
_MAX_WORDS_SHARE = 0.4
"""Share of characters in runs of four and more small letters: random base62 has 0.1, joined words have over half."""


def find_secrets(text: str) -> Iterator[Match]:
    """Every secret in the text, in no order; matches may overlap. Escapes of JSON should be blanked out before."""
    for match in _PRIVATE_KEY.finditer(text) if "PRIVATE KEY" in text else ():
        yield Match(Kind.SECRET, *match.span(), "private_key")
    for match in _TOKEN.finditer(text):
        if _is_key(match[0], match.lastgroup or ""):
            yield Match(Kind.SECRET, *match.span(), match.lastgroup or "token")
    for match in _AWS_SECRET_AFTER_ID.finditer(text) if "AKIA" in text or "ASIA" in text else ():
        yield Match(Kind.SECRET, *match.span("value"), "aws_secret_key")
    for match in _URL_PASSWORD.finditer(text) if "@" in text or "%40" in text else ():
        yield Match(Kind.SECRET, *match.span("value"), "url_password")
    for label, pattern in (("authorization", _AUTHORIZATION), ("user_password", _USER_OPTION)):
        for match in pattern.finditer(text):
            if _looks_secret(match["value"]):
                yield Match(Kind.SECRET, *match.span("value"), label)
    yield from _named_secrets(text)


def _is_key(value: str, label: str) -> bool:
    """A few prefixes begin words too: what follows those has to look random."""
    return any(c.isdigit() for c in value) or is_generated(value) or (label not in _WORDLIKE and not is_placeholder(value))


def is_secret_name(name: str) -> bool:
    """Whether a value under this name is a secret whatever it looks like."""
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|[-. ]", "_", name).lower()
    return _SECRET_NAME.search(words) is not None and not _ANY_TOKEN.search(words)


def is_placeholder(value: str) -> bool:
    """Stands for a secret in an example, or for one that was taken out; a long mix of letters and digits is taken for real."""
    if value.startswith("REDACTED_"):
        return True
    is_mixed = re.fullmatch(r"(?=.*[a-z])(?=.*[A-Z])(?=.*\d)[\w+/-]{16,}", value) is not None
    return not is_mixed and _PLACEHOLDER.search(value) is not None


def is_generated(value: str) -> bool:
    """Made by a machine: changes between upper case, lower case and digits more often than words do, and holds none."""
    classes = ["aA0"[0 if c.islower() else 1 if c.isupper() else 2] if c.isalnum() else "" for c in value]
    changes = sum(bool(a and b and a != b) for a, b in pairwise(classes))
    words = sum(map(len, re.findall("[a-z]{4,}", value)))
    return {"a", "A"} <= set(classes) and changes >= _MIN_CHANGES_SHARE * len(value) and words <= _MAX_WORDS_SHARE * len(value)


def _named_secrets(text: str) -> Iterator[Match]:
    lowered = text.lower()
    if len(lowered) != len(text):
        lowered = text.translate({c: c + 32 for c in range(65, 91)})
    for name in _NAME.finditer(lowered):
        start, end = name.span()
        if not _SECRET_NAME.search(lowered[max(0, start - 16) : end]):
            continue
        value = _value_after(text, lowered, start, end)
        if value:
            yield Match(Kind.SECRET, *value, "named_secret")
        if lowered[end : end + 1] != "s":
            yield from _generated_near(text, end)


def _value_after(text: str, lowered: str, start: int, end: int) -> tuple[int, int] | None:
    """Where the secret stands that a name says, as in `name = value`, `--name value` and `name is value`."""
    before = lowered[max(0, start - 24) : start]
    separator = _SEPARATOR.match(text, end) or (_SPACE.match(text, end) if _OPTION.search(before) else None)
    said = None if separator else _SAID.match(lowered, end)
    place = separator or said
    if place is None:
        return None
    quoted = _QUOTED.match(text, place.end())
    match = quoted or _PLAIN.match(text, place.end())
    if match is None:
        return None
    value = match["value"]
    if not quoted:
        value = value.rstrip(".:!?") if said else value
        value = value.partition("&")[0] if _QUERY_PART.search(before) else value
    if not _looks_secret(value) or (not quoted and _IDENTIFIER.fullmatch(value)):
        return None
    return match.start("value"), match.start("value") + len(value)


def _generated_near(text: str, end: int) -> Iterator[Match]:
    """A long random word shortly after a name, whatever stands between: a table, a sentence, a list."""
    for match in _WORD_NEAR.finditer(text, end, min(len(text), end + _NEAR_CHARS + 128)):
        has_digits = sum(c.isdigit() for c in match[0]) >= 2
        if match.start() - end <= _NEAR_CHARS and has_digits and is_generated(match[0]) and not is_placeholder(match[0]):
            yield Match(Kind.SECRET, *match.span(), "secret_nearby")


def _looks_secret(value: str) -> bool:
    """A password or token: it mixes letters with digits, and is neither code nor a placeholder."""
    has_both = any(c.isdigit() for c in value) and any(c.isalpha() for c in value)
    is_random = len(value) >= _MIN_RANDOM_CHARS and is_generated(value)
    if len(value) < 6 or is_placeholder(value):
        return False
    return is_random or (has_both and _CODE.fullmatch(value) is None)

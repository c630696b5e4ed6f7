"""What a secret or a piece of personal data looks like: the patterns redaction replaces.

Owns finding them in a text. Refuses to replace anything (`redaction` does), and knows nothing of the second scan (`leaks`), which
must not share its mistakes. Over-eager patterns spoil training data, so each one needs a mark of its
own: a prefix, a checksum, a context. Sources are the providers' own descriptions of their key formats.
"""

import ipaddress
import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum


class Kind(StrEnum):
    SECRET = "secret"
    EMAIL = "email"
    PHONE = "phone"
    CARD = "card"
    IBAN = "iban"
    IP = "ip"


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
    "github_token": r"(?:gh[pousr]_[A-Za-z0-9]{36,}|github_pat_\w{50,})",
    "gitlab_token": r"glpat-[\w-]{20,}",
    "slack_token": r"xox[abeoprs]-[A-Za-z0-9-]{10,}",
    "google_key": r"AIza[\w-]{35}",
    "google_token": r"ya29\.[\w-]{20,}",
    "huggingface_token": r"hf_[A-Za-z0-9]{30,}",
    "npm_token": r"npm_[A-Za-z0-9]{36}",
    "pypi_token": r"pypi-[\w-]{50,}",
    "sendgrid_key": r"SG\.[\w-]{16,}\.[\w-]{16,}",
    "stripe_key": r"(?:sk|rk|pk)_(?:live|test)_[A-Za-z0-9]{16,}|whsec_[A-Za-z0-9+/=]{24,}",
    "databricks_token": r"dapi[0-9a-f]{32}",
    "jwt": r"eyJ[\w-]{8,}\.eyJ[\w-]{8,}\.[\w-]*",
    "slack_webhook": r"https://hooks\.slack\.com/services/[\w/]{20,}",
}
_PRIVATE_KEY = re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.DOTALL)
_TOKEN = re.compile("|".join(rf"(?P<{label}>(?<![\w-])(?:{pattern})(?![\w]))" for label, pattern in _TOKENS.items()))
_URL_PASSWORD = re.compile(
    r"\b[a-z][a-z0-9+.-]{1,20}://[^\s:/@\"'<>]{0,64}:(?P<value>[^\s/@\"'<>$\{]{1,256})@[\w\[]", re.IGNORECASE
)
_BEARER = re.compile(r"\b(?:Bearer|Basic|Token)\s+(?P<value>[A-Za-z0-9._~+/-]{16,}=*)", re.IGNORECASE)
_ASSIGNED = re.compile(
    r"""(?<![A-Za-z0-9])(?:api[_-]?key|secret[_-]?(?:access[_-]?)?key|client[_-]?secret|access[_-]?token|auth[_-]?token
    |refresh[_-]?token|password|passwd|pwd|secret|token)["']?\s*(?:=|:|=>)\s*(?P<quote>\\?["']?)(?P<value>[^\s"'\\,;<>(){}\[\]$]{8,256})(?![(\w])""",
    re.IGNORECASE | re.VERBOSE,
)
_EMAIL = re.compile(r"(?<![\w.+%-])[A-Za-z0-9][\w.+%-]{0,63}@(?:[A-Za-z0-9-]{1,63}\.)+[A-Za-z]{2,24}(?![\w-]|:[\w/])")
_PHONE = re.compile(
    r"""(?<![\w+.#/-])(?:
    \+\d{1,3}[\s.-]?(?:\(\d{1,4}\)[\s.-]?)?\d{1,4}(?:[\s.-]?\d{2,5}){1,4}     # international
    |\(\d{3}\)\s?\d{3}[\s.-]\d{4}                                         # (555) 123-4567
    |\d{3}[.-]\d{3}[.-]\d{4}                                              # 555-123-4567
    )(?![\w-])(?!\.\d)""",
    re.VERBOSE,
)
_PHONE_IN_CONTEXT = re.compile(
    r"\b(?:phone|telephone|tel|mobile|cell|call me (?:at|on)|whatsapp)\b[^\d\n]{0,24}?(?P<value>\d[\d .()-]{7,18}\d)(?![\w-])",
    re.IGNORECASE,
)
_CARD = re.compile(r"(?<![\w.#-])[3-6]\d{3}(?:[ -]?\d{2,6}){2,4}(?![\w-])(?!\.\d)")
_IBAN = re.compile(r"(?<![A-Za-z0-9])[A-Z]{2}\d{2}(?: ?[A-Z0-9]{4}){2,7}(?: ?[A-Z0-9]{1,4})?(?![A-Za-z0-9])")
_IPV4 = re.compile(r"(?<![\w.=/v-])(?<!version )(?<!Version )(?:\d{1,3}\.){3}\d{1,3}(?![\w.-]|/\d)")
_IPV6 = re.compile(r"(?<![\w:.])(?:[0-9a-fA-F]{1,4}:){2,7}(?::|[0-9a-fA-F]{1,4})(?::?[0-9a-fA-F]{1,4}){0,6}(?![\w:.])")

_MEANT_AS_ID = re.compile(r"(?:order|ticket|invoice|tracking|reference|ref|case|id|sku|no)\b[\s:.#]*$", re.IGNORECASE)
"""Words before a number that say what it is: no phone and no card number."""
_MEANT_AS_VERSION = re.compile(r"(?:version|release|[=<>~!]=|\bv)\s*$", re.IGNORECASE)
_GLOBAL_UNICAST = ipaddress.ip_network("2000::/3")

SENSITIVE_KEYS = frozenset(
    {"password", "passwd", "pwd", "secret", "api_key", "apikey", "access_token", "refresh_token", "auth_token"}
    | {"client_secret", "private_key", "authorization"}
)
"""Argument names whose string value is a secret whatever it looks like."""
PHONE_KEYS = frozenset(["phone", "phone_number", "telephone", "mobile"])


def find_matches(text: str) -> list[Match]:
    """Everything in the text that must go, in order, without overlaps; the earlier and longer one wins."""
    found = sorted(_candidates(text), key=lambda m: (m.start, m.kind is not Kind.SECRET, -m.end))
    kept: list[Match] = []
    for match in found:
        if not kept or match.start >= kept[-1].end:
            kept.append(match)
    return kept


def digits_of(text: str) -> str:
    return "".join(c for c in text if c.isdecimal())


def is_card_number(digits: str) -> bool:
    """13 to 19 digits with a valid check digit (ISO/IEC 7812-1, annex B)."""
    if not 13 <= len(digits) <= 19 or len(set(digits)) == 1:
        return False
    doubled = [int(d) * 2 - 9 * (int(d) > 4) for d in digits[-2::-2]]
    return (sum(doubled) + sum(int(d) for d in digits[-1::-2])) % 10 == 0


def is_iban(text: str) -> bool:
    """Length and mod-97 check (ISO 13616)."""
    compact = text.replace(" ", "")
    if not 15 <= len(compact) <= 34 or not compact.isalnum():
        return False
    rearranged = compact[4:] + compact[:4]
    return int("".join(str(int(c, 36)) for c in rearranged)) % 97 == 1


def _candidates(text: str) -> Iterator[Match]:
    yield from _secrets(text)
    for match in _EMAIL.finditer(text):
        yield Match(Kind.EMAIL, *match.span(), "email")
    for match in _CARD.finditer(text):
        if is_card_number(digits_of(match[0])) and not _follows(_MEANT_AS_ID, match):
            yield Match(Kind.CARD, *match.span(), "card")
    for match in _IBAN.finditer(text):
        candidate = match[0]
        while candidate and not is_iban(candidate):  # words in capitals after it look like groups of it
            candidate = candidate.rpartition(" ")[0]
        if candidate:
            yield Match(Kind.IBAN, match.start(), match.start() + len(candidate), "iban")
    yield from _phones(text)
    for match in (*_IPV4.finditer(text), *_IPV6.finditer(text)):
        if _is_public_address(match[0]) and not _follows(_MEANT_AS_VERSION, match):
            yield Match(Kind.IP, *match.span(), "ip")


def _secrets(text: str) -> Iterator[Match]:
    for match in _PRIVATE_KEY.finditer(text):
        yield Match(Kind.SECRET, *match.span(), "private_key")
    for match in _TOKEN.finditer(text):
        if any(c.isdigit() for c in match[0]) or match.lastgroup == "jwt":
            yield Match(Kind.SECRET, *match.span(), match.lastgroup or "token")
    for match in _URL_PASSWORD.finditer(text):
        yield Match(Kind.SECRET, *match.span("value"), "url_password")
    for match in _BEARER.finditer(text):
        if _looks_random(match["value"]):
            yield Match(Kind.SECRET, *match.span("value"), "authorization")
    for match in _ASSIGNED.finditer(text):
        if _looks_random(match["value"]):
            yield Match(Kind.SECRET, *match.span("value"), "assigned_secret")


def _phones(text: str) -> Iterator[Match]:
    is_diff = "@@ -" in text
    for match in _PHONE.finditer(text):
        is_added_line = is_diff and match[0][0] == "+" and text[max(0, match.start() - 1) : match.start()] in ("", "\n")
        if 8 <= len(digits_of(match[0])) <= 15 and not is_added_line and not _follows(_MEANT_AS_ID, match):
            yield Match(Kind.PHONE, *match.span(), "phone")
    for match in _PHONE_IN_CONTEXT.finditer(text):
        if 9 <= len(digits_of(match["value"])) <= 15:
            yield Match(Kind.PHONE, *match.span("value"), "phone")


def _looks_random(value: str) -> bool:
    """A password or token, not code: it mixes letters with digits, and is no path, call, attribute or placeholder."""
    has_both = any(c.isdigit() for c in value) and any(c.isalpha() for c in value)
    is_code = re.fullmatch(r"[a-z_]+\d?(?:\.[a-z_]\w*)+|\d+[a-z]{0,3}|[A-Z_]+\d?|(?:\.{0,2}/)?(?:[\w.-]+/)+[\w.-]*", value)
    return has_both and is_code is None and not value.startswith("REDACTED_")


def _is_public_address(text: str) -> bool:
    """Private, loopback and documentation addresses say nothing about a person."""
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return False
    return address.is_global and (address.version == 4 or address in _GLOBAL_UNICAST)


def _follows(words: re.Pattern[str], match: re.Match[str]) -> bool:
    """Whether the text right before a match ends in such words."""
    return words.search(match.string[max(0, match.start() - 24) : match.start()]) is not None

"""The second look: scan what was written for secrets that redaction missed.

Written apart from `secrets` on purpose, by other means (words and their entropy, decoding, parsing), so that one blind spot does
not serve for both. Owns findings and the decision to stop; never changes a text.
"""

import base64
import binascii
import json
import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from urllib.parse import urlsplit

from pipelines.errors import LeakError

_WORD_ENDS = re.compile(r"[\s\"'`<>(){}\[\],;|\\]+")
_KEY_STARTS = (
    *("sk-", "sk_live_", "rk_live_", "AKIA", "ASIA", "ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_", "glpat-", "xoxb-"),
    *("xoxp-", "xoxa-", "xoxs-", "xoxr-", "AIza", "ya29.", "hf_", "npm_", "pypi-", "SG.", "dapi", "whsec_"),
)
_NAMES_OF_SECRETS = ("password", "passwd", "secret", "api_key", "apikey", "api-key", "access_key", "token", "bearer")
_MIN_KEY_CHARS = 20
_MIN_ENTROPY_BITS = 3.0
"""Per character; random base62 of 20 characters has about 4, words and paths stay below 3.5 but never begin like a key."""
_PLACEHOLDER = "REDACTED_"
_RESERVED_DOMAINS = (".example", "example.com")
"""Nobody's (RFC 2606)."""


@dataclass(frozen=True, slots=True)
class Finding:
    kind: str
    """key, named_secret, jwt, private_key, url_password, email."""
    excerpt: str
    """The first characters only, so that the report is no leak itself."""
    is_secret: bool
    """Personal data is reported, a secret stops the stage."""


def scan(text: str) -> list[Finding]:
    """Everything that still looks like a secret or an address of a person."""
    found: list[Finding] = []
    if "PRIVATE KEY-----" in text:
        found.append(Finding("private_key", "-----BEGIN ... PRIVATE KEY-----", True))
    before = ""
    for word in _WORD_ENDS.split(text):
        found.extend(_scan_word(word))
        name, _, value = word.rpartition("=")
        if _is_named_secret(name or before, value):
            found.append(Finding("named_secret", _mask(value), True))
        before = word if word.strip("=:") else before
    return found


def find_secrets(texts: Iterable[str], *, where: str) -> tuple[str, ...]:
    """Every secret in the texts, masked, as one line each; empty when they are clean."""
    return tuple(
        f"{where}, row {index}: {finding.kind} ({finding.excerpt})"
        for index, text in enumerate(texts)
        for finding in scan(text)
        if finding.is_secret
    )


def require_clean(texts: Iterable[str], *, where: str) -> None:
    """Raise LeakError when a secret is in any of the texts."""
    for index, text in enumerate(texts):
        for finding in scan(text):
            if finding.is_secret:
                raise LeakError(
                    f"{where}, row {index}: a {finding.kind} ({finding.excerpt}) survived redaction; "
                    "nothing was released; revoke that secret, then add its pattern to pipelines/traces/secrets.py"
                )


def _scan_word(word: str) -> Iterator[Finding]:
    if len(word) < 6 or word.startswith(_PLACEHOLDER):
        return
    if "://" in word and _has_password(word):
        yield Finding("url_password", _mask(word), True)
    for part in re.split(r"[=:]+", word):
        if _is_key(part):
            yield Finding("key", _mask(part), True)
        elif _is_jwt(part):
            yield Finding("jwt", _mask(part), True)
    if _is_address(word):
        yield Finding("email", _mask(word), False)


def _is_key(part: str) -> bool:
    start = next((start for start in _KEY_STARTS if part.startswith(start)), None)
    if start is None or len(part) < _MIN_KEY_CHARS:
        return False
    rest = part[len(start) :]
    return any(c.isdigit() for c in rest) and _entropy_bits(rest) >= _MIN_ENTROPY_BITS


def _is_named_secret(name: str, value: str) -> bool:
    """A random-looking value right after a name that says secret: no identifier and no number, so upper, lower and digit."""
    if not name.rstrip(":=").casefold().endswith(_NAMES_OF_SECRETS) or not re.fullmatch(r"[A-Za-z0-9+/_-]{16,}", value):
        return False
    mixed = all(any(test(c) for c in value) for test in (str.isupper, str.islower, str.isdigit))
    return mixed and not value.startswith(_PLACEHOLDER) and _entropy_bits(value) >= _MIN_ENTROPY_BITS


def _is_jwt(part: str) -> bool:
    """Three dotted parts, the first of which decodes to an object that names an algorithm (RFC 7519)."""
    pieces = part.split(".")
    if len(pieces) != 3 or len(pieces[0]) < 8:
        return False
    try:
        header = json.loads(base64.urlsafe_b64decode(pieces[0] + "=" * (-len(pieces[0]) % 4)))
    except (ValueError, binascii.Error, RecursionError):
        return False
    return isinstance(header, dict) and "alg" in header


def _has_password(word: str) -> bool:
    try:
        password = urlsplit(word).password
    except ValueError:
        return False
    return bool(password) and not str(password).startswith((_PLACEHOLDER, "$", "%", "*", "<"))


def _is_address(word: str) -> bool:
    name, at, domain = word.strip(".:").rpartition("@")
    is_domain = re.fullmatch(r"[A-Za-z0-9.-]+\.[A-Za-z]{2,}", domain) is not None
    return bool(at and name and is_domain and not domain.endswith(_RESERVED_DOMAINS) and "://" not in word)


def _entropy_bits(text: str) -> float:
    """Shannon entropy per character."""
    counts = Counter(text)
    return -sum(n / len(text) * math.log2(n / len(text)) for n in counts.values())


def _mask(word: str) -> str:
    return f"{word[:6]}... of {len(word)} characters"

"""Pseudonyms: what stands for a secret or a piece of personal data once it is taken out.

Owns their shapes and telling them from real values, so that redacting twice changes nothing. The same value gets the same
pseudonym all over a lake (keyed hash), of the same shape as the value. Knows nothing of texts and traces.
"""

import hmac
import re
from hashlib import sha256

from pipelines.traces.checksums import digits_of, is_card_number, is_cpf, is_dni
from pipelines.traces.secrets import Kind, Match

FAKE_CARD_PREFIX = "40000000"
FAKE_IBAN_BANK = "EVLP"
FAKE_PHONE_PREFIX = "+1555"
FAKE_EMAIL_DOMAIN = ".example"
"""Reserved: no mail server can ever have it (RFC 2606, section 2)."""
_CONSONANTS, _VOWELS = "bdfgklmnprstvz", "aeiou"
_SYLLABLE = f"[{_CONSONANTS}][{_VOWELS}]"
_EMAIL = rf"(?:{_SYLLABLE}){{2}}\.(?:{_SYLLABLE}){{3}}(?:@|%40)(?:{_SYLLABLE}){{2}}{re.escape(FAKE_EMAIL_DOMAIN)}"
_ALREADY = re.compile(rf"{_EMAIL}|REDACTED_[a-z_]+_[0-9a-f]{{8}}")


def pseudonym(match: Match, value: str, *, key: bytes) -> str:
    """What stands for a value: same kind and value, same pseudonym, whatever its spacing or case."""
    canonical = value if match.kind is Kind.SECRET else value.replace(" ", "").replace("%40", "@").replace("%3A", ":").casefold()
    if match.kind is Kind.NATIONAL_ID:
        canonical = "".join(c for c in canonical if c.isalnum())
    if match.kind in (Kind.PHONE, Kind.CARD):
        canonical = digits_of(value)
        canonical = (
            canonical[1:] if len(canonical) == 11 and canonical[0] == "1" else canonical
        )  # +1 before a North American number may be left out
    tag = hmac.new(key, f"{match.kind}:{canonical}".encode("utf-8", errors="replace"), sha256).hexdigest()
    number = str(int(tag, 16))
    match match.kind:
        case Kind.EMAIL:
            return _fake_email(int(tag, 16), at="%40" if "%40" in value else "@")
        case Kind.PHONE:
            return f"{FAKE_PHONE_PREFIX}{number[:7]}"
        case Kind.CARD:
            return _in_shape(value, _with_check_digit(FAKE_CARD_PREFIX + number[:7]))
        case Kind.IBAN:
            return _fake_iban(number)
        case Kind.NATIONAL_ID:
            return _fake_national_id(match.label, value, number)
        case Kind.IP:
            low = int(tag[:8], 16)
            if ":" in value or "%3A" in value:
                return f"2001:db8::{tag[:4]}:{tag[4:8]}"
            return f"198.{18 + low % 2}.{low // 2 % 256}.{low // 512 % 254 + 1}"  # RFC 2544: addresses that are nobody's
        case Kind.SECRET:
            return f"REDACTED_{match.label}_{tag[:8]}"


def is_pseudonym(match: Match, value: str) -> bool:
    digits = digits_of(value)
    match match.kind:
        case Kind.PHONE:
            return digits.startswith("1555") and len(digits) == 11
        case Kind.CARD:
            return digits.startswith(FAKE_CARD_PREFIX)
        case Kind.IBAN:
            return FAKE_IBAN_BANK in value
        case _:
            return _ALREADY.fullmatch(value) is not None or value.startswith(("198.18.", "198.19."))


def _fake_email(number: int, *, at: str) -> str:
    """First and last name at a company, 8e12 of them.

    Close to what people have, so that a model trained on pseudonyms copies a real address too; of syllables, which a small
    model copies in a few tokens where it trips over hex digits.
    """
    parts = []
    for num_syllables in (2, 3, 2):
        text = ""
        for _ in range(num_syllables):
            number, consonant = divmod(number, len(_CONSONANTS))
            number, vowel = divmod(number, len(_VOWELS))
            text += _CONSONANTS[consonant] + _VOWELS[vowel]
        parts.append(text)
    first, last, company = parts
    return f"{first}.{last}{at}{company}{FAKE_EMAIL_DOMAIN}"


def _fake_national_id(label: str, value: str, number: str) -> str:
    """In the shape of the original, and such as no authority ever gives out."""
    size = len(digits_of(value))
    match label:
        case "us_ssn":
            return _in_shape(value, "000" + number[: size - 3])
        case "de_tax_id":
            return _in_shape(value, "0" + number[: size - 1])
        case "br_cpf":
            first = next(digits for digits in (number[i : i + size] for i in range(20)) if not is_cpf(digits))
            return _in_shape(value, first)
        case "es_dni":
            body = _in_shape(value[:-1], number[:size])
            return body + next(letter for letter in "ABCDEF" if not is_dni(body + letter))
    return "QQ" + _in_shape(value[2:], number[:size])


def _with_check_digit(digits: str) -> str:
    return next(digits + str(last) for last in range(10) if is_card_number(digits + str(last)))


def _in_shape(value: str, digits: str) -> str:
    """The digits with the separators of the original when it has sixteen digits too."""
    if len(digits_of(value)) != len(digits):
        return digits
    fresh = iter(digits)
    return "".join(next(fresh) if c.isdecimal() else c for c in value)


def _fake_iban(number: str) -> str:
    account = FAKE_IBAN_BANK + number[:14]
    remainder = int("".join(str(int(c, 36)) for c in account + "GB00")) % 97
    return f"GB{98 - remainder:02d}{account}"

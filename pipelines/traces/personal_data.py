"""What personal data looks like: e-mail addresses, phone, card, account and national numbers, addresses of machines.

Owns finding them in a text, by a checksum, a country's own shape, or the words before. Refuses to replace anything. Names of people
and postal addresses are not recognised. Addresses and numbers set aside for documentation are nobody's and stay.
"""

import ipaddress
import re
from collections.abc import Iterator

from pipelines.traces.checksums import digits_of, is_card_number, is_cpf, is_dni, is_german_tax_id, is_iban
from pipelines.traces.secrets import Kind, Match

_AT = re.compile(r"@|%40")
_LOCAL_PART = re.compile(r"(?:(?<![\w.+-])|(?<=%[0-9A-F]{2}))\w(?:[\w.+-]|%2B){0,63}\Z")
_DOMAIN = re.compile(r"((?:[A-Za-z0-9-]{1,63}\.){1,8}[A-Za-z]{2,24})(?![\w(-]|\.\w|:[\w/])")
_NO_DOMAIN = re.compile(
    r"\d+x\..*|\d+(?:\.[\w-]+)*\.\w+|.*\.(?:service|socket|target|timer|mount|png|jpe?g|gif|svg|webp|css|js|json|html?|txt|ya?ml|toml|lock)",
    re.IGNORECASE,
)
"""Retina images, versions, systemd units and files, as in `logo@2x.png` and `pkg@1.0.0-rc.beta`."""

_NATIONAL_PHONES = r"""\(\d{3}\)\ ?\d{3}[ .-]\d{4}             # North America
    |\d{3}[.-]\d{3}[.-]\d{4}
    |\(0?\d{2}\)\ ?9?\d{4}[ -]\d{4}                            # Brazil
    |0[1-9](?:[ .]\d{2}){4}                                    # France
    |0(?:\d-\d{4}|\d{2}-\d{3,4}|\d{3}-\d{2})-\d{4}              # Japan
    |0[1237](?:\d\ \d{4}\ \d{4}|\d{2}\ \d{3,4}\ \d{4}|\d{3}\ \d{6}|\d{3}\ \d{3}\ \d{3,4})   # Britain
    |01[5-7]\d[ /-]\d{7,8}                                     # Germany, mobile
    |04\d{2}\ \d{3}\ \d{3}                                     # Australia, mobile"""
_PHONE = re.compile(
    rf"""(?<![\w.+#/-])(?:
    \+\d{{8,15}}
    |\+\d{{1,3}}[ .-]?(?:\(\d{{1,4}}\)[ .-]?)?\d{{1,4}}(?:[ .-]?\d{{2,5}}){{1,5}}
    |{_NATIONAL_PHONES}
    )(?![\w-])(?!\.\d)""",
    re.VERBOSE,
)
_PHONE_WORD = re.compile(
    r"(?:phone|telefone?|tel[eé]fono|t[eé]l[eé]phone|mobile?|m[oó]vil|celular|handy|whatsapp|msisdn|\b(?:tel|cell|fax|sms|call me (?:at|on)"
    r"|reach me (?:at|on)))(?:number|nummer|no|nr|s)?(?![a-z])"
)
_PHONE_NAME = re.compile(r"(?:phone|telephone|mobile|cell|tel|fax|whatsapp|msisdn)(?:[_ -]?(?:number|num|no))?$")
_PHONE_AFTER_WORD = re.compile(
    r"[^\d\n]{0,32}?(?:\n\s*[\"']*value[\"']*: ?[\"']*)?(?P<value>\+?\(?\d[\d .()/-]{6,18}\d)(?![\w-])"
)
_CARD = re.compile(r"(?<![\w.#-])[2-6]\d{3}(?:[ -]?\d{2,6}){2,4}(?![\w-])(?!\.\d)")
_IBAN = re.compile(r"\b[A-Z]{2}\d{2}(?: ?[A-Z0-9]{4}){2,7}(?: ?[A-Z0-9]{1,4})?(?![A-Za-z0-9])")
_IPV4 = re.compile(r"(?:(?<![\w.=/-])|(?<=[^=<>~!/]=)|(?<=//))(?:\d{1,3}\.){3}\d{1,3}(?![\w-]|\.\w|/\d)")
_IPV6 = re.compile(r"(?<![\w.])(?<![0-9A-Fa-f:]:)[23][0-9a-fA-F]{1,3}(?::|%3A)(?:[0-9a-fA-F:]|%3A){2,64}(?!\w)")

_NATIONAL_IDS = {
    "us_ssn": re.compile(r"(?<![\w.#/-])(?!000|666|9)\d{3}-(?!00)\d{2}-(?!0000)\d{4}(?![\w-])(?!\.\d)"),
    "uk_nino": re.compile(
        r"\b[A-CEGHJ-PR-TW-Z][A-CEGHJ-NPR-TW-Z](?<!BG)(?<!GB)(?<!KN)(?<!NK)(?<!NT)(?<!TN)(?<!ZZ)(?:\d{6}|(?: \d\d){3} )[A-D](?![\w-])"
    ),
    "es_dni": re.compile(r"(?<![\w.#/+-])(?:\d{8}|[XYZ]-?\d{7})-?[A-Z](?![\w-])"),
    "br_cpf": re.compile(r"(?<![\w.#/-])\d{3}\.\d{3}\.\d{3}-\d{2}(?![\w-])"),
    "de_tax_id": re.compile(r"(?<![\w.#/-])[1-9]\d \d{3} \d{3} \d{3}(?![\w-])(?!\.\d)"),
}
_NATIONAL_IDS_AFTER_WORD = {
    "us_ssn": (re.compile(r"ssn|social security"), re.compile(r"(?!000|666|9)\d{3}[ -]?\d{2}[ -]?\d{4}")),
    "br_cpf": (re.compile(r"cpf"), re.compile(r"\d{11}")),
    "de_tax_id": (re.compile(r"steuer|tax|idnr"), re.compile(r"[1-9]\d{10}")),
}
_NUMBER_AFTER_WORD = re.compile(r"[^\d\n]{0,40}?(?:\n\s*[\"']*value[\"']*: ?[\"']*)?(?P<value>\d[\d .-]{7,14}\d)(?![\w-])")

_MEANT_AS_ID = re.compile(
    r"""(?:(?<![a-z])|(?<=[a-z]_))(?:(?P<thing>order|ticket|invoice|tracking|reference|ref|case|sku|part|p/n|serial|item|product|build
    |job|run|parcel|shipment|batch|lot|version|isbn|ean|upc|imei|transaction|session|request|commit|issue|model|firmware)
    (?:[ _-]?(?:ids?|no|nr|num|number|code))?|ids?)["'\]]*[\s:.\#=]*(?:is\s)?["'\#(]*$""",
    re.VERBOSE,
)
"""Words before a number that say what it is: nobody's phone, card or national number."""
_MEANT_AS_VERSION = re.compile(r"(?:version|release|build|firmware|driver|[<>=~!]=|\w ?[<>~!]|\bv)[\"']?\s*[:=]?\s*[\"']?$")
_GLOBAL_UNICAST = ipaddress.ip_network("2000::/3")


def find_personal_data(text: str) -> Iterator[Match]:
    """Every piece of it in the text, in no order; matches may overlap. Escapes of JSON should be blanked out before."""
    yield from _emails(text)
    if sum(map(text.count, "0123456789")) < 5:
        return
    lowered = text.lower()
    if len(lowered) != len(text):
        lowered = text.translate({c: c + 32 for c in range(65, 91)})
    for match in _CARD.finditer(text):
        if is_card_number(digits_of(match[0])) and not _follows(_MEANT_AS_ID, lowered, match.start()):
            yield Match(Kind.CARD, *match.span(), "card")
    yield from _ibans(text)
    yield from _national_ids(text, lowered)
    yield from _phones(text, lowered)
    for match in (*_IPV4.finditer(text), *_IPV6.finditer(text)):
        address = match[0].rstrip(":")
        if _is_somebodys(address.replace("%3A", ":")) and not _follows(_MEANT_AS_VERSION, lowered, match.start()):
            yield Match(Kind.IP, match.start(), match.start() + len(address), "ip")


def is_phone_name(name: str) -> bool:
    """Whether a number under this name is a phone number."""
    return _PHONE_NAME.search(re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()) is not None


def _emails(text: str) -> Iterator[Match]:
    for at in _AT.finditer(text):
        domain = _DOMAIN.match(text, at.end())
        local = _LOCAL_PART.search(text[max(0, at.start() - 65) : at.start()])
        if not (domain and local) or _NO_DOMAIN.fullmatch(domain[1]) or local[0] == "git":
            continue
        is_escaped = text[: at.start() - len(local[0])].endswith("%") and re.match("[0-9A-F]{2}", local[0])
        start = at.start() - len(local[0]) + 2 * bool(is_escaped)
        if start < at.start() and text[max(0, start - 3) : start] != "://":
            yield Match(Kind.EMAIL, start, domain.end(), "email")


def _ibans(text: str) -> Iterator[Match]:
    for match in _IBAN.finditer(text):
        candidate = match[0]
        while candidate and not is_iban(candidate):  # words in capitals after it look like groups of it
            candidate = candidate.rpartition(" ")[0]
        if candidate:
            yield Match(Kind.IBAN, match.start(), match.start() + len(candidate), "iban")


def _national_ids(text: str, lowered: str) -> Iterator[Match]:
    for label, pattern in _NATIONAL_IDS.items():
        for match in pattern.finditer(text):
            meant = _MEANT_AS_ID.search(lowered[max(0, match.start() - 40) : match.start()])
            if _is_national_id(label, match[0]) and not (meant and meant["thing"]):  # an id it is
                yield Match(Kind.NATIONAL_ID, *match.span(), label)
    for label, (word, pattern) in _NATIONAL_IDS_AFTER_WORD.items():
        for said in word.finditer(lowered):
            number = _NUMBER_AFTER_WORD.match(text, said.end())
            if number and pattern.fullmatch(number["value"]) and _is_national_id(label, number["value"]):
                yield Match(Kind.NATIONAL_ID, *number.span("value"), label)


def _is_national_id(label: str, value: str) -> bool:
    match label:
        case "es_dni":
            return is_dni(value)
        case "br_cpf":
            return is_cpf(digits_of(value))
        case "de_tax_id":
            return is_german_tax_id(digits_of(value))
    return True


def _phones(text: str, lowered: str) -> Iterator[Match]:
    is_diff = "@@ -" in text
    for match in _PHONE.finditer(text):
        is_added_line = is_diff and match[0][0] == "+" and text[max(0, match.start() - 1) : match.start()] in ("", "\n")
        if 8 <= len(digits_of(match[0])) <= 15 and not is_added_line and not _follows(_MEANT_AS_ID, lowered, match.start()):
            yield Match(Kind.PHONE, *match.span(), "phone")
    for word in _PHONE_WORD.finditer(lowered):
        number = _PHONE_AFTER_WORD.match(text, word.end())
        if number and 9 <= len(digits_of(number["value"])) <= 15:
            yield Match(Kind.PHONE, *number.span("value"), "phone")


def _is_somebodys(text: str) -> bool:
    """Private, loopback and documentation addresses say nothing about a person, whole networks neither; 3.2.1.4 is a section."""
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return False
    if isinstance(address, ipaddress.IPv6Address):
        return address.is_global and address in _GLOBAL_UNICAST
    return address.is_global and not address.is_multicast and not text.endswith(".0.0") and len(text) > len("1.1.1.1")


def _follows(words: re.Pattern[str], lowered: str, start: int) -> bool:
    """Whether the text right before a place ends in such words."""
    return words.search(lowered[max(0, start - 40) : start]) is not None

"""Check digits: whether a number can be a card, an account or a person's national number.

Pure arithmetic over strings; knows nothing of where a number stands in a text.
"""

import re
from collections import Counter

IBAN_CHARS = {
    country: int(length)
    for length, countries in {
        15: "NO",
        16: "BE",
        18: "DK FI FO GL NL",
        19: "MK SI",
        20: "AT BA EE KZ LT LU XK",
        21: "CH HR LI LV",
        22: "BG BH CR DE GB GE IE ME RS VA",
        23: "AE GI IL TL",
        24: "AD CZ ES MD PK RO SA SE SK TN VG",
        25: "PT",
        26: "IS TR",
        27: "FR GR IT MC MR SM",
        28: "AL AZ CY DO GT HU LB PL BY SV",
        29: "BR EG PS QA UA",
        30: "JO KW MU",
        31: "MT SC",
        32: "LC",
    }.items()
    for country in countries.split()
}
"""Length of an account number by country (SWIFT's IBAN registry)."""
_CARD = re.compile(
    r"4(?:\d{12}|\d{15}|\d{18})|(?:5[1-5]|2[2-7])\d{14}|3[47]\d{13}|(?:6011|65|64[4-9])\d{10,15}|35\d{14}|3(?:0[0-5]|[689]\d)\d{11}|62\d{14,17}"
)
"""First digits and lengths that issuers use: Visa, Mastercard, American Express, Discover, JCB, Diners Club, UnionPay."""


def digits_of(text: str) -> str:
    return "".join(c for c in text if c.isdecimal())


def is_card_number(digits: str) -> bool:
    """An issuer's prefix and length with a valid check digit (ISO/IEC 7812-1, annex B)."""
    if not digits.isascii() or _CARD.fullmatch(digits) is None or len(set(digits)) == 1:
        return False
    doubled = [int(d) * 2 - 9 * (int(d) > 4) for d in digits[-2::-2]]
    return (sum(doubled) + sum(int(d) for d in digits[-1::-2])) % 10 == 0


def is_iban(text: str) -> bool:
    """Length of its country and mod-97 check (ISO 13616)."""
    compact = text.replace(" ", "")
    if len(compact) != IBAN_CHARS.get(compact[:2]) or not (compact.isalnum() and compact.isascii()):
        return False
    rearranged = compact[4:] + compact[:4]
    return int("".join(str(int(c, 36)) for c in rearranged)) % 97 == 1


def is_dni(text: str) -> bool:
    """Spain: eight digits and the letter that their remainder by 23 gives; a foreigner's first digit is written X, Y or Z."""
    compact = text.replace("-", "").replace(" ", "").upper()
    digits = compact[:-1].translate(str.maketrans("XYZ", "012"))
    return digits.isdecimal() and "TRWAGMYFPDXBNJZSQVHLCKE"[int(digits) % 23] == compact[-1]


def is_cpf(digits: str) -> bool:
    """Brazil: eleven digits, the last two weighted remainders by 11 of those before them."""
    if len(digits) != 11 or len(set(digits)) == 1:
        return False
    return all(sum(int(c) * (n + 1 - i) for i, c in enumerate(digits[:n])) * 10 % 11 % 10 == int(digits[n]) for n in (9, 10))


def is_german_tax_id(digits: str) -> bool:
    """Eleven digits, no leading zero, one digit of the first ten twice or thrice, a check digit by ISO 7064 MOD 11,10."""
    repeated = [count for count in Counter(digits[:10]).values() if count > 1]
    if len(digits) != 11 or digits[0] == "0" or repeated not in ([2], [3]):
        return False
    product = 10
    for c in digits[:10]:
        product = ((int(c) + product) % 10 or 10) * 2 % 11
    return (11 - product) % 10 == int(digits[10])

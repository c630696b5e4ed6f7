"""The values that the privacy corpus plants: what each kind of secret and of personal data looks like.

Owns making them at random. Shapes come from the providers' and authorities' own descriptions; no value is anybody's.
"""

import ipaddress
import json
import re
import string
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from random import Random
from urllib.parse import quote

BASE62 = string.ascii_letters + string.digits
BASE64 = BASE62 + "+/"
BASE64URL = BASE62 + "-_"
BASE32 = string.ascii_uppercase + "234567"
HEX = "0123456789abcdef"


class Group(StrEnum):
    SECRET = "secret"
    PERSONAL = "personal"


@dataclass(frozen=True, slots=True)
class Kind:
    make: Callable[[Random], str]
    """The value; where only a part is sensitive, that part stands between « and »."""
    group: Group = Group.SECRET
    names: tuple[str, ...] = ()
    """Field names it is stored under; none where the value brings its own context."""
    noun: str = ""
    is_evident: bool = True
    """Recognisable without any words around it."""


def chars(rng: Random, alphabet: str, count: int) -> str:
    return "".join(rng.choices(alphabet, k=count))


def random_digits(rng: Random, count: int) -> str:
    return chars(rng, string.digits, count)


def _shape(rng: Random, shapes: tuple[str, ...]) -> str:
    """One of the shapes with every # a digit and every N a digit from 2 to 9."""
    return re.sub("[#N]", lambda m: chars(rng, string.digits if m[0] == "#" else "23456789", 1), rng.choice(shapes))


def _token(prefix: str, alphabet: str, *counts: int, joint: str = "_") -> Callable[[Random], str]:
    return lambda rng: prefix + joint.join(chars(rng, alphabet, count) for count in counts)


def _password(rng: Random) -> str:
    word = rng.choice(["Sommer", "dragon", "Tr0ub4dor", "winter", "Kaffee", "monkey", "blue-horse", "Passw0rd"])
    return rng.choice([f"{word}{rng.randint(10, 2030)}{rng.choice('!#%*_-')}", chars(rng, BASE62 + "!#%*_-", 13) + "7a"])


def _jwt(rng: Random) -> str:
    parts = ({"alg": "HS256", "typ": "JWT"}, {"sub": random_digits(rng, 10), "iat": 1700000000 + rng.randint(0, 9**8)})
    head, body = (urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in parts)
    return f"{head}.{body}.{chars(rng, BASE64URL, 43)}"


def _private_key(name: str) -> Callable[[Random], str]:
    def make(rng: Random) -> str:
        lines = "\n".join(chars(rng, BASE64, 64) for _ in range(rng.randint(3, 8)))
        return f"-----BEGIN {name}-----\n{lines}\n{chars(rng, BASE64, 30)}==\n-----END {name}-----"

    return make


def _url_password(rng: Random) -> str:
    scheme = rng.choice(["postgres", "postgresql+psycopg", "mysql", "mongodb+srv", "amqps", "rediss", "https"])
    user = "" if scheme == "rediss" else rng.choice(["app", "admin", "svc_orders", "root"])
    return f"{scheme}://{user}:«{quote(_password(rng), safe='')}»@db-{rng.randint(1, 9)}.north.internal:5432/shop"


def _parameter_password(rng: Random) -> str:
    shapes = (
        "Server=tcp:sql1,1433;Database=shop;User Id=app;Password=«{}»;Encrypt=True",
        "host=db1 user=app password=«{}» dbname=x",
    )
    return rng.choice(shapes).format(_password(rng))


def _header(name: str, alphabet: str, count: int, tail: str = "") -> Callable[[Random], str]:
    return lambda rng: f"{name}«{chars(rng, alphabet, count)}{tail}»"


def _basic(rng: Random) -> str:
    return f"Authorization: Basic «{b64encode(f'deploy:{_password(rng)}'.encode()).decode()}»"


def _email(rng: Random) -> str:
    first, last = (
        rng.choice(["ann", "bob", "chen", "dara", "emre", "fatima"]),
        rng.choice(["smith", "okafor", "li", "novak", "diaz"]),
    )
    name = rng.choice(
        [f"{first}.{last}", f"{first[0]}{last}{rng.randint(1, 99)}", f"{first}+shop", f"{first}_{last}", f"{last}-{first}"]
    )
    domain = rng.choice(["northwind", "acme-labs", "mail.contoso", "lumen", "web", "postbox"])
    return f"{name}@{domain}.{rng.choice(['com', 'io', 'de', 'co.uk', 'org', 'fr', 'com.br', 'dev', 'net'])}"


def with_luhn(digits: str) -> str:
    total = sum(d if i % 2 else d * 2 - 9 * (d > 4) for i, d in enumerate(int(c) for c in reversed(digits)))
    return digits + str(-total % 10)


def _card(rng: Random) -> str:
    kind = rng.choice(["visa", "mastercard", "amex", "discover"])
    if kind == "amex":
        digits = with_luhn(f"3{rng.choice('47')}{random_digits(rng, 12)}")
        return rng.choice([digits, f"{digits[:4]} {digits[4:10]} {digits[10:]}"])
    start = {"visa": "4", "mastercard": f"{rng.choice(['51', '55', '2301', '2710'])}", "discover": "6011"}[kind]
    digits = with_luhn(start + random_digits(rng, 15 - len(start)))
    return rng.choice(["", " ", "-"]).join(digits[i : i + 4] for i in range(0, 16, 4))


def _iban(rng: Random) -> str:
    country, account = rng.choice(
        [
            ("DE", random_digits(rng, 18)),
            ("GB", chars(rng, string.ascii_uppercase, 4) + random_digits(rng, 14)),
            ("FR", random_digits(rng, 10) + chars(rng, string.ascii_uppercase + string.digits, 11) + random_digits(rng, 2)),
            ("ES", random_digits(rng, 20)),
            ("NL", chars(rng, string.ascii_uppercase, 4) + random_digits(rng, 10)),
            ("PL", random_digits(rng, 24)),
            ("NO", random_digits(rng, 11)),
        ]
    )
    check = 98 - int("".join(str(int(c, 36)) for c in f"{account}{country}00")) % 97
    text = f"{country}{check:02d}{account}"
    return rng.choice([text, " ".join(text[i : i + 4] for i in range(0, len(text), 4))])


def _ssn(rng: Random) -> str:
    return f"{rng.randint(1, 665):03d}-{rng.randint(1, 99):02d}-{rng.randint(1, 9999):04d}"


def _nino(rng: Random) -> str:
    prefix = rng.choice(["AB", "CE", "HJ", "LM", "PR", "SX", "YZ"])
    digits = random_digits(rng, 6)
    letter = rng.choice("ABCD")
    return rng.choice([f"{prefix}{digits}{letter}", f"{prefix} {digits[:2]} {digits[2:4]} {digits[4:]} {letter}"])


def _dni(rng: Random) -> str:
    number = rng.randint(10_000_000, 79_999_999)
    return f"{number}{rng.choice(['', '-'])}{'TRWAGMYFPDXBNJZSQVHLCKE'[number % 23]}"


def _cpf_digits(rng: Random) -> str:
    digits = random_digits(rng, 9)
    for weight in (10, 11):
        rest = sum(int(c) * (weight - i) for i, c in enumerate(digits)) * 10 % 11
        digits += str(rest % 10)
    return digits


def _cpf(rng: Random) -> str:
    d = _cpf_digits(rng)
    return f"{d[:3]}.{d[3:6]}.{d[6:9]}-{d[9:]}"


def _tax_id_digits(rng: Random) -> str:
    """Ten digits of which exactly one comes twice, then the check digit of ISO 7064 MOD 11,10."""
    pool = rng.sample(string.digits, 9)
    pool.append(rng.choice(pool))
    while True:
        rng.shuffle(pool)
        if pool[0] != "0":
            break
    product = 10
    for c in pool:
        total = (int(c) + product) % 10 or 10
        product = total * 2 % 11
    return "".join(pool) + str((11 - product) % 10)


def _tax_id(rng: Random) -> str:
    d = _tax_id_digits(rng)
    return f"{d[:2]} {d[2:5]} {d[5:8]} {d[8:]}"


def _ipv4(rng: Random) -> str:
    while True:
        address = ipaddress.IPv4Address((rng.randint(11, 217) << 24) + rng.randint(256, (1 << 24) - 2))
        if address.is_global:
            return str(address)


def _ipv6(rng: Random) -> str:
    groups = [rng.choice(["2a02", "2600", "2a01", "2406"]), chars(rng, HEX, 4), *(chars(rng, HEX, 4) for _ in range(6))]
    full = ipaddress.IPv6Address(":".join(groups))
    return str(rng.choice([full, ipaddress.IPv6Address(int(full) >> 64 << 64 | rng.randint(1, 0xFFFF))]))


_PHONES_ABROAD = (
    *(
        "+1 (N##) N##-####",
        "+1-N##-N##-####",
        "+1N##N######",
        "+44 20 7### ####",
        "+44 7### ######",
        "+49 151 ########",
        "+49 (0)30 #######",
    ),
    *(
        "+33 6 ## ## ## ##",
        "+34 6## ## ## ##",
        "+55 11 9####-####",
        "+91 9#### #####",
        "+81 3-####-####",
        "+61 4## ### ###",
        "+447#########",
    ),
)
_PHONES_AT_HOME = (
    *(
        "(N##) N##-####",
        "N##-N##-####",
        "N##.N##.####",
        "N##N######",
        "020 7### ####",
        "07### ######",
        "0151 ########",
        "030/#######",
    ),
    *(
        "06 ## ## ## ##",
        "06.##.##.##.##",
        "6## ## ## ##",
        "(11) 9####-####",
        "9#### #####",
        "03-####-####",
        "04## ### ###",
        "0## ### ## ##",
    ),
)


def _key(make: Callable[[Random], str], noun: str) -> Kind:
    return Kind(make, names=("api_key", "apiKey", "key", "credential"), noun=noun)


def _person(make: Callable[[Random], str], names: tuple[str, ...], noun: str, *, is_evident: bool = True) -> Kind:
    return Kind(make, Group.PERSONAL, names, noun, is_evident)


KINDS: dict[str, Kind] = {
    "OpenAI key": _key(_token("sk-proj-", BASE64URL, 74), "OpenAI key"),
    "OpenAI legacy key": _key(_token("sk-", BASE62, 48), "OpenAI key"),
    "Anthropic key": _key(_token("sk-ant-api03-", BASE64URL, 93), "Claude key"),
    "OpenRouter key": _key(_token("sk-or-v1-", HEX, 64), "OpenRouter key"),
    "AWS key id": _key(_token("AKIA", BASE32, 16), "access key ID"),
    "AWS secret key": Kind(
        _token("", BASE64, 40), names=("aws_secret_access_key", "secretAccessKey"), noun="AWS secret access key", is_evident=False
    ),
    "AWS pair": Kind(lambda rng: f"«AKIA{chars(rng, BASE32, 16)},{chars(rng, BASE64, 40)}»"),
    "GitHub classic token": _key(_token("ghp_", BASE62, 36), "GitHub token"),
    "GitHub fine-grained token": _key(_token("github_pat_", BASE62, 22, 59), "GitHub token"),
    "GitLab token": _key(_token("glpat-", BASE64URL, 20), "GitLab token"),
    "Slack token": _key(
        lambda rng: f"xoxb-{random_digits(rng, 12)}-{random_digits(rng, 13)}-{chars(rng, BASE62, 24)}", "Slack token"
    ),
    "Slack webhook": Kind(
        lambda rng: (
            f"«https://hooks.slack.com/services/T{chars(rng, BASE32, 10)}/B{chars(rng, BASE32, 10)}/{chars(rng, BASE62, 24)}»"
        )
    ),
    "Stripe key": _key(_token("sk_live_", BASE62, 24), "Stripe key"),
    "Google key": _key(_token("AIza", BASE64URL, 35), "Maps key"),
    "Google OAuth secret": _key(_token("GOCSPX-", BASE64URL, 28), "OAuth client secret"),
    "Hugging Face token": _key(_token("hf_", string.ascii_letters, 34), "Hugging Face token"),
    "SendGrid key": _key(_token("SG.", BASE64URL, 22, 43, joint="."), "SendGrid key"),
    "Twilio key": _key(_token("SK", HEX, 32), "Twilio key"),
    "npm token": _key(_token("npm_", BASE62, 36), "npm token"),
    "PyPI token": _key(_token("pypi-AgEIcHlwaS5vcmc", BASE64URL, 150), "PyPI token"),
    "Databricks token": _key(_token("dapi", HEX, 32), "Databricks token"),
    "DigitalOcean token": _key(_token("dop_v1_", HEX, 64), "DigitalOcean token"),
    "Shopify token": _key(_token("shpat_", HEX, 32), "Shopify token"),
    "Groq key": _key(_token("gsk_", BASE62, 52), "Groq key"),
    "Replicate token": _key(_token("r8_", BASE62, 37), "Replicate token"),
    "LangSmith key": _key(_token("lsv2_pt_", HEX, 32, 10), "LangSmith key"),
    "Vault token": _key(_token("hvs.", BASE64URL, 90), "Vault token"),
    "Telegram bot token": _key(lambda rng: f"{rng.randint(10**9, 10**10 - 1)}:AA{chars(rng, BASE64URL, 33)}", "bot token"),
    "JWT": Kind(_jwt, names=("session", "id_token", "jwt"), noun="JWT"),
    "private key": Kind(_private_key("RSA PRIVATE KEY"), names=("private_key", "pem"), noun="private key"),
    "OpenSSH private key": Kind(_private_key("OPENSSH PRIVATE KEY"), names=("ssh_key", "identity"), noun="SSH key"),
    "PGP private key": Kind(_private_key("PGP PRIVATE KEY BLOCK"), names=("pgp", "signing_key"), noun="PGP key"),
    "password in a URL": Kind(_url_password, names=("database_url", "dsn"), noun="connection string"),
    "password in a connection string": Kind(_parameter_password),
    "password": Kind(_password, names=("password", "db_password", "dbPassword", "passwd"), noun="password", is_evident=False),
    "random hex key": Kind(
        _token("", HEX, 32), names=("api_key", "client_secret", "x-api-key"), noun="API key", is_evident=False
    ),
    "random token": Kind(
        _token("", BASE62, 40), names=("access_token", "authToken", "secret"), noun="access token", is_evident=False
    ),
    "bearer header": Kind(_header("Authorization: Bearer ", BASE62 + "-._~", 48)),
    "basic header": Kind(_basic),
    "API key header": Kind(_header("X-Api-Key: ", BASE62, 32)),
    "Azure account key": Kind(_header("DefaultEndpointsProtocol=https;AccountName=shop;AccountKey=", BASE64, 86, "==")),
    "password on the command line": Kind(lambda rng: f"--password «{_password(rng)}»"),
    "password of curl": Kind(lambda rng: f"curl -s -u deploy:«{_password(rng)}» https://ci.north.internal/job"),
    "e-mail": _person(_email, ("email", "customer_email", "contact"), "e-mail"),
    "phone, international": _person(lambda rng: _shape(rng, _PHONES_ABROAD), ("phone", "phoneNumber", "mobile"), "phone number"),
    "phone, national": _person(
        lambda rng: _shape(rng, _PHONES_AT_HOME), ("phone", "phoneNumber", "mobile"), "phone number", is_evident=False
    ),
    "card number": _person(_card, ("card", "card_number", "pan"), "card number"),
    "IBAN": _person(_iban, ("iban", "account"), "IBAN"),
    "US SSN": _person(_ssn, ("ssn", "tax_id"), "social security number"),
    "UK NINO": _person(_nino, ("nino", "national_insurance"), "National Insurance number"),
    "Spanish DNI": _person(_dni, ("dni", "national_id"), "DNI"),
    "Brazilian CPF": _person(_cpf, ("cpf", "taxId"), "CPF"),
    "Brazilian CPF, digits only": _person(_cpf_digits, ("cpf", "customer_cpf"), "CPF", is_evident=False),
    "German tax id": _person(_tax_id, ("steuer_id", "tax_id"), "Steuer-ID"),
    "German tax id, digits only": _person(_tax_id_digits, ("steuer_id", "tax_id"), "Steuer-ID", is_evident=False),
    "IPv4 address": _person(_ipv4, ("ip", "client_ip", "remote_addr"), "IP address"),
    "IPv6 address": _person(_ipv6, ("ip", "client_ip", "remote_addr"), "IP address"),
}

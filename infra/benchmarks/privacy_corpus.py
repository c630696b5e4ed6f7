"""A labelled corpus for redaction: planted secrets and personal data, and look-alikes that must stay as they are.

Owns putting values into wordings. Everything is built from a seed when it is asked for, so that nothing in the repository looks
like a real key. `DEVELOPMENT` wordings may be read while the rules are improved, `HELD_OUT` ones are for measuring only.
"""

import json
import re
import string
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from random import Random
from urllib.parse import quote

from infra.benchmarks._privacy_values import BASE62, BASE64, HEX, KINDS, Group, Kind, chars, random_digits, with_luhn
from infra.benchmarks._privacy_wordings import BARE, LOOK_ALIKES, NAMED, Form, Place, Wording

DEVELOPMENT, HELD_OUT = 0, 1
"""Index into each pair of wordings."""
NUM_EACH = 14
"""Look-alikes of each kind."""


@dataclass(frozen=True, slots=True)
class Planted:
    kind: str
    group: Group
    before: str
    value: str
    """As it is written in the text, so escaped or quoted."""
    after: str
    place: Place

    @property
    def text(self) -> str:
        return self.before + self.value + self.after


@dataclass(frozen=True, slots=True)
class LookAlike:
    kind: str
    text: str
    place: Place


@dataclass(frozen=True, slots=True)
class Corpus:
    planted: tuple[Planted, ...]
    look_alikes: tuple[LookAlike, ...]


def build_corpus(seed: int, wordings: int = DEVELOPMENT) -> Corpus:
    """Every kind in every wording that fits it, and NUM_EACH of each look-alike; the same seed gives the same corpus."""
    rng = Random(f"privacy/{seed}/{wordings}")
    planted = [_plant(name, kind, w, rng) for name, kind in KINDS.items() for w in _wordings_for(kind, wordings)]
    look_alikes = [
        LookAlike(kind, _fill(text, rng), Place.ARGUMENTS if text.startswith("{") else Place.CONTENT)
        for kind, pair in LOOK_ALIKES.items()
        for text in _take(pair[wordings], NUM_EACH)
    ]
    return Corpus(tuple(item for item in planted if item), tuple(look_alikes))


def _wordings_for(kind: Kind, wordings: int) -> tuple[Wording, ...]:
    named = NAMED[wordings] if kind.names else ()
    return (*named, *(BARE[wordings] if kind.is_evident else ()))


def _plant(name: str, kind: Kind, wording: Wording, rng: Random) -> Planted | None:
    made = kind.make(rng)
    if "\n" in made and not wording.has_lines:
        return None
    if wording.form is Form.URL:
        made = made.replace(" ", "")
    if "«" not in made:
        made = f"«{made}»"
    head, value, tail = (_written(part, wording.form) for part in re.split("[«»]", made))
    field = rng.choice(kind.names) if kind.names else ""
    variable = re.sub(r"(?<=[a-z])(?=[A-Z])|[^A-Za-z]", "_", field).upper()
    around = wording.text.replace("<FIELD>", variable).replace("<field>", field).replace("<noun>", kind.noun)
    before, _, after = around.partition("<value>")
    return Planted(name, kind.group, before + head, value, tail + after, wording.place)


def _written(text: str, form: Form) -> str:
    match form:
        case Form.RAW:
            return text
        case Form.JSON:
            return json.dumps(text, ensure_ascii=False)[1:-1]
        case Form.NESTED_JSON:
            return _written(_written(text, Form.JSON), Form.JSON)
        case Form.URL:
            return quote(text, safe="")


def _take(texts: tuple[str, ...], count: int) -> Iterator[str]:
    for index in range(max(count, len(texts))):
        yield texts[index % len(texts)]


_WORDS = ("parser", "ledger", "router", "falcon", "quartz", "harbor", "signal", "widget", "lattice", "tensor")


def _fill(text: str, rng: Random) -> str:
    return re.sub(r"<([a-z_]+?)_?(\d*)>", lambda m: _part(m[1], int(m[2] or 0), rng) if m[1] in _PARTS else m[0], text)


def _part(name: str, size: int, rng: Random) -> str:
    return _PARTS[name](rng, size)


def _isbn13(rng: Random) -> str:
    body = f"978{random_digits(rng, 9)}"
    check = -sum(int(c) * (1 + 2 * (i % 2)) for i, c in enumerate(body)) % 10
    return f"978-{body[3]}-{body[4:6]}-{body[6:12]}-{check}"


_PARTS: dict[str, Callable[[Random, int], str]] = {
    "hex": lambda rng, size: chars(rng, HEX, size),
    "int": lambda rng, size: chars(rng, "123456789", 1) + random_digits(rng, size - 1),
    "b": lambda rng, size: chars(rng, BASE62, size),
    "base": lambda rng, size: chars(rng, BASE64, size),
    "up": lambda rng, size: chars(rng, string.ascii_uppercase, size),
    "uuid": lambda rng, _: "-".join(chars(rng, HEX, size) for size in (8, 4, 4, 4, 12)),
    "ver": lambda rng, _: f"{rng.randint(0, 30)}.{rng.randint(0, 20)}.{rng.randint(0, 20)}",
    "word": lambda rng, _: rng.choice(_WORDS),
    "camel": lambda rng, _: "".join(w.title() for w in rng.sample(_WORDS, 3)),
    "luhn": lambda rng, size: with_luhn("4" + random_digits(rng, size - 2)),
    "isbn": lambda rng, _: _isbn13(rng),
    "epoch_s": lambda rng, _: str(1_700_000_000 + rng.randint(0, 99_999_999)),
    "epoch_ms": lambda rng, _: f"{1_700_000_000 + rng.randint(0, 99_999_999)}{random_digits(rng, 3)}",
    "epoch_ns": lambda rng, _: f"{1_700_000_000 + rng.randint(0, 99_999_999)}{random_digits(rng, 9)}",
    "mm": lambda rng, _: f"{rng.randint(1, 12):02d}",
    "dd": lambda rng, _: f"{rng.randint(1, 28):02d}",
}

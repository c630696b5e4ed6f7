"""The demo's customers: what they ask, and the call that would have been right.

Owns the deterministic traffic of one seed: training, hold-out and after-promotion requests that share no wording and no value,
and the shop stock they refer to. Refuses to call a model (`infra.demo.agent` does).
"""

import random
import string
import tomllib
from dataclasses import dataclass
from importlib.resources import files
from itertools import cycle, islice
from typing import Any, TypeVar

from infra.demo.shop import Customer, Order, Product, ShopStock
from pipelines.artifacts import to_json
from pipelines.errors import ConfigError
from pipelines.traces.model import ToolCall

T = TypeVar("T")

SLOTS = {
    "look_up_order": {"order_id": "order"},
    "refund_order": {"order_id": "order", "amount": "amount"},
    "create_ticket": {"email": "email", "topic": "topic"},
    "check_stock": {"product": "product"},
    "update_address": {"order_id": "order", "city": "city"},
    "cancel_order": {"order_id": "order"},
}
"""Per intent, which is also the tool's name: the argument and the slot of the wording that fills it."""

SHARES = {"training": 0.59, "holdout": 0.25, "after": 0.16}
"""How wordings and values are dealt out; training gets most, since variety is what keeps a small model from memorising."""


@dataclass(frozen=True, slots=True)
class DemoRequest:
    id: str
    text: str
    """What the customer writes; every value the right call needs stands in it as it is."""
    intent: str
    wording_id: str
    """`<intent>/<line>` in wordings.toml."""
    expected: ToolCall
    user: str
    """Email of the customer."""


@dataclass(frozen=True, slots=True)
class DemoTraffic:
    training: tuple[DemoRequest, ...]
    holdout: tuple[DemoRequest, ...]
    after: tuple[DemoRequest, ...]
    stock: ShopStock
    """Shop in which every expected call succeeds."""


@dataclass(frozen=True, slots=True)
class _Deal:
    """The wordings and values of one kind of traffic."""

    wordings: dict[str, list[tuple[str, str]]]
    orders: list[int]
    amounts: list[int]
    emails: list[str]
    topics: list[str]
    products: list[str]
    cities: list[str]


def make_requests(seed: int, *, num_training: int = 150, num_holdout: int = 96, num_after: int = 64) -> DemoTraffic:
    """The whole traffic of a demo; the same seed gives the same traffic, another seed other splits of wordings and values.

    Raises ConfigError when a count is below 1 or the three counts exceed the 9000 order ids.
    """
    counts = {"training": num_training, "holdout": num_holdout, "after": num_after}
    if min(counts.values()) < 1 or sum(counts.values()) > 9000:
        raise ConfigError(f"demo traffic {counts}: expected at least 1 request of each kind and at most 9000 in all")
    rng = random.Random(seed)
    deals = _deal(rng, counts)
    made = {kind: _make(rng, kind, deals[kind], counts[kind]) for kind in counts}
    orders = [order for _, own in made.values() for order in own]
    stock = _stock(rng, deals, orders)
    return DemoTraffic(made["training"][0], made["holdout"][0], made["after"][0], stock)


def _deal(rng: random.Random, counts: dict[str, int]) -> dict[str, _Deal]:
    texts, words = _read("wordings.toml"), _read("values.toml")
    lines = {intent: [(f"{intent}/{line:02d}", text) for line, text in enumerate(texts[intent])] for intent in SLOTS}
    wordings = {intent: _share(rng, lines[intent]) for intent in SLOTS}
    values = {name: _share(rng, words[name]) for name in ("topics", "products", "cities", "first_names")}
    amounts = _share(rng, list(range(10, 100)))
    orders = iter(rng.sample(range(1000, 10000), sum(counts.values())))
    return {
        kind: _Deal(
            wordings={intent: wordings[intent][kind] for intent in SLOTS},
            orders=list(islice(orders, num)),
            amounts=amounts[kind],
            emails=[f"{first}.{rng.choice(words['last_names'])}@mail.example" for first in values["first_names"][kind]],
            topics=values["topics"][kind],
            products=values["products"][kind],
            cities=values["cities"][kind],
        )
        for kind, num in counts.items()
    }


def _share(rng: random.Random, items: list[T]) -> dict[str, list[T]]:
    """Shuffle and cut `items` into the three kinds of traffic."""
    shuffled = rng.sample(items, len(items))
    first = round(len(items) * SHARES["training"])
    second = first + round(len(items) * SHARES["holdout"])
    return {"training": shuffled[:first], "holdout": shuffled[first:second], "after": shuffled[second:]}


def _make(rng: random.Random, kind: str, deal: _Deal, count: int) -> tuple[tuple[DemoRequest, ...], list[Order]]:
    """Requests of one kind, intents in equal parts and mixed, each with an order of its own."""
    intents = list(islice(cycle(SLOTS), count))
    wordings = {intent: cycle(deal.wordings[intent]) for intent in SLOTS}
    rng.shuffle(intents)
    requests, orders = [], []
    for number, (intent, order_id) in enumerate(zip(intents, deal.orders, strict=True)):
        values: dict[str, Any] = {
            "order": order_id,
            "amount": rng.choice(deal.amounts),
            "email": rng.choice(deal.emails),
            "topic": rng.choice(deal.topics),
            "product": rng.choice(deal.products),
            "city": rng.choice(deal.cities),
        }
        wording_id, wording = next(wordings[intent])
        arguments = {argument: values[slot] for argument, slot in SLOTS[intent].items()}
        expected = ToolCall(intent, arguments, to_json(arguments).decode())
        text, user = wording.format(**values), values["email"]
        requests.append(DemoRequest(f"{kind}-{number:03d}", text, intent, wording_id, expected, user))
        paid = values["amount"] + rng.randint(0, 50)
        orders.append(Order(order_id, user, values["product"], paid, rng.choice(deal.cities)))
    return tuple(requests), orders


def _stock(rng: random.Random, deals: dict[str, _Deal], orders: list[Order]) -> ShopStock:
    emails = [email for deal in deals.values() for email in deal.emails]
    products = [product for deal in deals.values() for product in deal.products]
    customers = tuple(Customer(email, string.capwords(email.split("@")[0].replace(".", " "))) for email in emails)
    return ShopStock(customers, tuple(Product(name, rng.randint(1, 40)) for name in products), tuple(orders))


def _read(name: str) -> dict[str, list[str]]:
    return tomllib.loads(files("infra.demo").joinpath(name).read_text(encoding="utf-8"))

"""The shop behind the demo's support agent: customers, products, orders and tickets in SQLite.

Owns the schema, how it is filled and the rows' types. Refuses to know what a tool call is (`infra.demo.tools` does).
"""

import sqlite3
from dataclasses import astuple, dataclass
from pathlib import Path

SCHEMA = """
CREATE TABLE customers (email TEXT PRIMARY KEY, name TEXT NOT NULL);
CREATE TABLE products (name TEXT PRIMARY KEY COLLATE NOCASE, stock INTEGER NOT NULL);
CREATE TABLE orders (
    id INTEGER PRIMARY KEY,
    email TEXT NOT NULL REFERENCES customers (email),
    product TEXT NOT NULL REFERENCES products (name),
    paid INTEGER NOT NULL,
    city TEXT NOT NULL,
    status TEXT NOT NULL DEFAULT 'paid',
    refunded INTEGER NOT NULL DEFAULT 0
);
CREATE TABLE tickets (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    email TEXT NOT NULL REFERENCES customers (email),
    topic TEXT NOT NULL
);
"""


@dataclass(frozen=True, slots=True)
class Customer:
    email: str
    name: str


@dataclass(frozen=True, slots=True)
class Product:
    name: str
    stock: int


@dataclass(frozen=True, slots=True)
class Order:
    id: int
    email: str
    product: str
    paid: int
    """Dollars paid; refunds never exceed it."""
    city: str


@dataclass(frozen=True, slots=True)
class ShopStock:
    """Everything the shop knows on the day the traffic begins."""

    customers: tuple[Customer, ...]
    products: tuple[Product, ...]
    orders: tuple[Order, ...]


def open_shop(path: Path | None, stock: ShopStock) -> sqlite3.Connection:
    """A shop holding exactly `stock`, at `path` (an older shop there is replaced) or in memory when None."""
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
    connection = sqlite3.connect(path or ":memory:", isolation_level=None)
    connection.execute("PRAGMA foreign_keys = ON")
    connection.execute("PRAGMA synchronous = OFF")  # a demo shop is rebuilt, never recovered
    connection.executescript(SCHEMA)
    with connection:
        connection.execute("BEGIN")
        connection.executemany("INSERT INTO customers VALUES (?, ?)", map(astuple, stock.customers))
        connection.executemany("INSERT INTO products VALUES (?, ?)", map(astuple, stock.products))
        orders = "INSERT INTO orders (id, email, product, paid, city) VALUES (?, ?, ?, ?, ?)"
        connection.executemany(orders, map(astuple, stock.orders))
    return connection

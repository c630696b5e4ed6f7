"""The shop's tools: what a right call changes, and what a wrong one says."""

import sqlite3
from typing import Any

import orjson
import pytest

from infra.demo.shop import Customer, Order, Product, ShopStock, open_shop
from infra.demo.tools import TOOLS, ToolCode, execute
from pipelines.traces.model import ToolCall

STOCK = ShopStock(
    customers=(Customer("mia.berg@mail.example", "Mia Berg"),),
    products=(Product("desk lamp", 3),),
    orders=(Order(1234, "mia.berg@mail.example", "desk lamp", 40, "Lyon"),),
)


@pytest.fixture
def shop() -> sqlite3.Connection:
    return open_shop(None, STOCK)


def _call(name: str, **arguments: Any) -> ToolCall:
    return ToolCall(name, arguments, orjson.dumps(arguments).decode())


def _order(shop: sqlite3.Connection) -> tuple[Any, ...]:
    row: tuple[Any, ...] = shop.execute("SELECT city, status, refunded FROM orders WHERE id = 1234").fetchone()
    return row


def test_looking_up_an_order_tells_what_it_is_and_changes_nothing(shop: sqlite3.Connection) -> None:
    result = execute(shop, _call("look_up_order", order_id=1234))
    assert result.ok
    assert result.detail == "order 1234: desk lamp, paid, to Lyon"
    assert _order(shop) == ("Lyon", "paid", 0)


def test_refunds_add_up_and_never_exceed_what_was_paid(shop: sqlite3.Connection) -> None:
    assert execute(shop, _call("refund_order", order_id=1234, amount=30)).ok
    too_much = execute(shop, _call("refund_order", order_id=1234, amount=11))
    assert (too_much.code, too_much.detail) == (
        ToolCode.AMOUNT_TOO_HIGH,
        "refund of 11 on order 1234: at most 10 can be paid back",
    )
    assert _order(shop) == ("Lyon", "paid", 30)


def test_a_ticket_is_stored_for_a_known_customer_only(shop: sqlite3.Connection) -> None:
    assert execute(shop, _call("create_ticket", email="mia.berg@mail.example", topic="login")).ok
    assert execute(shop, _call("create_ticket", email="mia.berg@mail", topic="login")).code is ToolCode.UNKNOWN_CUSTOMER
    assert shop.execute("SELECT email, topic FROM tickets").fetchall() == [("mia.berg@mail.example", "login")]


def test_stock_is_found_whatever_the_case(shop: sqlite3.Connection) -> None:
    assert execute(shop, _call("check_stock", product="Desk Lamp")).detail == "3 in stock"
    assert execute(shop, _call("check_stock", product="lamp")).code is ToolCode.UNKNOWN_PRODUCT


def test_a_cancelled_order_can_neither_move_nor_be_cancelled_again(shop: sqlite3.Connection) -> None:
    assert execute(shop, _call("update_address", order_id=1234, city="Oslo")).ok
    assert execute(shop, _call("cancel_order", order_id=1234)).ok
    assert execute(shop, _call("update_address", order_id=1234, city="Porto")).code is ToolCode.ORDER_CLOSED
    assert execute(shop, _call("cancel_order", order_id=1234)).code is ToolCode.ORDER_CLOSED
    assert _order(shop) == ("Oslo", "cancelled", 0)


@pytest.mark.parametrize("name", ["look_up_order", "cancel_order"])
def test_an_order_that_does_not_exist_is_an_error_of_its_own(shop: sqlite3.Connection, name: str) -> None:
    result = execute(shop, _call(name, order_id=9999))
    assert (result.code, result.detail) == (ToolCode.UNKNOWN_ORDER, "order 9999: no such order")


@pytest.mark.parametrize(
    "call",
    [
        _call("refund_order", order_id=1234),
        _call("refund_order", order_id="1234", amount=5),
        _call("refund_order", order_id=1234, amount=-5),
        _call("refund_order", order_id=1234, amount=5, reason="late"),
        _call("cancel_order", order_id=[1234]),
        _call("check_stock", product=""),
        ToolCall("cancel_order", None, '{"order_id": 12'),
    ],
)
def test_arguments_off_the_schema_are_refused_and_change_nothing(shop: sqlite3.Connection, call: ToolCall) -> None:
    assert execute(shop, call).code is ToolCode.INVALID_ARGUMENTS
    assert _order(shop) == ("Lyon", "paid", 0)


def test_an_order_id_too_large_for_the_database_is_refused(shop: sqlite3.Connection) -> None:
    call = ToolCall("look_up_order", {"order_id": 2**70}, "")
    assert execute(shop, call).code is ToolCode.INVALID_ARGUMENTS


def test_a_text_the_database_cannot_hold_is_refused(shop: sqlite3.Connection) -> None:
    call = ToolCall("create_ticket", {"email": "mia.berg@mail.example", "topic": "\ud800"}, "")
    assert execute(shop, call).code is ToolCode.INVALID_ARGUMENTS


def test_an_unknown_tool_is_answered_with_the_names_of_the_known(shop: sqlite3.Connection) -> None:
    result = execute(shop, _call("drop_tables"))
    assert result.code is ToolCode.UNKNOWN_TOOL
    assert all(tool.name in result.detail for tool in TOOLS)

"""The support agent's tools: what the model is offered, and what a call does to the shop.

Owns the tool schemas, the system prompt and the typed errors of a call. A wrong call is a `ToolResult` with its error code,
never an exception.
"""

import sqlite3
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from jsonschema import Draft202012Validator

from pipelines.traces.model import ToolCall, ToolSpec

SYSTEM_PROMPT = "You are the support agent of a shop. Answer with one tool call."


class ToolCode(StrEnum):
    """How a call ended."""

    OK = "ok"
    UNKNOWN_TOOL = "unknown_tool"
    INVALID_ARGUMENTS = "invalid_arguments"
    UNKNOWN_ORDER = "unknown_order"
    UNKNOWN_CUSTOMER = "unknown_customer"
    UNKNOWN_PRODUCT = "unknown_product"
    AMOUNT_TOO_HIGH = "amount_too_high"
    ORDER_CLOSED = "order_closed"
    NO_CALL = "no_call"
    """The answer held no tool call that could be read."""
    TOO_MANY_CALLS = "too_many_calls"
    """The agent carries out one call per request; none of several is carried out."""


@dataclass(frozen=True, slots=True)
class ToolResult:
    code: ToolCode
    detail: str
    """What was found or changed, or what was wrong with the call."""

    @property
    def ok(self) -> bool:
        return self.code is ToolCode.OK


_ORDER_ID = {"type": "integer"}
_TEXT = {"type": "string", "minLength": 1}


def _tool(name: str, description: str, **properties: Any) -> ToolSpec:
    schema: dict[str, Any] = {"type": "object", "properties": properties, "required": list(properties)}
    schema["additionalProperties"] = False
    return ToolSpec(name, description, schema)


TOOLS: tuple[ToolSpec, ...] = (
    _tool("look_up_order", "Find an order.", order_id=_ORDER_ID),
    _tool("refund_order", "Pay money back.", order_id=_ORDER_ID, amount={"type": "integer", "minimum": 1}),
    _tool("create_ticket", "Ask a person to write.", email=_TEXT, topic=_TEXT),
    _tool("check_stock", "See if a product is available.", product=_TEXT),
    _tool("update_address", "Change the delivery city.", order_id=_ORDER_ID, city=_TEXT),
    _tool("cancel_order", "Stop an order.", order_id=_ORDER_ID),
)

_VALIDATORS = {tool.name: Draft202012Validator(tool.parameters) for tool in TOOLS}


def execute(connection: sqlite3.Connection, call: ToolCall) -> ToolResult:
    """Carry out one call on the shop and commit it; a call that cannot be carried out changes nothing."""
    validator = _VALIDATORS.get(call.name)
    if validator is None:
        return ToolResult(ToolCode.UNKNOWN_TOOL, f"tool {call.name!r}: expected one of {', '.join(_VALIDATORS)}")
    if call.arguments is None:
        return ToolResult(ToolCode.INVALID_ARGUMENTS, f"arguments {call.raw_arguments[:200]!r}: expected a JSON object")
    errors = [error.message for error in validator.iter_errors(call.arguments)]
    if errors:
        return ToolResult(ToolCode.INVALID_ARGUMENTS, "; ".join(errors)[:300])
    try:
        return _ACTIONS[call.name](connection, dict(call.arguments))
    except (OverflowError, UnicodeEncodeError) as error:  # integers past 64 bits, lone surrogates: JSON, but not for SQLite
        return ToolResult(ToolCode.INVALID_ARGUMENTS, str(error))


_ORDER_FIELDS = ("status", "product", "city", "paid", "refunded")


def _find_order(connection: sqlite3.Connection, order_id: object) -> dict[str, Any] | None:
    row = connection.execute(f"SELECT {', '.join(_ORDER_FIELDS)} FROM orders WHERE id = ?", (order_id,)).fetchone()
    return None if row is None else dict(zip(_ORDER_FIELDS, row, strict=True))


def _no_order(order_id: object) -> ToolResult:
    return ToolResult(ToolCode.UNKNOWN_ORDER, f"order {order_id}: no such order")


def _look_up_order(connection: sqlite3.Connection, arguments: dict[str, Any]) -> ToolResult:
    order_id = arguments["order_id"]
    order = _find_order(connection, order_id)
    if order is None:
        return _no_order(order_id)
    return ToolResult(ToolCode.OK, f"order {order_id}: {order['product']}, {order['status']}, to {order['city']}")


def _refund_order(connection: sqlite3.Connection, arguments: dict[str, Any]) -> ToolResult:
    order_id, amount = arguments["order_id"], arguments["amount"]
    order = _find_order(connection, order_id)
    if order is None:
        return _no_order(order_id)
    left = order["paid"] - order["refunded"]
    if amount > left:
        return ToolResult(ToolCode.AMOUNT_TOO_HIGH, f"refund of {amount} on order {order_id}: at most {left} can be paid back")
    connection.execute("UPDATE orders SET refunded = refunded + ? WHERE id = ?", (amount, order_id))
    return ToolResult(ToolCode.OK, f"order {order_id}: {amount} paid back")


def _create_ticket(connection: sqlite3.Connection, arguments: dict[str, Any]) -> ToolResult:
    email, topic = arguments["email"], arguments["topic"]
    if connection.execute("SELECT 1 FROM customers WHERE email = ?", (email,)).fetchone() is None:
        return ToolResult(ToolCode.UNKNOWN_CUSTOMER, f"email {email!r}: no such customer")
    cursor = connection.execute("INSERT INTO tickets (email, topic) VALUES (?, ?)", (email, topic))
    return ToolResult(ToolCode.OK, f"ticket {cursor.lastrowid} opened")


def _check_stock(connection: sqlite3.Connection, arguments: dict[str, Any]) -> ToolResult:
    row = connection.execute("SELECT stock FROM products WHERE name = ?", (arguments["product"],)).fetchone()
    if row is None:
        return ToolResult(ToolCode.UNKNOWN_PRODUCT, f"product {arguments['product']!r}: not sold here")
    return ToolResult(ToolCode.OK, f"{row[0]} in stock")


def _update_address(connection: sqlite3.Connection, arguments: dict[str, Any]) -> ToolResult:
    order_id, city = arguments["order_id"], arguments["city"]
    order = _find_order(connection, order_id)
    if order is None:
        return _no_order(order_id)
    if order["status"] == "cancelled":
        return ToolResult(ToolCode.ORDER_CLOSED, f"order {order_id}: already cancelled")
    connection.execute("UPDATE orders SET city = ? WHERE id = ?", (city, order_id))
    return ToolResult(ToolCode.OK, f"order {order_id}: ships to {city}")


def _cancel_order(connection: sqlite3.Connection, arguments: dict[str, Any]) -> ToolResult:
    order_id = arguments["order_id"]
    order = _find_order(connection, order_id)
    if order is None:
        return _no_order(order_id)
    if order["status"] == "cancelled":
        return ToolResult(ToolCode.ORDER_CLOSED, f"order {order_id}: already cancelled")
    connection.execute("UPDATE orders SET status = 'cancelled' WHERE id = ?", (order_id,))
    return ToolResult(ToolCode.OK, f"order {order_id}: cancelled")


_ACTIONS: dict[str, Callable[[sqlite3.Connection, dict[str, Any]], ToolResult]] = {
    "look_up_order": _look_up_order,
    "refund_order": _refund_order,
    "create_ticket": _create_ticket,
    "check_stock": _check_stock,
    "update_address": _update_address,
    "cancel_order": _cancel_order,
}

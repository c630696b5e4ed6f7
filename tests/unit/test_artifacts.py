"""Canonical content: digests forget the order of keys, stored records keep it."""

from pipelines.artifacts import digest, from_json, to_json
from pipelines.traces.model import ToolSpec

ONE = ToolSpec("refund", "", {"properties": {"order_id": {}, "amount": {}}})
OTHER = ToolSpec("refund", "", {"properties": {"amount": {}, "order_id": {}}})


def test_a_stored_tool_schema_keeps_the_order_of_its_properties() -> None:
    read = from_json(ToolSpec, to_json(ONE))
    properties = read.parameters["properties"]

    assert isinstance(properties, dict)
    assert list(properties) == ["order_id", "amount"]


def test_the_order_of_keys_is_no_content() -> None:
    assert digest(ONE) == digest(OTHER)
    assert digest(ONE) != digest(ToolSpec("refund", "", {"properties": {"amount": {}}}))

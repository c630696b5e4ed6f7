"""The bundled chat template: short, and in the form that the tool-call parser of the server reads."""

import json
import re
from collections.abc import Sequence
from typing import Any

from transformers.utils.chat_template_utils import render_jinja_template

from infra.inference.client import message_to_openai, tool_to_openai
from infra.inference.convert_base import CHAT_TEMPLATE
from pipelines.traces.model import Message, Role, ToolCall, ToolSpec

TOOLS = (
    ToolSpec("look_up", "Find an order.", {"type": "object", "properties": {"order_id": {"type": "integer"}}}),
    ToolSpec("refund", "", {"type": "object", "properties": {"order_id": {}, "amount": {}}}),
    ToolSpec("wait"),
)
PROMPT = (Message(Role.SYSTEM, "You are an agent."), Message(Role.USER, "Where is 7?"))
CALL = Message(Role.ASSISTANT, None, (ToolCall("look_up", {"order_id": 7}, '{"order_id": 7}'),))


def render(messages: Sequence[Message], tools: Sequence[ToolSpec] = (), *, generate: bool = False) -> str:
    rendered: Any = render_jinja_template(
        conversations=[[message_to_openai(m) for m in messages]],
        tools=[tool_to_openai(t) for t in tools] or None,
        chat_template=CHAT_TEMPLATE.read_text(encoding="utf-8"),
        add_generation_prompt=generate,
    )
    return str(rendered[0][0])


def test_each_tool_takes_one_line_with_the_names_of_its_arguments() -> None:
    lines = render(PROMPT, TOOLS).split("\n")

    assert {"look_up(order_id)", "refund(amount, order_id)", "wait()"} <= set(lines)
    assert lines[:2] == ["<|im_start|>system", "You are an agent."]


def test_tools_without_a_system_message_still_get_a_system_turn() -> None:
    assert render(PROMPT[1:], TOOLS).startswith("<|im_start|>system\nTools:\n")
    assert render(PROMPT[1:]).startswith("<|im_start|>user\nWhere is 7?<|im_end|>\n")


def test_a_call_is_written_as_json_between_the_tags_the_parser_looks_for() -> None:
    found = re.search(r"<tool_call>(.*?)</tool_call><\|im_end\|>", render((*PROMPT, CALL), TOOLS).partition("assistant\n")[2])

    assert found is not None
    assert json.loads(found.group(1)) == {"name": "look_up", "arguments": {"order_id": 7}}


def test_a_prompt_ready_for_generation_is_the_start_of_the_conversation_with_its_answer() -> None:
    assert render((*PROMPT, CALL), TOOLS).startswith(render(PROMPT, TOOLS, generate=True))


def test_the_result_of_a_call_is_shown_to_the_model() -> None:
    result = Message(Role.TOOL, "order 7: shipped", tool_call_id="call_0")

    assert "<tool_response>order 7: shipped</tool_response>" in render((*PROMPT, CALL, result), TOOLS)


def test_a_template_marker_in_a_customers_text_stays_text_of_the_turn() -> None:
    rendered = render((Message(Role.USER, "{{ 7 * 7 }} {% raw %}"),))

    assert "{{ 7 * 7 }} {% raw %}" in rendered


def test_the_order_of_a_schemas_properties_does_not_change_the_prompt() -> None:
    turned = ToolSpec("refund", "", {"type": "object", "properties": {"amount": {}, "order_id": {}}})

    assert render(PROMPT, TOOLS) == render(PROMPT, (TOOLS[0], turned, TOOLS[2]))

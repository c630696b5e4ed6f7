"""What tools gave back: tool messages, and the observations that some agents put into user messages."""

import re

from pipelines.traces.model import Message, Role, Trace

RETURN_CODE = re.compile(r"<returncode>(-?\d+)</returncode>")


def tool_results(trace: Trace) -> list[Message]:
    return [message for message in trace.messages if is_tool_result(message)]


def is_tool_result(message: Message) -> bool:
    if message.role is Role.USER:
        return RETURN_CODE.match(message.content or "") is not None
    return message.role is Role.TOOL

"""JSON as traces really hold it: what our canonical form cannot carry is made safe or refused here, once.

Python's parser takes lone surrogates, NaN, 1e999 and integers of any size; orjson, Arrow and UTF-8 do not.
"""

import json
import math
import re
from typing import NoReturn

from pydantic import JsonValue

_LONE_SURROGATE = re.compile("[\ud800-\udfff]")
_INT64 = 1 << 63
MAX_DEPTH = 100
"""Levels of nesting that are read; orjson, which writes records, refuses 255, and a record stands inside others."""


def read_json(data: bytes | str) -> JsonValue:
    """Parse one JSON document, leniently: NaN and infinities become None, integers beyond 64 bits become strings.

    Lone surrogates become U+FFFD. Raises ValueError when it is no JSON, or nested too deeply.
    """
    text = data.decode("utf-8-sig") if isinstance(data, bytes) else data
    try:
        return _storable(json.loads(text, parse_constant=lambda _: None))
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def read_json_items(data: bytes) -> list[JsonValue | ValueError]:
    """The elements of a JSON array like `read_json`, each one that cannot be stored as its error. Raises ValueError for anything else."""
    try:
        items = json.loads(data.decode("utf-8-sig"), parse_constant=lambda _: None)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
    if not isinstance(items, list):
        raise ValueError("no JSON array")
    return [_storable_or_error(item) for item in items]


def read_arguments(text: str) -> dict[str, JsonValue] | None:
    """A tool call's argument string, strictly: None unless it is a JSON object that every JSON reader understands."""
    try:
        value = json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return None
    if not isinstance(value, dict) or not _is_plain(value, MAX_DEPTH):
        return None
    return {clean_text(key): _storable(item) for key, item in value.items()}


def unwrap(value: JsonValue) -> JsonValue:
    """Undo JSON inside strings (span attributes hold JSON, sometimes twice); a string that is no JSON stays as it is."""
    for _ in range(3):
        if not isinstance(value, str) or value[:1] not in '{["':
            break
        try:
            value = read_json(value)
        except ValueError:
            break
    return value


def clean_text(text: str) -> str:
    """The text with lone surrogates replaced, so that it can be encoded."""
    return _LONE_SURROGATE.sub("\ufffd", text)


def as_int(value: JsonValue) -> int | None:
    """A count that may come as a number or as a string (protobuf's int64); None when it is neither."""
    if isinstance(value, bool) or value is None:
        return None
    if isinstance(value, int):
        return value
    try:
        number = float(value) if isinstance(value, str | float) else math.nan
    except ValueError:
        return None
    return int(number) if math.isfinite(number) and abs(number) < _INT64 else None


def _storable_or_error(value: object) -> JsonValue | ValueError:
    try:
        return _storable(value)
    except ValueError as error:
        return error


def _storable(value: object, depth: int = MAX_DEPTH) -> JsonValue:
    if isinstance(value, str):
        return clean_text(value)
    if isinstance(value, dict | list) and depth == 0:
        raise ValueError(f"nested too deeply: more than {MAX_DEPTH} levels")
    if isinstance(value, dict):
        return {clean_text(str(key)): _storable(item, depth - 1) for key, item in value.items()}
    if isinstance(value, list):
        return [_storable(item, depth - 1) for item in value]
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, int):
        return value if -_INT64 <= value < _INT64 else str(value)
    return value if isinstance(value, float) and math.isfinite(value) else None


def _is_plain(value: object, depth: int) -> bool:
    if isinstance(value, dict | list):
        items = value.values() if isinstance(value, dict) else value
        return depth > 0 and all(_is_plain(item, depth - 1) for item in items)
    if isinstance(value, float):
        return math.isfinite(value)
    return not isinstance(value, int) or -_INT64 <= value < _INT64


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no JSON")

"""Timestamps as sources write them: ISO text with or without a zone, epoch seconds, milliseconds or nanoseconds."""

import math
from datetime import UTC, datetime

from pydantic import JsonValue

_MILLISECONDS_FROM = 1e11
"""Epoch seconds stay below this until the year 5138, milliseconds are above it since 1973."""
_MICROSECONDS_FROM = 1e14
_NANOSECONDS_FROM = 1e17


def read_time(value: JsonValue) -> datetime | None:
    """UTC time of a value; None when it is no time. A text without a zone is taken as UTC, since nothing says otherwise."""
    if isinstance(value, bool) or value is None:
        return None
    if isinstance(value, str):
        return _from_text(value.strip())
    return _from_epoch(float(value)) if isinstance(value, int | float) else None


def _from_text(text: str) -> datetime | None:
    try:
        return _from_epoch(float(text))
    except ValueError:
        pass
    try:
        time = datetime.fromisoformat(text)
        return time.replace(tzinfo=UTC) if time.tzinfo is None else time.astimezone(UTC)
    except (ValueError, OverflowError):
        return None


def _from_epoch(number: float) -> datetime | None:
    if not math.isfinite(number) or number <= 0:
        return None
    for limit, scale in ((_NANOSECONDS_FROM, 1e9), (_MICROSECONDS_FROM, 1e6), (_MILLISECONDS_FROM, 1e3)):
        if number >= limit:
            number /= scale
            break
    try:
        return datetime.fromtimestamp(number, UTC)
    except (ValueError, OverflowError, OSError):
        return None

"""Deduplication: the same trace read twice, and requests in nearly the same words.

Near duplicates are found by MinHash over character shingles (Broder 1997) with banding, then checked on the shingles themselves.
Numbers and addresses do not count as wording: "refund order 17" and "refund order 99" are the same request.
Array suffixes: N texts, H hash functions, S shingles of one text, M members of a bucket, R the rest of them.
"""

import re
import zlib
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import numpy.typing as npt

from pipelines.traces.model import Role, Trace, trace_digest

SHINGLE_CHARS = 4
NUM_HASHES = 96
MAX_MISS = 1e-4
"""Probability with which a pair exactly at the threshold may meet in no band; above the threshold it is far smaller."""
ESTIMATE_MARGIN = 0.2
"""Five standard errors of the estimate of a similarity of 0.8 from 96 hashes."""
_PRIME = (1 << 61) - 1
_ADDRESS = re.compile(r"\S+@\S+|https?://\S+")
_CODE_WITH_DIGITS = re.compile(r"[\w#-]*\d[\w-]*")
_NO_WORD = re.compile(r"[\W_]+")


def drop_exact_duplicates(traces: Iterable[Trace]) -> tuple[list[Trace], int]:
    """Traces in order, each content once; and how many were dropped."""
    kept: dict[str, Trace] = {}
    total = 0
    for trace in traces:
        total += 1
        kept.setdefault(trace_digest(trace), trace)
    return list(kept.values()), total - len(kept)


def user_text(trace: Trace) -> str:
    """What the user asked for: the last user message."""
    return next((m.content or "" for m in reversed(trace.messages) if m.role is Role.USER), "")


def normalise(text: str) -> str:
    """Lower case, words only; addresses and whatever holds a digit become one mark."""
    text = _ADDRESS.sub(" 0 ", text.casefold())
    return _NO_WORD.sub(" ", _CODE_WITH_DIGITS.sub(" 0 ", text)).strip()


def similarity(one: str, other: str) -> float:
    """Jaccard similarity of the normalised texts' shingles, in [0, 1]; two empty texts are equal."""
    return _jaccard(_shingles(normalise(one)), _shingles(normalise(other)))


def near_duplicate_groups(texts: Sequence[str], threshold: float = 0.8, *, seed: int = 0) -> list[int]:
    """A group number for each text: texts at or above the threshold are grouped, directly or through others.

    Numbers count up from 0 in order of first appearance.
    """
    normalised = [normalise(text) for text in texts]
    wordings = list(dict.fromkeys(normalised))
    shingles = [_shingles(text) for text in wordings]
    signatures_NH = _signatures(shingles, seed)
    parents = list(range(len(wordings)))
    for members_M in _buckets(signatures_NH, _band_rows(threshold)):
        _join(members_M, signatures_NH, shingles, parents, threshold)
    position = {text: index for index, text in enumerate(wordings)}
    numbers: dict[int, int] = {}
    return [numbers.setdefault(_root(parents, position[text]), len(numbers)) for text in normalised]


def _shingles(text: str) -> frozenset[str]:
    padded = f" {text} "
    return frozenset(padded[i : i + SHINGLE_CHARS] for i in range(max(1, len(padded) - SHINGLE_CHARS + 1)))


def _jaccard(one: frozenset[str], other: frozenset[str]) -> float:
    return len(one & other) / len(one | other)


def _band_rows(threshold: float) -> int:
    """The longest bands, so the fewest pairs to check, with which a pair at the threshold is still found."""
    fits = [rows for rows in range(1, 9) if (1 - threshold**rows) ** (NUM_HASHES // rows) <= MAX_MISS]
    return max(fits, default=1)


def _signatures(shingles: list[frozenset[str]], seed: int) -> npt.NDArray[np.uint64]:
    """MinHash: the least value of each hash function (a x + b mod 2^61 - 1) over a text's shingles."""
    generator = np.random.default_rng(seed)
    factors_H = generator.integers(1, 1 << 31, NUM_HASHES, dtype=np.uint64)
    offsets_H = generator.integers(0, 1 << 61, NUM_HASHES, dtype=np.uint64)
    signatures_NH = np.empty((len(shingles), NUM_HASHES), dtype=np.uint64)
    for index, items in enumerate(shingles):
        values_S = np.fromiter((zlib.crc32(item.encode()) for item in items), dtype=np.uint64, count=len(items))
        signatures_NH[index] = ((factors_H[:, None] * values_S[None, :] + offsets_H[:, None]) % np.uint64(_PRIME)).min(axis=1)
    return signatures_NH


def _buckets(signatures_NH: npt.NDArray[np.uint64], rows: int) -> Iterator[npt.NDArray[np.int64]]:
    """Indices of the texts that share a band of their signatures; only buckets of two and more."""
    for band in range(0, NUM_HASHES - rows + 1, rows):
        found: dict[bytes, list[int]] = {}
        for index, part in enumerate(signatures_NH[:, band : band + rows]):
            found.setdefault(part.tobytes(), []).append(index)
        yield from (np.array(members, dtype=np.int64) for members in found.values() if len(members) > 1)


def _join(
    members_M: npt.NDArray[np.int64],
    signatures_NH: npt.NDArray[np.uint64],
    shingles: list[frozenset[str]],
    parents: list[int],
    threshold: float,
) -> None:
    """Join the pairs of a bucket whose shingles are similar enough; the signatures' estimate rules most pairs out first."""
    for position, one in enumerate(members_M[:-1].tolist()):
        others_R = members_M[position + 1 :]
        estimate_R = (signatures_NH[others_R] == signatures_NH[one]).mean(axis=1)
        for other in others_R[estimate_R >= threshold - ESTIMATE_MARGIN].tolist():
            root, other_root = _root(parents, one), _root(parents, other)
            if root != other_root and _jaccard(shingles[one], shingles[other]) >= threshold:
                parents[max(root, other_root)] = min(root, other_root)


def _root(parents: list[int], index: int) -> int:
    while parents[index] != index:
        parents[index] = parents[parents[index]]
        index = parents[index]
    return index

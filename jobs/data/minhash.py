"""Near-duplicate candidates: one-permutation MinHash over word 3-grams, banded, to verify.

Python's own hash() differs from run to run, so words are hashed with CRC-32, once each.
"""

import sys
from array import array
from collections import Counter
from collections.abc import Iterable
from operator import itemgetter
from zlib import crc32

#: 21 bands of 3 bins: a pair with Jaccard 0.6 becomes a candidate with probability .994, 0.7 .9999.
BANDS, ROWS = 21, 3
BINS = BANDS * ROWS
#: Shorter texts have too few 3-grams to compare: only exact duplicates count there.
MIN_WORDS = 8
#: Wording that so many texts share is the task's, not the record's.
COMMON_SHARE, COMMON_LEAST = 0.02, 20
#: Texts looked at for it.
COMMON_SAMPLE = 2000
# 30 bits: CPython keeps such an int in one digit, which makes sets and sorting of them fast.
_MASK = (1 << 30) - 1
_K2 = 0x05EBCA77  # odd, from the primes of xxHash
_LOW_BYTE = slice(None, None, 8) if sys.byteorder == "little" else slice(7, None, 8)
_INDEX = range(BINS)
_ALL = frozenset(_INDEX)
_in_order = itemgetter(*_INDEX)
_MAX_WORDS = 200_000  # about 30 MB; a larger vocabulary starts over


class _Words(dict[str, int]):
    """CRC-32 of each word, computed once."""

    def __missing__(self, word: str) -> int:
        if len(self) > _MAX_WORDS:
            self.clear()
        code = self[word] = crc32(word.encode("utf-8", "replace")) & _MASK
        return code


_code = _Words().__getitem__


def shingles(plain: str) -> set[int]:
    """Return the 30-bit hashes of the word 3-grams of a text in compare form; empty when short."""
    words = plain.split(" ")
    if len(words) < MIN_WORDS:
        return set()
    codes = list(map(_code, words))
    # hash() of a tuple of ints is the same in every process, and runs without a line of Python
    return {h & _MASK for h in map(hash, zip(codes, codes[1:], codes[2:], strict=False))}


def sketch(found: set[int]) -> tuple[list[int], bytes]:
    """Return (BANDS signed 64-bit keys, BINS bytes) of a text's shingles; zeros for none.

    Equal keys make candidates; the share of equal bytes estimates the similarity before the
    texts are read. The keys are hash() of tuples of ints, which unlike that of texts is the same
    in every process.
    """
    if not found:
        return [0] * BANDS, bytes(BINS)
    bins = {h % BINS: h for h in sorted(found, reverse=True)}  # the smallest hash of each bin wins
    if len(bins) < BINS:
        _fill(bins)
    row = _in_order(bins)
    keys = list(map(hash, zip(row[::3], row[1::3], row[2::3], strict=True)))
    return keys, array("Q", row).tobytes()[_LOW_BYTE]


def alike(a: bytes, b: bytes) -> int:
    """Return how many of the BINS bytes of two sketches agree."""
    return (int.from_bytes(a) ^ int.from_bytes(b)).to_bytes(BINS).count(0)


def least_alike(threshold: float) -> int:
    """Return the agreement below which a pair is not worth reading: three standard deviations."""
    return int(BINS * threshold - 3 * (BINS * threshold * (1 - threshold)) ** 0.5)


def _fill(bins: dict[int, int]) -> None:
    """Fill each empty bin from the one after it, changed by a constant for each step away."""
    empty = sorted(_ALL - bins.keys(), reverse=True)
    after = (empty[0] + 1) % BINS
    step = 1
    while after not in bins:  # only where empty bins reach over the end
        after = (after + 1) % BINS
        step += 1
    bins[empty[0]] = bins[after] + step * _K2
    for i in empty[1:]:
        bins[i] = bins[i + 1] + _K2


def common(sets: Iterable[set[int]]) -> frozenset[int]:
    """Return the 3-grams of a task's wording: in over 2 % of the texts given, and in over 20.

    They say nothing about whether two texts are copies: a set with one instruction in front of
    every record would be one cluster.
    """
    often: Counter[int] = Counter()
    n = 0
    for found in sets:
        often.update(found)
        n += 1
    least = max(COMMON_LEAST, n * COMMON_SHARE)
    return frozenset(h for h, times in often.items() if times > least)


def jaccard(a: set[int], b: set[int]) -> float:
    """Return the share of 3-grams in common: |a and b| / |a or b|; 0 for two short texts."""
    if not a or not b:
        return 0.0
    shared = len(a & b)
    return shared / (len(a) + len(b) - shared)

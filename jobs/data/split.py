"""Held-out records that have no near copy, no equal prompt and no group mate in the training set.

The choice goes by cluster; the proof does not trust it: an exact search over all pairs above the
threshold, by prefix filtering, finds every neighbour that banding could have missed.
"""

import hashlib
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from .dedup import Clusters
from .minhash import jaccard

#: More validation records than this cost evaluation time and tell nothing new.
MAX_VALIDATION = 10_000
_SMALLEST = 20  # a smaller set is not split at all


def choose(clusters: Clusters, exact: bytes, alive: bytearray, share: float, seed: int) -> set[int]:
    """Return the record numbers to hold out: whole clusters, in an order drawn from the seed.

    About `share` of the living records, at most MAX_VALIDATION; a cluster that would overshoot
    stays in the training set. Depends on content and seed only.
    """
    living = alive.count(1)
    target = min(round(living * share), MAX_VALIDATION)
    if living < _SMALLEST or share <= 0:
        return set()
    target = max(target, 1)
    sizes: Counter[int] = Counter()
    for i in range(len(alive)):
        if alive[i]:
            sizes[clusters.find(i)] += 1
    order = sorted(
        (
            int.from_bytes(
                hashlib.blake2b(
                    b"%d:" % seed + exact[16 * r : 16 * r + 16], digest_size=8
                ).digest(),
                "big",
            ),
            r,
        )
        for r in sizes
    )
    chosen: set[int] = set()
    room = target
    for _, root in order:
        if sizes[root] <= room:
            chosen.add(root)
            room -= sizes[root]
        if not room:
            break
    return {i for i in range(len(alive)) if alive[i] and clusters.find(i) in chosen}


class Index:
    """Held-out records, searchable for every record with Jaccard >= threshold. Exact, not a sketch.

    Two sets that similar share an element among the first |x| - ceil(t |x|) + 1 of each, in any
    common order; rare shingles first makes that prefix cheap to probe.
    """

    def __init__(self, held: Iterable[tuple[int, set[int]]], threshold: float) -> None:
        """Index (number, shingles) pairs."""
        self.threshold = threshold
        self.sets = dict(held)
        self.often = Counter(h for found in self.sets.values() for h in found)
        self.prefix: dict[int, list[int]] = {}
        for number, found in self.sets.items():
            for h in sorted(found, key=self._order)[: self._size(len(found))]:
                self.prefix.setdefault(h, []).append(number)

    def _order(self, h: int) -> tuple[int, int]:
        return self.often[h], h

    def _size(self, n: int) -> int:
        return n - math.ceil(self.threshold * n - 1e-9) + 1 if n else 0

    def neighbours(self, found: set[int]) -> list[tuple[int, float]]:
        """Return (number, similarity) of every held-out record at or above the threshold."""
        if not found:
            return []
        known = found & self.often.keys()
        room = self._size(len(found)) - (len(found) - len(known))  # unknown shingles come first
        if room <= 0:
            return []
        near: set[int] = set()
        for h in sorted(known, key=self._order)[:room]:
            near.update(self.prefix.get(h, ()))
        out = [(number, jaccard(found, self.sets[number])) for number in sorted(near)]
        return [(number, alike) for number, alike in out if alike >= self.threshold]


def leaks(
    held: Sequence[tuple[int, set[int]]], train: Iterable[tuple[int, set[int]]], threshold: float
) -> Iterator[tuple[int, int, float]]:
    """Yield (held number, train number, similarity) of every pair at or above the threshold."""
    index = Index(held, threshold)
    for number, found in train:
        for other, alike in index.neighbours(found):
            yield other, number, alike

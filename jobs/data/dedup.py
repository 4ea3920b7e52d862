"""Duplicates: exact by compare form, near by verified Jaccard of word 3-grams; union-find."""

import json
from array import array
from collections.abc import Callable, Iterable, Iterator
from itertools import compress
from operator import ne
from typing import Any

from .digest import normal, whole
from .minhash import BANDS, BINS, alike, jaccard, least_alike
from .records import PARTS, Record
from .spill import Spill

#: Members of a bucket compared with each newcomer. Boilerplate puts thousands of unlike records
#: into one bucket; the other bands still bring true pairs together.
_LEADERS = 24
_PART_ROWS = 1_500_000  # keys held in one table at a time: about 200 MB


class Clusters:
    """Union-find over record numbers; the smallest number of a cluster is its root."""

    def __init__(self, n: int) -> None:
        """Start with every record on its own."""
        self.parent = array("I", range(n))

    def find(self, i: int) -> int:
        """Return the root of a record's cluster."""
        parent = self.parent
        root = i
        while parent[root] != root:
            root = parent[root]
        while parent[i] != root:
            parent[i], i = root, parent[i]
        return root

    def join(self, a: int, b: int) -> None:
        """Make two clusters one."""
        a, b = self.find(a), self.find(b)
        if a != b:
            self.parent[max(a, b)] = min(a, b)


def plain_of(row: bytes) -> str:
    """Return the compare form of a written row's text."""
    value = json.loads(row)
    if "messages" not in value and "text" not in value:  # a shape with columns of its own
        *prompt, answer = value.values()
        return normal(f"{PARTS.join(filter(None, prompt))} {answer}")
    return normal(
        whole(Record("", value.get("messages"), value.get("text", ""), "", "", empty_prompt=False))
    )


def same_keys(keys: Iterable[Any], n: int, alive: bytearray) -> Iterator[list[int]]:
    """Yield the groups of living records with an equal key (a list of at least two, ascending).

    Keys that are false (0, empty) group nothing. Tables are built in parts, so memory is bounded.
    """
    parts = n // _PART_ROWS + 1
    if parts == 1:
        yield from _grouped(keys, n, alive)
        return
    for part in range(parts):
        first: dict[Any, int] = {}
        groups: dict[int, list[int]] = {}
        for i, key in enumerate(keys):
            if not key or not alive[i] or hash(key) % parts != part:
                continue
            j = first.setdefault(key, i)
            if j != i:
                groups.setdefault(j, [j]).append(i)
        yield from groups.values()


def _grouped(keys: Iterable[Any], n: int, alive: bytearray) -> Iterator[list[int]]:
    """Yield the same groups where one table holds all keys: the many lone keys cost no Python."""
    last = dict(zip(keys, range(n), strict=False))
    if len(last) == n:
        return
    followed = compress(zip(keys, range(n), strict=False), map(ne, map(last.get, keys), range(n)))
    groups: dict[Any, list[int]] = {}
    for key, i in followed:
        if key and alive[i]:
            groups.setdefault(key, []).append(i)
    for key, group in groups.items():
        if alive[last[key]]:
            group.append(last[key])
        if len(group) > 1:
            yield group


def exact(spill: Spill, alive: bytearray, tell: Callable[[int, int], None]) -> int:
    """Return how many equal records were dropped from `alive`, all but the first.

    `tell` hears (dropped, kept).
    """
    raw = spill.raw("exact")
    n = len(raw) // 16
    dropped = 0
    keys = _Slices(raw)
    for group in same_keys(keys, n, alive):
        for i in group[1:]:
            alive[i] = 0
            dropped += 1
            tell(i, group[0])
    return dropped


class _Slices:
    """The 16-byte keys in a long byte string, again and again."""

    def __init__(self, raw: bytes) -> None:
        self.raw = raw

    def __iter__(self) -> Iterator[bytes]:
        raw = self.raw
        return (raw[i : i + 16] for i in range(0, len(raw), 16))


class Near:
    """The near-duplicate pass over a spill and its figures."""

    def __init__(self, spill: Spill, threshold: float) -> None:
        """Take the rows and the threshold of the Jaccard similarity."""
        self.spill = spill
        self.threshold = threshold
        self.rows = spill.rows()
        self.sketches = spill.raw("sketches")
        self.least = least_alike(threshold)
        self.sets = spill.shingles()
        self.clusters = Clusters(len(self.rows))
        self.candidates = 0
        self.verified = 0

    def run(self, alive: bytearray, progress: Callable[[int], None] | None = None) -> None:
        """Join every candidate pair that verifies."""
        n = len(self.rows)
        self.sets = self.spill.shingles(alive)
        refused: set[int] = set()
        for k in range(BANDS):
            keys = self.spill.column(f"band{k:02d}")
            for group in same_keys(keys, n, alive):
                self._bucket(group, refused)
            if progress:
                progress(k + 1)

    def _bucket(self, group: list[int], refused: set[int]) -> None:
        raw, least, find = self.sketches, self.least, self.clusters.find
        leaders = [(group[0], raw[BINS * group[0] : BINS * group[0] + BINS])]
        for i in group[1:]:
            mine = raw[BINS * i : BINS * i + BINS]
            for j, other in leaders:
                if alike(mine, other) < least:
                    continue
                if find(i) == find(j):
                    break
                pair = i << 32 | j
                if pair in refused:
                    continue
                self.candidates += 1
                if jaccard(self.sets[i], self.sets[j]) >= self.threshold:
                    self.verified += 1
                    self.clusters.join(i, j)
                    break
                if len(refused) < 2_000_000:
                    refused.add(pair)
            else:
                if len(leaders) < _LEADERS:
                    leaders.append((i, mine))

    def drop(self, alive: bytearray, tell: Callable[[int, int], None]) -> int:
        """Return how many were dropped: all of a cluster but the longest and those unlike it.

        A chain a~b~c with a unlike c keeps a and c: nothing is dropped but beside a record that
        verifies with it.
        """
        members: dict[int, list[int]] = {}
        for i in range(len(self.rows)):
            root = self.clusters.find(i)
            if root != i and alive[i]:
                members.setdefault(root, [root]).append(i)
        dropped = 0
        for group in members.values():
            kept: list[int] = []
            for i in sorted(group, key=lambda i: (-self.rows.length(i), i)):
                like = next(
                    (j for j in kept if jaccard(self.sets[i], self.sets[j]) >= self.threshold), None
                )
                if like is None:
                    kept.append(i)
                else:
                    alive[i] = 0
                    dropped += 1
                    tell(i, like)
        return dropped

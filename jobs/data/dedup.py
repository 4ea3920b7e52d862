"""Duplicates: exact by compare form, near by verified Jaccard of word 3-grams; union-find."""

import json
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from itertools import compress
from multiprocessing import get_context
from operator import ne
from pathlib import Path
from typing import Any

from .digest import normal, whole
from .minhash import BANDS, BINS, alike, jaccard, least_alike
from .records import PARTS, Record
from .spill import Shingles, Spill, column_in, shingles_in

#: Members of a bucket compared with each newcomer. Boilerplate puts thousands of unlike records
#: into one bucket; the other bands still bring true pairs together.
_LEADERS = 24
_KNOWN_PAIRS = 2_000_000  # judged pairs kept: about 200 MB
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


@dataclass(slots=True)
class Track:
    """What the search over some of the bands found: verified pairs, flat, and its figures."""

    edges: Any = field(default_factory=lambda: array("I"))
    candidates: int = 0
    verified: int = 0


class Search:
    """Near copies in some of the bands of a spill, with clusters of its own.

    What it finds depends on the bands alone, so two of them may run beside each other.
    """

    def __init__(
        self, shingles: Shingles, sketches: bytes, threshold: float, known: dict[int, bool]
    ) -> None:
        """Take what is compared; `known` keeps the pairs judged, and may be shared."""
        self.sets = shingles
        self.sketches = sketches
        self.threshold = threshold
        self.least = least_alike(threshold)
        self.known = known
        self.clusters = Clusters(len(shingles))
        self.found = Track()

    def band(self, keys: Any, alive: bytearray) -> None:
        """Compare the living records that have the same key in one band."""
        for group in same_keys(keys, len(self.sets), alive):
            self._bucket(group)

    def _bucket(self, group: list[int]) -> None:
        raw, least, find = self.sketches, self.least, self.clusters.find
        leaders = [(group[0], raw[BINS * group[0] : BINS * group[0] + BINS])]
        for i in group[1:]:
            mine = raw[BINS * i : BINS * i + BINS]
            for j, other in leaders:
                if alike(mine, other) < least:
                    continue
                if find(i) == find(j):
                    break
                if self._verified(i, j):
                    self.found.edges.extend((i, j))
                    self.clusters.join(i, j)
                    break
            else:
                if len(leaders) < _LEADERS:
                    leaders.append((i, mine))

    def _verified(self, i: int, j: int) -> bool:
        pair = i << 32 | j
        answer = self.known.get(pair)
        if answer is None:
            answer = jaccard(self.sets[i], self.sets[j]) >= self.threshold
            self.found.candidates += 1
            self.found.verified += answer
            if len(self.known) < _KNOWN_PAIRS:
                self.known[pair] = answer
        return answer


def search_bands(
    folder: str, bands: Sequence[int], alive: bytearray, *, threshold: float, shared: frozenset[int]
) -> Track:
    """Return what the bands of a spill's folder hold: the work of a second process."""
    place = Path(folder)
    sets = shingles_in(place)
    sets.common = shared
    search = Search(sets, (place / "sketches").read_bytes(), threshold, {})
    for k in bands:
        search.band(column_in(place, f"band{k:02d}"), alive)
    return search.found


class Near:
    """The near-duplicate pass over a spill and its figures."""

    def __init__(self, spill: Spill, threshold: float) -> None:
        """Take the rows and the threshold of the Jaccard similarity."""
        self.spill = spill
        self.threshold = threshold
        self.rows = spill.rows()
        self.sets = spill.shingles()
        self.clusters = Clusters(len(self.rows))
        self.candidates = 0
        self.verified = 0

    def run(
        self,
        alive: bytearray,
        progress: Callable[[int], None] | None = None,
        processes: int = 1,
    ) -> None:
        """Join every candidate pair that verifies.

        The bands are always searched in the same two tracks, so that the answer is the same
        whether one process walks both or two have one each.
        """
        self.sets = self.spill.shingles(alive)
        tracks = [range(0, BANDS, 2), range(1, BANDS, 2)]
        known: dict[int, bool] = {}
        if processes < 2:
            found = [self._walk(tracks[0], alive, known, progress)]
            more = (lambda k: progress(len(tracks[0]) + k)) if progress else None
            found.append(self._walk(tracks[1], alive, known, more))
        else:
            twice = (lambda k: progress(min(BANDS, 2 * k))) if progress else None
            with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
                other = pool.submit(
                    search_bands, str(self.spill.folder), tracks[1], alive,
                    threshold=self.threshold, shared=self.sets.common,
                )  # fmt: skip
                found = [self._walk(tracks[0], alive, known, twice), other.result()]
        for track in found:
            self.candidates += track.candidates
            self.verified += track.verified
            for i, j in zip(track.edges[::2], track.edges[1::2], strict=True):
                self.clusters.join(i, j)

    def _walk(
        self,
        bands: Sequence[int],
        alive: bytearray,
        known: dict[int, bool],
        tell: Callable[[int], None] | None,
    ) -> Track:
        search = Search(self.sets, self.spill.raw("sketches"), self.threshold, known)
        for done, k in enumerate(bands, 1):
            search.band(self.spill.column(f"band{k:02d}"), alive)
            if tell:
                tell(done)
        return search.found

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

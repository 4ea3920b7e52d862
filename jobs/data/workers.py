"""Chunks digested in order, by one process or by two and more, with few of them in memory."""

import multiprocessing
import os
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor

from .chunks import Chunk
from .digest import Digest, Steps, digest
from .options import Options

#: Below this many bytes a second process costs more than it saves (it starts in about 0.3 s).
PARALLEL_FROM_BYTES = 8 << 20
_AHEAD = 3  # chunks in flight for each process: bounds memory


def processes(total_bytes: int, wanted: int = 0) -> int:
    """Return how many processes to use: `wanted`, else the free cores, at most four."""
    if wanted:
        return wanted
    if total_bytes < PARALLEL_FROM_BYTES:
        return 1
    cores = (
        len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    )
    return max(1, min(cores, 4))


def digests(
    chunks: Iterable[Chunk], options: Options, steps: Steps, workers: int
) -> Iterator[Digest]:
    """Yield the digests in the order of the chunks."""
    if workers < 2:
        for chunk in chunks:
            yield digest(chunk, options, steps)
        return
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(workers, mp_context=context) as pool:
        waiting: deque[Future[Digest]] = deque()
        try:
            for chunk in chunks:
                waiting.append(pool.submit(digest, chunk, options, steps))
                if len(waiting) >= workers * _AHEAD:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()

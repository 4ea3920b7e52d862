"""What a prepare run keeps on disk between its passes, for bounded memory and for resuming.

Columns are flat files appended chunk by chunk. After each chunk one line of the journal commits
the sizes of all of them; whatever lies beyond the last committed size is cut off on resuming.
"""

import fcntl
import json
import mmap
import os
import shutil
from array import array
from collections import Counter
from itertools import accumulate
from pathlib import Path
from typing import Any

from .codes import Finding
from .digest import Digest
from .lengths import Lengths
from .minhash import BANDS, COMMON_SAMPLE, common

_COLUMNS = {
    "offsets": "Q",
    "files": "I",
    "lines": "Q",
    "flags": "B",
    "prompts": "Q",
    "groups": "Q",
    "lengths": "I",
    "shingle_counts": "I",
    **{f"band{k:02d}": "q" for k in range(BANDS)},
}
_RAW = ("rows", "exact", "sketches", "shingles", "changes")


#: Pages of a spilled file that may be resident: what is mapped counts as memory of the process.
MAPPED_BYTES = 128 << 20


class BusyError(Exception):
    """Another process prepares into the same folder."""


class Spill:
    """The work folder of one run: opened, resumed if it fits the plan, removed at the end."""

    def __init__(self, folder: Path, plan: dict[str, Any]) -> None:
        """Open the folder; what an older run with another plan left there is thrown away.

        Raises BusyError where another process holds it, OSError where it cannot be written.
        """
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.lock = (folder / "lock").open("w")
        try:
            fcntl.flock(self.lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self.lock.close()
            raise BusyError(f"another process prepares into {folder}") from None
        wanted = json.dumps(plan, sort_keys=True)
        plan_file = folder / "plan.json"
        if not plan_file.exists() or plan_file.read_text() != wanted:
            for path in folder.iterdir():
                if path.name != "lock":
                    path.unlink()
            plan_file.write_text(wanted)
        self.chunks = 0
        self.rows_at = 0
        self.journal = folder / "journal"
        self.past = self._resume()
        self.out = {name: (folder / name).open("ab") for name in (*_COLUMNS, *_RAW)}
        self.log = self.journal.open("a", encoding="utf-8")
        self.rows_at = self.out["rows"].tell()

    def _resume(self) -> list[Digest]:
        """Return the digests already committed, with every column cut to its committed size."""
        sizes: dict[str, int] = dict.fromkeys((*_COLUMNS, *_RAW), 0)
        past: list[Digest] = []
        good = 0
        if self.journal.exists():
            with self.journal.open("rb") as file:
                for line in file:
                    try:
                        entry = json.loads(line)
                    except ValueError:
                        break
                    if not line.endswith(b"\n"):
                        break
                    sizes = entry["sizes"]
                    past.append(_revived(entry["digest"]))
                    good += len(line)
            os.truncate(self.journal, good)
        for name, size in sizes.items():
            path = self.folder / name
            if path.exists():
                if path.stat().st_size < size:
                    raise OSError(f"{path} is shorter than its journal says")
                os.truncate(path, size)
        self.chunks = len(past)
        return past

    def add(self, part: Digest, file_number: int) -> None:
        """Append a digest and commit it."""
        offsets, at = array("Q"), self.rows_at
        for row in part.rows:
            offsets.append(at)
            at += len(row)
        self.rows_at = at
        n = len(part.rows)
        write = self.out
        write["rows"].write(b"".join(part.rows))
        write["offsets"].write(offsets.tobytes())
        write["files"].write(array("I", [file_number]).tobytes() * n)
        write["lines"].write(part.lines.tobytes())
        write["flags"].write(part.flags.tobytes())
        write["exact"].write(b"".join(part.exact))
        write["sketches"].write(b"".join(part.sketches))
        write["shingles"].write(part.shingles.tobytes())
        write["shingle_counts"].write(part.shingle_counts.tobytes())
        write["prompts"].write(part.prompts.tobytes())
        write["groups"].write(part.groups.tobytes())
        lengths = array("I")
        for three in zip(part.lengths.total, part.lengths.prompt, part.lengths.answer, strict=True):
            lengths.extend(three)
        write["lengths"].write(lengths.tobytes())
        for k in range(BANDS if part.bands else 0):
            write[f"band{k:02d}"].write(part.bands[k::BANDS].tobytes())
        for line, action, code in part.changes:
            note = {"file": Path(part.file).name, "line": line, "action": action, "code": code}
            write["changes"].write((json.dumps(note, ensure_ascii=False) + "\n").encode())
        for file in write.values():
            file.flush()
        entry = {
            "sizes": {name: file.tell() for name, file in write.items()},
            "digest": _kept(part),
        }
        self.log.write(json.dumps(entry, ensure_ascii=False) + "\n")
        self.log.flush()
        self.chunks += 1

    def column(self, name: str) -> Any:
        """Return a whole column as an array."""
        return column_in(self.folder, name)

    def raw(self, name: str) -> bytes:
        """Return a raw column's bytes."""
        return (self.folder / name).read_bytes()

    def rows(self) -> "Rows":
        """Return the records by number."""
        return Rows(self.folder / "rows", self.column("offsets"))

    def shingles(self, alive: bytearray | None = None) -> "Shingles":
        """Return the shingle sets by record number, without the wording most of `alive` share."""
        sets = shingles_in(self.folder)
        if alive is not None:
            living = [i for i in range(len(alive)) if alive[i]]
            step = max(1, len(living) // COMMON_SAMPLE)
            sets.common = common(sets[i] for i in living[::step])
        return sets

    def all_lengths(self, how: str) -> Lengths:
        """Return the lengths of all kept records."""
        flat = self.column("lengths")
        return Lengths(how, flat[::3], flat[1::3], flat[2::3])

    def close(self, *, remove: bool) -> None:
        """Close all files and let go of the lock; remove the folder once the work is done."""
        for file in (*self.out.values(), self.log):
            file.close()
        if remove:
            shutil.rmtree(self.folder)
        self.lock.close()


class _Map:
    """A file read where it lies, of which no more than MAPPED_BYTES stays in memory."""

    def __init__(self, path: Path, size: int) -> None:
        with path.open("rb") as file:  # the map outlives its file
            self.map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if size else None
        self.touched = 0

    def read(self, start: int, end: int) -> bytes:
        if self.map is None:
            return b""
        self.touched += max(mmap.PAGESIZE, end - start)
        if self.touched > MAPPED_BYTES and hasattr(mmap, "MADV_DONTNEED"):
            self.map.madvise(mmap.MADV_DONTNEED)  # the pages stay in the system's cache
            self.touched = 0
        return self.map[start:end]


class Rows:
    """The spilled rows, read where they lie."""

    def __init__(self, path: Path, offsets: Any) -> None:
        """Map the file; an empty one is fine."""
        self.offsets = offsets
        self.size = path.stat().st_size
        self.map = _Map(path, self.size)

    def __len__(self) -> int:
        return len(self.offsets)

    def __getitem__(self, i: int) -> bytes:
        end = self.offsets[i + 1] if i + 1 < len(self.offsets) else self.size
        return self.map.read(self.offsets[i], end)

    def length(self, i: int) -> int:
        """Return the bytes of a row."""
        end = self.offsets[i + 1] if i + 1 < len(self.offsets) else self.size
        return int(end - self.offsets[i])


class Shingles:
    """The spilled shingle sets, read where they lie."""

    def __init__(self, path: Path, counts: Any) -> None:
        """Map the file; an empty one is fine."""
        self.ends = array("Q", accumulate(counts))
        self.common: frozenset[int] = frozenset()
        self.map = _Map(path, path.stat().st_size)

    def __len__(self) -> int:
        return len(self.ends)

    def __getitem__(self, i: int) -> set[int]:
        start = self.ends[i - 1] if i else 0
        found = array("I")
        found.frombytes(self.map.read(start * 4, self.ends[i] * 4))
        return set(found) - self.common if self.common else set(found)


def column_in(folder: Path, name: str) -> Any:
    """Return a whole column of a work folder as an array; for readers without the lock."""
    out = array(_COLUMNS[name])
    out.frombytes((folder / name).read_bytes())
    return out


def shingles_in(folder: Path) -> Shingles:
    """Return all shingle sets of a work folder; for readers without the lock."""
    return Shingles(folder / "shingles", column_in(folder, "shingle_counts"))


def _kept(part: Digest) -> dict[str, Any]:
    """Return what the report needs of a digest, as JSON."""
    return {
        "file": part.file,
        "records": part.records,
        "dropped": part.dropped,
        "kinds": part.kinds,
        "counts": part.counts,
        "turns": list(part.turns.items()),
        "languages": part.languages,
        "pii": part.pii,
        "features": part.features,
        "pii_lines": part.pii_lines,
        "how": part.lengths.how,
        "findings": [
            [f.line, f.code, f.severity, f.message, f.remedy, f.column] for f in part.findings
        ],
    }


def _revived(kept: dict[str, Any]) -> Digest:
    out = Digest(kept["file"], kept["records"], kept["dropped"])
    out.findings = [Finding(kept["file"], *row) for row in kept["findings"]]
    out.kinds = kept["kinds"]
    for name in ("counts", "languages", "pii", "features"):
        setattr(out, name, Counter(kept[name]))
    out.turns = Counter(dict(kept["turns"]))
    out.pii_lines = [tuple(row) for row in kept["pii_lines"]]
    out.lengths = Lengths(kept["how"])
    return out

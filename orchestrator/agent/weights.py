"""Safetensors files read with the standard library alone: are they complete and finite.

Format: 8 bytes little-endian header length, a JSON header, then the tensors' bytes without gaps.
https://github.com/huggingface/safetensors#format
"""

from __future__ import annotations

import json
import os
import re
import stat
import struct
from typing import Any, BinaryIO, Callable, NamedTuple

HEADER_BYTES = 64 << 20  # the format itself allows 100 MB; a 1,000-layer model needs 1
INDEX_BYTES = 16 << 20
CHUNK_BYTES = 8 << 20  # a multiple of every item size

ITEM_BYTES = {
    "F64": 8, "F32": 4, "F16": 2, "BF16": 2, "F8_E4M3": 1, "F8_E5M2": 1, "I64": 8, "I32": 4,
    "I16": 2, "I8": 1, "U64": 8, "U32": 4, "U16": 2, "U8": 1, "BOOL": 1,
}  # fmt: skip
# Values of the highest byte (the sign is 0x80) that may be a NaN or an infinity because all of
# its exponent bits are set, and, where the exponent reaches into the next byte, from which value
# of that on it is one.
EXPONENT_FULL: dict[str, tuple[bytes, int]] = {
    "F64": (b"\x7f\xff", 0xF0),
    "F32": (b"\x7f\xff", 0x80),
    "BF16": (b"\x7f\xff", 0x80),
    "F16": (b"\x7c\x7d\x7e\x7f\xfc\xfd\xfe\xff", 0),
    "F8_E4M3": (b"\x7f\xff", 0),
    "F8_E5M2": (b"\x7c\x7d\x7e\x7f\xfc\xfd\xfe\xff", 0),
}


class BadWeights(Exception):  # noqa: N818 - as the house names its errors
    """The file is absent, torn, not what its header says, or of a kind we do not know."""


class Weights(NamedTuple):
    """What a file of tensors holds. zero_b: there are LoRA B matrices, and all are zero."""

    tensors: int
    finite: bool
    zero_b: bool


class Tensor(NamedTuple):
    """One entry of the header."""

    name: str
    dtype: str
    start: int
    end: int


def check_weights(folder: str, *, adapter: bool, tick: Callable[[], None] | None = None) -> Weights:
    """Return what the trained weights in `folder` are; raises BadWeights.

    An adapter is one file; a whole model is one file, or shards with an index that names them all.
    `tick` is called between chunks: a large model takes a while (about 1 GB/s).
    """
    names = ["adapter_model.safetensors"] if adapter else _shards(folder)
    parts = [check_file(os.path.join(folder, name), tick) for name in names]
    return Weights(
        sum(part.tensors for part in parts),
        all(part.finite for part in parts),
        any(part.zero_b for part in parts) and adapter,
    )


def _shards(folder: str) -> list[str]:
    index = os.path.join(folder, "model.safetensors.index.json")
    if not os.path.exists(index):
        return ["model.safetensors"]
    try:
        with open(index, "rb") as file:
            weight_map = json.loads(file.read(INDEX_BYTES))["weight_map"]
        names = sorted(set(weight_map.values()))
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise BadWeights("model.safetensors.index.json can't be read: %s" % error) from None
    for name in names:
        if not re.match(r"model[\w.-]*\.safetensors\Z", str(name)):
            raise BadWeights("the index names a file outside the folder: %.80r" % (name,))
    if not names:
        raise BadWeights("model.safetensors.index.json names no file")
    return names


def check_file(path: str, tick: Callable[[], None] | None = None) -> Weights:
    """Return what one safetensors file holds; raises BadWeights."""
    name = os.path.basename(path)
    try:
        fd = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | os.O_NONBLOCK)
    except OSError as error:
        raise BadWeights("%s: %s" % (name, error.strerror)) from None
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise BadWeights("%s is no regular file" % name)
    with os.fdopen(fd, "rb") as file:
        try:
            tensors, body = read_header(file, os.fstat(fd).st_size)
            return _scan(file, tensors, body, tick)
        except BadWeights as error:
            raise BadWeights("%s: %s" % (name, error)) from None
        except OSError as error:
            raise BadWeights("%s: %s" % (name, error.strerror)) from None


def read_header(file: BinaryIO, size: int) -> tuple[list[Tensor], int]:
    """Return the tensors in the order of their bytes, and where these begin; raises BadWeights."""
    start = file.read(8)
    if len(start) < 8:
        raise BadWeights("shorter than its header")
    (length,) = struct.unpack("<Q", start)
    if length > min(HEADER_BYTES, size - 8):
        raise BadWeights("the header is longer than the file or than %d bytes" % HEADER_BYTES)
    try:
        header = json.loads(file.read(length).decode("utf-8"))
        header.pop("__metadata__", None)
        tensors = [_tensor(name, entry) for name, entry in header.items()]
    except BadWeights:
        raise
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise BadWeights("the header is no safetensors header") from None
    tensors.sort(key=lambda tensor: (tensor.start, tensor.end))
    at = 0
    for tensor in tensors:
        if tensor.start != at:
            raise BadWeights("gap or overlap before %.80r" % tensor.name)
        at = tensor.end
    if not tensors:
        raise BadWeights("holds no tensor")
    if 8 + length + at != size:
        raise BadWeights("%d bytes, its header says %d" % (size, 8 + length + at))
    return tensors, 8 + length


def _tensor(name: str, entry: dict[str, Any]) -> Tensor:
    dtype, shape = entry["dtype"], entry["shape"]
    start, end = entry["data_offsets"]
    numbers = [start, end, *shape]
    if not all(type(number) is int and 0 <= number < 1 << 62 for number in numbers):
        raise BadWeights("%.80r has an impossible shape" % name)
    if dtype not in ITEM_BYTES:
        raise BadWeights("%.80r is of the unknown type %.20r" % (name, dtype))
    items = 1
    for number in shape[:16]:
        items *= number
    if len(shape) > 16 or items * ITEM_BYTES[dtype] != end - start:
        raise BadWeights("%.80r has another size than its shape" % name)
    return Tensor(name, dtype, start, end)


def _scan(
    file: BinaryIO, tensors: list[Tensor], body: int, tick: Callable[[], None] | None
) -> Weights:
    """Read every float once. Stops at the first that is not finite."""
    b_matrices = zero_b_matrices = 0
    for tensor in tensors:
        is_b = ".lora_B." in tensor.name
        zero = True
        file.seek(body + tensor.start)
        left = tensor.end - tensor.start
        while left:
            chunk = file.read(min(left, CHUNK_BYTES))
            if not chunk:
                raise BadWeights("ends before its tensors do")
            left -= len(chunk)
            if not is_finite(chunk, tensor.dtype):
                return Weights(len(tensors), finite=False, zero_b=False)
            if is_b and zero:
                zero = chunk.count(0) == len(chunk)
            if tick:
                tick()
        b_matrices += is_b
        zero_b_matrices += is_b and zero
    all_zero = 0 < b_matrices == zero_b_matrices
    return Weights(len(tensors), finite=True, zero_b=all_zero)


def is_finite(data: bytes, dtype: str) -> bool:
    """Return whether little-endian floats hold neither NaN nor infinity; integers never do."""
    if dtype not in EXPONENT_FULL:
        return True
    full, below = EXPONENT_FULL[dtype]
    size = ITEM_BYTES[dtype]
    high = data[size - 1 :: size]
    for value in full:
        # Beyond 1e38 in F32 and BF16, so rare in trained weights. There the next byte decides.
        at = high.find(value)
        while at >= 0:
            if not below or data[at * size + size - 2] >= below:
                return False
            at = high.find(value, at + 1)
    return True

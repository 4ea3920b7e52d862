"""Safetensors without a library: whole, well formed, finite; and nothing a stranger wrote hurts."""

from __future__ import annotations

import contextlib
import json
import math
import os
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.agent.weights import BadWeights, check_file, check_weights, is_finite

B = "base_model.model.q_proj.lora_B.weight"


def safetensors(tensors, metadata=None):
    """Return a file's bytes: {name: (dtype, shape, data)}."""
    header, body = {}, b""
    if metadata:
        header["__metadata__"] = metadata
    for name, (dtype, shape, data) in tensors.items():
        offsets = [len(body), len(body) + len(data)]
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": offsets}
        body += data
    head = json.dumps(header).encode()
    return struct.pack("<Q", len(head)) + head + body


def with_header(header, body=b""):
    head = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(head)) + head + body


def floats(*values):
    return struct.pack(f"<{len(values)}f", *values)


@pytest.fixture
def check(tmp_path):
    def run(data):
        path = tmp_path / "adapter_model.safetensors"
        path.write_bytes(data)
        return check_file(str(path))

    return run


def test_a_good_file(check):
    good = {"a": ("F32", [2, 2], floats(1, 2, 3, 4)), B: ("BF16", [3], b"\x80\x3f" * 3)}
    assert check(safetensors(good, {"format": "pt"})) == (2, True, False)


@given(st.lists(st.floats(width=32), min_size=1, max_size=50))
def test_f32_agrees_with_math(values):
    assert is_finite(floats(*values), "F32") == all(map(math.isfinite, values))


@given(st.lists(st.floats(width=16), min_size=1, max_size=50))
def test_f16_agrees_with_math(values):
    data = struct.pack(f"<{len(values)}e", *values)
    assert is_finite(data, "F16") == all(map(math.isfinite, values))


@given(st.lists(st.floats(), min_size=1, max_size=50))
def test_f64_agrees_with_math(values):
    data = struct.pack(f"<{len(values)}d", *values)
    assert is_finite(data, "F64") == all(map(math.isfinite, values))


@given(st.binary(min_size=2, max_size=100).filter(lambda data: len(data) % 2 == 0))
def test_bf16_agrees_with_f32_of_the_same_high_half(data):
    wide = b"".join(b"\0\0" + data[at : at + 2] for at in range(0, len(data), 2))
    values = struct.unpack(f"<{len(wide) // 4}f", wide)
    assert is_finite(data, "BF16") == all(map(math.isfinite, values))


def test_integers_are_finite_and_eight_bit_floats_are_judged():
    assert is_finite(b"\xff" * 8, "I64")
    assert is_finite(b"\xff", "BOOL")
    assert not is_finite(b"\x00\x7f", "F8_E4M3")
    assert is_finite(b"\x7e", "F8_E4M3")
    assert not is_finite(b"\x7c", "F8_E5M2")
    assert is_finite(b"\x7b\xfb", "F8_E5M2")


def test_the_last_value_counts_too(check):
    data = floats(*[0.5] * 9_999, float("nan"))
    assert not check(safetensors({"a": ("F32", [10_000], data)})).finite


def test_zero_b_needs_all_of_them(check):
    zero, some = ("F32", [2], floats(0, 0)), ("F32", [2], floats(0, 1e-9))
    a = ("F32", [2], floats(1, 1))
    other = B.replace("q_proj", "v_proj")
    assert check(safetensors({"x.lora_A.weight": a, B: zero, other: zero})).zero_b
    assert not check(safetensors({"x.lora_A.weight": a, B: zero, other: some})).zero_b
    assert not check(safetensors({"x.weight": zero})).zero_b


ENTRY = {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}
HOSTILE = {
    "empty": b"",
    "short": b"\x01\x00",
    "huge length": struct.pack("<Q", 1 << 62),
    "length beyond the file": struct.pack("<Q", 100) + b"{}",
    "no json": with_header(b"\xff\xfe"),
    "a list": with_header([]),
    "no tensor": with_header({}),
    "deep": with_header(b"[" * 100_000),
    "cut body": with_header({"a": ENTRY}, b"\0\0"),
    "long body": with_header({"a": ENTRY}, b"\0" * 5),
    "unknown type": with_header({"a": {**ENTRY, "dtype": "Q4"}}, b"\0" * 4),
    "shape and size disagree": with_header({"a": {**ENTRY, "shape": [2]}}, b"\0" * 4),
    "negative": with_header({"a": {**ENTRY, "shape": [-1, -1]}}, b"\0" * 4),
    "true as a number": with_header({"a": {**ENTRY, "shape": [True]}}, b"\0" * 4),
    "float as a number": with_header({"a": {**ENTRY, "data_offsets": [0, 4.0]}}, b"\0" * 4),
    "gap": with_header({"a": {**ENTRY, "data_offsets": [4, 8]}}, b"\0" * 8),
    "overlap": with_header({"a": ENTRY, "b": ENTRY}, b"\0" * 4),
    "entry is null": with_header({"a": None}),
    "astronomic shape": with_header({"a": {**ENTRY, "shape": [1 << 61] * 16}}, b"\0" * 4),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_files_are_refused_in_words(check, name):
    with pytest.raises(BadWeights, match=r"adapter_model\.safetensors: "):
        check(HOSTILE[name])


@settings(max_examples=300)
@given(at=st.integers(0, 200), byte=st.integers(0, 255))
def test_no_flipped_byte_makes_a_crash(tmp_path_factory, at, byte):
    data = bytearray(safetensors({"a": ("F32", [2], floats(1, 2)), B: ("F32", [1], floats(3))}))
    data[at % len(data)] = byte
    path = tmp_path_factory.mktemp("w") / "adapter_model.safetensors"
    path.write_bytes(data)
    with contextlib.suppress(BadWeights):
        check_file(str(path))


def test_a_symlink_a_folder_and_a_pipe_are_refused(tmp_path):
    real = tmp_path / "real"
    real.write_bytes(safetensors({"a": ("F32", [1], floats(1))}))
    (tmp_path / "link").symlink_to(real)
    os.mkfifo(tmp_path / "pipe")
    for name in ("link", "pipe", "."):
        with pytest.raises(BadWeights):
            check_file(str(tmp_path / name))


def test_a_whole_model_in_shards(tmp_path):
    shard = safetensors({"a": ("F32", [1], floats(1))})
    (tmp_path / "model-00001-of-00002.safetensors").write_bytes(shard)
    (tmp_path / "model-00002-of-00002.safetensors").write_bytes(shard)
    names = {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": names}))
    ticks = []
    found = check_weights(str(tmp_path), adapter=False, tick=lambda: ticks.append(1))
    assert found == (2, True, False)
    assert len(ticks) == 2
    (tmp_path / "model-00002-of-00002.safetensors").unlink()
    with pytest.raises(BadWeights, match="00002-of-00002"):
        check_weights(str(tmp_path), adapter=False)
    index.write_text(json.dumps({"weight_map": {"a": "../../etc/passwd"}}))
    with pytest.raises(BadWeights, match="outside the folder"):
        check_weights(str(tmp_path), adapter=False)
    for text in ("{", "[]", '{"weight_map": {}}', '{"weight_map": {"a": 3}}'):
        index.write_text(text)
        with pytest.raises(BadWeights, match="index"):
            check_weights(str(tmp_path), adapter=False)


def test_a_single_model_file(tmp_path):
    with pytest.raises(BadWeights, match="No such file"):
        check_weights(str(tmp_path), adapter=False)
    data = safetensors({"a": ("F32", [1], floats(float("inf")))})
    (tmp_path / "model.safetensors").write_bytes(data)
    assert not check_weights(str(tmp_path), adapter=False).finite

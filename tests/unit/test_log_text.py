"""The log as text: harmless, whole, and the same however the bytes are split."""

import itertools
import re
import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.log_text import LINE_BYTES, LogText, clean

BAR = "  5%|▌         | 1/20 [00:01<00:28,  1.51s/it]"


def text_of(*pieces: bytes, tty: bool = False) -> str:
    log = LogText(tty=tty)
    return "".join([*map(log.feed, pieces), log.end()])


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"", ""),
        (b"plain\n", "plain\n"),
        (b"no end", "no end\n"),
        (b"dos\r\nline\r\n", "dos\nline\n"),
        (b"10%\r20%\r30%\n", "30%\n"),
        (b"10%\r20%", "20%\n"),
        (b"10%\r20%\r", "20%\n"),
        (b"bar\r      \r{'loss': '6.0'}\n", "{'loss': '6.0'}\n"),
        (f"\r{BAR}[2026] [INFO] glued\n".encode(), f"{BAR}[2026] [INFO] glued\n"),
        (b"a\n\n\n\nb\n", "a\n\nb\n"),
        (b"\n\r\n\ra\n", "a\n"),
        (b"\x1b[31mred\x1b[0m \x1b[2Kplain\n", "red plain\n"),
        (b"\x1b]0;owned\x07title\n", "title\n"),
        (b"\x1b]8;;http://x\x1b\\link\n", "link\n"),
        (b"\x1bcreset \x1b[6", "\\x1bcreset \\x1b[6\n"),
        (b"nul\x00 bell\x07 del\x7f\n", "nul\\x00 bell\\x07 del\\x7f\n"),
        (b"bad \xff\xfe end\n", "bad \\xff\\xfe end\n"),
        (b"half \xe2\x96\n", "half \\xe2\\x96\n"),
        ("c1 \x9b31m nel \x85\n".encode(), "c1 \\x9b31m nel \\x85\n"),
        ("bidi \u202egnp.exe\u2066 end\n".encode(), "bidi \\u202egnp.exe\\u2066 end\n"),
        ("tag \U000e0041 sep\u2028\n".encode(), "tag \\U000e0041 sep\\u2028\n"),
        ("zero\u200b\n".encode(), "zero\\u200b\n"),
        ("ok \u0645\u06cc\u200c\u062e\n".encode(), "ok \u0645\u06cc\u200c\u062e\n"),
        ("\U0001f469\u200d\U0001f680\n".encode(), "\U0001f469\u200d\U0001f680\n"),
        (b"tab\tstays\n", "tab\tstays\n"),
    ],
)  # fmt: skip
def test_text(data: bytes, text: str) -> None:
    assert text_of(data) == text


def test_a_huge_line_is_cut_and_says_so() -> None:
    huge = "ä".encode() * 500_000
    text = text_of(huge + b"\nnext\n")
    assert text.endswith("ä ... [996,000 bytes more]\nnext\n")
    assert len(text) < LINE_BYTES + 100
    odd = text_of(b"x" + huge)
    assert "\\x" not in odd, "a character cut in half must not show"


def test_a_terminal_sees_bars_move() -> None:
    said = text_of(b"10%\r20%\rdone\n", tty=True)
    assert said == "\r\x1b[2K10%\r\x1b[2K20%\r\x1b[2Kdone\n"
    assert len(LogText(tty=True, width=20).feed(b"x" * 50 + b"\r")) == len("\r\x1b[2K") + 19


ENDS = [b"\r", b"\n", b"\r\n"]
ESCAPES = [b"\x1b[31m", b"\x1b]0;t\x07", b"\x1b", b"\x00", b"\xff"]
pieces = st.sampled_from([*ENDS, *ESCAPES, b"\xe2\x96\x88", b" ", b"x" * (LINE_BYTES - 2)])
streams = st.lists(pieces | st.binary(max_size=20), max_size=30).map(b"".join)


@settings(deadline=None)
@given(data=streams, cuts=st.lists(st.integers(min_value=0, max_value=10**6)), tty=st.booleans())
def test_any_split_gives_the_same_text(data: bytes, cuts: list[int], tty: bool) -> None:
    places = sorted({cut % (len(data) + 1) for cut in cuts} | {0, len(data)})
    split = [data[a:b] for a, b in itertools.pairwise(places)]
    assert text_of(*split, tty=tty) == text_of(data, tty=tty)


@settings(deadline=None)
@given(data=streams)
def test_nothing_that_acts_on_a_terminal_survives(data: bytes) -> None:
    for char in text_of(data):
        assert char in "\t\n\u200c\u200d" or unicodedata.category(char) not in {
            "Cc",
            "Cf",
            "Zl",
            "Zp",
        }
    acts = re.sub(r"\r\x1b\[2K", "", text_of(data, tty=True))
    assert "\x1b" not in acts
    assert "\r" not in acts


@settings(deadline=None)
@given(line=st.binary(max_size=200))
def test_clean_is_one_line(line: bytes) -> None:
    assert len(clean(line).splitlines()) <= 1

"""What `output` may name: each place in its one form, each slip with its reason."""

import pytest

from jobs.targets import BadTarget, is_target, target


@pytest.mark.parametrize(
    ("text", "form"),
    [
        ("s3://bucket", "s3://bucket"),
        ("s3://my.bucket-1/", "s3://my.bucket-1"),
        ("s3://bucket/a/b c/ü/", "s3://bucket/a/b c/ü"),
        ("hf://ada/tone", "hf://ada/tone"),
        ("hf://ada/tone-7B_v1.0/", "hf://ada/tone-7B_v1.0"),
    ],
)
def test_a_place_has_one_form(text, form):
    assert is_target(text)
    assert str(target(text)) == form
    assert target(form) == target(text)


@pytest.mark.parametrize(
    "text",
    [
        "s3://", "s3:///x", "s3://ab/x", "s3://Bucket/x", "s3://a..b/x", "s3://1.2.3.4/x",
        "s3://bucket/../x", "s3://bucket/a//b", "s3://bucket/a\\b", "s3://bucket/a\nb",
        "s3://bucket/a?b", "s3://bucket/" + "é" * 301, "s3://-bucket/x", "s3://" + "a" * 64,
        "hf://", "hf://ada", "hf:///x", "hf://ada/", "hf://ada/x/y", "hf://ada/-x", "hf://ada/x.",
        "hf://ada/x--y", "hf://ada/x..y", "hf://ada/x.git", "hf://ada/x y", "hf://ada/" + "x" * 93,
    ],
)  # fmt: skip
def test_a_slip_is_named_with_what_to_do(text):
    with pytest.raises(BadTarget) as caught:
        target(text)
    assert str(caught.value)
    assert caught.value.remedy


def test_a_path_is_none():
    assert not is_target("s3/bucket")
    assert not is_target("/s3://x")

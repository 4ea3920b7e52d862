"""Phone numbers: cheap shapes first, libphonenumber's own rules to confirm.

libphonenumber costs about 60 us a call, so it is asked only about strings that a shape of the
country lets through. Numbers reserved for fiction (555-01xx, 07700 900xxx) are treated as real.
"""

import re
from functools import lru_cache

import phonenumbers
from phonenumbers import NumberParseException

DEFAULT_REGIONS = ("TR", "SA", "AE", "EG", "US", "GB")
# National form without the trunk 0, as the numbering plans give it (ITU national documents).
_NATIONAL = {
    "TR": re.compile(r"(?:5\d{9}|[234]\d{9}|850\d{7}|800\d{7}|444\d{4})$"),
    "SA": re.compile(r"(?:5\d{8}|1[1-7]\d{7}|800\d{7}|9200\d{5})$"),
    "AE": re.compile(r"(?:5\d{8}|[234679]\d{7}|800\d{2,9})$"),
    "EG": re.compile(r"(?:1[0125]\d{8}|2\d{8}|[3-9]\d{7,8})$"),
    "US": re.compile(r"[2-9]\d{2}[2-9]\d{6}$"),
    "GB": re.compile(r"(?:7\d{9}|[1238]\d{8,9})$"),
    "JO": re.compile(r"7[789]\d{7}$"),
    "LB": re.compile(r"(?:3|7[01689]|81)\d{6}$"),
    "KW": re.compile(r"[569]\d{7}$"),
    "QA": re.compile(r"[34567]\d{7}$"),
    "OM": re.compile(r"[79]\d{7}$"),
    "BH": re.compile(r"[36]\d{7}$"),
    "IQ": re.compile(r"7\d{9}$"),
    "MA": re.compile(r"[5-7]\d{8}$"),
}
_NO_TRUNK_ZERO = frozenset({"US", "CA", "KW", "QA", "OM", "BH"})
_MOBILE_SHAPE = {
    "TR": re.compile(r"5[03456]\d[ \-.()]+\d{3}[ \-.]+\d{2}[ \-.]?\d{2}$"),
    "US": re.compile(r"(?:1[ \-.])?\(?[2-9]\d\d\)?[ \-.]+[2-9]\d\d[ \-.]+\d{4}$"),
}  # written without 0 or +, the grouping alone gives them away
_COUNTING = frozenset("0123456789"[:n] for n in (7, 8, 9, 10)) | {"01234567890", "1234567890"}
_BARE_CODE = re.compile(r"(?:905\d{9}|9665\d{8}|9715\d{8}|201[0125]\d{8}|447\d{9})$")


def is_phone(raw: str, digits: str, cue: str, regions: tuple[str, ...]) -> bool:
    """Return whether the written number is a phone, given the nearest cue word's kind.

    Without a cue it must be in international form, start with the trunk 0 and be valid in one
    of the regions, or have a grouping used for phones only.
    """
    cued = cue == "phone"
    if raw.startswith("+") or digits.startswith("00"):
        return _international(digits.removeprefix("00"), cued or raw[0] == "+")
    if cue == "no" or (not cued and digits in _COUNTING):
        return False
    if _BARE_CODE.match(digits):
        return _international(digits, cued)
    bare = digits[1:] if digits[0] == "0" else digits
    for region in regions:
        shape = _NATIONAL.get(region)
        if shape is not None and not shape.match(bare):
            continue
        if shape is None and not cued:
            continue
        trunk = digits[0] == "0" and region not in _NO_TRUNK_ZERO
        grouped = region in _MOBILE_SHAPE and _MOBILE_SHAPE[region].match(raw.lstrip("("))
        bracketed = raw[0] == "(" and region == "US"
        if (trunk or cued or grouped or bracketed) and _valid(bare, region):
            return True
    return cued and len(digits) == 11 and digits[0] == "1" and _valid(digits[1:], "US")


def _international(digits: str, trusted: bool) -> bool:
    try:
        number = phonenumbers.parse("+" + digits)
    except NumberParseException:
        return False
    if phonenumbers.is_valid_number(number):
        return True
    return trusted and phonenumbers.is_possible_number(number)


@lru_cache(maxsize=4096)
def _valid(bare: str, region: str) -> bool:
    try:
        number = phonenumbers.parse(bare if region != "TR" else "0" + bare, region)
    except NumberParseException:
        return False
    if phonenumbers.is_valid_number(number):
        return True
    fiction = region == "US" and bare[3:6] == "555"
    return (fiction or region == "GB") and phonenumbers.is_possible_number(number)

"""Names of persons, found in part only: by a word that announces them, or a known first name.

Precision comes first. What this misses is said in every report: single names, names in running
text without a cue, all other languages.
"""

import re
from collections.abc import Iterator

from .gazetteer import arabic_names, first_names
from .spans import Span
from .text import key


def _split(text: str) -> list[str]:
    return text.split()


_WORD = re.compile(r"[^\W\d_]+(?:['’-][^\W\d_]+)*")
_KEYS = re.compile(r"[^\W\d_]+")

_TITLES = frozenset(
    _split(
        """
    mr mrs ms miss dr prof sir madam sayin bay bayan av avukat doktor profesor hoca
"""
    )
)
_HONORIFICS = frozenset(
    _split(
        """
    bey beyin beye beyi beyden hanim hanimin hanima hanimi hanimdan
"""
    )
)
_ROLES = frozenset(
    _split(
        """
    patient customer client buyer tenant employee colleague hire nurse doctor teacher lawyer hasta
    hastamiz hastanin musterimiz musteri ogretmenimiz ogrencimiz vatandas calisanimiz personelimiz
    kiracimiz davaci davali abim ablam annem babam esim kardesim alici gonderen
"""
    )
)
_OPENERS = re.compile(
    r"(?:(?<!\w)(?:my name is|my name's|i am|i'm|this is|it's|name:|full name:|signed[,:]?"
    r"|yours truly,|"
    r"(?:kind |best |warm )?regards,?|sincerely,?|ship to|dear|speaking with|spoke (?:to|with)|"
    r"ben(?:im)? ad[ıi]m|ad[ıi]m|ben|isim:|ad soyad:?|ad[ıi] soyad[ıi]:?|hastan[ıi]n ad[ıi]"
    r"|al[ıi]c[ıi] ad[ıi]|ad[ıi]:?|"
    r"olan ki[şs]i|sayg[ıi]lar[ıi]mla,?|imza:?))\s+",
    re.IGNORECASE,
)
_WEAK_OPENERS = (
    "i am",
    "i'm",
    "this is",
    "it's",
    "ben",
    "dear",
    "ship to",
)  # need two capitalised words
#: Who wrote it, as a mail's head says: a name right before an address in brackets.
_SENDER = re.compile(
    r"(?<!\w)(?:from|to|cc|reply-to|kimden|kime|bilgi|من|إلى):\s+(?=[^\n<>]{2,60}<[^<>\s]+@[^<>\s]+>)",
    re.IGNORECASE,
)
_LOWER_OPENERS = ("my name is", "my name's")  # people write their own name without capitals
_NOT_NAMES = frozenset(
    _split(
        """
    the a an and or of in on at to for from with not very so just also here there your our my his
    her its this that is are was were be been have has had will would can could team support
    customer service sir madam all everyone hotel hotels street avenue road square university
    company inc ltd bank park river mountain method theorem law january february march april may
    june july august september october november december monday tuesday wednesday thursday friday
    saturday sunday english turkish arabic german french american british head dear hello hi
    thanks bir bu su o ve ile icin ama cok de da mi mu universitesi universite sokak caddesi
    mahallesi hastanesi bankasi sirketi okulu lisesi koyu ilcesi parki ltd as pazartesi sali
    carsamba persembe cuma cumartesi pazar ocak subat mart nisan mayis haziran temmuz agustos
    eylul ekim kasim aralik turk turkce sayin bay bayan dr prof mr mrs ms teknik numara siparis
    merhaba tesekkur ederim lutfen ai assistant chatgpt openai google
"""
    )
)
_ARABIC_CUE = frozenset(
    key(word)
    for word in _split(
        """
    اسمي واسمي أنا معك معاك السيد السيدة الدكتور الدكتورة الأستاذ الأستاذة المهندس المهندسة المريض
    المريضة العميل العميلة الزميل الزميلة المحامي المحامية الموظف الموظفة الطالب الطالبة توقيع
    الشيخ الحاج الآنسة
"""
    )
)
_ARABIC_WEAK_CUE = frozenset(
    key(w) for w in ("أنا", "معك", "معاك", "الطالب", "العميل", "الموظف", "الشيخ")
)
_ARABIC_STOP = frozenset(
    key(word)
    for word in _split(
        """
    ولم لم من في على عن الى إلى هو هي الذي التي قد كان كانت وهو وهي يا هذا هذه ذلك تطلب يشكو وطلب
    طلب ستتصل اتصل اتصلت قال قالت وقال يقول تقول يريد تريد أريد ورقمي رقمي رقم وأنا مع و أو ثم بن
    بنت غير أن لا ما
"""
    )
)
_KUNYA = frozenset(
    key(word)
    for word in _split(
        """
    بن بنت ابن أبو ابو أم ام آل عبد
"""
    )
)
_GATE = (
    _TITLES
    | _HONORIFICS
    | _ROLES
    | _ARABIC_CUE
    | frozenset(
        _split(
            """
    name signed regards sincerely ship dear adim adi ben isim soyad imza saygilarimla kisi im
"""
        )
    )
)


class _Telling(dict[str, bool]):
    """Whether a word as written could announce or start a name; asked once a word."""

    def __missing__(self, word: str) -> bool:
        if len(self) > _MAX_WORDS:
            self.clear()
        parts = (
            set(_KEYS.findall(key(word))) if word.strip(".,،:؛!؟") not in _PREPOSITIONS else set()
        )
        known = _GATE | first_names() | arabic_names() if not self else self._known
        if not self:
            self._known = known
        answer = self[word] = not parts.isdisjoint(known)
        return answer

    _known: frozenset[str] = frozenset()


_MAX_WORDS = 200_000
_PREPOSITIONS = frozenset(("على", "إلى"))  # "on" and "to": in compare form they look like names
_tells = _Telling().__getitem__


def find(text: str) -> Iterator[Span]:
    """Yield names of persons in a text in normal form."""
    sender = "<" in text and "@" in text
    if not sender and not any(map(_tells, text.split())):
        return
    tokens = [(m[0], m.start(), m.end()) for m in _WORD.finditer(text)]
    keys = [_bare_honorific(key(token[0])) for token in tokens]
    taken = -1
    for start, end, rule in sorted(_latin(text, tokens, keys) + _arabic(text, tokens, keys)):
        if start > taken:
            yield Span(start, end, "NAME", rule, weak=True)
            taken = end


_Token = tuple[str, int, int]


def _bare_honorific(word: str) -> str:
    """Return "hanim" for "hanim'a": Turkish parts its endings from names with an apostrophe."""
    stem = word.replace("\u2019", "'").partition("'")[0]
    return stem if stem in _HONORIFICS else word


def _latin(text: str, tokens: list[_Token], keys: list[str]) -> list[tuple[int, int, str]]:
    found = []
    first = first_names()
    at = {token[1]: i for i, token in enumerate(tokens)}
    for head in _SENDER.finditer(text) if "@" in text else ():
        run = _run(text, tokens, keys, at[head.end()]) if head.end() in at else []
        if len(run) > 1:
            found.append((tokens[run[0]][1], tokens[run[-1]][2], "sender"))
    for opener in _OPENERS.finditer(text):
        i = at.get(opener.end())
        if i is None:
            continue
        words = opener[0].strip().lower()
        run = _run(text, tokens, keys, i, lower=words in _LOWER_OPENERS)
        strict = words.rstrip(",:") in _WEAK_OPENERS
        if run and (len(run) > 1 or not strict or keys[i] in first):
            found.append((tokens[run[0]][1], tokens[run[-1]][2], "opener"))
    for i, word in enumerate(keys):
        if word in first and tokens[i][0][0].isupper():
            run = _run(text, tokens, keys, i)
            if len(run) > 1:
                found.append((tokens[i][1], tokens[run[-1]][2], "gazetteer"))
        elif (
            word in _HONORIFICS
            and i
            and _capital(tokens[i - 1][0])
            and keys[i - 1] not in _NOT_NAMES
        ):
            j = i - 2 if i > 1 and keys[i - 2] in first and _near(text, tokens, i - 2) else i - 1
            if _near(text, tokens, i - 1):
                found.append((tokens[j][1], tokens[i - 1][2], "honorific"))
        elif (word in _TITLES or word in _ROLES) and i + 1 < len(tokens):
            run = _run(text, tokens, keys, i + 1) if _near(text, tokens, i) else []
            if len(run) > 1 or (
                run and word in _TITLES and word not in ("bay", "hoca", "sir", "madam")
            ):
                whole = word in ("dr", "prof", "mr", "mrs", "ms")
                found.append((tokens[i if whole else i + 1][1], tokens[run[-1]][2], "title"))
    return found


def _near(text: str, tokens: list[_Token], i: int) -> bool:
    """Return whether only blanks, or a title's dot, stand between token i and the next."""
    return text[tokens[i][2] : tokens[i + 1][1]] in (" ", ". ", ".", ": ")


def _capital(word: str) -> bool:
    return word[0].isupper() and (len(word) > 1)


def _run(
    text: str, tokens: list[_Token], keys: list[str], i: int, *, lower: bool = False
) -> list[int]:
    """Return the indexes of up to four neighbouring words that can be parts of one name."""
    run: list[int] = []
    while i < len(tokens) and len(run) < 4:
        word = tokens[i][0]
        if keys[i] in _NOT_NAMES or (not word[0].isupper() and not (lower and len(run) < 2)):
            break
        if run and text[tokens[run[-1]][2] : tokens[i][1]] not in (" ", ". ", "  "):
            break
        if "'" in word and run and word[0].isupper() and key(word.split("'")[0]) in _NOT_NAMES:
            break
        run.append(i)
        i += 1
    return run


def _arabic(text: str, tokens: list[_Token], keys: list[str]) -> list[tuple[int, int, str]]:
    if text.isascii():
        return []
    found = []
    known = arabic_names()
    for i, word in enumerate(keys):
        if word in _ARABIC_CUE and i + 1 < len(tokens):
            if text[tokens[i][2] : tokens[i + 1][1]] not in (" ", ": ", ":"):
                continue
            run = _arabic_run(text, tokens, keys, i + 1)
            strict = word in _ARABIC_WEAK_CUE
            if run and (
                not strict or keys[i + 1] in known or (len(run) > 1 and _nisba(keys[run[-1]]))
            ):
                found.append((tokens[i + 1][1], tokens[run[-1]][2], "opener"))
        elif word in known and tokens[i][0] not in _PREPOSITIONS:
            run = _arabic_run(text, tokens, keys, i)
            if len(run) > 1 and (
                _nisba(keys[run[-1]]) or keys[run[1]] in known or keys[run[1]] in _KUNYA
            ):
                found.append((tokens[i][1], tokens[run[-1]][2], "gazetteer"))
    return found


def _nisba(word: str) -> bool:
    return word.startswith("ال") and len(word) > 4


def _arabic_run(text: str, tokens: list[_Token], keys: list[str], i: int) -> list[int]:
    """Return the parts of an Arabic name: given name, "bin" links, compound names, family name."""
    run: list[int] = []
    linked = False
    while i < len(tokens) and len(run) < 6:
        word = keys[i]
        if word.isascii() or (run and text[tokens[run[-1]][2] : tokens[i][1]] != " "):
            break
        if word in _KUNYA:
            linked = True
        elif word in _ARABIC_STOP or (
            run and not linked and not _nisba(word) and word not in arabic_names() and len(run) > 1
        ):
            break
        else:
            if _nisba(word) and run and not linked:
                run.append(i)
                break
            linked = False
        run.append(i)
        i += 1
    while run and keys[run[-1]] in _KUNYA:
        run.pop()
    return run

"""Words beside a number that say what it is. All in compare-key form (see `text.key`).

The nearest word decides: "order 0532..." is an order, "order 12, my phone 0532..." a phone.
Arabic and Turkish entries are stems, found with any prefix and suffix.
"""

import re
from typing import NamedTuple

LEFT_WINDOW = 48  # characters; a cue further away belongs to another number
RIGHT_WINDOW = 28

_PHONE = r"""
 phone|\btel\b|telephone|mobile|\bcell|\bcall|\bring\b|whats\s?app|\bsms\b|\btext\b|\bfax|reach|
 contact|dial|\bmsisdn|hotline|
 telefon|\btlf|\bcep\b|cepten|cebim|cep\s?tel|\bgsm|\bara(?:y|r|s|m|\b)|\bhat(?:t|\b)|
 iletisim|faks|\bmesaj|ulas|viber|telegram|signal|
 هاتف|جوال|نمر[تهة]|موبايل|تلفون|تليفون|اتصل|اتصال|كلم|واتس|للتواصل|تواصل|ارضي|فاكس|محمول|نقال|خلوي|راسل
"""
_ID = r"""
 national (?:id|no|num|insurance)|\bid(?: code| number| num| no)?\b|\bids\b|
 identity|\bssn\b|social(?: sec|\b)|iqama|emirates|\beid\b|civil|
 \bnino\b|\bnhs\b|tax id|steuer|idnr|\bbsn\b|\bpesel|
 \bcpf\b|\bdni\b|\bnie\b|\bniss\b|aadhaar|personnummer|
 kimli[kg]|\bt\.?\s?c\.?(?:\b|'|k)|\btckn|vatandas|nufus (?:cuz|kagi|kayit|kimli|num|no)|yabanci no|
 هوي|اقام|قومي|مدني|بطاقه شخصي|بطاقه احوال|\bاحوال|الوطني
"""
_CARD = r"""
 \bcard|visa|master|amex|american express|troy|\bmada\b|credit|debit|\bcc\b|\bpan\b|
 \bkart|kredi|banka kart|
 بطاق|فيزا|ماستر|مدي\b|ائتمان
"""
_IBAN = r"iban|ايبان|حساب|hesap|account|transfer|wire|havale|\beft\b"
_PASSPORT = r"passport|pasaport|جواز"
_LICENCE = r"driv\w+ licen[cs]e|driver'?s licen[cs]e|ehliyet|surucu belge|رخصه (?:ال)?قياد|رخصتي"
#: Says "number" and no more.
_NUMBER = (
    r"numara(?!ti)|\b(?:my|her|his|our|their) (?:\w+ )?number|\bnumber is\b|\bnumber:"
    r"|رقمي|رقمها|رقمه\b"
)
_NEGATIVE = r"""
 \border|track|invoice|ticket|\bref\b|refer|serial|\bs/n\b|\blot\b|\bbatch|\bsku\b|barcode|\bean\b|\bupc\b|isbn|issn|
 imei|version|\bver\b|\bdriver (?:v|\d)|firmware|build|release|
 section|chapter|\bblock|unix|timestamp|epoch|\bsize|bytes|
 population|\brange|transaction|booking|model|product|\bpart\b|commit|\bseed|\bcode|shipment|parcel|
 receipt|case (?:no|num)|coupon|voucher|\bvin\b|\buuid|hash|
 checksum|coordinates|\blat\b|\blon|\bprice|\btotal|
 \bamount|step|token|param|error|port\b|pid\b|offset|\bline\b|\brow|average|score|\bpi\b|\bdoi\b|arxiv|
 siparis|kargo|takip|fatura|\bseri\b|barkod|referans|\bparti|\burun|\bkod|surum|kanun|madde|boyut|\bbayt|
 \bnufusu\b|nufus \d|stok|posta kod|dosya|makbuz|kampanya|proje|islem|\bfis\b|dekont|tutar|fiyat|
 koordinat|plaka|\bmodel|versiyon|\bpolice|abone|tesisat|talep|basvuru|\bbilet|rezervasyon|ilan|
 طلب|شحن|فاتور|تسلسل|باركود|مرجع|دفعه|معامل|اصدار|نسخ|ملف|طول|بايت|سكان|ماده|قانون|رمز|كود|عدد|قيم|سعر|ايه|
 بند|احداثي|تذكر|حجز|صندوق|مبلغ|بوليص|قضي|موديل|منتج|عدّ|درجه
"""
_UNITS = (
    r"bayt|byte|\bb\b|adet|birim|\bunits?\b|kisi|people|nesme|\btl\b|usd|eur|dollar|lira|ريال|بايت"
    r"|نسم|حاج|"
    r"%|[kmg]b\b|k?m\b|kg\b|\bms\b|param|معامل|token|\btry\b|درهم|جنيه|دولار|piece|\bcopies"
)
_KINDS = {
    "phone": _PHONE,
    "passport": _PASSPORT,
    "licence": _LICENCE,
    "card": _CARD,
    "id": _ID,
    "iban": _IBAN,
    "no": _NEGATIVE,
    "num": _NUMBER,
}
_LEFT = re.compile(
    "|".join(
        f"(?P<{k}>{re.sub(chr(92) + 's*' + chr(10) + chr(92) + 's*', '', v)})"
        for k, v in _KINDS.items()
    )
)
_RIGHT = re.compile(
    rf"^[\s)\]'’\"]*(?:(?P<no>{_UNITS})"
    r"|(?:olan\s+|is\s+|was\s+)?(?P<id>t\.?\s?c\.?\s*(?:kimlik|numara|no)|kimlik\s*(?:numara|no)"
    r"|(?:my|her|his|the)\s+(?:ssn|social|national id|id\b|nhs))"
    r"|\w*\s*(?:nolu|numarali|no'?lu)?\s*"
    r"(?P<phone>telefon|hat|numara|cep|gsm|mobile|phone|cell|واتس|جوال)"
    r"|(?:'?[dt][ae]n|'?[yn]?[iuea]|uzerinden|numaradan|ile)?\s*(?:beni\s+|bana\s+|bize\s+)?"
    r"(?P<phone2>ara(?:y|s|r|\b)|ulas|mesaj|yaz|sms)"
    r"|(?:is|was)\s+(?:my|her|his|our|the)\s+(?:\w+\s+)?(?P<phone3>number|cell|mobile|phone)"
    r"|(?:هو|هذا|ده)?\s*(?P<phone4>رقمي|رقمه|رقمها|جوالي))"
)
_CLAUSE = re.compile(r"[!?؟;؛\n]|\.\s|\.$")


class Cue(NamedTuple):
    """The nearest telling word: its kind ("" when there is none) and its distance in characters."""

    kind: str
    distance: int


def nearest(left: str, right: str) -> Cue:
    """Return the cue that stands nearest before (else after) a number; both sides in key form."""
    clause = 0
    for stop in _CLAUSE.finditer(left):
        clause = stop.end() if stop.end() < len(left) - 1 else clause
    best = Cue("", 999)
    for found in _LEFT.finditer(left, clause):
        if found.lastgroup != "num" or not best.kind:
            best = Cue(found.lastgroup or "", len(left) - found.end())
    after = _RIGHT.match(right)
    if after and (after.lastgroup == "no" or not best.kind):
        return Cue((after.lastgroup or "").rstrip("234"), after.start())
    return Cue("phone", best.distance) if best.kind == "num" else best


def has(kind: str, context: str) -> bool:
    """Return whether any cue of the kind stands in the context (in key form)."""
    return any(found.lastgroup == kind for found in _LEFT.finditer(context))

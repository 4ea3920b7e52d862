"""National check digits, each from the issuing body's published rule. Bare ASCII digits.

Every function takes the bare digits (or letters and digits) and returns whether they check.
An independent implementation (python-stdnum) is the oracle in the tests, not a dependency.
"""

from datetime import date

_DNI_LETTERS = "TRWAGMYFPDXBNJZSQVHLCKE"
_CF_ODD = dict(
    zip(
        "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ",
        (1, 0, 5, 7, 9, 13, 15, 17, 19, 21, 1, 0, 5, 7, 9, 13, 15, 17, 19, 21, 2, 4, 18, 20, 11,
         3, 6, 8, 12, 14, 16, 10, 22, 25, 24, 23),
        strict=True,
    )
)  # fmt: skip
_LUHN_DOUBLE = (0, 2, 4, 6, 8, 1, 3, 5, 7, 9)
_EGYPT_GOVERNORATES = frozenset(
    [
        "01",
        "02",
        "03",
        "04",
        "11",
        "12",
        "13",
        "14",
        "15",
        "16",
        "17",
        "18",
        "19",
        "21",
        "22",
        "23",
        "24",
        "25",
        "26",
        "27",
        "28",
        "29",
        "31",
        "32",
        "33",
        "34",
        "35",
        "88",
    ]
)
_IBAN_LENGTH = {
    "AD": 24, "AE": 23, "AL": 28, "AT": 20, "AZ": 28, "BA": 20, "BE": 16, "BG": 22, "BH": 22,
    "BR": 29, "BY": 28, "CH": 21, "CR": 22, "CY": 28, "CZ": 24, "DE": 22, "DK": 18, "DO": 28,
    "EE": 20, "EG": 29, "ES": 24, "FI": 18, "FO": 18, "FR": 27, "GB": 22, "GE": 22, "GI": 23,
    "GL": 18, "GR": 27, "GT": 28, "HR": 21, "HU": 28, "IE": 22, "IL": 23, "IQ": 23, "IS": 26,
    "IT": 27, "JO": 30, "KW": 30, "KZ": 20, "LB": 28, "LC": 32, "LI": 21, "LT": 20, "LU": 20,
    "LV": 21, "LY": 25, "MC": 27, "MD": 24, "ME": 22, "MK": 19, "MR": 27, "MT": 31, "MU": 30,
    "NL": 18, "NO": 15, "PK": 24, "PL": 28, "PS": 29, "PT": 25, "QA": 29, "RO": 24, "RS": 22,
    "SA": 24, "SC": 31, "SD": 18, "SE": 24, "SI": 19, "SK": 24, "SM": 27, "ST": 25, "SV": 28,
    "TL": 23, "TN": 24, "TR": 26, "UA": 29, "VA": 22, "VG": 24, "XK": 20,
}  # fmt: skip  # SWIFT IBAN registry


def luhn(digits: str) -> bool:
    """Return whether the digits pass the Luhn check (ISO/IEC 7812)."""
    total = 0
    for i, char in enumerate(reversed(digits)):
        total += _LUHN_DOUBLE[int(char)] if i % 2 else int(char)
    return total % 10 == 0


def iban_length(country: str) -> int | None:
    """Return the length of an IBAN of the country (two capitals), None where it has none."""
    return _IBAN_LENGTH.get(country)


def iban(code: str) -> bool:
    """Return whether a compact upper-case IBAN has the country's length and remainder 1 of 97."""
    if _IBAN_LENGTH.get(code[:2]) != len(code):
        return False
    try:
        return int("".join(str(int(c, 36)) for c in code[4:] + code[:4])) % 97 == 1
    except ValueError:
        return False


def tckn(d: str) -> bool:
    """Return whether 11 digits are a Turkish identity number."""
    if len(d) != 11 or d[0] == "0":
        return False
    n = [int(c) for c in d]
    return (sum(n[0:9:2]) * 7 - sum(n[1:8:2])) % 10 == n[9] and sum(n[:10]) % 10 == n[10]


def saudi(d: str) -> bool:
    """Return whether 10 digits are a Saudi citizen (1...) or resident (2...) number."""
    return len(d) == 10 and d[0] in "12" and luhn(d)


def emirates(d: str) -> bool:
    """Return whether 15 digits are an Emirates id: 784, a year of birth, Luhn."""
    return len(d) == 15 and d.startswith("784") and "1900" <= d[3:7] <= "2035" and luhn(d)


def egypt(d: str) -> bool:
    """Return whether 14 digits are an Egyptian national number: century, date, governorate."""
    if len(d) != 14 or d[0] not in "23" or d[7:9] not in _EGYPT_GOVERNORATES:
        return False
    return _is_date(("19" if d[0] == "2" else "20") + d[1:3], d[3:5], d[5:7])


def ssn(d: str) -> bool:
    """Return whether 9 digits lie in the issued ranges of US social security numbers."""
    return (
        len(d) == 9
        and d[:3] not in ("000", "666")
        and d[0] != "9"
        and d[3:5] != "00"
        and d[5:] != "0000"
    )


def nhs(d: str) -> bool:
    """Return whether 10 digits are an NHS number (modulus 11)."""
    check = 11 - sum(int(c) * (10 - i) for i, c in enumerate(d[:9])) % 11
    return len(d) == 10 and check % 11 == int(d[9]) and check != 10


def nino(code: str) -> bool:
    """Return whether a compact UK national insurance number uses an allowed prefix."""
    two = code[:2]
    return (
        two not in ("BG", "GB", "KN", "NK", "NT", "TN", "ZZ")
        and not set(two) & set("DFIQUV")
        and two[1] != "O"
    )


def german_tax(d: str) -> bool:
    """Return whether 11 digits are a German tax id (ISO 7064 mod 11,10; one digit repeats)."""
    repeats = sorted(d[:10].count(c) for c in set(d[:10]))[-2:]
    if len(d) != 11 or d[0] == "0" or repeats not in ([1, 2], [1, 3]):
        return False
    product = 10
    for char in d[:10]:
        total = (int(char) + product) % 10 or 10
        product = total * 2 % 11
    return (11 - product) % 10 == int(d[10])


def french_nir(d: str) -> bool:
    """Return whether 15 digits are a French social security number (key = 97 - n mod 97)."""
    return (
        len(d) == 15
        and d[0] in "12"
        and ("01" <= d[3:5] <= "12" or "20" <= d[3:5] <= "42" or d[3:5] >= "50")
        and 97 - int(d[:13]) % 97 == int(d[13:])
    )


def spanish(code: str) -> bool:
    """Return whether a compact DNI (8 digits, letter) or NIE (X|Y|Z, 7 digits, letter) checks."""
    number = {"X": "0", "Y": "1", "Z": "2"}.get(code[0], code[0]) + code[1:-1]
    return number.isdigit() and len(number) == 8 and _DNI_LETTERS[int(number) % 23] == code[-1]


def italian(code: str) -> bool:
    """Return whether 16 capitals and digits are an Italian codice fiscale."""
    total = 0
    for i, char in enumerate(code[:15]):
        if i % 2 == 0:
            total += _CF_ODD[char]
        else:
            total += int(char) if char.isdigit() else ord(char) - 65
    return chr(65 + total % 26) == code[15]


def dutch(d: str) -> bool:
    """Return whether 9 digits are a Dutch citizen service number (the eleven test)."""
    if len(d) != 9 or d == "000000000":
        return False
    return (sum(int(c) * (9 - i) for i, c in enumerate(d[:8])) - int(d[8])) % 11 == 0


def pesel(d: str) -> bool:
    """Return whether 11 digits are a Polish PESEL with a real date of birth."""
    if len(d) != 11:
        return False
    weights = (1, 3, 7, 9, 1, 3, 7, 9, 1, 3, 1)
    if sum(int(c) * w for c, w in zip(d, weights, strict=True)) % 10:
        return False
    century, month = divmod(int(d[2:4]), 20)
    year = {0: 1900, 1: 2000, 2: 2100, 3: 2200, 4: 1800}[century] + int(d[:2])
    return _is_date(str(year), f"{month:02d}", d[4:6])


def belgian(d: str) -> bool:
    """Return whether 11 digits are a Belgian national number (97 - n mod 97; 2... after 2000)."""
    if len(d) != 11:
        return False
    body, check = d[:9], int(d[9:])
    return (check == 97 - int(body) % 97 and _is_date("19" + d[:2], d[2:4], d[4:6])) or (
        check == 97 - int("2" + body) % 97 and _is_date("20" + d[:2], d[2:4], d[4:6])
    )


def swedish(d: str) -> bool:
    """Return whether 10 or 12 digits are a Swedish personal number: date and Luhn."""
    d = d[-10:]
    day = int(d[4:6])
    return (
        len(d) == 10 and "01" <= d[2:4] <= "12" and (1 <= day <= 31 or 61 <= day <= 91) and luhn(d)
    )


def cpf(d: str) -> bool:
    """Return whether 11 digits are a Brazilian CPF (two mod 11 digits)."""
    if len(d) != 11 or len(set(d)) == 1:
        return False
    for size in (9, 10):
        check = sum(int(c) * (size + 1 - i) for i, c in enumerate(d[:size])) * 10 % 11 % 10
        if check != int(d[size]):
            return False
    return True


def kuwaiti(d: str) -> bool:
    """Return whether 12 digits are a Kuwaiti civil id: century, date, modulus 11."""
    if len(d) != 12 or d[0] not in "23":
        return False
    weights = (2, 1, 6, 3, 7, 9, 10, 5, 8, 4, 2)
    check = 11 - sum(int(c) * w for c, w in zip(d[:11], weights, strict=True)) % 11
    return check == int(d[11]) and "01" <= d[3:5] <= "12" and "01" <= d[5:7] <= "31"


def _is_date(year: str, month: str, day: str) -> bool:
    try:
        date(int(year), int(month), int(day))
    except ValueError:
        return False
    return True

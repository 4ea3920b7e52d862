"""When personal data stops a run, and what a scan did not look for."""

from collections.abc import Mapping

#: Said in every report. The scan is evidence, not legal compliance.
NOT_CHECKED = (
    "names without a title, an introduction or a well-known first name before them",
    "postal addresses, dates of birth, vehicle plates, health and other special data",
    "national ids and tax numbers of countries not listed in the documentation",
    "phone numbers outside the chosen regions that lack a country code",
    "anything inside images, sound or encoded text",
)
NOTICE = (
    "This scan is evidence for your own assessment under KVKK, GDPR or PDPL; "
    "it is not legal compliance."
)
#: Country code or region word -> the area within which data may stay.
_AREAS = {
    **dict.fromkeys(
        [
            "at",
            "be",
            "bg",
            "cy",
            "cz",
            "de",
            "dk",
            "ee",
            "es",
            "fi",
            "fr",
            "gr",
            "hr",
            "hu",
            "ie",
            "it",
            "lt",
            "lu",
            "lv",
            "mt",
            "nl",
            "pl",
            "pt",
            "ro",
            "se",
            "si",
            "sk",
            "is",
            "no",
            "li",
        ],
        "eu",
    ),
    "gb": "gb",
    "uk": "gb",
    "usa": "us",
}


def area(region: str) -> str:
    """Return the area of a region as providers write it: "EU-RO-1" and "ro" are "eu"."""
    parts = region.strip().lower().replace("_", "-").split("-")
    head = parts[0]
    if head in ("eu", "europe", "eea"):
        return "eu"
    return _AREAS.get(head, head)


def blocks(
    found: Mapping[str, int],
    *,
    scanned: bool,
    masked: bool,
    reviewed: bool,
    data_region: str,
    machine_region: str,
) -> str | None:
    """Return why a run must not start, None when it may.

    Finds stop a run whose machine is outside the data's region or in an unknown one, unless they
    were masked or the user says the data was reviewed. Keys and passwords stop any run.
    """
    if reviewed or (masked and scanned):
        return None
    secrets = found.get("SECRET", 0)
    if secrets:
        return (
            f"{secrets} keys or passwords stand in the data: "
            "revoke and mask them (prepare --mask), or --pii-reviewed"
        )
    personal = sum(n for kind, n in found.items() if kind != "SECRET")
    stays = bool(data_region and machine_region) and area(data_region) == area(machine_region)
    if stays:
        return None
    where = (
        f"{machine_region or 'an unknown region'}, "
        f"the data belongs to {data_region or 'no stated region'}"
    )
    if not scanned:
        return (
            f"the machine is in {where}, and the data was not scanned for personal data: "
            "scan it, or --pii-reviewed"
        )
    if personal:
        return (
            f"{personal} finds of personal data would go to {where}: "
            "prepare --mask, or --pii-reviewed"
        )
    return None

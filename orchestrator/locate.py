"""Where the state of gpujob lies, found in a few milliseconds.

`ps`, `status`, `cost` and `logs` need two of the settings and none of pydantic's validation, whose
import alone would take half of their time. tests/unit/test_settings.py holds that both readings
agree.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from providers.registry import KEYS

DEFAULT_SWEEP_S = 60.0  # Limits.sweep_s; a test holds them together


@dataclass(frozen=True, slots=True)
class Located:
    """GPUJOB_HOME, GPUJOB_DATABASE_URL where it is set, and whether GPUJOB_SWEEP is not off.

    rents: whether a provider of machines elsewhere is set up. sweep_s: as GPUJOB_SWEEP_S says.
    """

    home: Path
    database_url: str | None
    sweep: bool = True
    rents: bool = False
    sweep_s: float = DEFAULT_SWEEP_S


def default_home() -> Path:
    """Return the platform's data folder for gpujob."""
    import platformdirs

    return Path(platformdirs.user_data_dir("gpujob", appauthor=False))


def sqlite_url(file: Path) -> str:
    """Return the URL of a SQLite file; what has a meaning of its own in a URL is quoted."""
    return f"sqlite:///{str(file).replace('%', '%25').replace('?', '%3F')}"


def sqlite_path(url: str) -> Path | None:
    """Return the file of a plain `sqlite:///` URL; None for any other."""
    if not url.startswith("sqlite:///") or "?" in url:
        return None
    from urllib.parse import unquote

    return Path(unquote(url.removeprefix("sqlite:///")))


def locate(environ: Mapping[str, str], folder: Path) -> Located:
    """Return where the state lies: by the environment, else `.env`, else the default."""
    found = environment(environ, folder)
    home = found.get("GPUJOB_HOME")
    return Located(
        home=Path(home) if home is not None else default_home(),
        database_url=found.get("GPUJOB_DATABASE_URL"),
        sweep=found.get("GPUJOB_SWEEP") != "off",
        rents=any(found.get(name) for name in KEYS.values()),
        sweep_s=_seconds(found.get("GPUJOB_SWEEP_S")),
    )


def _seconds(text: str | None) -> float:
    try:
        return DEFAULT_SWEEP_S if text is None else float(text)
    except ValueError:
        return DEFAULT_SWEEP_S  # who drives jobs says that it is wrong


def environment(environ: Mapping[str, str], folder: Path) -> dict[str, str]:
    """Return all variables, upper case; the environment's own win over `.env` in `folder`.

    An empty value is as good as none.
    """
    found = {
        **_dotenv(folder / ".env"),
        **{name.upper(): text for name, text in environ.items() if text},
    }
    return {name: text for name, text in found.items() if text}


def _dotenv(path: Path) -> dict[str, str]:
    if not path.is_file():
        return {}
    from dotenv import dotenv_values

    values = dotenv_values(path, encoding="utf-8")
    return {name.upper(): text for name, text in values.items() if text is not None}

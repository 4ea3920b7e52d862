"""The `axolotl:` section of a job file: own keys, or a whole file of the person's own."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from jobs.axolotl_fold import KEYS, training_keys
from jobs.axolotl_keys import Fault, check_keys
from jobs.axolotl_names import OWNED, PLUGINS
from jobs.axolotl_own import SAVING, Own, inline_files, take
from jobs.axolotl_removed import modernise
from jobs.findings import Finding
from jobs.load_draft import Draft
from jobs.load_paths import PathFault, absolute, kind
from jobs.load_yaml import MAX_BYTES, Document, dotted, parse
from jobs.spec import JobSpec, Method

# What `axolotl:` may say of the method, for each: anything else contradicts it.
_METHOD_KEYS: dict[str, dict[str, tuple[Any, ...]]] = {
    "qlora": {"adapter": ("qlora",), "load_in_4bit": (True,), "load_in_8bit": (False,)},
    "lora": {"adapter": ("lora",), "load_in_4bit": (False,)},
    "full": {"adapter": (), "load_in_4bit": (False,), "load_in_8bit": (False,)},
}
_WHOSE = {axolotl: f"training.{name}" for name, (axolotl, _) in KEYS.items()} | {
    "base_model": "model",
    "num_epochs": "training.epochs",
    "max_steps": "training.max_steps",
    "eval_steps": "training.eval_every_steps",
    "lora_target_modules": "training.lora_targets",
    "val_set_size": "data.validation",
    "save_steps": "checkpoints.every_steps",
}


@dataclass
class AxolotlPart:
    """What the section says, checked for itself; `document` is the person's own file, if any."""

    keys: dict[str, Any] = field(default_factory=dict)
    config: Path | None = None
    own: Own | None = None
    document: Document | None = None
    names_file: bool = False  # model, method and data are then looked for there

    @property
    def section(self) -> dict[str, Any]:
        """Return the section as JobSpec takes it."""
        base = self.own.base if self.own else {}
        return {"config": self.config, "base": base, "keys": self.keys}

    def says(self, fault: Fault) -> bool:
        """Return whether the person named the key, in the section or in the own file."""
        in_file = self.document is not None and fault.path[0] in (self.document.value or {})
        return fault.path[0] in self.keys or in_file

    def find(self, draft: Draft, fault: Fault) -> None:
        """Add a fault of the derived configuration where the person can mend it."""
        key = str(fault.path[0])
        if key in self.keys:
            draft.find(("axolotl", *fault.path), fault.message, fault.remedy)
        elif self.says(fault):
            self.find_in_file(draft, fault)
        else:
            named = _WHOSE.get(key)
            path = tuple(named.split(".")) if named else ("axolotl", *fault.path)
            draft.find(path, fault.message, fault.remedy)

    def find_in_file(self, draft: Draft, fault: Fault) -> None:
        """Add a fault at its line of the person's own file."""
        assert self.document is not None  # noqa: S101 - only called with one
        line = self.document.line(fault.path)
        draft.add(
            Finding(self.document.file, line, dotted(fault.path), fault.message, fault.remedy)
        )

    def finish(self, spec: JobSpec, draft: Draft) -> JobSpec:
        """Return the spec with what the job file says of the training laid over the own file."""
        if self.own is None:
            return spec
        given = set(draft.values.get("training", {}))
        base = {**self.own.base, **training_keys(spec.training, given)}
        if "max_steps" in given:
            base.pop("num_epochs", None)
        if "epochs" in given:
            base.pop("max_steps", None)
        if "lora_targets" in given and spec.training.lora_targets != "all-linear":
            base.pop("lora_target_linear", None)
        if "checkpoints" in draft.values:
            base = {key: value for key, value in base.items() if key not in SAVING}
        axolotl = spec.axolotl.model_copy(update={"base": base})
        return spec.model_copy(update={"axolotl": axolotl})


def take_axolotl(draft: Draft) -> AxolotlPart:
    """Return the section, with `method` and `model` of an own file filled into the draft."""
    given = draft.values.pop("axolotl", None)
    part = AxolotlPart()
    if given is None:
        _plugins(draft)
        return part
    if not isinstance(given, dict):
        draft.find(("axolotl",), "is a section with keys of its own", "Write them below, indented")
        return part
    keys = {key: value for key, value in given.items() if key != "config"}
    _plugins(draft)
    if given.get("config") is not None:
        part.names_file = True
        _own_file(draft, part, given["config"])
    part.keys = _inline(draft, keys, part)
    _method(draft, part)
    return part


def plugin_names(draft: Draft) -> list[str]:
    """Return the names under training.plugins; what is no text there, pydantic finds."""
    listed = draft.get("training", "plugins")
    listed = [listed] if isinstance(listed, str) else listed
    return [name for name in listed if isinstance(name, str)] if isinstance(listed, list) else []


def _plugins(draft: Draft) -> None:
    for name in plugin_names(draft):
        if name not in PLUGINS:
            draft.find(
                ("training", "plugins"), f"no plugin {name}", f"There are {', '.join(PLUGINS)}"
            )


def _inline(draft: Draft, keys: dict[str, Any], part: AxolotlPart) -> dict[str, Any]:
    """Return the keys in this version's words and types; owned ones are refused."""
    free: dict[str, Any] = {}
    for key, value in keys.items():
        if key in OWNED:
            draft.find(("axolotl", key), "is gpujob's own key", _sentence(OWNED[key]))
        else:
            free[key] = value
    current, notes, faults = modernise(free)
    plugins = [name for name in plugin_names(draft) if name in PLUGINS]
    if part.own and not part.own.faults:
        plugins += part.own.base.get("plugins") or []
    current, more = check_keys(current, plugins)
    if "rl" in current and part.own is None:
        more.append(
            Fault(
                ("rl",),
                "needs preference data, which data.format does not have",
                "Use a whole file with axolotl.config",
            )
        )
    for fault in (*faults, *more):
        draft.find(("axolotl", *fault.path), fault.message, fault.remedy)
    draft.notes += [f"axolotl: {note}" for note in notes]
    return inline_files(current, (draft.folder,), draft.notes)


def _own_file(draft: Draft, part: AxolotlPart, text: Any) -> None:
    """Read the person's own file into the part."""
    where = ("axolotl", "config")
    if not isinstance(text, str):
        draft.find(where, "is not a path", "Name your Axolotl file")
        return
    path = absolute(text, draft.folder)
    if isinstance(path, PathFault):
        draft.find(where, path.message, path.remedy)
        return
    if kind(path) != "file":
        found = kind(path)
        draft.find(where, f"{text} is a folder" if found else f"{text}: no such file")
        return
    try:
        raw = path.read_bytes()[: MAX_BYTES + 1]
        content = raw.decode("utf-8-sig")
    except (OSError, UnicodeDecodeError):
        draft.find(where, f"{text} can't be read as UTF-8 text")
        return
    document = parse(content, text)
    part.config, part.document = path, document
    if not isinstance(document.value, dict) or not document.value:
        if not document.findings:
            draft.find(where, f"{text} is not an Axolotl configuration", "It must hold keys")
        draft.document.findings.extend(document.findings)
        return
    draft.document.findings.extend(document.findings)
    has_data = draft.get("data", "train") is not None
    part.own = take(document.value, (path.parent, draft.folder), job_has_data=has_data)
    for fault in part.own.faults:
        part.find_in_file(draft, fault)
    draft.notes += [f"{text}: {note}" for note in part.own.notes]
    if not part.own.base and not part.own.faults:  # nothing but places, which are ours
        part.own, part.names_file = None, False
        return
    theirs = part.own.base.get("base_model")
    if draft.get("model") is None and theirs:
        draft.values["model"] = theirs
    elif theirs and theirs != draft.get("model"):
        draft.notes.append(f"{text}: base_model is left out: the job file says model")


def _method(draft: Draft, part: AxolotlPart) -> None:
    """Fill in the method of an own file; find what contradicts the one that is given."""
    own = part.own
    given = draft.get("method")
    if own is not None and not own.faults:
        theirs = own.method
        if given is None and theirs in list(Method):
            draft.values["method"] = given = theirs
        elif given in list(Method) and theirs != given and theirs in list(Method):
            line = part.document.line(("adapter",)) if part.document else None
            where = (
                f"{part.document.file}{f' line {line}' if line else ''}" if part.document else ""
            )
            draft.find(
                ("method",),
                f"{given} contradicts {where}, which trains {theirs}",
                "Make the two agree",
            )
    for key, allowed in _METHOD_KEYS.get(str(given), {}).items():
        value = part.keys.get(key)
        if value is not None and value not in allowed:
            draft.find(
                ("axolotl", key),
                f"{_word(value)} contradicts method: {given}",
                "Change method, and leave this out",
            )


def _word(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _sentence(text: str) -> str:
    return text[0].upper() + text[1:]

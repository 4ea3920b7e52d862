"""Every finding the gate can make: its code, severity and remedy, in one table.

Severities: `error` refuses the run; `drop` leaves the record out; `fix` repairs it safely and says
so; `warn_or_fix` warns, and repairs with --fix; `warn` only tells; `keep` is legal and noted.
"""

from dataclasses import asdict, dataclass
from typing import Any, Literal

Severity = Literal["error", "drop", "fix", "warn_or_fix", "warn", "keep"]

#: Share of records that may be dropped before the whole set is refused.
MAX_DROPPED_SHARE = 0.5

CODES: dict[str, tuple[Severity, str]] = {
    # reading
    "job_file": ("error", "mend the job file; `gpujob init` writes a good one"),
    "missing_file": ("error", "correct the path; it is relative to the job file"),
    "empty_file": ("error", "the file holds no record; export it again"),
    "unsupported_file": (
        "error",
        ("use .jsonl, .json, .csv, .tsv, .parquet, .txt, each also as .gz or .zst"),
    ),
    "encoding": ("error", "save the file as UTF-8, or say what it is with --encoding"),
    "bom": ("fix", "nothing to do: the byte order mark is left out of the clean file"),
    "crlf": ("fix", "nothing to do: the clean file has LF line ends"),
    "json_syntax": ("error", "mend the line, or leave bad lines out with --skip-bad-lines"),
    "truncated_last_line": (
        "error",
        (
            "the file looks cut off: export or copy it again, or leave "
            "the line out "
            "with --skip-bad-lines"
        ),
    ),
    "truncated_file": ("error", "the compressed file ends early: copy it again"),
    "duplicate_key": ("error", "keep one of the two values: parsers disagree on which one counts"),
    "line_too_long": ("error", "a record over 64 MiB is no training example: split or remove it"),
    "array_in_jsonl": ("fix", "nothing to do: the array is written as JSON Lines"),
    "pretty_printed_json": ("fix", "nothing to do: each record is written on one line"),
    "csv_columns": (
        "error",
        ("give every row as many cells as the header; quote cells that hold the separator"),
    ),
    "not_an_object": ("error", 'each record must be a JSON object such as {"messages": [...]}'),
    # recognising
    "unknown_schema": ("error", "map your columns, e.g. --map instruction=soru --map output=cevap"),
    "mixed_schema": (
        "error",
        ("keep one kind per file, or bring all to chat messages with --to chat"),
    ),
    "preference_data": (
        "error",
        (
            "pairs of chosen and rejected answers are for DPO, ORPO or KTO, "
            "not for SFT; "
            "keep the chosen answer only with --to chosen"
        ),
    ),
    "multimodal_unsupported": (
        "error",
        ("this is a text job: remove the records with images, audio or video"),
    ),
    # turns
    "unknown_role": (
        "error",
        (
            "use user, assistant, system or tool; map a known speaker with "
            "--role NAME=user|assistant|system|tool"
        ),
    ),
    "role_alias": (
        "fix",
        ("nothing to do: known names of speakers are written as user, assistant, system, tool"),
    ),
    "missing_role": ("error", "give every turn a role (or from) and a content (or value)"),
    "null_messages": (
        "error",
        ("remove the record or fill its turns; leave such lines out with --skip-bad-lines"),
    ),
    "null_content": ("error", "write the text of the turn; null is legal only beside tool_calls"),
    "null_content_with_tool_calls": (
        "keep",
        ("nothing to do: the content is written as an empty text"),
    ),
    "empty_response": ("drop", "write the answer, or leave the record out"),
    "empty_prompt": (
        "warn",
        ("where all prompts are empty the set is plain text; else such records are left out"),
    ),
    "empty_text": ("drop", "remove the empty record"),
    "no_assistant_turn": (
        "drop",
        ("add an answer: without one there is nothing to learn from the record"),
    ),
    "trailing_user_turn": ("fix", "nothing to do: turns after the last answer are left out"),
    "roles_not_alternating": (
        "warn_or_fix",
        (
            "join neighbouring turns of one speaker with --fix; "
            "the templates of "
            "Gemma and Mistral refuse them"
        ),
    ),
    "system_not_first": ("warn_or_fix", "put the system turn first; --fix moves it"),
    "scalar_not_text": ("fix", "nothing to do: numbers and truth values are written as text"),
    "structure_not_text": ("error", "text belongs here, not a list or an object"),
    "stringified_structure": ("fix", "nothing to do: the text is read as the JSON it holds"),
    "text_parts": ("fix", "nothing to do: a list of text parts is joined to one text"),
    "too_short": (
        "warn",
        ("answers this short teach little; leave them out with prepare --min-response-chars"),
    ),
    # tools
    "tool_args_mixed_types": (
        "fix",
        ("nothing to do: arguments are written as a JSON text in every row"),
    ),
    "tool_args_invalid": ("error", "arguments must be JSON, or a text that holds JSON"),
    "tool_call_invalid": ("error", "a tool call needs function.name and function.arguments"),
    "tool_without_call": (
        "warn",
        ("a tool's answer needs an assistant turn with tool_calls before it"),
    ),
    "legacy_function_call": ("fix", "nothing to do: function_call is written as tool_calls"),
    "tools_invalid": (
        "error",
        ("tools must be a list of JSON schemas of functions, or a text that holds one"),
    ),
    # characters
    "lone_surrogate": (
        "error",
        ("half of a character pair cannot be written as UTF-8: mend the export"),
    ),
    "replacement_character": (
        "warn",
        ("the text was decoded wrongly before: export it again as UTF-8"),
    ),
    "mojibake": ("warn", "UTF-8 was read as another encoding before: export it again"),
    "control_character": ("warn_or_fix", "remove NUL and control characters with --fix"),
    # lengths and templates
    "prompt_exceeds_sequence_len": (
        "warn",
        (
            "raise training.sequence_len, shorten the prompt, or "
            "leave the record "
            "out: nothing of the answer would be trained"
        ),
    ),
    "exceeds_sequence_len": (
        "warn",
        (
            "raise training.sequence_len, or choose what happens to long "
            "records with "
            "--long drop|truncate"
        ),
    ),
    "no_chat_template": (
        "error",
        ("set chat_template: chatml, or name a model whose tokenizer has a template"),
    ),
    "chat_template_unverified": (
        "warn",
        ("give the tokenizer's folder with --tokenizer to check its template now"),
    ),
    "chat_template_fails": (
        "error",
        ("the template refuses this kind of record: choose another with --chat-template"),
    ),
    "template_needs_alternation": (
        "error",
        ("this template wants user and assistant in turn: join turns with --fix"),
    ),
    # the set as a whole
    "too_many_dropped": (
        "error",
        ("most of the set is left out: look at the findings above before paying for it"),
    ),
    "nothing_left": ("error", "no record is left to train on"),
    "no_validation": (
        "warn",
        (
            "all records hang together by equal prompts, groups or near copies: "
            "give a validation file of your own"
        ),
    ),
    "split_leak": (
        "error",
        ("remove the validation records that stand in the training set, or let prepare split"),
    ),
    "exact_duplicate": ("warn", "prepare leaves them out"),
    # personal data
    "personal_data": (
        "warn",
        ("mask with prepare --mask, or say --pii-reviewed where the data may leave"),
    ),
    "secret": ("warn", "revoke the key, then mask with prepare --mask: adapters memorise keys"),
}


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing found at one place. Lines and columns count from 1; 0 = the file as a whole."""

    file: str
    line: int
    code: str
    severity: Severity
    message: str
    remedy: str
    column: int = 0

    def as_dict(self) -> dict[str, Any]:
        """Return the finding in the shape of the --json output."""
        return asdict(self)


def finding(file: str, line: int, code: str, message: str, column: int = 0) -> Finding:
    """Return a finding with the severity and remedy of its code."""
    severity, remedy = CODES[code]
    return Finding(file, line, code, severity, message, remedy, column)

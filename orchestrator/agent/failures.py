"""Why a training failed, from the text it left: one table, most telling words first.

Reasons are plain strings here, because this file runs on the instance; a test holds that each is a
`Reason` of the orchestrator. Numbers in comments are issues of axolotl-ai-cloud/axolotl.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from orchestrator.agent.logs import Caught, LogFacts, clean

# Printed by a launcher about its child: the child's own exception, above it, is the cause.
CONSEQUENCES = re.compile(
    r"^\S*(CalledProcessError|ChildFailedError|SystemExit|KeyboardInterrupt|BrokenPipeError"
    r"|EOFError|DistBackendError|BrokenProcessPool)\b"
    r"|NCCL communicator was aborted|remote process exited or there was a network error"
)
KILLED_CHILD = re.compile(
    r"died with <Signals\.SIG(\w+): (\d+)>|Signal (\d+) \(SIG(\w+)\) received"
)


class Rule(NamedTuple):
    """If the text matches (and the frames do, where asked), this is the reason.

    anywhere: so telling that it counts outside a traceback too, where there is none.
    warned: it is printed as a warning first, and what fails later may not name it.
    """

    reason: str
    words: str
    frames: str = ""
    anywhere: bool = False
    warned: bool = False

    def find(self, text: str) -> re.Match[str] | None:
        """Return where the words stand; compiled on first use, for most commands need none."""
        return re.compile(self.words, re.MULTILINE).search(text)


DATA_CODE = r"prompt_tokenizers|prompt_strategies|arrow_dataset|prompters\.py|utils/data/|jinja2"
RESUMING = r"_load_from_checkpoint|resume_from_checkpoint|_load_optimizer|_load_rng_state"

RULES: tuple[Rule, ...] = (
    # 1, 2: #1717 #1813 #1596
    Rule(
        "OUT_OF_MEMORY",
        r"(CUDA|HIP|MPS backend) out of memory|CUBLAS_STATUS_ALLOC_FAILED"
        r"|CUDA error: out of memory|OutOfMemoryError",
        anywhere=True,
    ),
    # 19: #3069. Torch's shared memory is /dev/shm: "no space left" there is a want of memory.
    Rule(
        "HOST_OUT_OF_MEMORY",
        r"unable to (write to|open|mmap|allocate) (shared memory|file </torch_)"
        r"|out of shared memory|is killed by signal: (Killed|Bus error)"
        r"|DefaultCPUAllocator: (can't|not enough)|\[Errno 12\]|Cannot allocate memory|^MemoryError"
        r"|abruptly died during map|tokenization worker died unexpectedly",
        anywhere=True,
    ),
    # 21: PR #2177
    Rule(
        "DISK_FULL",
        r"No space left on device|\[Errno 28\]|Disk quota exceeded|\[Errno 122\]"
        r"|Not enough free disk space|PytorchStreamWriter failed",
        anywhere=True,
    ),
    # 8: #967 #592
    Rule(
        "NCCL_TIMEOUT",
        r"Watchdog caught collective operation timeout|NCCL watchdog.*(timeout|timed out)",
        anywhere=True,
    ),
    # 3, 4, 5: #3142 #3005 #1588 #1157 #641 #2652 #3630 #2525
    Rule(
        "KERNEL_MISMATCH",
        r"undefined symbol|ptxas fatal|PTXASError|no kernel image is available"
        r"|Torch not compiled with CUDA|FlashAttention only supports Ampere"
        r"|FlashAttention.*cannot be used|No module named 'flash_attn"
        r"|Failed (building wheel for|to build) flash[-_]attn",
        anywhere=True,
    ),
    # 7: #1280 #1571
    Rule(
        "BITSANDBYTES_SETUP",
        r"CUDA Setup failed despite (GPU|CUDA) being available|Configured \w+ binary not found at"
        r"|bitsandbytes library load error|libbitsandbytes\w*\.so: cannot open",
        anywhere=True,
        warned=True,
    ),
    Rule(
        "DRIVER_MISMATCH",
        r"NVIDIA driver on your system is too old|CUDA driver version is insufficient"
        r"|Found no NVIDIA driver|No CUDA GPUs are available|Driver/library version mismatch"
        r"|unsupported display driver|forward compatibility was attempted|CUDA unknown error",
        anywhere=True,
        warned=True,
    ),
    # 6: #1924, PR #766
    Rule(
        "BF16_UNSUPPORTED",
        r"bf16 requested, but AMP is not supported|setup doesn't support bf16",
        anywhere=True,
        warned=True,
    ),
    Rule(
        "GPU_FAULT",
        r"CUDA error: (an illegal memory access|uncorrectable ECC|unspecified launch failure"
        r"|misaligned address|hardware stack error|unknown error)|fallen off the bus"
        r"|CUBLAS_STATUS_(NOT_INITIALIZED|EXECUTION_FAILED|INTERNAL_ERROR)"
        r"|CUDNN_STATUS_(EXECUTION_FAILED|INTERNAL_ERROR)|unhandled (cuda|system) error",
        anywhere=True,
    ),
    # 9: #999 #1644, PR #1638
    Rule("EVAL_SPLIT_TOO_SMALL", r"eval dataset split is too small"),
    # 10: #1212 #836, PR #3100
    Rule("NO_STEPS", r"^ZeroDivisionError|got num_samples=0|trainer.*dataset is empty"),
    # 14, 15: #2634 #1631 #554
    Rule("CHECKPOINT_BROKEN", r"Weights only load failed|checkpoint-\d+.*(No such|not found)"),
    Rule("CHECKPOINT_BROKEN", r"No such file.*checkpoint-\d+|valid checkpoint|checkpoint.*corrupt"),
    Rule(
        "CHECKPOINT_BROKEN",
        r"SafetensorError|UnpicklingError|PytorchStreamReader|size mismatch for",
        frames=RESUMING,
    ),
    # 11: #1649 #1683; the rest read in axolotl 0.21.0
    Rule(
        "DATA_FORMAT",
        r"unhandled prompt tokenization strategy|`?type: sharegpt|no samples left after dropping"
        r"|Tokenization produced no rows|tokenize_prompt returned inconsistent keys"
        r"|exceeds the maximum \d+|Sample exceeds configured sequence_len"
        r"|Conversation roles must alternate|^jinja2\.|no \w+ split found for dataset",
    ),
    Rule("DATA_MISSING", r"dataset could not be loaded|DatasetNotFoundError|DataFilesNotFound"),
    Rule("DATA_MISSING", r"Unhandled dataset load|Cloud path .* is neither"),
    Rule("DATA_FORMAT", r"DatasetGenerationError|DatasetGenerationCastError|CastError"),
    Rule("DATA_FORMAT", r"JSON parse error|ArrowInvalid|JSONDecodeError", frames=r"/datasets/"),
    Rule("DATA_FORMAT", r"^(KeyError|TypeError|IndexError|AttributeError)", frames=DATA_CODE),
    # 12: #740
    Rule(
        "BATCH_SHAPE",
        r"stack expects each tensor to be equal size|expected sequence of length \d+ at dim"
        r"|Unable to create tensor, you should probably activate truncation",
    ),
    # 20: #1153. A repository that does not exist answers 401 too, and says so.
    Rule("MODEL_GATED", r"GatedRepoError|(Cannot|to) access (a )?gated repo|Access to model .* is"),
    Rule(
        "MODEL_MISSING",
        r"HFValidationError|Repo id must be|not a valid model identifier|RepositoryNotFound"
        r"|Repository Not Found|RevisionNotFound|does not appear to have a file named"
        r"|Unrecognized model in|no file named (model|pytorch_model|config)|EntryNotFoundError: 4",
    ),
    Rule("MODEL_MISSING", r"SafetensorError", frames=r"from_pretrained|load_state_dict"),
    Rule("MODEL_GATED", r"(401|403) (Client Error|Unauthorized|Forbidden)"),
    Rule(
        "HUB_UNREACHABLE",
        r"couldn't connect to 'https?:|LocalEntryNotFound|OfflineModeIsEnabled|NameResolution"
        r"|Temporary failure in name resolution|(Connect|Read)Timeout|ConnectError"
        r"|Max retries exceeded|ConnectionError|(429|50[0234]) (Client|Server) Error",
    ),
    Rule("CONFIG_REFUSED", r"validation errors? for Axolotl|^yaml\.|ScannerError|ParserError"),
    Rule("CONFIG_REFUSED", r"^(ValueError|TypeError)", frames=r"axolotl/(cli/config|utils/config)"),
)


class Failure(NamedTuple):
    """A reason and the one line that shows it."""

    reason: str
    evidence: str


def classify(log: LogFacts, rc: int | None, out_of_memory_kill: bool) -> Failure:
    """Return why a trainer that did not end well did so. Pure.

    The last exception that is not a launcher's own decides, first by itself, then with those it
    was raised from. A signal, or words outside any traceback, decide where no exception does.
    """
    signum = signal_of(log, rc)
    if signum == 9:
        if out_of_memory_kill:
            return Failure("HOST_OUT_OF_MEMORY", "signal 9: the kernel ended it for want of memory")
        return Failure("TRAINER_KILLED", "signal 9 (SIGKILL) from outside. " + log.last_line)
    chain = deciding_chain(log.exceptions)
    for texts in (chain[-1:], list(reversed(chain))):
        for rule in RULES:
            for caught in texts:
                if rule.find(caught.text) and re.search(rule.frames, caught.frames):
                    return Failure(rule.reason, telling_line(caught.text, rule))
    for rule in RULES:
        counts = rule.anywhere if signum or not chain else rule.warned
        if counts and rule.find(log.tail):
            return Failure(rule.reason, telling_line(log.tail, rule))
    if signum:
        return Failure("TRAINER_KILLED", "signal %d. %s" % (signum, log.last_line))
    last = clean(chain[-1].text.split("\n")[0]) if chain else log.last_line
    return Failure("TRAINER_FAILED", last)


def signal_of(log: LogFacts, rc: int | None) -> int:
    """Return the signal that ended the trainer or a launcher's child, 0 if none did."""
    if rc is not None and rc < 0:
        return -rc
    if rc in (134, 135, 137, 139, 143):  # 128 + n, as shells say it
        return rc - 128
    for caught in log.exceptions[-3:]:
        found = KILLED_CHILD.search(caught.text)
        if found and CONSEQUENCES.search(caught.text):
            return int(found.group(2) or found.group(3))
    return 0


def deciding_chain(exceptions: list[Caught]) -> list[Caught]:
    """Return the last exception that is no launcher's, preceded by those it was raised from."""
    last = len(exceptions) - 1
    while last >= 0 and CONSEQUENCES.search(exceptions[last].text):
        last -= 1
    first = last
    while first > 0 and exceptions[first].chained:
        first -= 1
    return exceptions[max(0, first) : last + 1]


def telling_line(text: str, rule: Rule) -> str:
    """Return the line of `text` that the rule's words stand in; of a refused config all of them."""
    if rule.reason == "CONFIG_REFUSED":
        return clean(" ".join(text.split("\n")[:6]))
    found = rule.find(text)
    if found is None:
        return ""
    start = max(text.rfind("\n", 0, found.start()), text.rfind("\r", 0, found.start())) + 1
    ends = [end for end in (text.find("\n", found.end()), text.find("\r", found.end())) if end >= 0]
    line = text[start : min(ends)] if ends else text[start:]
    if len(line) > 2000:  # keep the words, wherever in a huge line they are
        line = text[max(start, found.start() - 100) : found.end() + 300]
    return clean(line)

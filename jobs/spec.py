"""JobSpec: what one `job.yaml` says, checked for type and range. File system facts are load.py's.

Every default is a practitioner's first choice; docs/job-file.md gives the reason for each, and
tests/unit/test_spec.py holds the two together.
"""

from __future__ import annotations

import re
from enum import StrEnum
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator, model_validator

from jobs import spec_types
from jobs.spec_types import Count, Epochs, Gpus, HeldBack, Minutes, Modules, Names, Real, Usd, Whole
from jobs.targets import BadTarget, Bucket, is_target, target

# What differs between the methods. Adapters start from zero and bear ten times the learning rate; a
# full fine-tune holds an optimizer state for every weight, so it takes the 8-bit, paged one.
METHOD_DEFAULTS: dict[str, dict[str, Any]] = {
    "qlora": {},
    "lora": {},
    "full": {"learning_rate": 2e-5, "optimizer": "paged_adamw_8bit"},
}
DEFAULT_EPOCHS = 3.0
HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]{0,95}(/[A-Za-z0-9][\w.-]{0,95})?")


class Method(StrEnum):
    """What is trained: a low-rank adapter over a 4-bit base, over a 16-bit base, or all weights."""

    QLORA = "qlora"
    LORA = "lora"
    FULL = "full"


class DataFormat(StrEnum):
    """The shape of one record; the columns it needs stand in FORMAT_COLUMNS."""

    ALPACA = "alpaca"
    CHAT = "chat"
    SHAREGPT = "sharegpt"
    PROMPT_COMPLETION = "prompt-completion"
    COMPLETION = "completion"
    SEGMENTS = "segments"


# Columns of a record by format; `?` marks one that may be missing.
FORMAT_COLUMNS: dict[DataFormat, tuple[str, ...]] = {
    DataFormat.ALPACA: ("instruction", "input?", "output"),
    DataFormat.CHAT: ("messages",),
    DataFormat.SHAREGPT: ("conversations",),
    DataFormat.PROMPT_COMPLETION: ("prompt", "completion"),
    DataFormat.COMPLETION: ("text",),
    DataFormat.SEGMENTS: ("segments",),
}
# Names inside a turn of a conversation, which `columns` may also change.
TURN_COLUMNS: dict[DataFormat, tuple[str, ...]] = {
    DataFormat.CHAT: ("role", "content"),
    DataFormat.SHAREGPT: ("from", "value"),
}


STRICT = ConfigDict(
    extra="forbid",
    frozen=True,
    allow_inf_nan=False,
    str_strip_whitespace=True,
    protected_namespaces=(),
)


class Data(BaseModel):
    """The records to learn from, and those held back to measure."""

    model_config = STRICT

    train: Path | None = Field(
        None, description="File of training records: .jsonl, .json, .csv, .parquet or .txt."
    )
    format: DataFormat | None = Field(None, description="Shape of one record of data.train.")
    columns: dict[str, str] = Field(
        default_factory=dict,
        description="Other column names, as {the format's name: the name in your file}.",
    )
    validation: HeldBack = Field(
        default=0.05,
        description="Part of the training records held back (0 to 0.5), or a file of its own.",
    )
    train_on_inputs: bool = Field(
        default=False, description="Learn the prompt's tokens too, not only the answer's."
    )
    deduplicate: Literal["none", "exact", "near"] = Field(
        "exact", description="Which copies of a record the data gate leaves out."
    )
    group: str | None = Field(
        None, min_length=1, description="Column whose equal values are never split apart."
    )
    mask: bool = Field(
        default=False, description="Replace personal data and keys by placeholders before sending."
    )
    region: str | None = Field(
        None, min_length=2, max_length=20, description="Where the data may be: EU, US, TR, ..."
    )

    @field_validator("columns")
    @classmethod
    def _columns_of_the_format(cls, value: dict[str, str], info: ValidationInfo) -> dict[str, str]:
        form = info.data.get("format")
        if not value or form is None:
            return value
        if form is DataFormat.SEGMENTS:
            raise ValueError("the columns of format segments have fixed names")
        known = [name.rstrip("?") for name in (*FORMAT_COLUMNS[form], *TURN_COLUMNS.get(form, ()))]
        for name in value:
            if name not in known:
                raise ValueError(f"format {form} has no column {name}; it has {', '.join(known)}")
        return value


class Training(BaseModel):
    """How to train. After loading these values are the effective ones, `axolotl:` included."""

    model_config = STRICT

    epochs: Epochs | None = Field(
        None,
        description="Passes over the training records; 3 unless max_steps is given.",
    )
    max_steps: Count | None = Field(None, description="Optimizer steps, instead of epochs.")
    sequence_len: Whole = Field(
        2048, ge=16, le=1_048_576, description="Longest sequence, in tokens."
    )
    micro_batch_size: Whole = Field(
        2, ge=1, le=4096, description="Sequences in one forward pass of one GPU."
    )
    gradient_accumulation_steps: Whole = Field(
        4, ge=1, le=65536, description="Forward passes to one optimizer step."
    )
    learning_rate: Real = Field(
        2e-4, gt=0, le=1, description="Peak learning rate; 2e-5 where method is full."
    )
    optimizer: str = Field(
        "adamw_torch_fused",
        min_length=1,
        description="Optimizer by Axolotl's name; paged_adamw_8bit where method is full.",
    )
    lr_scheduler: str = Field(
        "cosine", min_length=1, description="Shape of the learning rate over time."
    )
    warmup_ratio: Real = Field(
        0.03, ge=0, le=0.99, description="Part of the steps in which the learning rate rises."
    )
    weight_decay: Real = Field(0.0, ge=0, le=1, description="Pull of the weights towards zero.")
    max_grad_norm: Real = Field(
        1.0, ge=0, le=1e6, description="Longer gradients are cut to this length; 0 leaves them."
    )
    lora_r: Whole = Field(16, ge=1, le=4096, description="Rank of the adapter.")
    lora_alpha: Whole = Field(
        32, ge=1, le=65536, description="Scale of the adapter; its effect is lora_alpha / lora_r."
    )
    lora_dropout: Real = Field(0.0, ge=0, le=0.99, description="Dropout before the adapter.")
    lora_targets: Modules = Field(
        default="all-linear",
        description="Modules that get an adapter: all-linear, or a list of names.",
    )
    gradient_checkpointing: bool = Field(
        default=True,
        description="Recompute activations in the backward pass instead of keeping them.",
    )
    packing: bool = Field(
        default=True,
        description="Fill each sequence with several examples, kept apart by attention.",
    )
    eval_every_steps: Count | None = Field(
        None, description="Steps between evaluations; without it ten over the run."
    )
    plugins: Names = Field(
        (), description="Axolotl's own plugins to switch on, by short name: liger, ..."
    )
    seed: Whole = Field(42, ge=0, le=2**32 - 1, description="Seed of all random choices.")

    @model_validator(mode="before")
    @classmethod
    def _one_length(cls, data: Any) -> Any:
        if isinstance(data, dict) and data.get("epochs") is None and data.get("max_steps") is None:
            return {**data, "epochs": DEFAULT_EPOCHS}
        return data

    @model_validator(mode="after")
    def _not_two_lengths(self) -> Training:
        if self.epochs is not None and self.max_steps is not None:
            raise ValueError("epochs and max_steps: give one of the two")
        return self


class Axolotl(BaseModel):
    """Axolotl's own keys. In the file they stand directly under `axolotl:`, beside `config`."""

    model_config = STRICT

    config: Path | None = Field(None, description="Your own Axolotl file; the base of the run.")
    base: dict[str, Any] = Field(
        default_factory=dict, description="What `config` says, read when the job was loaded."
    )
    keys: dict[str, Any] = Field(
        default_factory=dict, description="Keys given in the job file; they win."
    )

    @model_validator(mode="before")
    @classmethod
    def _gather(cls, data: Any) -> Any:
        """Take the file's flat shape, or the one that `model_dump` gives back."""
        if not isinstance(data, dict) or isinstance(data.get("keys"), dict):
            return data
        flat = {key: value for key, value in data.items() if key not in ("config", "base")}
        return {"config": data.get("config"), "base": data.get("base") or {}, "keys": flat}


class Gpu(BaseModel):
    """What to rent. Empty lists leave the choice to gpujob: the cheapest that finishes the job."""

    model_config = STRICT

    providers: Names = Field((), description="Where to look; all that are set up.")
    types: Names = Field((), description="GPU names allowed; any that fits.")
    count: Gpus | None = Field(
        None, description="GPUs in the one machine; without it as many as it takes."
    )
    max_price_usd_per_hour: Usd | None = Field(
        None, description="Dearest machine allowed, USD per hour for the whole machine."
    )
    tier: Literal["secure", "community", "any"] = Field(
        "secure", description="Who runs the host: a data centre, a private person, or either."
    )
    spot: bool = Field(
        default=False, description="Take machines that may be called back at any moment."
    )
    prefer: Literal["cost", "time", "balanced"] = Field(
        "cost", description="What to rank by: cost to finish, hours to finish, or their product."
    )
    image: str | None = Field(
        None, min_length=1, description="Container image to start, instead of the provider's usual."
    )
    template: str | None = Field(
        None, min_length=1, description="RunPod: the id of a template with image and settings."
    )


class Limits(BaseModel):
    """When to stop whatever happens. Times are numbers in the unit of the key's name."""

    model_config = STRICT

    budget_usd: Usd | None = Field(
        None, description="Most money for the job, all attempts together."
    )
    hours: Real = Field(
        24.0, gt=0, le=24 * 30, description="Longest life of one machine, in hours."
    )
    idle_minutes: Minutes = Field(
        30.0, description="The run is ended after so long in which nothing at all was done."
    )
    stall_minutes: Minutes = Field(
        30.0, description="The run is ended after so long without a step or a line of the log."
    )
    boot_minutes: Minutes | None = Field(
        None,
        description="Longest wait for a first SSH login; else the provider's own figure.",
    )
    lease_minutes: Minutes | None = Field(
        None,
        description="RunPod: the machine ends itself when gpujob was not heard for so long.",
    )


class Checkpoints(BaseModel):
    """What is saved on the way, to go on from after an interruption."""

    model_config = STRICT

    every_steps: Count | None = Field(
        None, description="Steps between checkpoints; without it ten over the run."
    )
    keep: Whole = Field(
        2, ge=1, le=100, description="Newest checkpoints kept, on the machine and at home."
    )
    bring_home: bool | None = Field(
        None,
        description="Bring each checkpoint home while it trains, so that another machine can go "
        "on from it; by default for adapters, whose checkpoints are small.",
    )
    target: str | None = Field(
        None,
        description="s3://bucket/prefix to which the machine itself sends each checkpoint while "
        "it trains, instead of home; it gets no key for it.",
    )
    upload_mb_per_s: spec_types.MbPerS | None = Field(
        50.0, description="Fastest upload of a checkpoint to target, MB/s."
    )

    @field_validator("target")
    @classmethod
    def _a_bucket(cls, value: str | None) -> str | None:
        if value is None:
            return None
        try:
            place = target(value)
        except BadTarget as bad:
            raise ValueError(f"{bad}. {bad.remedy}") from bad
        if not isinstance(place, Bucket):
            said = f"{value}: checkpoints go to s3://bucket/prefix, or home"
            raise ValueError(said)  # noqa: TRY004 - its form is wrong, not its type
        return str(place)

    @model_validator(mode="after")
    def _one_place(self) -> Checkpoints:
        if self.target is not None and self.bring_home:
            raise ValueError("target and bring_home: give one of the two")
        return self

    def kept(self, method: Method) -> int:
        """Return how many checkpoints are kept off the machine, at `target` or at home; 0: none."""
        if self.target is not None:
            return self.keep
        wanted = method is not Method.FULL if self.bring_home is None else self.bring_home
        return self.keep if wanted else 0


class JobSpec(BaseModel):
    """One job. From `load_job` its paths are absolute and known to exist; `output` may not yet."""

    model_config = STRICT

    name: str = Field(
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$",
        description="Name of the job: letters, digits, dot, dash and underscore.",
    )
    model: str = Field(
        min_length=1, description="Base model: a Hugging Face id (owner/name), or a folder."
    )
    gated: bool = Field(
        default=False,
        description="The base model is gated: the trainer gets your token (GPUJOB_MODEL_TOKEN, "
        "else HF_TOKEN). One that may only read that model is enough.",
    )
    method: Method = Field(description="qlora, lora or full.")
    data: Data = Field(default_factory=Data, description="What to learn from.")
    training: Training = Field(default_factory=Training, description="How to train.")
    axolotl: Axolotl = Field(
        default_factory=Axolotl, description="Any key of Axolotl; wins over what gpujob derives."
    )
    gpu: Gpu = Field(default_factory=Gpu, description="What to rent.")
    limits: Limits = Field(default_factory=Limits, description="When to stop.")
    checkpoints: Checkpoints = Field(default_factory=Checkpoints, description="What to save.")
    on_oom: Literal["fail", "adapt"] = Field(
        "fail", description="When the GPU's memory runs out: end, or try once more with less."
    )
    output: Names = Field(
        ("out",),
        min_length=1,
        description="Where the result goes: a folder, s3://bucket/prefix, hf://user/repo, or "
        "a list of them. It comes to the first folder (out) in any case.",
    )

    @model_validator(mode="before")
    @classmethod
    def _defaults_of_the_method(cls, data: Any) -> Any:
        if not isinstance(data, dict) or isinstance(data.get("training"), Training):
            return data
        extra = METHOD_DEFAULTS.get(str(data.get("method")), {})
        training = data.get("training")
        if training is None:
            training = {}
        if not extra or not isinstance(training, dict):
            return data
        return {**data, "training": {**extra, **training}}

    @property
    def output_folder(self) -> Path:
        """The folder on this machine to which the result comes first."""
        return Path(next((place for place in self.output if not is_target(place)), "out"))

    @property
    def pushes(self) -> tuple[str, ...]:
        """The other places, to which it is pushed from there."""
        home = str(self.output_folder)
        return tuple(place for place in self.output if place != home)

    @property
    def model_folder(self) -> Path | None:
        """The base model's folder on this machine; None where `model` is an id of the hub."""
        return Path(self.model) if self.model.startswith("/") else None

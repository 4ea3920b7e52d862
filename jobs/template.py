"""The job file that `gpujob init` writes: what must be said, and the rest commented out.

Every commented key stands at its default or at a sensible example; tests/unit/test_template.py
uncomments each in turn and loads the file.
"""

from __future__ import annotations

TEMPLATE = """\
# A job for gpujob: what to train, on what, and when to stop. All keys: docs/job-file.md.
# Check it without renting anything: gpujob submit {file} --dry-run

name: {name}
model: {model}          # an id of Hugging Face, or a folder
method: qlora                    # qlora | lora | full

data:
  train: {data}             # .jsonl, .json, .csv, .parquet or .txt
  format: chat                   # or sharegpt, alpaca, prompt-completion, completion, segments
  # columns: {{messages: conversation}}   # where your file names its columns otherwise
  # validation: 0.05             # part held back, or a file of its own; 0 for none
  # train_on_inputs: false       # true: learn the prompts too

training:
  epochs: 3                      # or max_steps: 500
  sequence_len: 2048             # longer records are left out
  # micro_batch_size: 2
  # gradient_accumulation_steps: 4
  # learning_rate: 2e-4          # 2e-5 where method is full
  # optimizer: adamw_torch_fused # paged_adamw_8bit where method is full
  # lr_scheduler: cosine
  # warmup_ratio: 0.03
  # weight_decay: 0.0
  # max_grad_norm: 1.0
  # lora_r: 16
  # lora_alpha: 32
  # lora_dropout: 0.0
  # lora_targets: all-linear     # or a list like [q_proj, v_proj]
  # gradient_checkpointing: true
  # packing: true                # false where the records are few
  # eval_every_steps: 100        # ten times over the run
  # plugins: [liger]             # liger | cut_cross_entropy | spectrum | grokfast | densemixer
  # seed: 42

# axolotl:                       # any key of Axolotl 0.21.0; wins over what gpujob derives
  # neftune_noise_alpha: 5
  # config: my.yml               # or a whole file of your own

# gpu:
  # providers: [local]           # all that are set up
  # types: [RTX 4090, L4]        # any that fits
  # count: 1                     # as many as it takes
  # prefer: cost                 # cost | time | balanced
  # max_price_usd_per_hour: 1.50 # for the whole machine
  # tier: secure                 # secure | community | any
  # spot: false                  # cheaper, and may be called back at any moment
  # image: me/axolotl:0.21.0    # a container image with Axolotl

limits:
  budget_usd: 5                  # the job is shut down when this is spent
  hours: 8                       # the longest life of a machine
  # idle_minutes: 30             # ended when nothing was done for so long
  # stall_minutes: 30            # or when no step and no line of the log came
  # boot_minutes: 15
  # lease_minutes: 30            # RunPod: the machine dies with the gpujob that drives it

# checkpoints:
  # every_steps: 200             # ten times over the run
  # keep: 2

# on_oom: adapt                 # when the GPU's memory runs out: fail | adapt
output: out                      # or a list: a folder, s3://bucket/prefix, hf://user/repo
"""


def job_template(
    *,
    file: str = "job.yaml",
    name: str = "my-job",
    model: str = "Qwen/Qwen3-8B",
    data: str = "train.jsonl",
) -> str:
    """Return the text of a job file to start from. `data` need not exist yet."""
    return TEMPLATE.format(file=file, name=name, model=model, data=data)

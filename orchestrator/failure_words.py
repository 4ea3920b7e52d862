"""What a training's failure means, in words for the person who submitted it: cause and next step.

The table covers the reasons that the agent can give; those of the machine and of gpujob itself
stand with the rest of the endings. The evidence, one line of the log, is shown beside the words, so
they need not repeat it. docs/failures.md lists what each is recognised by.
"""

from __future__ import annotations

from orchestrator.states import Reason

FAILURE_WORDS: dict[Reason, tuple[str, str]] = {
    Reason.OUT_OF_MEMORY: (
        "the GPU's memory was too small for this training",
        "set micro_batch_size: 1, a shorter sequence_len or method: qlora; or a larger GPU",
    ),
    Reason.HOST_OUT_OF_MEMORY: (
        "the machine's own memory, not the GPU's, was too small",
        "take a machine with more RAM, or set axolotl.dataset_num_proc: 1",
    ),
    Reason.DISK_FULL: (
        "the machine's disk was full",
        "keep fewer checkpoints, or ask for a larger disk",
    ),
    Reason.GPU_FAULT: (
        "the GPU or its driver failed under the training",
        "submit again; if it fails at the same step, set axolotl.attn_implementation: sdpa",
    ),
    Reason.DRIVER_MISMATCH: (
        "the machine's NVIDIA driver does not serve the image's CUDA, or no GPU is visible",
        "submit again on another offer, or choose an image for an older CUDA",
    ),
    Reason.KERNEL_MISMATCH: (
        "a compiled kernel does not fit this GPU or this torch",
        "set axolotl.attn_implementation: sdpa; without a GPU all three lora_*_kernel: false",
    ),
    Reason.BF16_UNSUPPORTED: (
        "bf16 was asked for, and this GPU can't do it (it is older than Ampere) or is not visible",
        "leave axolotl.bf16 at auto, or set bf16: false and fp16: true, or take a newer GPU",
    ),
    Reason.BITSANDBYTES_SETUP: (
        "bitsandbytes found no build for this machine's CUDA",
        "unset BNB_CUDA_VERSION if you set it, or submit again on another offer",
    ),
    Reason.NCCL_TIMEOUT: (
        "the GPUs stopped hearing from each other",
        "use one GPU, or set NCCL_P2P_DISABLE=1, or submit again on another machine",
    ),
    Reason.EVAL_SPLIT_TOO_SMALL: (
        "the validation set is too small to be packed",
        "set axolotl.eval_sample_packing: false, or give more validation data",
    ),
    Reason.NO_STEPS: (
        "the data make less than one training step",
        "set training.packing: false, lower gradient_accumulation_steps, or give more data",
    ),
    Reason.DATA_FORMAT: (
        "the data are not in the format that the job names, or nothing in them is to be learnt",
        "compare data.format with the columns and roles that the file really has",
    ),
    Reason.DATA_MISSING: (
        "a data file or data set could not be found",
        "check data.train and data.validation; a data set of the hub must exist and be public",
    ),
    Reason.MODEL_MISSING: (
        "there is no such model, or its files are incomplete",
        "check model: a hub id like org/name, or a folder with config.json and safetensors",
    ),
    Reason.MODEL_GATED: (
        "the model is gated, and the access was refused",
        "accept its licence with the account of your token; set `gated: true` and the token",
    ),
    Reason.HUB_UNREACHABLE: (
        "the hub could not be reached from the machine",
        "submit again; if it persists, name the model by a local folder",
    ),
    Reason.BATCH_SHAPE: (
        "examples of different lengths met in one batch without padding",
        "set axolotl.pad_to_sequence_len: true, or training.packing: false",
    ),
    Reason.DIVERGED: (
        "the training diverged: its numbers became NaN or infinite, and the weights with them",
        "lower training.learning_rate (try a tenth) and set axolotl.max_grad_norm: 1.0",
    ),
    Reason.NOTHING_LEARNED: (
        "loss and gradient were 0 throughout: no token was there to be learnt from",
        "check that the data have answers and that sequence_len does not cut them off",
    ),
    Reason.CHECKPOINT_BROKEN: (
        "the checkpoint to resume from is incomplete",
        "delete the newest checkpoint; the training then resumes from the one before",
    ),
    Reason.CONFIG_REFUSED: (
        "Axolotl refused the configuration",
        "correct the key named in the evidence; it comes from the `axolotl` section",
    ),
    Reason.INCOMPLETE: (
        "the trainer ended without an error and without a finished training",
        "read the end of the log; submit again to train from the start",
    ),
    Reason.TRAINER_KILLED: (
        "the trainer was killed by a signal that gpujob did not send",
        "submit again; if it happens twice, take a machine with more RAM",
    ),
    Reason.TRAINER_FAILED: (
        "the trainer failed in a way that gpujob does not know",
        "read the end of the log: `gpujob logs`",
    ),
}

"""The real Axolotl as a judge, run by the Python of its own environment: one process for all cases.

    PYTHON axolotl_judge.py CASES.json VERDICTS.json

CASES.json: [{"name", "config": path of a YAML file, "cwd", "stack": "cpu"|"cuda", "until": stage}].
Stages, as `axolotl train` goes through them: config (validated and normalised), data (tokenised),
trainer (model loaded, adapter and trainer made). Verdict: {"name", "passed": last stage, "error"}.
"""

import gc
import json
import os
import sys
import time
from pathlib import Path

STAGES = ("config", "data", "trainer")
# What a rented A100 says of itself; only the config stage sees it.
GPU = {"bf16": True, "fp8": False, "tf32": True, "n_gpu": 1, "compute_capability": "sm_80"}


def judge(case):
    import yaml
    from axolotl.cli.config import gpu_capabilities, plugin_set_cfg, prepare_plugins
    from axolotl.common.datasets import load_datasets
    from axolotl.train import setup_model_and_trainer
    from axolotl.utils.config import normalize_cfg_datasets, normalize_config, validate_config
    from axolotl.utils.dict import DictDefault
    from axolotl.utils.trainer import prepare_optim_env

    passed = None
    os.chdir(case["cwd"])
    try:
        cfg = DictDefault(yaml.safe_load(Path(case["config"]).read_text(encoding="utf-8")))
        cfg.axolotl_config_path = case["config"]
        prepare_plugins(cfg)
        capabilities, environment = gpu_capabilities()
        if case["stack"] == "cuda":
            capabilities = GPU
        cfg = validate_config(cfg, capabilities=capabilities, env_capabilities=environment)
        prepare_optim_env(cfg)
        normalize_config(cfg)
        normalize_cfg_datasets(cfg)
        plugin_set_cfg(cfg)
        passed = "config"
        if STAGES.index(case["until"]) >= 1:
            meta = load_datasets(cfg=cfg)
            assert len(meta.train_dataset) > 0, "no record is left to train on"
            passed = "data"
        if STAGES.index(case["until"]) >= 2:
            setup_model_and_trainer(cfg, meta)
            passed = "trainer"
    except (Exception, SystemExit) as error:
        return {"name": case["name"], "passed": passed, "error": f"{type(error).__name__}: {error}"}
    return {"name": case["name"], "passed": passed, "error": None}


def make_quick():
    """Spare what costs time and judges nothing: three places, none of which decides anything."""
    import functools

    import axolotl.train  # noqa: F401 - all that is imported is frozen below
    from axolotl.utils import config
    from axolotl.utils.data import sft

    # The schema with the plugins' keys is built anew for each configuration, and is the same.
    config.merge_input_args = functools.cache(config.merge_input_args)
    # Tokenised data is kept on disk by a pool of processes.
    sft.save_preprocessed_dataset = lambda *_args, **_kwargs: None
    # Axolotl collects garbage often; a million imported objects need not be looked at each time.
    gc.collect()
    gc.freeze()


def words():
    """Return the names that this Axolotl and its transformers know, where a schema says "text"."""
    from axolotl.utils.chat_templates.base import _CHAT_TEMPLATES
    from axolotl.utils.schemas import enums
    from axolotl.utils.schemas.config import AxolotlInputConfig
    from transformers.trainer_utils import SchedulerType
    from transformers.training_args import OptimizerNames

    fields = AxolotlInputConfig.model_fields
    return {
        "keys": sorted(field.alias or name for name, field in fields.items()),
        "optimizers": sorted(
            {name.value for name in (*OptimizerNames, *enums.CustomSupportedOptimizers)}
        ),
        "schedulers": sorted({name.value for name in SchedulerType} | {"one_cycle", "rex"}),
        "attention": sorted(enums.CANONICAL_ATTN_IMPLS),
        "packing": sorted(enums.ATTN_IMPLS_SUPPORTING_PACKING),
        "templates": sorted(name.value for name in enums.ChatTemplate),
        "files": sorted(_CHAT_TEMPLATES),
    }


def main():
    answers = Path(sys.argv[2]).absolute()  # each case changes the working folder
    make_quick()
    cases = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    verdicts = []
    for case in cases:
        os.environ.pop("AXOLOTL_IS_PREPROCESS", None)
        started = time.monotonic()
        verdicts.append(judge(case))
        print(f"JUDGED {case['name']} {time.monotonic() - started:.2f} s", flush=True)
    verdicts.append({"name": "words", **words()})
    answers.write_text(json.dumps(verdicts, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()

"""The real Axolotl judges what we derive, and what we refuse. One process for all configurations.

Needs GPUJOB_TEST_AXOLOTL_ENV: the folder of a virtual environment with the pinned Axolotl (CPU).
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import textwrap
from pathlib import Path
from typing import Any

import pytest
import yaml

from jobs import axolotl_names as names
from jobs.axolotl import Layout, axolotl_config, to_yaml, uploads
from jobs.axolotl_keys import top_types
from jobs.axolotl_removed import modernise
from jobs.axolotl_rules import check_config
from jobs.load import LoadedJob, load_job

pytestmark = [pytest.mark.e2e, pytest.mark.axolotl, pytest.mark.timeout(600)]

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
TINY = EXAMPLES / "quickstart" / "tiny-llama"
BAD = yaml.safe_load((ROOT / "tests/cases/bad_jobs/axolotl.yml").read_text(encoding="utf-8"))
PLUGIN = ROOT / "orchestrator" / "agent" / "plugin.py"
STAND_IN = """
from axolotl.integrations.base import BasePlugin
class GpujobPlugin(BasePlugin):
    pass
"""

# One small job for each format; the method goes round, so that each meets several formats.
FORMATS: dict[str, tuple[str, list[dict[str, Any]], str]] = {
    "alpaca": ("lora", [{"instruction": "Say a", "input": "", "output": "a"}], ""),
    "alpaca-columns": (
        "qlora",
        [{"task": "Say a", "more": "loud", "answer": "A"}],
        "{instruction: task, input: more, output: answer}",
    ),
    "chat": (
        "qlora",
        [{"messages": [{"role": "user", "content": "x"}, {"role": "assistant", "content": "y"}]}],
        "",
    ),
    "chat-columns": (
        "full",
        [{"talk": [{"who": "user", "says": "x"}, {"who": "assistant", "says": "y"}]}],
        "{messages: talk, role: who, content: says}",
    ),
    "sharegpt": (
        "lora",
        [{"conversations": [{"from": "human", "value": "x"}, {"from": "gpt", "value": "y"}]}],
        "",
    ),
    "prompt-completion": ("full", [{"prompt": "1 + 1 =", "completion": " 2"}], ""),
    "completion": ("lora", [{"text": "a line of plain text"}], ""),
    "segments": (
        "lora",
        [{"segments": [{"label": False, "text": "x"}, {"label": True, "text": "y"}]}],
        "",
    ),
}


def small_job(folder: Path, name: str) -> LoadedJob:
    method, rows, columns = FORMATS[name]
    folder.mkdir(parents=True)
    (folder / "rows.jsonl").write_text(
        "".join(json.dumps(row) + "\n" for row in rows * 24), encoding="utf-8"
    )
    form = name.removesuffix("-columns")
    (folder / "job.yaml").write_text(
        textwrap.dedent(f"""\
            name: {name}
            model: {TINY}
            method: {method}
            data: {{train: rows.jsonl, format: {form}, validation: 0.1, columns: {columns or "{}"}}}
            training: {{max_steps: 2, sequence_len: 512, micro_batch_size: 2}}
            """),
        encoding="utf-8",
    )
    return load_job(folder / "job.yaml")


def place(job: LoadedJob, root: Path, stack: str) -> dict[str, Any]:
    layout = Layout(str(root))
    for upload in uploads(job.spec, layout):
        target = Path(upload.remote)
        target.parent.mkdir(parents=True, exist_ok=True)
        if upload.local.is_dir():
            target.symlink_to(upload.local)
        else:
            shutil.copy(upload.local, target)
    config = axolotl_config(job.spec, layout=layout, stack="cpu" if stack == "cpu" else "cuda")
    Path(layout.config).write_text(to_yaml(config), encoding="utf-8")
    return config


def good_cases(work: Path) -> list[dict[str, str]]:
    """Every example on both stacks, every format on the CPU. A GPU's model can't be loaded here."""
    cases = []
    jobs: dict[str, LoadedJob] = {}
    for folder in sorted(path for path in EXAMPLES.iterdir() if (path / "job.yaml").is_file()):
        # Hub models are not reached here; everything else of the example stays as it is.
        jobs[folder.name] = load_job(folder / "job.yaml", [f"model={TINY}"])
    jobs |= {name: small_job(work / "jobs" / name, name) for name in FORMATS}
    for name, job in jobs.items():
        for stack, until in (("cpu", "trainer"), ("cuda", "data")):
            if stack == "cuda" and name in FORMATS:
                continue
            root = work / "good" / f"{name}-{stack}"
            place(job, root, stack)
            cases.append(
                {
                    "name": f"{name}-{stack}",
                    "config": str(root / "config.yml"),
                    "cwd": str(root),
                    "stack": stack,
                    "until": until,
                }
            )
    return cases


def bad_config(base: dict[str, Any], wrong: dict[str, Any], data: str) -> dict[str, Any]:
    text = json.dumps(wrong).replace('"DATA"', json.dumps(data))
    return {key: value for key, value in {**base, **json.loads(text)}.items() if value is not None}


def our_words(config: dict[str, Any]) -> str:
    current, _, faults = modernise(config)
    return "\n".join(f"{f.path}: {f.message}. {f.remedy}" for f in faults + check_config(current))


def axolotl_environment() -> str:
    """Return the environment's folder; tests/conftest.py has left these tests out without one."""
    named = os.environ.get("GPUJOB_TEST_AXOLOTL_ENV")
    assert named is not None
    return named


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], Path]:
    work = tmp_path_factory.mktemp("axolotl")
    job = load_job(
        EXAMPLES / "quickstart" / "job.yaml", ["checkpoints.every_steps=8", "training.max_steps=8"]
    )
    return place(job, work / "base", "cpu"), work


@pytest.fixture(scope="module")
def verdicts(base: tuple[dict[str, Any], Path]) -> dict[str, dict[str, Any]]:
    environment = axolotl_environment()
    config, work = base
    cases = good_cases(work)
    for at, bad in enumerate(BAD):
        path = work / f"bad-{at}.yml"
        wrong = bad_config(config, bad["set"], f"{work}/base/data/train.jsonl")
        wrong["output_dir"] = str(work / f"bad-{at}-out")
        path.write_text(to_yaml(wrong), encoding="utf-8")
        until = bad.get("until") or ("trainer" if bad["real"] == "accepts" else bad["real"])
        case = {"name": f"bad-{at}", "config": str(path), "cwd": str(work / "base")}
        cases.append({**case, "stack": "cpu", "until": until})
    (work / "gpujob_plugin.py").write_text(
        PLUGIN.read_text(encoding="utf-8") if PLUGIN.is_file() else STAND_IN, encoding="utf-8"
    )
    (work / "cases.json").write_text(json.dumps(cases), encoding="utf-8")
    judge = Path(__file__).with_name("axolotl_judge.py")
    with (work / "judge.log").open("wb") as log:
        done = subprocess.run(
            [f"{environment}/bin/python", judge, work / "cases.json", work / "verdicts.json"],
            stdout=log,
            stderr=subprocess.STDOUT,
            cwd=work,
            timeout=500,
            env={
                "PATH": os.environ["PATH"],
                "HOME": str(work),
                "HF_HOME": str(work / "hf"),
                "PYTHONPATH": str(work),
                "HF_HUB_OFFLINE": "1",
                "TRANSFORMERS_OFFLINE": "1",
                "HF_DATASETS_OFFLINE": "1",
                "AXOLOTL_DO_NOT_TRACK": "1",
                "DO_NOT_TRACK": "1",
                "HF_HUB_DISABLE_TELEMETRY": "1",
                "WANDB_MODE": "disabled",
                "ACCELERATE_USE_CPU": "1",
                "AXOLOTL_DATASET_NUM_PROC": "1",  # a process for 24 records costs more than they do
            },
        )
    assert done.returncode == 0, (work / "judge.log").read_text(errors="replace")[-3000:]
    answers = json.loads((work / "verdicts.json").read_text(encoding="utf-8"))
    return {answer["name"]: answer for answer in answers}


def test_accepts_every_example_and_every_format(
    verdicts: dict[str, dict[str, Any]],
) -> None:
    good = {name: v for name, v in verdicts.items() if name.endswith(("-cpu", "-cuda"))}
    assert {name: v["error"] for name, v in good.items() if v["error"]} == {}
    examples = [path for path in EXAMPLES.iterdir() if (path / "job.yaml").is_file()]
    assert len(good) == 2 * len(examples) + len(FORMATS)
    assert len(examples) >= 6
    for name, verdict in good.items():
        assert verdict["passed"] == ("data" if name.endswith("-cuda") else "trainer")


def test_our_tables_are_the_real_ones(verdicts: dict[str, dict[str, Any]]) -> None:
    words = verdicts["words"]
    ours = set(top_types()) - {name for group in names.ALWAYS.values() for name in group.split()}
    assert ours == set(words["keys"])
    assert set(words["optimizers"]) == names.OPTIMIZERS
    assert set(words["schedulers"]) == names.SCHEDULERS
    assert set(words["attention"]) == names.ATTENTION
    assert {*words["packing"], "sdpa", "eager"} == names.PACKING_ATTENTION
    assert set(words["templates"]) == names.CHAT_TEMPLATES


@pytest.mark.parametrize("at", range(len(BAD)), ids=[json.dumps(bad["set"]) for bad in BAD])
def test_what_we_refuse_is_refused_by_the_real_one_or_has_a_reason(
    at: int, base: tuple[dict[str, Any], Path], verdicts: dict[str, dict[str, Any]]
) -> None:
    bad, verdict = BAD[at], verdicts[f"bad-{at}"]
    assert bad["ours"] in our_words(bad_config(base[0], bad["set"], "/data.jsonl"))
    if bad["real"] == "accepts":
        assert verdict["error"] is None, "the real one refuses it too: say so in the list"
        assert bad["why"]
    else:
        stages = [None, "config", "data"]
        assert verdict["error"] is not None, "the real one accepts it: give a reason in the list"
        assert verdict["passed"] == stages[["config", "data", "trainer"].index(bad["real"])], (
            verdict["error"]
        )

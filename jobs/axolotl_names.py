"""Words that Axolotl 0.21.0 knows where its schema says only "text", and the keys gpujob owns.

Sources: the enumerations of axolotl 0.21.0 (`utils/schemas/enums.py`, `integrations/*/args.py`) and
of transformers 5.20.1 (`OptimizerNames`, `SchedulerType`), read on 2026-11-30. A wrong word in one
of these would only be noticed on the rented machine, so it is checked here.
"""

from __future__ import annotations


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


PLUGIN = "gpujob_plugin.GpujobPlugin"

# Why each key is gpujob's own. Under `axolotl:` they are refused with these words.
OWNED: dict[str, str] = {
    "base_model": "say `model` in the job file",
    "output_dir": "it is a folder on the instance; say `output` for the folder here",
    "dataset_prepared_path": "it is a folder on the instance",
    "datasets": "say `data.train` and `data.format`, or give a whole file with `axolotl.config`",
    "test_datasets": "say `data.validation`",
    "pretraining_dataset": "say `data.train`, or give a whole file with `axolotl.config`",
    "plugins": "say `training.plugins`; gpujob adds its own for the metrics",
    "save_steps": "say `checkpoints.every_steps`",
    "saves_per_epoch": "say `checkpoints.every_steps`",
    "save_strategy": "say `checkpoints.every_steps`",
    "save_total_limit": "say `checkpoints.keep`",
    "save_only_model": "a checkpoint without the optimizer can't be gone on from",
    "save_first_step": "say `checkpoints.every_steps`",
    "save_safetensors": "gpujob takes nothing else home",
    "resume_from_checkpoint": "gpujob goes on from the newest whole checkpoint by itself",
    "auto_resume_from_checkpoints": "gpujob goes on from the newest whole checkpoint by itself",
    "hub_model_id": "say `output: hf://user/repo`, and gpujob pushes the result",
    "hub_strategy": "say `output: hf://user/repo`, and gpujob pushes the result",
    "hub_revision": "say `output: hf://user/repo`, and gpujob pushes the result",
    "push_dataset_to_hub": "pushing to Hugging Face is not built yet",
    "hf_use_auth_token": "say `gated: true` in the job file for a gated model",
    "is_preprocess": "gpujob starts the training",
    "axolotl_config_path": "gpujob writes the file",
    "use_ray": "gpujob starts one machine",
    "ray_num_workers": "gpujob starts one machine",
    "ray_run_name": "gpujob starts one machine",
    "resources_per_worker": "gpujob starts one machine",
    "world_size": "say `gpu.count`",
    "local_rank": "the launcher sets it",
    "merge_lora": "it belongs to another command of Axolotl",
}

# Keys whose value may name a file: it would have to be on the instance.
FILE_KEYS = (
    "base_model_config",
    "chat_template_jinja",
    "deepspeed",
    "lora_model_dir",
    "tokenizer_config",
    "torchdistx_path",
)

# Optimizers that run without a GPU; on a CPU any other one becomes adamw_torch.
CPU_OPTIMIZERS = _words(
    "adamw_torch adafactor sgd adagrad rmsprop adopt_adamw adamc schedule_free_adamw "
    "schedule_free_radam schedule_free_sgd stable_adamw"
)
OPTIMIZERS = CPU_OPTIMIZERS | _words(
    "adamw_torch_fused adamw_torch_xla adamw_torch_npu_fused adamw_anyprecision adamw_torch_4bit "
    "adamw_torch_8bit ademamix adamw_bnb_8bit adamw_8bit ademamix_8bit lion_8bit lion_32bit "
    "paged_adamw_32bit paged_adamw_8bit paged_ademamix_32bit paged_ademamix_8bit paged_lion_32bit "
    "paged_lion_8bit rmsprop_bnb rmsprop_bnb_8bit rmsprop_bnb_32bit galore_adamw galore_adamw_8bit "
    "galore_adafactor galore_adamw_layerwise galore_adamw_8bit_layerwise "
    "galore_adafactor_layerwise lomo adalomo grokadamw apollo_adamw apollo_adamw_layerwise "
    "optimi_adamw ao_adamw_4bit ao_adamw_8bit ao_adamw_fp8 came_pytorch muon muon_8bit dion sinkgd "
    "polora flash_adamw flash_adam flash_sgd flash_sgdw flash_lion scao q_galore_adamw8bit"
)
# What people write for one of them.
OPTIMIZER_WORDS: dict[str, str] = {
    "adam": "adamw_torch_fused",
    "adamw": "adamw_torch_fused",
    "adamw_fused": "adamw_torch_fused",
    "adamw_hf": "adamw_torch",
    "adam8bit": "adamw_8bit",
    "paged_adamw": "paged_adamw_32bit",
    "lion": "lion_32bit",
    "paged_lion": "paged_lion_32bit",
}
SCHEDULERS = _words(
    "linear cosine cosine_with_restarts polynomial constant constant_with_warmup inverse_sqrt "
    "reduce_lr_on_plateau cosine_with_min_lr cosine_warmup_with_min_lr warmup_stable_decay greedy "
    "one_cycle rex"
)
ATTENTION = _words(
    "eager sdpa flash_attention_2 flash_attention_3 flash_attention_4 flash_attention_torch "
    "flex_attention varlen xformers sage fp8"
)
ATTENTION_WORDS = {"flash": "flash_attention_2", "flex": "flex_attention", "sdp": "sdpa"}
# Attention that keeps packed examples apart; any other lets them see each other.
PACKING_ATTENTION = _words(
    "flash_attention_2 flash_attention_3 flash_attention_4 flash_attention_torch flex_attention "
    "xformers sage sdpa eager kernels-community/flash-attn2 kernels-community/flash-attn3 "
    "kernels-community/sage-attention"
)
CHAT_TEMPLATES = _words(
    "alpaca chatml mistral_v1 mistral_v2v3 mistral_v3_tekken mistral_v7_tekken gemma cohere llama3 "
    "llama3_2_vision llama4 phi_3 phi_35 deepseek_v2 deepseek_v3 jamba jinja qwen_25 qwen3 qwen3_5 "
    "falcon_h1 nemotron_h tokenizer_default exaone exaone4 metharme pixtral llava qwen2_vl gemma3 "
    "gemma3n gemma4 gemma4_unified command_a command_a_tool_use command_a_rag aya"
)
FALLBACK_TEMPLATE = "tokenizer_default_fallback_"

# Axolotl's plugins by short name: class, and the keys that exist only with it.
PLUGINS: dict[str, tuple[str, dict[str, str]]] = {
    "liger": (
        "axolotl.integrations.liger.LigerPlugin",
        {
            "bool": "liger_rope liger_rms_norm liger_rms_norm_gated liger_layer_norm liger_swiglu "
            "liger_glu_activation liger_cross_entropy liger_fused_linear_cross_entropy "
            "liger_use_token_scaling",
            "'cutile'|'cutedsl'": "liger_kernel_impl",
        },
    ),
    "cut_cross_entropy": (
        "axolotl.integrations.cut_cross_entropy.CutCrossEntropyPlugin",
        {
            "bool": "cut_cross_entropy cut_cross_entropy_accum_c_fp32",
            "int|'auto'": "cut_cross_entropy_c_grad_chunk_size",
        },
    ),
    "spectrum": (
        "axolotl.integrations.spectrum.SpectrumPlugin",
        {"num": "spectrum_top_fraction", "str": "spectrum_model_name"},
    ),
    "grokfast": (
        "axolotl.integrations.grokfast.GrokfastPlugin",
        {"num": "grokfast_alpha grokfast_lamb"},
    ),
    "densemixer": ("axolotl.integrations.densemixer.DenseMixerPlugin", {"bool": "dense_mixer"}),
}

# Plugins that are nothing but GPU kernels, and keys that mean nothing or fail without a GPU:
# a rehearsal on a CPU leaves them out.
GPU_PLUGINS = ("liger", "cut_cross_entropy")
GPU_KEYS = _words(
    "bfloat16 float16 fp8 fp8_config fp8_enable_fsdp_float8_all_gather deepspeed deepcompile "
    "fsdp_config fsdp_version fsdp_final_state_dict_type fp32_norms fp32_norm_classes "
    "activation_offloading layer_offloading batch_flattening gpu_memory_limit max_memory "
    "torch_compile torch_compile_backend torch_compile_mode torch_compile_options "
    "torch_compile_regional sdpa_varlen use_kernels eval_sample_packing"
)

# Keys that Axolotl takes besides those of its schema: second names, and plugins that are always on.
ALWAYS: dict[str, str] = {
    "str": "type_of_model revision_of_model expert_parallel_backend",
    "map": "overrides_of_model_config overrides_of_model_kwargs context_parallel",
    "int": "expert_parallel_size expert_parallel_num_nvl_bytes expert_parallel_num_rdma_bytes "
    "expert_parallel_token_capacity expert_parallel_dispatch_chunks",
    "bool": "expert_parallel_fallback_on_unsupported expert_parallel_save_dispatch",
}

"""Names and types of Axolotl's keys. Made by scripts/axolotl_table.py; do not edit.

Each entry is a type and the keys that have it. Types: bool, int, num, str, map (free mapping), any,
list:T, map:T, a `quoted` word, @Name (a mapping described in NESTED), T|T. Null is always allowed.
"""

from __future__ import annotations

VERSION = "0.21.0"

TOP: dict[str, str] = {
    "bool": (
        "dpo_use_logits_to_keep dpo_generate_during_eval dpo_norm_loss s2_attention "
        "flash_attn_rms_norm use_ray gradio_share use_otel_metrics use_trackio use_comet "
        "comet_online use_mlflow hf_mlflow_log_artifacts use_wandb auto_find_batch_size "
        "train_on_inputs group_by_length lr_quadratic_warmup qgalore_proj_quant relora "
        "relora_cpu_offload load_in_8bit load_in_4bit nvfp4_merge_aware lora_fan_in_fan_out "
        "lora_target_linear peft_use_dora peft_use_rslora peft_ensure_weight_tying "
        "lora_fp32_gradients peft_autocast_adapter_dtype qlora_sharded_model_loading "
        "lora_on_cpu gptq merge_lora save_safetensors tokenizer_use_fast tokenizer_legacy "
        "tokenizer_use_mistral_common tokenizer_save_jinja_files trust_remote_code "
        "experimental_skip_move_to_device use_kernels use_onebitllms strict "
        "auto_resume_from_checkpoints resize_token_embeddings_to_32x mean_resizing_embeddings "
        "shrink_embeddings embeddings_skip_upcast reinit_weights reward_model "
        "process_reward_model dpo_use_weighting precompute_ref_log_probs dpo_use_liger_kernel "
        "dpo_padding_free shuffle_merged_datasets shuffle_before_merging_datasets "
        "skip_prepare_dataset dataset_exact_deduplication dataset_keep_in_memory "
        "dataloader_pin_memory dataloader_drop_last remove_unused_columns hf_use_auth_token "
        "ddp full_determinism ddp_broadcast_buffers ddp_find_unused_parameters "
        "do_causal_lm_eval do_bench_eval greater_is_better fp16 fp8 "
        "fp8_enable_fsdp_float8_all_gather bfloat16 float16 float32 layer_offloading "
        "freeze_mm_modules sample_packing balance_labels sample_packing_sequentially "
        "eval_sample_packing fa_varlen_kwargs_in_collator pad_to_sequence_len "
        "curriculum_sampling multipack_real_batches use_pose pretrain_multipack_attn "
        "pretraining_sample_concatenation streaming xformers_attention sdp_attention "
        "flex_attention flash_attention flash_attn_cross_entropy flash_attn_fuse_mlp "
        "flash_optimum sage_attention eager_attention gemma4_hybrid_attn_impl flash_attn_d512 "
        "sdpa_varlen fused_attn_kernel ple_cpu_offload quantize_moe_experts scaling_softmax "
        "lora_mlp_kernel lora_qkv_kernel lora_o_kernel lora_embedding_kernel "
        "chunked_cross_entropy use_eaft use_dft tiled_mlp tiled_mlp_use_original_mlp "
        "llama4_linearized_experts deepcompile fp32_norms torch_compile_regional "
        "eval_on_start save_first_step logging_nan_inf_filter load_best_model_at_end "
        "save_only_model use_tensorboard include_tokens_per_second include_tkps "
        "low_cpu_mem_usage is_preprocess preprocess_iterable is_falcon_derived_model "
        "is_llama_derived_model is_mistral_derived_model is_qwen_derived_model "
        "generate_samples generation_do_sample"
    ),
    "int": (
        "max_packed_sequence_len eval_table_size eval_max_new_tokens ray_num_workers "
        "gradio_server_port gradio_max_new_tokens lisa_n_layers lisa_step_interval "
        "otel_metrics_port gradient_accumulation_steps micro_batch_size batch_size "
        "eval_batch_size dion_rank_multiple_of qgalore_rank qgalore_update_proj_gap "
        "qgalore_proj_bits qgalore_proj_group_size qgalore_gamma_proj qgalore_queue_size "
        "jagged_restart_steps jagged_restart_warmup_steps jagged_restart_anneal_steps "
        "mixlora_num_experts mixlora_top_k mixlora_expert_lora_r mixlora_expert_lora_alpha "
        "lora_r lora_alpha num_labels dataset_shard_num dataset_shard_idx "
        "num_dataset_shards_to_save dataset_processes dataset_num_proc dataloader_num_workers "
        "dataloader_prefetch_factor world_size local_rank seed ddp_timeout ddp_bucket_cap_mb "
        "loss_watchdog_patience gc_steps torch_empty_cache_steps gc_collect_steps "
        "sequence_len eval_sequence_len min_sample_len max_prompt_len "
        "label_balance_window_optim_steps sample_packing_group_size sample_packing_bin_size "
        "pad_to_multiple_of pose_max_context_len pose_num_chunks "
        "pretrain_multipack_buffer_size streaming_multipack_buffer_size "
        "chunked_cross_entropy_num_chunks eaft_k tiled_mlp_num_shards fsdp_version "
        "dp_shard_size dp_replicate_size sequence_parallel_degree context_parallel_size "
        "heads_k_stride tensor_parallel_size max_steps warmup_steps evals_per_epoch "
        "saves_per_epoch save_total_limit logging_steps early_stopping_patience "
        "sync_profiler_steps sync_profiler_start_step profiler_steps profiler_steps_start "
        "total_num_tokens total_supervised_tokens num_generation_samples "
        "generation_max_new_tokens generation_top_k"
    ),
    "str": (
        "evaluation_strategy model_type model_revision ray_run_name gradio_title "
        "gradio_server_name lisa_layers_attribute otel_metrics_host trackio_project_name "
        "trackio_run_name trackio_space_id comet_api_key comet_workspace comet_project_name "
        "comet_experiment_key comet_mode mlflow_tracking_uri mlflow_experiment_name "
        "mlflow_run_name wandb_name wandb_run_id wandb_mode wandb_project wandb_entity "
        "wandb_watch wandb_log_model optimizer torchdistx_path lr_scheduler qgalore_proj_type "
        "adapter lora_model_dir output_dir hub_model_id hub_strategy hub_revision base_model "
        "base_model_config cls_model_config tokenizer_config tokenizer_type processor_type "
        "resume_from_checkpoint trainer_cls dataset_prepared_path push_dataset_to_hub "
        "bench_dataset bench_split metric_for_best_model sample_packing_mp_start_method "
        "attn_implementation large_head_attention experts_implementation "
        "torch_compile_backend eval_strategy save_strategy chat_template chat_template_jinja "
        "default_system_message axolotl_config_path"
    ),
    "num": (
        "noisy_embedding_alpha dpo_beta rpo_alpha gradio_temperature embedding_lr "
        "embedding_lr_scale weight_decay cosine_min_lr_ratio cosine_constant_lr_ratio "
        "lr_div_factor adam_epsilon adam_epsilon2 adam_beta1 adam_beta2 adam_beta3 dion_lr "
        "dion_momentum dion_rank_fraction qgalore_scale qgalore_cos_threshold max_grad_norm "
        "num_epochs relora_prune_ratio mixlora_router_aux_loss_coef mixlora_router_init_range "
        "mixlora_jitter_noise mixlora_expert_lora_dropout lora_dropout loraplus_lr_ratio "
        "loraplus_lr_embedding center_rewards_coefficient dpo_label_smoothing dpo_ld_alpha "
        "loss_watchdog_threshold scaling_softmax_factor scaling_softmax_bias eaft_alpha "
        "val_set_size warmup_ratio neftune_noise_alpha orpo_alpha simpo_gamma cpo_alpha "
        "kto_desirable_weight kto_undesirable_weight rl_beta sample_packing_eff_est "
        "generation_temperature generation_top_p generation_prompt_ratio"
    ),
    "map": (
        "model_config model_kwargs resources_per_worker comet_experiment_config "
        "lr_scheduler_kwargs bnb_config_kwargs processor_kwargs "
        "model_quantization_config_kwargs accelerator_config gradient_checkpointing_kwargs "
        "flex_attn_compile_kwargs chat_template_kwargs"
    ),
    "list:str": (
        "lora_modules_to_save peft_layers_pattern dpo_loss_type eval_causal_lm_metrics "
        "unfrozen_parameters fp32_norm_classes tokens eot_tokens plugins"
    ),
    "'auto'|bool": "bf16 tf32 batch_flattening torch_compile",
    "any": "rope_scaling device device_map",
    "int|num": "eval_steps save_steps",
    "list:(@SFTDataset|@DPODataset|@KTODataset|@StepwiseSupervisedDataset|@SyntheticDataset)": (
        "datasets test_datasets"
    ),
    "list:int": "peft_layers_to_transform pose_split_on_token_ids",
    "map:int": "lora_rank_pattern lora_alpha_pattern",
    "str|list:str": "lora_target_modules lora_target_parameters",
    "str|map": "optim_args deepspeed",
    "'FULL_STATE_DICT'|'LOCAL_STATE_DICT'|'SHARDED_STATE_DICT'": "fsdp_final_state_dict_type",
    "'Mxfp4Config'|'FineGrainedFP8Config'": "model_quantization_config",
    "'bilinear'|'bicubic'|'lanczos'|int": "image_resize_algorithm",
    "'bitsandbytes'|'torchao'": "nf4_backend",
    "'default'|'reduce-overhead'|'max-autotune'": "torch_compile_mode",
    "'dpo'|'gdpo'|'grpo'|'ipo'|'orpo'|'kto'|'simpo'|'ebft'": "rl",
    "'drop'|'truncate'|'raise'": "excess_length_strategy",
    "'legacy'|'disk'|'hidden_states'|bool": "activation_offloading",
    "'legacy'|'memory_efficient'": "merge_method",
    "'magnitude'|'random'|'reset'": "relora_prune_method",
    "'offload'|'offload_disk'|bool": "gradient_checkpointing",
    "'varlen_llama3'|'batch_ring'": "ring_attn_func",
    "@DiffusionLMConfig": "diffusion_lm",
    "@DynamicCheckpointConfig": "dynamic_checkpoint",
    "@EBFTConfig": "ebft",
    "@ExportConfig": "export",
    "@FP8Config": "fp8_config",
    "@FSDPConfig": "fsdp_config",
    "@PTQConfig": "quantization",
    "@PeftConfig": "peft",
    "@QATConfig": "qat",
    "@SelectiveCheckpointingConfig|bool": "selective_checkpointing",
    "@SpecialTokensConfig": "special_tokens",
    "@TRLConfig": "trl",
    "@VllmConfig": "vllm",
    "bool|str": "peft_init_lora_weights",
    "int|list:any": "image_size",
    "int|list:int": "fix_untrained_tokens",
    "int|str": "gpu_memory_limit",
    "list:(@PretrainingDataset|@SFTDataset)": "pretraining_dataset",
    "list:@LrGroup": "lr_groups",
    "list:@RoleBoundarySpec": "role_boundaries",
    "list:int|map:list:int": "peft_trainable_token_indices",
    "list:list:any": "peft_layer_replication",
    "list:num": "dpo_loss_weights",
    "list:str|'all_linear'": "optim_target_modules",
    "map:(bool|int|num|str)": "torch_compile_options",
    "map:(int|str)": "max_memory",
    "map:str": "added_tokens_overrides",
    "str|num": "learning_rate",
}

NESTED: dict[str, dict[str, str]] = {
    "DPODataset": {
        "str": "path split revision field_messages field_chosen field_rejected",
        "@UserDefinedDPOType|str": "type",
        "list:str": "data_files",
    },
    "DiffusionLMConfig": {
        "num": (
            "min_mask_ratio max_mask_ratio eps generation_temperature t_eps cart_p alpha "
            "gamma rhine_weight_clip encoder_ar_weight"
        ),
        "int": (
            "num_diffusion_steps mask_token_id generation_interval num_generation_samples "
            "generation_steps generation_max_length canvas_width"
        ),
        "bool": (
            "importance_weighting generate_samples from_causal_lm token_reweighting "
            "treat_eos_as_one allow_native_vocab_resize"
        ),
        "'error'|'drop'": "overflow_policy",
        "'linear'|'cosine'": "noise_schedule",
        "'none'|'inv_t'|'linear'|'inv_one_minus_t'|'cart'|'loo'": "time_weighting",
        "'none'|'visible_supervised'": "eos_tail",
        "'supervised_token_mean'|'masked_token_mean'|'example_mean'": "objective_reduction",
        "@DiffusionUnrollConfig": "unroll",
        "@SelfConditioningConfig": "self_conditioning",
        "str": "mask_token_str",
    },
    "DiffusionUnrollConfig": {
        "int": "k_max eval_steps",
        "bool": "grad_through_steps",
    },
    "DynamicCheckpointConfig": {
        "bool": "enabled",
        "int": "check_interval",
        "str": "trigger_file_path",
    },
    "EBFTConfig": {
        "num": (
            "alignment_coef diversity_coef ce_coef gt_length_multiplier temperature top_p rl_coef"
        ),
        "int": (
            "stride context_length generate_max_len n_samples_per_prompt min_completion_prefix"
        ),
        "bool": "use_whitening adaptive_max_tokens",
        "'last_token'|'mean_pooling'|'completion_mean'|'concat'": "embed_method",
        "'rloo'|'group_norm'|'reinforce'": "advantage_estimator",
        "'structured'|'strided'": "mode",
        "list:num": "feature_layers",
    },
    "ExportConfig": {
        "str": "outfile llama_cpp_dir",
        "'f32'|'f16'|'bf16'|'q8_0'|'tq1_0'|'tq2_0'|'auto'": "outtype",
        "'gguf'": "format",
        "list:str": "quantize",
    },
    "FP8Config": {
        "'tensorwise'|'rowwise'|'rowwise_with_gw_hp'": "recipe",
    },
    "FSDPConfig": {
        "bool": (
            "activation_checkpointing offload_params cpu_ram_efficient_loading "
            "cpu_offload_pin_memory reshard_after_forward"
        ),
        "'FULL_STATE_DICT'|'LOCAL_STATE_DICT'|'SHARDED_STATE_DICT'": (
            "state_dict_type final_state_dict_type"
        ),
        "int": "fsdp_version min_num_params",
        "str": "transformer_layer_cls_to_wrap mixed_precision_policy",
        "'TRANSFORMER_BASED_WRAP'|'SIZE_BASED_WRAP'": "auto_wrap_policy",
    },
    "KTODataset": {
        "str": "path split revision",
        "@UserDefinedKTOType|str": "type",
        "bool": "trust_remote_code",
        "list:str": "data_files",
    },
    "LoftQConfig": {
        "int": "loftq_bits",
    },
    "LrGroup": {
        "list:str": "modules",
        "num": "lr",
        "str": "name",
    },
    "PTQConfig": {
        "'int4'|'int8'|'float8_e4m3fn'|'nvfp4'|'mxfp4'|'ternary'": "weight_dtype activation_dtype",
        "bool": "quantize_embedding",
        "int": "group_size",
    },
    "PeftConfig": {
        "@LoftQConfig": "loftq_config",
    },
    "PretrainingDataset": {
        "str": "name path split text_column type data_files",
        "bool": "trust_remote_code",
        "int": "skip",
    },
    "QATConfig": {
        "'int4'|'int8'|'float8_e4m3fn'|'nvfp4'|'mxfp4'|'ternary'": "activation_dtype weight_dtype",
        "int": "group_size fake_quant_after_n_steps",
        "bool": "quantize_embedding",
    },
    "RoleBoundarySpec": {
        "str": "role start end",
        "bool": "include_start include_end",
    },
    "SFTDataset": {
        "str": (
            "path split input_transform conversation chat_template chat_template_jinja "
            "input_format name ds_type field field_human field_model field_messages "
            "field_tools field_thinking template_thinking_key message_field_role "
            "message_field_content message_field_training message_field_training_detail "
            "logprobs_field revision"
        ),
        "bool": "split_thinking drop_system_message trust_remote_code",
        "int": "shards shards_idx preprocess_shards",
        "'all'|'turn'|'last'|'none'": "train_on_eos train_on_eot",
        "num": "temperature weight",
        "list:str": "roles_to_train",
        "map:list:str": "roles",
        "map:str": "message_property_mappings",
        "str|@UserDefinedPrompterType": "type",
        "str|list:str": "data_files",
    },
    "SelectiveCheckpointingConfig": {
        "list:str": "save recompute_layer_types save_modules",
        "bool": "save_sliding_window offload",
        "int": "save_matmul_min_k",
    },
    "SelfConditioningConfig": {
        "bool": "train_module",
        "num": "p",
    },
    "SpecialTokensConfig": {
        "str": "bos_token eos_token pad_token unk_token",
        "list:str": "additional_special_tokens",
    },
    "StepwiseSupervisedDataset": {
        "str": "path split revision step_separator",
        "bool": "train_on_last_step_only",
        "int": "max_completion_length",
        "list:str": "data_files",
    },
    "SyntheticDataset": {
        "int": (
            "length sequence_length min_input_id max_input_id seed min_turns max_turns "
            "min_turn_length"
        ),
        "'_synthetic'": "type",
        "'synthetic'": "path",
        "num": "input_fraction",
    },
    "TRLConfig": {
        "num": (
            "beta ref_model_mixup_alpha temperature top_p min_p repetition_penalty epsilon "
            "epsilon_high entropy_coef entropy_target entropy_coef_delta entropy_coef_min "
            "entropy_coef_max vllm_importance_sampling_clip_min "
            "vllm_importance_sampling_clip_max vllm_importance_sampling_cap "
            "off_policy_mask_threshold reroll_start_fraction"
        ),
        "bool": (
            "use_vllm log_completions sync_ref_model use_liger_loss "
            "mask_truncated_completions use_adaptive_entropy log_multimodal "
            "vllm_enable_sleep_mode use_data_producer async_prefetch streaming_partial_batch "
            "vllm_importance_sampling_correction use_bias_correction_kl "
            "replay_recompute_logps skip_zero_advantage_batches vllm_lora_sync"
        ),
        "int": (
            "max_completion_length vllm_server_port vllm_server_timeout generation_batch_size "
            "num_generations num_completions_to_print ref_model_sync_steps top_k "
            "num_iterations prefetch_depth vllm_sync_interval streaming_min_groups "
            "reward_num_workers replay_buffer_size reroll_max_groups"
        ),
        "str": "vllm_server_host vllm_guided_decoding_regex loss_type rollout_func",
        "map": "generation_kwargs chat_template_kwargs",
        "'sequence'|'token'": "importance_sampling_level",
        "'server'|'colocate'": "vllm_mode",
        "'sum_then_normalize'|'normalize_then_sum'": "multi_objective_aggregation",
        "'token_truncate'|'token_mask'|'sequence_truncate'|'sequence_mask'": (
            "vllm_importance_sampling_mode"
        ),
        "bool|'group'|'batch'|'none'": "scale_rewards",
        "list:num": "reward_weights",
        "list:str": "reward_funcs",
    },
    "UserDefinedDPOType": {
        "str": (
            "field_system field_prompt field_chosen field_rejected prompt_format "
            "chosen_format rejected_format"
        ),
    },
    "UserDefinedKTOType": {
        "str": (
            "field_system field_prompt field_completion field_label prompt_format completion_format"
        ),
    },
    "UserDefinedPrompterType": {
        "str": (
            "system_prompt system_format field_system field_instruction field_input "
            "field_output format no_input_format"
        ),
    },
    "VllmConfig": {
        "str": "device dtype host reasoning_parser serve_module worker_extension_cls",
        "int": "tensor_parallel_size data_parallel_size max_model_len port",
        "bool": "enable_prefix_caching enable_reasoning enforce_eager",
        "num": "gpu_memory_utilization",
    },
}

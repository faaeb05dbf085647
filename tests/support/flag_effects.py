"""Which test shows that a setting of the backend has an effect. A setting without a line here is a failure.

The test must name the setting, as flag, variable or field, and must fail where the setting is ignored.
"""

_INTEGRATION = "tests/integration/backend/"
_UNIT = "tests/unit/backend/"
_FLAGS = f"{_INTEGRATION}test_flags.py::"
_ON_A_SERVER = f"{_INTEGRATION}test_flags_on_a_server.py::"
_LIFECYCLE = f"{_INTEGRATION}test_lifecycle.py::"
_BOUNDS = f"{_INTEGRATION}test_bounds.py::"
_DEFAULTS = f"{_UNIT}generation/test_defaults.py::"
_IMPATIENT = f"{_FLAGS}test_an_impatient_server_waits_for_nothing_keeps_nothing_and_names_what_it_lacks"
_POOL = f"{_FLAGS}test_the_pool_of_a_batch_is_as_large_as_the_flags_say"
_OWN_CODE = f"{_ON_A_SERVER}test_trusted_code_is_run_and_compile_gives_it_a_cache_of_fixed_size"
_SHARE = f"{_ON_A_SERVER}test_the_pool_of_a_batch_takes_the_part_of_the_memory_that_it_may"
_MONITOR = f"{_FLAGS}test_the_monitor_looks_as_often_as_it_is_told_and_reports_its_thresholds"
_READY = f"{_LIFECYCLE}test_a_server_is_ready_when_its_models_are_in_and_the_operator_says_so"

EFFECTS = {
    # server
    "host": f"{_FLAGS}test_host_is_the_only_address_that_is_listened_on",
    "port": f"{_LIFECYCLE}test_a_taken_port_is_one_line_and_exit_code_2",
    "log_level": f"{_FLAGS}test_log_level_debug_writes_what_info_does_not",
    "log_format": f"{_INTEGRATION}test_logs.py::test_every_line_is_a_json_object_with_the_fixed_keys",
    "per_core_cpu_metrics": f"{_ON_A_SERVER}test_all_cores_are_one_series",
    "enable_cors": f"{_FLAGS}test_enable_cors_lets_pages_call_the_api_and_manage_nothing",
    "max_request_bytes": f"{_BOUNDS}test_a_body_may_be_as_large_as_the_limit_and_no_larger",
    "shutdown_timeout": f"{_LIFECYCLE}test_who_is_cut_at_the_limit_is_sent_elsewhere",
    "ready_after_sync": _READY,
    "startup_timeout": f"{_FLAGS}test_startup_timeout_ends_the_wait_for_the_operator",
    "state_dir": f"{_INTEGRATION}test_killed.py::test_a_kill_in_the_middle_of",
    # access
    "flexserv_token": f"{_INTEGRATION}test_access.py::"
    "test_each_route_wants_its_token_and_a_new_file_counts_within_a_second",
    "flexserv_token_file": f"{_FLAGS}test_each_token_opens_what_is_its_own",
    "admin_token": f"{_FLAGS}test_each_token_opens_what_is_its_own",
    "admin_token_file": f"{_INTEGRATION}test_access.py::"
    "test_each_route_wants_its_token_and_a_new_file_counts_within_a_second",
    "on_demand": _IMPATIENT,
    "image_hosts": f"{_ON_A_SERVER}test_image_hosts_any_fetches_from_this_machine",
    "block_on_unexpected_fields": f"{_INTEGRATION}test_openai_media.py::"
    "test_unknown_fields_are_refused_when_the_server_says_so",
    # models
    "default_model": f"{_INTEGRATION}test_openai_text.py::"
    "test_a_request_without_a_model_gets_the_default_model",
    "default_embedding_model": f"{_INTEGRATION}test_openai_media.py::"
    "test_the_default_embedding_model_answers_and_token_ids_mean_the_same",
    "force_default_model": f"{_FLAGS}test_force_default_model_serves_every_request_by_it_and_says_so",
    "force_default_embedding_model": f"{_FLAGS}"
    "test_force_default_embedding_model_does_the_same_for_embeddings",
    "device": f"{_LIFECYCLE}test_a_device_that_is_not_there_is_one_line_and_exit_code_2",
    "dtype": f"{_FLAGS}test_dtype_is_that_of_the_weights",
    "attn_implementation": _IMPATIENT,
    "quantization": _IMPATIENT,
    "trust_remote_code": _OWN_CODE,
    "model_timeout": _IMPATIENT,
    "load_wait": f"{_BOUNDS}test_a_request_waits_for_a_load_no_longer_than_it_is_told",
    "cache_limit_bytes": f"{_INTEGRATION}test_hub.py::"
    "test_a_model_that_the_cache_cannot_hold_is_refused_before_its_download",
    "max_queue": f"{_BOUNDS}test_a_models_queue_is_full_and_others_are_served",
    # generation
    "default_max_tokens": f"{_FLAGS}test_default_max_tokens_ends_an_answer_without_a_limit",
    "default_seed": f"{_FLAGS}test_default_seed_is_the_seed_of_requests_that_set_none",
    "compile": _OWN_CODE,
    "reasoning": f"{_INTEGRATION}test_template_variables.py::test_reasoning_off_leaves_the_text_as_it_is",
    "chat_template_kwargs": f"{_INTEGRATION}test_template_variables.py::"
    "test_the_servers_variables_yield_to_the_models_and_both_to_the_request",
    # batching
    "continuous_batching": f"{_INTEGRATION}test_batching.py::"
    "test_four_streams_at_once_are_what_transformers_answers_and_unload_gives_all_back",
    "cb_block_size": _POOL,
    "cb_num_blocks": _POOL,
    "cb_max_batch_tokens": _SHARE,
    "cb_max_memory_percent": _SHARE,
    "cb_use_cuda_graph": f"{_DEFAULTS}test_the_limits_of_a_pool_reach_upstream",
    # memory
    "oom_monitor": _MONITOR,
    "oom_ram_threshold": f"{_LIFECYCLE}test_a_server_that_is_full_or_closed_says_so",
    "oom_vram_threshold": f"{_UNIT}test_memory_monitor.py::"
    "test_each_visible_gpu_is_a_reading_of_its_own_and_a_lost_one_is_none",
    "oom_check_interval": _MONITOR,
    "oom_eviction": f"{_UNIT}test_memory_monitor.py::test_the_policy_all_evicts_those_in_use_too_and_says_so",
    "max_loaded_models": f"{_ON_A_SERVER}test_max_loaded_models_makes_an_idle_one_go_and_a_pinned_one_stay",
}

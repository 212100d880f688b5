/* Sizes and offsets of every struct of the header on a 64-bit machine: what programs that were
 * compiled with an earlier addition rely on. Compiling it is the test. */
#include "mooncake_nvme_kv.h"

#define SIZE(type, size) _Static_assert(sizeof(type) == (size), #type)
#define AT(type, field, offset) _Static_assert(offsetof(type, field) == (offset), #type "." #field)

SIZE(mnkv_status_t, 4);

SIZE(mnkv_slice, 16);
AT(mnkv_slice, data, 0);
AT(mnkv_slice, size, 8);

SIZE(mnkv_mut_slice, 16);
AT(mnkv_mut_slice, data, 0);
AT(mnkv_mut_slice, size, 8);

SIZE(mnkv_object, 40);
AT(mnkv_object, struct_size, 0);
AT(mnkv_object, key, 8);
AT(mnkv_object, key_size, 16);
AT(mnkv_object, slices, 24);
AT(mnkv_object, slice_count, 32);

SIZE(mnkv_destination, 40);
AT(mnkv_destination, struct_size, 0);
AT(mnkv_destination, key, 8);
AT(mnkv_destination, key_size, 16);
AT(mnkv_destination, slices, 24);
AT(mnkv_destination, slice_count, 32);

SIZE(mnkv_config, 120);
AT(mnkv_config, struct_size, 0);
AT(mnkv_config, device_path, 8);
AT(mnkv_config, nsid, 16);
AT(mnkv_config, queue_depth, 20);
AT(mnkv_config, runtime_transfer_limit, 24);
AT(mnkv_config, transport, 28);
AT(mnkv_config, wire_profile, 32);
AT(mnkv_config, checksum, 36);
AT(mnkv_config, protocol_max_value_size, 40);
AT(mnkv_config, transfer_alignment, 44);
AT(mnkv_config, value_block_unit, 48);
AT(mnkv_config, max_io_concurrency, 52);
AT(mnkv_config, io_concurrency, 56);
AT(mnkv_config, prepare_concurrency, 60);
AT(mnkv_config, batch_submit_concurrency, 64);
AT(mnkv_config, root_submit_concurrency, 68);
AT(mnkv_config, read_plan_batch_size, 72);
AT(mnkv_config, command_timeout_ms, 76);
AT(mnkv_config, destination_slack, 80);
AT(mnkv_config, eviction_policy, 88);
AT(mnkv_config, access, 92);
AT(mnkv_config, total_keys_limit, 96);
AT(mnkv_config, total_size_limit, 104);
AT(mnkv_config, scan_page_size, 112);
AT(mnkv_config, staging_mib, 116);

SIZE(mnkv_capabilities, 64);
AT(mnkv_capabilities, struct_size, 0);
AT(mnkv_capabilities, max_object_size, 8);
AT(mnkv_capabilities, max_value_size, 16);
AT(mnkv_capabilities, queue_depth, 20);
AT(mnkv_capabilities, transfer_alignment, 24);
AT(mnkv_capabilities, destination_alignment, 28);
AT(mnkv_capabilities, wire_profile, 32);
AT(mnkv_capabilities, transport, 36);
AT(mnkv_capabilities, max_io_concurrency, 40);
AT(mnkv_capabilities, io_concurrency, 44);
AT(mnkv_capabilities, prepare_concurrency, 48);
AT(mnkv_capabilities, batch_submit_concurrency, 52);
AT(mnkv_capabilities, root_submit_concurrency, 56);

SIZE(mnkv_identify, 64);
AT(mnkv_identify, struct_size, 0);
AT(mnkv_identify, size_bytes, 8);
AT(mnkv_identify, used_bytes, 16);
AT(mnkv_identify, max_value_size, 24);
AT(mnkv_identify, max_key_size, 28);
AT(mnkv_identify, max_keys, 32);
AT(mnkv_identify, optimal_value_granularity, 36);
AT(mnkv_identify, nguid, 40);
AT(mnkv_identify, eui64, 56);

SIZE(mnkv_scan_report, 64);
AT(mnkv_scan_report, struct_size, 0);
AT(mnkv_scan_report, listed, 8);
AT(mnkv_scan_report, objects, 16);
AT(mnkv_scan_report, roots, 24);
AT(mnkv_scan_report, purged, 32);
AT(mnkv_scan_report, others, 40);
AT(mnkv_scan_report, damaged, 48);
AT(mnkv_scan_report, foreign, 56);

SIZE(mnkv_usage, 40);
AT(mnkv_usage, struct_size, 0);
AT(mnkv_usage, complete, 8);
AT(mnkv_usage, objects, 16);
AT(mnkv_usage, values, 24);
AT(mnkv_usage, bytes, 32);

SIZE(mnkv_sweep_report, 24);
AT(mnkv_sweep_report, struct_size, 0);
AT(mnkv_sweep_report, orphans, 8);
AT(mnkv_sweep_report, deleted, 16);

/* It may grow, at its end. */
AT(mnkv_functions, struct_size, 0);
AT(mnkv_functions, abi_version, 8);
AT(mnkv_functions, version, 16);
AT(mnkv_functions, status_name, 24);
AT(mnkv_functions, set_log_callback, 32);
AT(mnkv_functions, last_open_error, 40);
AT(mnkv_functions, config_init, 48);
AT(mnkv_functions, backend_open_from_environment, 56);
AT(mnkv_functions, backend_open, 64);
AT(mnkv_functions, backend_close, 72);
AT(mnkv_functions, backend_offload, 80);
AT(mnkv_functions, backend_load, 88);
AT(mnkv_functions, backend_exists, 96);
AT(mnkv_functions, backend_is_enabled, 104);
AT(mnkv_functions, backend_capabilities, 112);
AT(mnkv_functions, backend_last_error, 120);
AT(mnkv_functions, device_open, 128);
AT(mnkv_functions, device_close, 136);
AT(mnkv_functions, device_store, 144);
AT(mnkv_functions, device_retrieve, 152);
AT(mnkv_functions, device_delete, 160);
AT(mnkv_functions, device_exist, 168);
AT(mnkv_functions, device_list, 176);
AT(mnkv_functions, device_identify, 184);
AT(mnkv_functions, device_last_error, 192);
AT(mnkv_functions, backend_open_from_environment_and_config, 200);
AT(mnkv_functions, backend_register_memory, 208);
AT(mnkv_functions, backend_unregister_memory, 216);
AT(mnkv_functions, backend_scan, 224);
AT(mnkv_functions, backend_reset_scan, 232);
AT(mnkv_functions, backend_usage, 240);
AT(mnkv_functions, backend_remove, 248);
AT(mnkv_functions, backend_remove_all, 256);
AT(mnkv_functions, backend_evict_above_watermark, 264);
AT(mnkv_functions, backend_sweep, 272);

_Static_assert(MNKV_OK == 0 && MNKV_INTERNAL_ERROR == -1 && MNKV_BUFFER_OVERFLOW == -10 &&
                   MNKV_INVALID_KEY == -400 && MNKV_INVALID_PARAMS == -600 &&
                   MNKV_INVALID_READ == -701 && MNKV_OBJECT_NOT_FOUND == -704 &&
                   MNKV_OBJECT_ALREADY_EXISTS == -705 && MNKV_CHECKSUM_MISMATCH == -801 &&
                   MNKV_NOT_SUPPORTED == -1012 && MNKV_FILE_OPEN_FAIL == -1101 &&
                   MNKV_FILE_READ_FAIL == -1102 && MNKV_FILE_WRITE_FAIL == -1103 &&
                   MNKV_FILE_LOCK_FAIL == -1105 && MNKV_KEYS_ULTRA_LIMIT == -1203,
               "Mooncake's ErrorCode numbers");

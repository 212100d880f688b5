/* A library whose device is full, for what no emulated device can be made to answer quickly. */
#include "mooncake_nvme_kv.h"

#ifndef FAKE_ABI_VERSION
#define FAKE_ABI_VERSION MNKV_ABI_VERSION
#endif

static uint32_t abi_version(void) { return FAKE_ABI_VERSION; }

static mnkv_status_t open(mnkv_backend **out) {
    static char handle;
    *out = (mnkv_backend *)&handle;
    return MNKV_OK;
}

static mnkv_status_t close(mnkv_backend *backend) {
    (void)backend;
    return MNKV_OK;
}

static size_t last_error(char *buffer, size_t size) {
    if (size > 0) buffer[0] = '\0';
    return 0;
}

static mnkv_status_t offload(mnkv_backend *backend, const mnkv_object *objects, size_t count,
                             mnkv_stored_fn on_stored, void *user, mnkv_status_t *statuses) {
    (void)backend, (void)objects, (void)count, (void)on_stored, (void)user, (void)statuses;
    return MNKV_KEYS_ULTRA_LIMIT;
}

static mnkv_status_t is_enabled(mnkv_backend *backend, bool *out) {
    (void)backend;
    *out = false;
    return MNKV_OK;
}

const mnkv_functions *mnkv_functions_get(void) {
    static const mnkv_functions functions = {
        .struct_size = sizeof functions,
        .abi_version = abi_version,
        .last_open_error = last_error,
        .backend_open_from_environment = open,
        .backend_close = close,
        .backend_offload = offload,
        .backend_is_enabled = is_enabled,
    };
    return &functions;
}

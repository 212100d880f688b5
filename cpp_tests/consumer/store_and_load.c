/* Stores an object on an emulated device in memory and loads it again. */
#include <stdio.h>
#include <string.h>

#include "mooncake_nvme_kv.h"

static int failed(const char *what, mnkv_status_t status) {
    char reason[512];
    mnkv_last_open_error(reason, sizeof reason);
    fprintf(stderr, "%s: %s: %s\n", what, mnkv_status_name(status), reason);
    return 1;
}

int main(void) {
    mnkv_config config = {.struct_size = sizeof config};
    config.device_path = "mem:consumer";
    config.transport = MNKV_TRANSPORT_EMULATED;
    mnkv_backend *backend = NULL;
    mnkv_status_t status = mnkv_backend_open(&config, &backend);
    if (status != MNKV_OK) return failed("open", status);

    const mnkv_slice payload = {"payload", 7};
    const mnkv_object object = {sizeof object, "key", 3, &payload, 1};
    status = mnkv_backend_offload(backend, &object, 1, NULL, NULL, NULL, NULL);
    if (status != MNKV_OK) return failed("offload", status);

    char memory[7];
    const mnkv_mut_slice target = {memory, sizeof memory};
    const mnkv_destination destination = {sizeof destination, "key", 3, &target, 1};
    status = mnkv_backend_load(backend, &destination, 1, NULL);
    if (status != MNKV_OK) return failed("load", status);
    if (memcmp(memory, "payload", sizeof memory) != 0) return 1;

    status = mnkv_backend_close(backend);
    if (status != MNKV_OK) return failed("close", status);
    printf("stored and loaded with %s\n", mnkv_version());
    return 0;
}

/* A CUDA driver to which every address with the lowest bit set is a device's, and with the second
 * one too, managed. */
#include <stdint.h>

int cuPointerGetAttribute(void *data, int attribute, uint64_t pointer);

int cuPointerGetAttribute(void *data, int attribute, uint64_t pointer) {
    if (attribute == 2) {
        *(uint32_t *)data = (pointer & 1) != 0 ? 2 : 1;
        return 0;
    }
    if (attribute == 8) {
        *(uint8_t *)data = (pointer & 2) != 0;
        return 0;
    }
    return 1;
}

// Found in the place of Mooncake's header of this name.
#pragma once

#include "../nvme_kv_backend.h"

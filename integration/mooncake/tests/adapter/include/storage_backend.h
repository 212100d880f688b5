// As in Mooncake: the interface, which brings glog.
#pragma once

#include <glog/logging.h>

#include "interface/storage_backend.h"

// Loads the library from the path in the first argument.
#include <iostream>
#include <string>

#include "mooncake_nvme_kv/library.hpp"

int main(int argc, char** argv) {
    std::string why;
    const auto library = mooncake_nvme_kv::Library::Load(argc > 1 ? argv[1] : "", why);
    if (library == nullptr) {
        std::cerr << why << '\n';
        return 1;
    }
    std::cout << "loaded " << library->functions().version() << '\n';
    return 0;
}

// sonde-ofi-probe: tries one provider of libfabric with the module in the same folder, and writes the result to stdout.
// The module starts it, and kills it when it takes too long.
#include <dlfcn.h>

#include <cstdio>
#include <string>

int main(int argc, char** argv) {
  const std::string self = argv[0];
  const std::string module = self.substr(0, self.rfind('/') + 1) + "sonde-store-ofi.so";
  void* library = dlopen(module.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    std::printf("no %s\n", dlerror());
    return 1;
  }
  const auto probe = reinterpret_cast<int (*)(int, char**)>(dlsym(library, "sonde_ofi_probe"));
  if (!probe) {
    std::printf("no sonde_ofi_probe in %s\n", module.c_str());
    return 1;
  }
  return probe(argc, argv);
}

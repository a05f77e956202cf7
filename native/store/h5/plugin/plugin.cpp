// The plug-in that HDF5 finds in HDF5_PLUGIN_PATH. Its tables differ between versions of HDF5, so the connector is a
// separate library for each version (sonde-h5-2.0.so …). This plug-in loads without HDF5, and picks the library that
// fits.
//
// Python is another reason for two libraries. It loads libhdf5 with hidden symbols, and the connector's references to
// HDF5's variables are resolved before any code of the connector can change that. The plug-in can: it first makes the
// calling libhdf5 visible, and then loads the connector.

#include <dirent.h>
#include <dlfcn.h>
#include <link.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

namespace {

std::string own_folder() {
  Dl_info self{};
  dladdr(reinterpret_cast<void*>(&own_folder), &self);
  const std::string path = self.dli_fname ? self.dli_fname : "";
  return path.substr(0, path.rfind('/'));
}

// Finds the core library among the loaded ones. Skips its high-level, C++ and Fortran companions, and this plug-in.
int find_hdf5(dl_phdr_info* library, std::size_t, void* found) {
  const std::string path = library->dlpi_name ? library->dlpi_name : "";
  const auto file = path.substr(path.rfind('/') + 1);
  for (const char* const prefix : {"libhdf5-", "libhdf5.", "libhdf5_serial.", "libhdf5_openmpi.", "libhdf5_mpich."}) {
    if (file.starts_with(prefix)) {
      *static_cast<std::string*>(found) = path;
      return 1;
    }
  }
  return 0;
}

std::string versions_built(const std::string& folder) {
  std::vector<std::string> found;
  if (DIR* const dir = opendir(folder.c_str())) {
    while (const dirent* const entry = readdir(dir)) {
      const std::string name = entry->d_name;
      if (name.starts_with("sonde-h5-") && name.ends_with(".so")) {
        found.push_back(name.substr(9, name.size() - 12));
      }
    }
    closedir(dir);
  }
  std::sort(found.begin(), found.end());
  std::string list;
  for (const auto& version : found) {
    list += (list.empty() ? "" : ", ") + version;
  }
  return list.empty() ? "none" : list;
}

const void* load() {
  std::string hdf5;
  dl_iterate_phdr(find_hdf5, &hdf5);
  void* const library = hdf5.empty() ? nullptr : dlopen(hdf5.c_str(), RTLD_NOLOAD | RTLD_NOW | RTLD_GLOBAL);
  using Version = int (*)(unsigned*, unsigned*, unsigned*);
  const auto version = reinterpret_cast<Version>(dlsym(library ? library : RTLD_DEFAULT, "H5get_libversion"));
  unsigned major = 0, minor = 0, release = 0;
  if (!version || version(&major, &minor, &release) < 0) {
    std::fprintf(stderr, "sonde: the HDF5 library that loads this plug-in was not found among the loaded ones\n");
    return nullptr;
  }
  const auto folder = own_folder() + "/connector";
  const auto file = folder + "/sonde-h5-" + std::to_string(major) + "." + std::to_string(minor) + ".so";
  void* const connector = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!connector) {
    std::fprintf(
        stderr,
        "sonde: no HDF5 connector for HDF5 %u.%u.%u (built: %s)\n  %s\n"
        "  hint: use an h5py with one of those versions, or build sonde with -DSONDE_HDF5_INCLUDE=<folder of hdf5.h>\n",
        major, minor, release, versions_built(folder).c_str(), dlerror());
    return nullptr;
  }
  using Get = const void* (*)();
  const auto get = reinterpret_cast<Get>(dlsym(connector, "sonde_h5_connector"));
  return get ? get() : nullptr;
}

}  // namespace

// As H5PLextern.h declares them; 1 is H5PL_TYPE_VOL.
extern "C" __attribute__((visibility("default"))) int H5PLget_plugin_type() { return 1; }

extern "C" __attribute__((visibility("default"))) const void* H5PLget_plugin_info() {
  static const void* const connector = load();
  return connector;
}

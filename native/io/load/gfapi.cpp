// The file through libgfapi. Each rank is a separate client of the volume; no call waits for another rank.

#include "io/load/gfapi.hpp"

#include <dlfcn.h>
#include <fcntl.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>

#include "io/load/files.hpp"
#include "io/load/move_all.hpp"

namespace sonde::ioload {

namespace {

struct Volume;      // glfs_t
struct Descriptor;  // glfs_fd_t

constexpr const char* library_name = "libgfapi.so.0";
// The symbol version that all releases have: without it, GlusterFS 6 and later would give another function, with more
// arguments. Source: the symbol versions of libgfapi 10, and glfs.h of 3.x for the arguments.
constexpr const char* symbol_version = "GFAPI_3.4.0";

struct Library {
  Volume* (*create)(const char* name) = nullptr;
  int (*set_server)(Volume*, const char* transport, const char* host, int port) = nullptr;
  int (*set_logging)(Volume*, const char* file, int level) = nullptr;
  int (*init)(Volume*) = nullptr;
  Descriptor* (*creat)(Volume*, const char* path, int flags, mode_t mode) = nullptr;
  Descriptor* (*open)(Volume*, const char* path, int flags) = nullptr;
  ssize_t (*pwrite)(Descriptor*, const void*, std::size_t, off_t, int flags) = nullptr;
  ssize_t (*pread)(Descriptor*, void*, std::size_t, off_t, int flags) = nullptr;
  int (*fsync)(Descriptor*) = nullptr;
  int (*close)(Descriptor*) = nullptr;
  int (*lstat)(Volume*, const char* path, struct stat*) = nullptr;
  int (*unlink)(Volume*, const char* path) = nullptr;
  int (*statvfs)(Volume*, const char* path, struct statvfs*) = nullptr;
};

Library gluster;
Volume* volume = nullptr;

template <typename Function> bool find(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(::dlvsym(library, name, symbol_version));
  return function != nullptr;
}

Result<void> load() {
  // The library is never closed, because its threads keep running. Nor is the connection, which ends with the process:
  // glfs_fini of GlusterFS 10 always takes ten seconds.
  void* library = ::dlopen(library_name, RTLD_NOW | RTLD_LOCAL);
  const auto missing = [](const std::string& why) {
    return Error{
        "ioload.no_gfapi", "-a GFAPI: " + why,
        "install GlusterFS's client library (Debian, Fedora: libgfapi0), or mount the volume and use -a POSIX"};
  };
  if (library == nullptr) {
    const char* why = ::dlerror();
    return missing(first_line(why ? why : std::string("cannot load ") + library_name));
  }
  Library& g = gluster;
  const bool all = find(library, "glfs_new", g.create) && find(library, "glfs_set_volfile_server", g.set_server) &&
                   find(library, "glfs_set_logging", g.set_logging) && find(library, "glfs_init", g.init) &&
                   find(library, "glfs_creat", g.creat) && find(library, "glfs_open", g.open) &&
                   find(library, "glfs_pwrite", g.pwrite) && find(library, "glfs_pread", g.pread) &&
                   find(library, "glfs_fsync", g.fsync) && find(library, "glfs_close", g.close) &&
                   find(library, "glfs_lstat", g.lstat) && find(library, "glfs_unlink", g.unlink) &&
                   find(library, "glfs_statvfs", g.statvfs);
  if (!all) return missing(std::string(library_name) + " lacks functions of " + symbol_version);
  return {};
}

class VolumeFiles final : public Files {
 public:
  int look(const std::string& path, struct stat& found) override {
    return gluster.lstat(volume, path.c_str(), &found) == 0 ? 0 : errno;
  }
  int remove(const std::string& path) override { return gluster.unlink(volume, path.c_str()) == 0 ? 0 : errno; }
  int space(const std::string& folder, struct statvfs& found) override {
    return gluster.statvfs(volume, folder.c_str(), &found) == 0 ? 0 : errno;
  }
  bool has_paths() const override { return false; }
};

class Gfapi final : public Access {
 public:
  explicit Gfapi(const Layout& layout) : layout_(layout) {}
  ~Gfapi() override {
    if (fd_ != nullptr) gluster.close(fd_);
  }

  Result<void> open(const std::string& path, Purpose purpose, int owner) override {
    path_ = path;
    owner_ = owner;
    fd_ = purpose == Purpose::write ? gluster.creat(volume, path.c_str(), O_WRONLY, 0666)
                                    : gluster.open(volume, path.c_str(), O_RDONLY);
    if (fd_ == nullptr) return file_error("open", path_, errno);
    return {};
  }

  Result<void> write(const Piece& piece, std::span<const std::uint64_t> words) override {
    const auto* data = reinterpret_cast<const char*>(words.data());
    const std::size_t bytes = words.size_bytes();
    return move_all("write", path_, bytes, layout_.offset(piece, owner_),
                    [&](std::size_t done, off_t at) { return gluster.pwrite(fd_, data + done, bytes - done, at, 0); });
  }

  Result<void> read(const Piece& piece, std::span<std::uint64_t> words) override {
    auto* data = reinterpret_cast<char*>(words.data());
    const std::size_t bytes = words.size_bytes();
    return move_all("read", path_, bytes, layout_.offset(piece, owner_),
                    [&](std::size_t done, off_t at) { return gluster.pread(fd_, data + done, bytes - done, at, 0); });
  }

  Result<void> sync() override {
    if (gluster.fsync(fd_) != 0) return file_error("sync", path_, errno);
    return {};
  }

  Result<void> close() override {
    Descriptor* fd = fd_;
    fd_ = nullptr;
    if (fd != nullptr && gluster.close(fd) != 0) return file_error("close", path_, errno);
    return {};
  }

  bool opens_together() const override { return false; }

 private:
  Layout layout_;
  std::string path_;
  int owner_ = 0;
  Descriptor* fd_ = nullptr;
};

}  // namespace

Result<void> gfapi_connect(const Options& options) {
  if (const auto loaded = load(); !loaded) return loaded;
  const auto cannot = [&](int number) {
    return Error{"ioload.cannot_connect",
                 "cannot connect to the volume '" + options.gfapi_volume + "' of " + options.gfapi_server +
                     (number ? std::string(": ") + std::strerror(number) : ""),
                 "check that it is started: 'gluster volume info " + options.gfapi_volume +
                     "' on a server; name both with --gfapi.volume and --gfapi.server"};
  };
  errno = 0;
  volume = gluster.create(options.gfapi_volume.c_str());
  if (volume == nullptr) return cannot(errno);
  const bool well = gluster.set_server(volume, "tcp", options.gfapi_server.c_str(), 24007) == 0 &&
                    gluster.set_logging(volume, "/dev/null", 0) == 0 && gluster.init(volume) == 0;
  if (!well) {
    return cannot(errno);
  }
  static VolumeFiles of_volume;
  use_files(of_volume);
  return {};
}

std::unique_ptr<Access> make_gfapi(const Layout& layout) { return std::make_unique<Gfapi>(layout); }

}  // namespace sonde::ioload

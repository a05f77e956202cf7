#include "io/load/files.hpp"

#include <unistd.h>

#include <cerrno>

namespace sonde::ioload {

namespace {

class HostFiles final : public Files {
 public:
  int look(const std::string& path, struct stat& found) override {
    return ::lstat(path.c_str(), &found) == 0 ? 0 : errno;
  }
  int remove(const std::string& path) override { return ::unlink(path.c_str()) == 0 ? 0 : errno; }
  int space(const std::string& folder, struct statvfs& found) override {
    return ::statvfs(folder.c_str(), &found) == 0 ? 0 : errno;
  }
  bool has_paths() const override { return true; }
};

Files*& current() {
  static HostFiles host;
  static Files* chosen = &host;
  return chosen;
}

}  // namespace

Files& files() { return *current(); }
void use_files(Files& others) { current() = &others; }

}  // namespace sonde::ioload

#include <doctest/doctest.h>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <span>
#include <string>

#include "core/block.hpp"
#include "core/owned_file.hpp"
#include "core/text.hpp"

namespace {

namespace fs = std::filesystem;

struct Folder {
  std::string path = "/tmp/sonde-owned-XXXXXX";
  Folder() { REQUIRE(::mkdtemp(path.data()) != nullptr); }
  ~Folder() { fs::remove_all(path); }
  std::string operator/(const char* name) const { return path + "/" + name; }
  std::size_t entries() const {
    return static_cast<std::size_t>(std::distance(fs::directory_iterator(path), fs::directory_iterator()));
  }
};

std::string text_of(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

void put(const std::string& path, const char* text) { std::ofstream(path) << text; }

}  // namespace

TEST_CASE("core: a block file is not written through a link") {
  const Folder folder;
  put(folder / "precious", "precious");
  fs::create_symlink(folder / "precious", folder / "a.blk");
  const auto sink = sonde::FileSink::create(folder / "a.blk");
  REQUIRE(!sink);
  CHECK(sink.error().code == "core.unsafe_file");
  CHECK(sink.error().what.find("is a link") != std::string::npos);
  CHECK(text_of(folder / "precious") == "precious");
}

TEST_CASE("core: a dangling link makes no file elsewhere") {
  const Folder folder;
  fs::create_symlink(folder / "elsewhere", folder / "a");
  CHECK(!sonde::make_file(folder / "a"));
  CHECK(!sonde::append_to_file(folder / "a"));
  CHECK(!fs::exists(folder / "elsewhere"));
}

TEST_CASE("core: an older file of that name goes, and what else it is called stays") {
  const Folder folder;
  put(folder / "precious", "precious");
  fs::create_hard_link(folder / "precious", folder / "a.blk");
  auto sink = sonde::FileSink::create(folder / "a.blk");
  REQUIRE(sink);
  const auto bytes = std::as_bytes(std::span("new", 3));
  CHECK(sink->put(bytes));
  CHECK(text_of(folder / "precious") == "precious");
  CHECK(text_of(folder / "a.blk") == "new");
}

TEST_CASE("core: a pipe, a device or a folder in place of a file is refused") {
  const Folder folder;
  REQUIRE(::mkfifo((folder / "pipe").c_str(), 0600) == 0);
  fs::create_directory(folder / "folder");
  for (const char* name : {"pipe", "folder"}) {
    CHECK(!sonde::make_file(folder / name));
    CHECK(!sonde::append_to_file(folder / name));
    CHECK(fs::exists(folder / name));
  }
  CHECK(!sonde::make_file("/dev/null"));
  CHECK(fs::exists("/dev/null"));
}

TEST_CASE("core: a file with two names is not appended to") {
  const Folder folder;
  put(folder / "precious", "precious");
  fs::create_hard_link(folder / "precious", folder / "a");
  CHECK(!sonde::append_to_file(folder / "a"));
  const auto made = sonde::append_to_file(folder / "b");
  REQUIRE(made);
  ::close(*made);
}

TEST_CASE("core: a file that is replaced is whole, and a link is replaced itself") {
  const Folder folder;
  put(folder / "precious", "precious");
  fs::create_symlink(folder / "precious", folder / "a");
  fs::create_symlink(folder / "precious", folder / "a.part");  // as it was called once
  CHECK(sonde::write_whole(folder / "a", "new"));
  CHECK(text_of(folder / "precious") == "precious");
  CHECK(text_of(folder / "a") == "new");
  CHECK(!fs::is_symlink(folder / "a"));
  CHECK(folder.entries() == 3);
}

TEST_CASE("core: a file that cannot be replaced leaves nothing") {
  const Folder folder;
  fs::create_directory(folder / "a");
  CHECK(!sonde::write_whole(folder / "a", "new"));
  CHECK(folder.entries() == 1);
  CHECK(!sonde::write_whole(folder / "no/such", "new"));
}

TEST_CASE("core: percent-encoding") {
  std::string out;
  CHECK((sonde::percent_decoded("/a%0Ab%25%c3%a9", out) && out == "/a\nb%\xc3\xa9"));
  CHECK((sonde::percent_decoded("", out) && out.empty()));
  for (const char* bad : {"%", "%4", "%g0", "%4g", "%00", "a%"}) CHECK(!sonde::percent_decoded(bad, out));
}

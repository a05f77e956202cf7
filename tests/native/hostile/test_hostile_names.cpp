// Names that a file system would take for something else.
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "../store/store_faults.hpp"
#include "store/backend.hpp"

using namespace sonde::store;
using namespace sonde::store::faults;

TEST_CASE("posix: a name whose last piece would be a dot or two is an object like any other") {
  const Scratch scratch;
  const std::string path = scratch / "objects";
  std::vector<std::string> names{".", "..", "...", std::string(1024, '.')};
  // The space "s" and '+' are before the name; a piece has 250 bytes.
  for (const std::size_t pieces : {1u, 2u, 3u, 4u})
    for (const char* end : {".", "..", "...", "x", "x."}) {
      names.push_back(std::string(250 * pieces - 2, 'n') + end);
      names.push_back(std::string(250 * pieces - 2, '.') + end);
    }
  for (const std::string& name : names) {
    CAPTURE(name);
    {
      const auto backend = open(Role::data, "posix", {{"path", path}});
      CHECK(run(*backend, op(Code::object_status, name)) == Status::not_found);
      CHECK(text(*backend, read(name)) == "<not_found>");
      CHECK(run(*backend, op(Code::object_write, name, name)) == Status::ok);
      CHECK(text(*backend, read(name)) == name);
    }
    const auto backend = open(Role::data, "posix", {{"path", path}});
    CHECK(text(*backend, read(name)) == name);
    CHECK(run(*backend, op(Code::object_status, name)) == Status::ok);
    Op list = op(Code::object_list, "");
    Arena arena;
    Outcome listed;
    backend->execute({&list, 1}, Safety::network, {&listed, 1}, arena);
    std::vector<std::pair<std::string_view, Bytes>> entries;
    REQUIRE(unpack_pairs(listed.data, entries));
    REQUIRE(entries.size() == 1);
    CHECK(entries[0].first == name);
    CHECK(run(*backend, op(Code::object_remove, name)) == Status::ok);
    CHECK(text(*backend, read(name)) == "<not_found>");
  }
  // Nothing stays of them but the folders of their hashes.
  for (const auto& entry : std::filesystem::recursive_directory_iterator(path))
    if (entry.is_directory()) CHECK(entry.path().filename().string().size() == 2);
    else CHECK(entry.path().filename().string().find("sonde-store") != std::string::npos);
}

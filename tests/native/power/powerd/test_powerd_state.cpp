// What a node manager keeps on disk, through torn writes and full disks.
#include <doctest/doctest.h>

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <memory>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "power/powerd/state.hpp"

using namespace sonde;
using namespace sonde::power;

namespace {

struct Folder {
  std::string path;
  Folder() {
    char name[] = "/tmp/sonde-state-XXXXXX";
    path = ::mkdtemp(name);
  }
  ~Folder() { std::filesystem::remove_all(path); }
  std::string file(const char* end) const { return path + "/node-n1." + end; }
  std::string text(const char* end) const {
    std::ifstream in(file(end), std::ios::binary);
    std::stringstream out;
    out << in.rdbuf();
    return out.str();
  }
  void write(const char* end, const std::string& what) const {
    std::ofstream(file(end), std::ios::binary | std::ios::trunc) << what;
  }
  std::unique_ptr<NodeState> open() const {
    auto state = NodeState::open(path, "n1");
    REQUIRE_MESSAGE(state, (state ? "" : state.error().what));
    return std::move(*state);
  }
};

}  // namespace

TEST_CASE("power state: a fence is there after a restart, whatever its manager is called") {
  Folder folder;
  for (const std::string& name : {std::string("m1"), std::string("a b\n%\0\xff", 7), std::string()}) {
    for (std::uint64_t epoch = 1; epoch < 5; ++epoch) {
      REQUIRE(folder.open()->keep(Fence{epoch, name}));
      auto state = folder.open();
      const auto fence = state->fence();
      REQUIRE(fence);
      CHECK(*fence == Fence{epoch, name});
      REQUIRE(state->keep(Fence{epoch + 100, name}));
    }
  }
  CHECK(folder.text("fence").size() == 1024);
}

TEST_CASE("power state: nothing kept is no fence") {
  Folder folder;
  auto state = folder.open();
  const auto fence = state->fence();
  REQUIRE(fence);
  CHECK(*fence == Fence{});
  auto originals = state->originals();
  REQUIRE(originals);
  CHECK(!originals->has_value());
}

TEST_CASE("power state: a write that was torn leaves the fence before it") {
  Folder folder;
  {
    auto state = folder.open();
    REQUIRE(state->fence());
    REQUIRE(state->keep(Fence{5, "m1"}));
    REQUIRE(state->keep(Fence{6, "m2"}));
  }
  const std::string whole = folder.text("fence");
  // One of the slots is the last: tearing it leaves 5, tearing the other one leaves 6.
  std::set<std::uint64_t> left;
  for (std::size_t slot = 0; slot < 2; ++slot) {
    std::string torn = whole;
    std::fill_n(torn.begin() + static_cast<std::ptrdiff_t>(slot * 512 + 14), 100, '\0');
    folder.write("fence", torn);
    auto fence = folder.open()->fence();
    REQUIRE(fence);
    left.insert(fence->epoch);
  }
  CHECK(left == std::set<std::uint64_t>{5, 6});
  std::string other = whole;
  other[other.find("=m2") - 2] = '9';  // an epoch that nobody had
  folder.write("fence", other);
  CHECK((*folder.open()->fence()).epoch == 5);
  folder.write("fence", std::string(1024, 'x'));
  auto fence = folder.open()->fence();
  REQUIRE(!fence);
  CHECK(fence.error().code == "power.state");
}

TEST_CASE("power state: originals come back as they were, and damaged ones are told") {
  Folder folder;
  const std::vector<Original> all{{"package-0", "constraint_0_power_limit_uw", "125000000"},
                                  {"node", "a setting", "two\nlines %41"},
                                  {"x", "empty", ""}};
  REQUIRE(folder.open()->keep(all));
  auto state = folder.open();
  auto back = state->originals();
  REQUIRE(back);
  REQUIRE(back->has_value());
  REQUIRE((*back)->size() == all.size());
  for (std::size_t k = 0; k < all.size(); ++k) {
    CHECK((**back)[k].domain == all[k].domain);
    CHECK((**back)[k].setting == all[k].setting);
    CHECK((**back)[k].value == all[k].value);
  }
  const std::string whole = folder.text("originals");
  for (std::size_t n = 0; n < whole.size(); ++n) {
    folder.write("originals", whole.substr(0, n));
    CHECK_MESSAGE(!state->originals(), n);
  }
  std::string other = whole;
  other[other.find("125")] = '9';
  folder.write("originals", other);
  CHECK(state->originals().error().code == "power.state");
  REQUIRE(state->forget_originals());
  CHECK(!state->originals()->has_value());
}

TEST_CASE("power state: one node manager of a node") {
  Folder folder;
  auto first = folder.open();
  const auto second = NodeState::open(folder.path, "n1");
  REQUIRE(!second);
  CHECK(second.error().code == "power.already_running");
  CHECK(second.error().what.find(std::to_string(::getpid())) != std::string::npos);
  CHECK(NodeState::open(folder.path, "n2"));
  first.reset();
  CHECK(NodeState::open(folder.path, "n1"));
  CHECK(NodeState::open("/proc/nothing", "n1").error().code == "power.state");
}

TEST_CASE("power state: a disk that has become full takes fences yet, and says so of what needs room") {
  Folder folder;
  auto state = folder.open();
  REQUIRE(state->fence());
  REQUIRE(state->keep(Fence{1, "m"}));
  rlimit before{};
  ::getrlimit(RLIMIT_FSIZE, &before);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit small{1024, before.rlim_max};
  ::setrlimit(RLIMIT_FSIZE, &small);
  const auto fence = state->keep(Fence{2, "m"});
  const auto originals =
      state->keep(std::vector<Original>(200, Original{"package-0", "constraint_0_power_limit_uw", "1"}));
  ::setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, handler);
  CHECK(fence);
  REQUIRE(!originals);
  CHECK(originals.error().code == "power.state");
  CHECK(!std::filesystem::exists(folder.file("originals")));
  for (const auto& file : std::filesystem::directory_iterator(folder.path)) CHECK(file.path().extension() != ".part");
}

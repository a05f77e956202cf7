#pragma once
/// Encoded bytes that somebody changed, walked at the very end of a page, the next of which nobody may read: one byte
/// too far ends the test.

#include <doctest/doctest.h>

#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace sonde::test {

struct Sample {
  const char* name;
  const char* hex;
};

inline std::string bytes_of(std::string_view hex) {
  std::string out;
  for (std::size_t k = 0; k + 1 < hex.size(); k += 2)
    out += static_cast<char>(std::stoi(std::string(hex.substr(k, 2)), nullptr, 16));
  return out;
}

/// Room that ends where reading is forbidden.
class Edge {
 public:
  Edge() {
    void* const at = ::mmap(nullptr, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    REQUIRE(at != MAP_FAILED);
    begin_ = static_cast<std::byte*>(at);
    REQUIRE(::mprotect(begin_ + page, page, PROT_NONE) == 0);
  }
  ~Edge() { ::munmap(begin_, 2 * page); }
  Edge(const Edge&) = delete;
  Edge& operator=(const Edge&) = delete;

  std::span<const std::byte> put(const std::string& bytes) {
    REQUIRE(bytes.size() <= page);
    std::byte* const at = begin_ + page - bytes.size();
    std::memcpy(at, bytes.data(), bytes.size());
    return {at, bytes.size()};
  }

 private:
  const std::size_t page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  std::byte* begin_ = nullptr;
};

using Walk = std::function<std::string(Edge&, const std::string&)>;

/// Every beginning of a sample is refused, and none of its changes is read past its end.
inline void torture(const std::vector<Sample>& samples, const Walk& walk) {
  Edge edge;
  std::mt19937 dice(20260401);
  for (const auto& sample : samples) {
    CAPTURE(sample.name);
    const std::string whole = bytes_of(sample.hex);
    CHECK(walk(edge, whole) == "");
    for (std::size_t n = 0; n < whole.size(); ++n) {
      CAPTURE(n);
      CHECK(walk(edge, whole.substr(0, n)) != "");
    }
    std::size_t refused = 0;
    for (std::size_t at = 0; at < whole.size(); ++at)
      for (const int value : {0, 1, 2, 0x0f, 0x7f, 0x80, 0xf0, 0xff}) {
        std::string changed = whole;
        changed[at] = static_cast<char>(value);
        refused += !walk(edge, changed).empty();
      }
    CHECK(refused > 0);
    for (int round = 0; round < 2000; ++round) {
      std::string changed = whole;
      for (unsigned k = 1 + dice() % 4; k > 0; --k) changed[dice() % changed.size()] = static_cast<char>(dice());
      if (dice() % 2) changed.resize(dice() % (changed.size() + 1));
      (void)walk(edge, changed);
    }
  }
}

}  // namespace sonde::test

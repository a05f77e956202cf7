/// Datatypes and dataspaces of a store that somebody changed: what HDF5 before 2.0 is given to decode, without a
/// length.
///
/// The samples were made by H5Tencode and H5Sencode of HDF5 2.0 through h5py 3.16. Each is walked at the very end of
/// its page, the next of which nobody may read: one byte too far ends the test.

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

#include "store/h5/encoded.hpp"

namespace {

using sonde::store::h5::EncodedWalk;

struct Sample {
  const char* name;
  const char* hex;
};

const std::vector<Sample> types{
    {"int32", "0300100800000400000000002000"},
    {"uint64", "0300100000000800000000004000"},
    {"int8", "0300100800000100000000000800"},
    {"big i2", "0300100900000200000000001000"},
    {"float32", "030011201f000400000000002000170800177f000000"},
    {"float64", "030011203f000800000000004000340b0034ff030000"},
    {"big f8", "030011213f000800000000004000340b0034ff030000"},
    {"float16", "030011200f0002000000000010000a05000a0f000000"},
    {"longdouble", "030011004f001000000000005000400f0040ff3f0000"},
    {"S5", "03001301000005000000"},
    {"bool", "0300180200000100000010080000010000000000080046414c534500000054525545000000000001"},
    {"complex128",
     "030016020000100000007200000000000000000000000000000000000000000000000000000000000000000000000000"
     "000011203f000800000000004000340b0034ff0300006900000000000000080000000000000000000000000000000000"
     "000000000000000000000000000011203f000800000000004000340b0034ff030000"},
    {"text", "03001510000008000000505954484f4e3a4f424a454354000000"},
    {"text of 7", "03001311000007000000"},
    {"sequence", "03001900000010000000100800000400000000002000"},
    {"reference", "03001700000008000000"},
    {"region", "0300170100000c000000"},
    {"enumeration",
     "03001803000004000000100800000400000000002000424c554500000000475245454e00000052454400000000002a00"
     "00000100000000000000"},
    {"opaque", "0300150000000b000000"},
    {"tagged", "030015180000060000006120746167206f66206e696e657465656e20620000000000"},
    {"array",
     "03002a00000060000000020000000300000004000000000000000100000011203f000800000000004000340b0034ff03"
     "0000"},
    {"compound",
     "0300260500002800000078000000000000000000000011201f000400000000002000170800177f00000061206c6f6e67"
     "206e616d650000000000040000002a000000040000000100000002000000000000001008000002000000000010007300"
     "000000000000080000001901010008000000100000000100000000000800760000000000000010000000190000001000"
     "000016020000090000007000000000000000000000000000000000000000000000000000000000000000000000000000"
     "000010000000010000000000080071000000000000000100000000000000000000000000000000000000000000000000"
     "00000000000011203f000800000000004000340b0034ff0300007200000000000000200000001700000008000000"},
    {"plain compound",
     "030016020000100000007800000000000000000000000000000000000000000000000000000000000000000000000000"
     "000011201f000400000000002000170800177f0000007979000000000000080000000000000000000000000000000000"
     "0000000000000000000000000000100800000800000000004000"},
    {"nested",
     "030016020000060000006100000000000000000000000000000000000000000000000000000000000000000000000000"
     "000016010000050000006200000000000000000000000000000000000000000000000000000000000000000000000000"
     "000016020000050000006300000000000000000000000000000000000000000000000000000000000000000000000000"
     "000010000000020000000000100064000000000000000200000000000000000000000000000000000000000000000000"
     "000000000000130100000300000065000000000000000500000000000000000000000000000000000000000000000000"
     "000000000000100800000100000000000800"},
    {"bits", "0300140000000200000000001000"},
    {"time", "030012000000040000002000"},
    {"complex", "03005b0100001000000011203f000800000000004000340b0034ff030000"},
    {"latest compound",
     "0300560500002800000078000011201f000400000000002000170800177f00000061206c6f6e67206e616d6500045a00"
     "000004000000010200000010080000020000000000100073000819010100080000001000000001000000000008007600"
     "105900000010000000560200000900000070000010000000010000000000080071000111203f00080000000000400034"
     "0b0034ff0300007200201700000008000000"},
    {"latest enum", "03005802000001000000100000000100000000000800410042000001"},
    {"latest arr", "03005a0000000c000000020200000003000000100800000200000000001000"},
    {"latest text", "03001901010008000000100000000100000000000800"},
};

const std::vector<Sample> spaces{
    {"scalar", "01000808000000010000000000000003000000010000000000000000000000"},
    {"null", "010008040000000200000203000000010000000000000000000000"},
    {"simple",
     "01000828000000010201000000000004000000000000000500000000000000ffffffffffffffff050000000000000003"
     "000000010000000000000000000000"},
    {"none",
     "01000828000000010201000000000004000000000000000500000000000000ffffffffffffffff050000000000000000"
     "000000010000000000000000000000"},
    {"points",
     "01000828000000010201000000000004000000000000000500000000000000ffffffffffffffff050000000000000001"
     "0000000100000000000000200000000200000003000000000000000100000003000000040000000200000002000000"},
    {"regular",
     "01000828000000010201000000000004000000000000000500000000000000ffffffffffffffff050000000000000002"
     "000000010000000000000048000000020000000400000000000000000000000000000000000000000000000200000000"
     "000000020000000200000000000000020000000000000002000000020000000200000002000000"},
    {"blocks",
     "01000828000000010201000000000004000000000000000500000000000000ffffffffffffffff050000000000000002"
     "000000010000000000000058000000020000000500000000000000000000000000000000000000000000000200000000"
     "000000020000000200000000000000020000000000000002000000020000000200000002000000030000000400000003"
     "00000004000000"},
    {"large regular",
     "010008180000000101010000000000000000000001000000000000000100000200000002000000012400000001000000"
     "0000000008000000000000000200000003000000000000000100000000000000"},
    {"large blocks",
     "010008180000000101010000000000000000000001000000000000000100000200000003000000000801000000040000"
     "00000000000500000000000000050000000000000000000000080000000000000008000000000000000a000000000000"
     "000a000000000000000c000000000000000c000000"},
    {"large points",
     "010008180000000101010000000000000000000001000000000000000100000100000002000000080100000001000000"
     "000000000000000010000000"},
};

std::string bytes_of(std::string_view hex) {
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

std::string type_of(Edge& edge, const std::string& bytes) { return EncodedWalk(edge.put(bytes)).type(); }
std::string space_of(Edge& edge, const std::string& bytes) { return EncodedWalk(edge.put(bytes)).space(); }

using Walk = std::function<std::string(Edge&, const std::string&)>;

/// Every beginning of a sample is refused, and none of its changes is read past its end.
void torture(const std::vector<Sample>& samples, const Walk& walk) {
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

/// A datatype of version 1: class, flags, size, properties.
std::string type(unsigned kind, std::uint32_t flags, std::uint32_t bytes, const std::string& rest,
                 unsigned version = 1) {
  std::string out{static_cast<char>(version << 4 | kind)};
  for (int k = 0; k < 3; ++k) out += static_cast<char>(flags >> 8 * k);
  for (int k = 0; k < 4; ++k) out += static_cast<char>(bytes >> 8 * k);
  return out + rest;
}
std::string encoded(const std::string& message) { return std::string("\3\0", 2) + message; }
std::string u16(unsigned value) { return {static_cast<char>(value), static_cast<char>(value >> 8)}; }
const std::string one_byte = type(0, 0, 1, u16(0) + u16(8));

}  // namespace

TEST_CASE("hostile: an encoded datatype is not read past its end, however it was changed") { torture(types, type_of); }

TEST_CASE("hostile: an encoded dataspace is not read past its end, however it was changed") {
  torture(spaces, space_of);
}

TEST_CASE("hostile: an encoded datatype's parts lie within it") {
  Edge edge;
  const auto refused = [&](const std::string& message) { return type_of(edge, encoded(message)); };
  CHECK(refused(one_byte) == "");
  CHECK(refused(type(0, 0, 1, u16(4) + u16(8))) == "has bits outside of a number");
  CHECK(refused(type(0, 0, 0, u16(0) + u16(0))) == "has a part of 0 B");
  // A member that begins in its compound and ends outside.
  const std::string member = std::string("ab\0\0\0\0\0\0", 8);
  const auto compound = [&](unsigned at, std::uint32_t bytes) {
    return type(6, 1, bytes, member + u16(at) + u16(0) + std::string(28, '\0') + one_byte);
  };
  CHECK(refused(compound(3, 4)) == "");
  CHECK(refused(compound(4, 4)) == "has a member outside of its compound");
  CHECK(refused(compound(65535, 4)) == "has a member outside of its compound");
  CHECK(refused(type(6, 0, 4, "")) == "has a compound without a member");
  // A name that never ends.
  CHECK(refused(type(6, 1, 4, "abcdefgh")) == "is longer than what is stored");
  // HDF5 before 2.0 copies as many values as an enumeration says it has.
  CHECK(refused(type(8, 0xffff, 1, one_byte)) == "is longer than what is stored");
  CHECK(refused(type(8, 0, 8, one_byte)) == "has an enumeration of what are no integers of its size");
  // And as many dims as an array says, into room for 32.
  const auto array = [&](unsigned rank, std::uint32_t bytes, const std::string& dims) {
    return type(10, 0, bytes, static_cast<char>(rank) + dims + one_byte, 3);
  };
  CHECK(refused(array(1, 3, u16(3) + u16(0))) == "");
  CHECK(refused(array(1, 4, u16(3) + u16(0))) == "has an array whose elements do not add up to its size");
  CHECK(refused(array(1, 3, u16(0) + u16(0))) == "has an array that is larger than its size");
  CHECK(refused(array(0, 3, "")) == "has an array of another rank than 1 to 32");
  CHECK(refused(array(200, 3, std::string(800, '\1'))) == "has an array of another rank than 1 to 32");
  // 65535 x 65535 x 65537 x 65537 is 1 in 64 bits.
  CHECK(refused(array(4, 1, u16(65535) + u16(0) + u16(65535) + u16(0) + u16(1) + u16(1) + u16(1) + u16(1))) ==
        "has an array that is larger than its size");
}

TEST_CASE("hostile: nesting without end takes no stack") {
  Edge edge;
  std::string deep = one_byte;
  for (int k = 0; k < 32; ++k) deep = type(9, 0, 16, deep);
  CHECK(type_of(edge, encoded(deep)) == "");
  CHECK(type_of(edge, encoded(type(9, 0, 16, deep))) == "is nested deeper than 32 levels");
}

TEST_CASE("hostile: what is no encoding is none") {
  Edge edge;
  for (const auto& bytes :
       {std::string(), std::string("\3"), std::string("\3\0", 2), std::string("\1\0", 2), std::string(64, '\0'),
        std::string(64, '\xff'), std::string("\1\0\x08\xff\xff\xff\xff", 7)}) {
    CHECK(type_of(edge, bytes) != "");
    CHECK(space_of(edge, bytes) != "");
  }
}

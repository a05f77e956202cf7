// libFuzzer: records of an HDF5 file in the store, their keys, and values in HDF5's encoding. The first byte selects
// the kind.
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "core/fuzz/input.hpp"
#include "store/h5/encoded.hpp"
#include "store/h5/encoded_properties.hpp"
#include "store/h5/failure.hpp"
#include "store/h5/records.hpp"

namespace {

using namespace sonde::store::h5;
using sonde::fuzz::hold;

/// A decoded record must encode to the same bytes. Other records must be refused as damaged, with a message.
template <typename Again> void both_ways(std::string_view record, Again&& again) {
  std::string written;
  try {
    written = again(record);
  } catch (const Failure& failure) {
    hold(failure.why() == Why::io || failure.why() == Why::unsupported, "a damaged record is not reported as damaged");
    return hold(std::string_view(failure.what()).size() > 0, "a record is refused without a message");
  }
  hold(written == record, "a decoded record is encoded differently");
}

std::string link(std::string_view record) {
  std::string name;
  const auto link = decode_link(record, name);
  hold(link.kind <= Link::Kind::external && !name.empty(), "a link without kind or name");
  return encode(name, link);
}
std::string attribute(std::string_view record) {
  std::string name;
  const auto attribute = decode_attribute(record, name);
  hold(!name.empty(), "an attribute without a name");
  return encode(name, attribute);
}
std::string header(std::string_view record) {
  const auto o = decode_header(record);
  const auto rank = o.extent.size();
  hold(rank <= 32 && o.extent_max.size() == rank && (o.chunk.empty() || o.chunk.size() == rank),
       "a header with different numbers of axes");
  for (const auto n : o.chunk) hold(n > 0, "a header with empty chunks");
  return encode(o);
}
std::string place(std::string_view text) { return chunk_key(0, chunk_at(text)).substr(17); }

/// A valid list belongs to one class, and is invalid with one byte less or more.
void properties(std::string_view text) {
  const std::string bytes(text);
  unsigned sound = 0;
  for (const auto kind : {PropertyClass::file, PropertyClass::dataset, PropertyClass::group, PropertyClass::datatype}) {
    if (!wrong_with_properties(bytes, kind).empty()) continue;
    ++sound;
    hold(!wrong_with_properties(bytes.substr(0, bytes.size() - 1), kind).empty(), "a truncated list is accepted");
    hold(!wrong_with_properties(bytes + '\0', kind).empty(), "a list with an extra byte is accepted");
  }
  hold(sound <= 1, "a list is accepted for several classes");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t n) {
  if (n < 1) return 0;
  const auto text = sonde::fuzz::text_of(bytes + 1, n - 1);
  const auto raw = std::as_bytes(std::span(bytes + 1, n - 1));
  switch (bytes[0] % 10) {
    case 0: both_ways(text, [](std::string_view r) { return encode(decode_file(r, "file.h5")); }); break;
    case 1: both_ways(text, header); break;
    case 2: both_ways(text, link); break;
    case 3: both_ways(text, attribute); break;
    case 4: both_ways(text, [](std::string_view r) { return encode(decode_chunk(r)); }); break;
    case 5: both_ways(text, [](std::string_view r) { return encode(decode_region(r)); }); break;
    case 6: both_ways(text, place); break;
    case 7: static_cast<void>(EncodedWalk(raw).type()); break;
    case 8: static_cast<void>(EncodedWalk(raw).space()); break;
    default:
      static_cast<void>(PropertyWalk(raw).list(PropertyClass::dataset));
      properties(text);
      break;
  }
  return 0;
}

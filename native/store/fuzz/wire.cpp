// libFuzzer: one frame, its header and its table, as client and server read them; checksums are made correct. The first
// byte selects the reader, or that the rest is the text of a hello.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "core/fuzz/input.hpp"
#include "store/wire.hpp"

namespace {

using namespace sonde::store;
using sonde::fuzz::hold;

void text(Bytes bytes) {
  for (const auto& [name, value] : wire::decode_text(bytes))
    hold(name.size() + value.size() <= bytes.size() && name.find('\n') == name.npos && value.find('\n') == value.npos,
         "a line of a hello is longer than the hello, or two");
}

void frame(Bytes bytes, bool answers) {
  std::byte head[wire::header_bytes];
  std::copy_n(bytes.begin(), sizeof head, head);
  std::memcpy(head, &wire::magic, 4);
  head[4] = static_cast<std::byte>(wire::version);
  const std::uint32_t sum = wire::crc32c({head, 60});
  std::memcpy(head + 60, &sum, 4);
  const auto decoded = wire::decode(head);
  if (!decoded) return hold(decoded.error(), "store.bad_frame");
  wire::Header header = *decoded;
  hold(header.ops <= wire::frame_ops_max && header.table_bytes <= wire::table_bytes_max &&
           header.data_bytes <= wire::data_bytes_max,
       "a header over its limits");
  std::byte again[wire::header_bytes];
  wire::encode(header, again);
  hold(std::memcmp(head, again, sizeof head) == 0, "a header changes when it is encoded and decoded");

  // Uses as much of a table as there is: a table is only read when all of it has come.
  const Bytes table = bytes.subspan(sizeof head);
  header.table_bytes = static_cast<std::uint32_t>(std::min<std::size_t>(table.size(), wire::table_bytes_max));
  if (answers) {
    std::vector<wire::Answer> out;
    if (const auto read = wire::read_answers(header, table.first(header.table_bytes), out); !read)
      return hold(read.error(), "store.bad_frame");
    hold(out.size() <= table.size() / wire::record_bytes, "more answers than the table has bytes for");
    return;
  }
  std::vector<wire::Record> out;
  if (const auto read = wire::read_table(header, table.first(header.table_bytes), out); !read)
    return hold(read.error(), "store.bad_frame");
  hold(out.size() <= table.size() / wire::record_bytes, "more records than the table has bytes for");
  std::uint64_t data_bytes = 0;
  for (const auto& record : out) {
    data_bytes += record.data_bytes;
    for (const auto name : {record.space, record.key})
      hold(name.empty() || (name.data() >= reinterpret_cast<const char*>(table.data()) &&
                            name.data() + name.size() <= reinterpret_cast<const char*>(table.data() + table.size())),
           "a name lies outside its table");
  }
  hold(data_bytes == header.data_bytes, "data that does not add up");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t n) {
  if (n < 1) return 0;
  const Bytes rest{reinterpret_cast<const std::byte*>(bytes + 1), n - 1};
  if (bytes[0] % 3 == 2) text(rest);
  else if (rest.size() >= wire::header_bytes) frame(rest, bytes[0] % 3 == 1);
  return 0;
}

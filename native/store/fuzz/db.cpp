// libFuzzer: schemas, rows, selectors, updates, queries and answers of the role db. The first byte selects the kind.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/fuzz/input.hpp"
#include "store/db.hpp"

namespace {

using namespace sonde::store;
using sonde::fuzz::hold;

/// A decoded value must encode to the same bytes: the encoding is strict, so each value has only one.
template <typename Value> void both_ways(sonde::Result<Value> decoded, Bytes bytes) {
  if (!decoded) return hold(decoded.error(), "store.bad_encoding");
  auto again = db::encode(*decoded);
  hold(std::ranges::equal(again, bytes), "a decoded value is encoded differently");
}

void rows(Bytes bytes) {
  auto whole = db::decode_rows(bytes);
  both_ways(whole, bytes);
  db::RowsReader reader(bytes);
  std::vector<db::Value> row;
  std::size_t n = 0;
  while (reader.next(row)) ++n;
  hold(bool(reader.error()) == bool(whole), "RowsReader and decode_rows() do not agree");
  if (whole) hold(n == whole->rows.size() && reader.fields() == whole->fields, "RowsReader reads different rows");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t n) {
  if (n < 1) return 0;
  const Bytes rest{reinterpret_cast<const std::byte*>(bytes + 1), n - 1};
  switch (bytes[0] % 6) {
    case 0: both_ways(db::decode_schema(rest), rest); break;
    case 1: rows(rest); break;
    case 2: both_ways(db::decode_selector(rest), rest); break;
    case 3: both_ways(db::decode_update(rest), rest); break;
    case 4: both_ways(db::decode_query(rest), rest); break;
    default: both_ways(db::decode_answer(rest), rest); break;
  }
  return 0;
}

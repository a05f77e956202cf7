#include "store/wire.hpp"

#include <algorithm>
#include <bit>
#include <cstring>

namespace sonde::store::wire {

static_assert(std::endian::native == std::endian::little,
              "numbers are copied as they are; a big-endian port must swap them here");

namespace {

template <typename T> void put(std::byte* at, T value) { std::memcpy(at, &value, sizeof value); }

template <typename T> T get(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

Error bad(std::string what) {
  return {"store.bad_frame", std::move(what),
          "both sides must run the same version of Sonde; or another program may use this port"};
}

constexpr std::uint8_t bit_same_space = 0x80, bit_same_key = 0x40, record_flags = 0x3f;
constexpr std::size_t padded(std::size_t n) { return (n + 7) & ~std::size_t{7}; }

}  // namespace

void encode(const Header& h, std::byte* out) {
  std::memset(out, 0, header_bytes);
  put(out, magic);
  put(out + 4, version);
  put(out + 5, static_cast<std::uint8_t>(h.kind));
  put(out + 6, h.flags);
  put(out + 8, h.id);
  put(out + 16, h.ops);
  put(out + 20, h.table_bytes);
  put(out + 24, h.data_bytes);
  put(out + 28, static_cast<std::uint8_t>(h.role));
  put(out + 29, static_cast<std::uint8_t>(h.safety));
  put(out + 32, h.part);
  put(out + 36, h.batch_ops);
  put(out + 40, h.kind == Kind::reply ? h.wait_us : h.timeout_ms);
  put(out + 44, h.backend_us);
  put(out + 48, h.lost);
  put(out + 56, h.body_crc);
  put(out + 60, crc32c({out, 60}));
}

Result<Header> decode(const std::byte* in) {
  if (get<std::uint32_t>(in) != magic) return bad("the stream has no Sonde frame here");
  if (get<std::uint32_t>(in + 60) != crc32c({in, 60})) return bad("the checksum of a frame header is wrong");
  if (const auto v = get<std::uint8_t>(in + 4); v != version)
    return bad("the peer speaks version " + std::to_string(v) + " of the wire format, this side " +
               std::to_string(version));
  Header h;
  const auto kind = get<std::uint8_t>(in + 5);
  if (kind < static_cast<std::uint8_t>(Kind::hello) || kind > static_cast<std::uint8_t>(Kind::status))
    return bad("frame of unknown kind " + std::to_string(kind));
  h.kind = static_cast<Kind>(kind);
  h.flags = get<std::uint16_t>(in + 6);
  if (h.flags & ~(more | no_reply | data_sum)) return bad("a frame has flags that this version does not know");
  h.id = get<std::uint64_t>(in + 8);
  h.ops = get<std::uint32_t>(in + 16);
  h.table_bytes = get<std::uint32_t>(in + 20);
  h.data_bytes = get<std::uint32_t>(in + 24);
  const auto role = get<std::uint8_t>(in + 28), safety = get<std::uint8_t>(in + 29);
  if (role >= role_count || safety > 2) return bad("a frame names a role or safety level that does not exist");
  h.role = static_cast<Role>(role);
  h.safety = static_cast<Safety>(safety);
  h.part = get<std::uint32_t>(in + 32);
  h.batch_ops = get<std::uint32_t>(in + 36);
  (h.kind == Kind::reply ? h.wait_us : h.timeout_ms) = get<std::uint32_t>(in + 40);
  h.backend_us = get<std::uint32_t>(in + 44);
  h.lost = get<std::uint32_t>(in + 48);
  if (get<std::uint16_t>(in + 30) != 0 || get<std::uint32_t>(in + 52) != 0)
    return bad("reserved bytes of a frame are not zero");
  h.body_crc = get<std::uint32_t>(in + 56);
  if (h.ops > frame_ops_max || h.table_bytes > table_bytes_max || h.data_bytes > data_bytes_max)
    return bad("a frame of " + std::to_string(h.ops) + " operations, " + std::to_string(h.table_bytes) +
               " bytes of table and " + std::to_string(h.data_bytes) + " of data is over the limit of " +
               std::to_string(frame_ops_max) + ", " + std::to_string(table_bytes_max) + " and " +
               std::to_string(data_bytes_max));
  if (h.batch_ops > limit::batch_ops)
    return bad("a batch of " + std::to_string(h.batch_ops) +
               " operations; allowed: " + std::to_string(limit::batch_ops));
  const bool body = h.kind == Kind::request || h.kind == Kind::reply;
  if (body && h.id == 0) return bad("a request or reply without an id");
  if (!body && (h.ops != 0 || h.table_bytes != 0)) return bad("a table in a frame of a kind without tables");
  return h;
}

std::uint64_t id_of(const std::byte* in) { return get<std::uint64_t>(in + 8); }

void TableWriter::clear() {
  table_.clear();
  ops_ = 0;
  first_ = true;
}

void TableWriter::add(const Record& r) {
  const bool same_space = !first_ && r.space == space_, same_key = !first_ && r.key == key_;
  const std::size_t space = same_space ? 0 : r.space.size(), key = same_key ? 0 : r.key.size();
  const std::size_t at = table_.size();
  table_.resize(at + record_bytes + padded(space + key));
  std::byte* out = table_.data() + at;
  put(out, static_cast<std::uint8_t>(r.code));
  put(out + 1, static_cast<std::uint8_t>((r.flags & record_flags) | (same_space ? bit_same_space : 0) |
                                         (same_key ? bit_same_key : 0)));
  put(out + 2, static_cast<std::uint16_t>(space));
  put(out + 4, static_cast<std::uint32_t>(key));
  put(out + 8, r.offset);
  put(out + 16, r.length);
  put(out + 24, r.data_bytes);
  put(out + 28, r.index);
  if (!same_space) {
    if (space) std::memcpy(out + record_bytes, r.space.data(), space);
    space_ = r.space;
  }
  if (!same_key) {
    if (key) std::memcpy(out + record_bytes + space, r.key.data(), key);
    key_ = r.key;
  }
  first_ = false;
  ++ops_;
}

void TableWriter::add(const Answer& a) {
  if (!first_ && a.data_bytes == 0 && last_.data_bytes == 0 && a.run == 1 && a.index == last_.index + last_.run &&
      a.status == last_.status && a.value == last_.value && a.time_ns == last_.time_ns) {
    ++last_.run;
    put(table_.data() + table_.size() - 4, last_.run);
    return;
  }
  const std::size_t at = table_.size();
  table_.resize(at + record_bytes);
  std::byte* out = table_.data() + at;
  put(out, static_cast<std::uint16_t>(a.status));
  put(out + 4, a.index);
  put(out + 8, a.value);
  put(out + 16, a.time_ns);
  put(out + 24, a.data_bytes);
  put(out + 28, a.run);
  last_ = a;
  first_ = false;
  ++ops_;
}

Result<void> read_table(const Header& h, Bytes table, std::vector<Record>& records) {
  records.clear();
  if (table.size() != h.table_bytes) return bad("the length of a table differs from its header");
  if (table.size() < std::size_t{h.ops} * record_bytes) return bad("a table too short for its operations");
  records.reserve(h.ops);
  std::size_t at = 0;
  std::uint64_t data = 0;
  std::string_view space, key;
  for (std::uint32_t k = 0; k < h.ops; ++k) {
    if (table.size() - at < record_bytes) return bad("operation " + std::to_string(k) + " of a table is cut short");
    const std::byte* in = table.data() + at;
    Record r;
    r.code = static_cast<Code>(get<std::uint8_t>(in));
    const auto bits = get<std::uint8_t>(in + 1);
    r.flags = bits & record_flags;
    r.same_space = bits & bit_same_space;
    r.same_key = bits & bit_same_key;
    const std::size_t space_bytes = get<std::uint16_t>(in + 2), key_bytes = get<std::uint32_t>(in + 4);
    r.offset = get<std::uint64_t>(in + 8);
    r.length = get<std::uint64_t>(in + 16);
    r.data_bytes = get<std::uint32_t>(in + 24);
    r.index = get<std::uint32_t>(in + 28);
    at += record_bytes;
    if (k == 0 && (r.same_space || r.same_key)) return bad("the first operation of a table refers to one before it");
    if ((r.same_space && space_bytes) || (r.same_key && key_bytes))
      return bad("an operation has a name, but refers to the previous one");
    if (space_bytes > limit::space_bytes || key_bytes > limit::object_name_bytes)
      return bad("a name of " + std::to_string(std::max(space_bytes, key_bytes)) + " bytes is over the limit");
    if (padded(space_bytes + key_bytes) > table.size() - at)
      return bad("the names of operation " + std::to_string(k) + " are cut short");
    const auto* names = reinterpret_cast<const char*>(table.data() + at);
    if (!r.same_space) space = {names, space_bytes};
    if (!r.same_key) key = {names + space_bytes, key_bytes};
    r.space = space;
    r.key = key;
    at += padded(space_bytes + key_bytes);
    if (r.index >= h.batch_ops)
      return bad("operation " + std::to_string(r.index) + " of a batch of " + std::to_string(h.batch_ops));
    data += r.data_bytes;
    records.push_back(r);
  }
  if (at != table.size()) return bad(std::to_string(table.size() - at) + " bytes are left over in a table");
  if (data != h.data_bytes)
    return bad("operations have " + std::to_string(data) + " bytes of data, their frame " +
               std::to_string(h.data_bytes));
  return {};
}

Result<void> read_answers(const Header& h, Bytes table, std::vector<Answer>& answers) {
  answers.clear();
  if (table.size() != h.table_bytes || table.size() != std::size_t{h.ops} * record_bytes)
    return bad("the length of a reply's table differs from that of its answers");
  answers.reserve(h.ops);
  std::uint64_t data = 0;
  for (std::uint32_t k = 0; k < h.ops; ++k) {
    const std::byte* in = table.data() + std::size_t{k} * record_bytes;
    Answer a;
    const auto status = get<std::uint16_t>(in);
    if (status >= static_cast<std::uint16_t>(Status::pending)) return bad("unknown status " + std::to_string(status));
    a.status = static_cast<Status>(status);
    a.index = get<std::uint32_t>(in + 4);
    a.value = get<std::uint64_t>(in + 8);
    a.time_ns = get<std::int64_t>(in + 16);
    a.data_bytes = get<std::uint32_t>(in + 24);
    a.run = get<std::uint32_t>(in + 28);
    if (a.run == 0 || a.index >= h.batch_ops || a.run > h.batch_ops - a.index)
      return bad("an answer to operations that are not in the batch");
    if (a.run > 1 && a.data_bytes) return bad("one answer's data for several operations");
    data += a.data_bytes;
    answers.push_back(a);
  }
  if (data != h.data_bytes)
    return bad("answers have " + std::to_string(data) + " bytes of data, their frame " + std::to_string(h.data_bytes));
  return {};
}

std::string encode_text(const Text& text) {
  std::string out;
  for (const auto& [name, value] : text) {
    out += name;
    out += '=';
    for (const char ch : value)
      if (ch != '\n') out += ch;
    out += '\n';
  }
  return out;
}

Text decode_text(Bytes bytes) {
  Text text;
  std::string_view rest = text_of(bytes);
  while (!rest.empty()) {
    const std::size_t end = std::min(rest.find('\n'), rest.size());
    const std::string_view line = rest.substr(0, end);
    if (const std::size_t eq = line.find('='); eq != std::string_view::npos)
      text.emplace_back(line.substr(0, eq), line.substr(eq + 1));
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  return text;
}

std::string_view text_value(const Text& text, std::string_view name) {
  for (const auto& [key, value] : text)
    if (key == name) return value;
  return {};
}

}  // namespace sonde::store::wire

#include "store/h5/records.hpp"

#include <algorithm>
#include <cinttypes>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "store/h5/codec.hpp"
#include "store/h5/failure.hpp"

namespace sonde::store::h5 {
namespace {

constexpr std::uint8_t record_version = 1;
constexpr std::size_t max_rank = 32;  // H5S_MAX_RANK
constexpr std::size_t long_name_bytes = 380;

std::uint64_t mix(std::string_view text, std::uint64_t h) {
  for (const char c : text) {
    h = (h ^ static_cast<unsigned char>(c)) * 0x9e3779b97f4a7c15u;
    h ^= h >> 29;
  }
  return h;
}

void need_version(RecordReader& in) {
  if (const auto version = in.number<std::uint8_t>(); version != record_version) {
    in.refuse("has version " + std::to_string(version) + "; this Sonde reads " + std::to_string(record_version));
  }
}

// To HDF5 a name ends at its NUL, so a name with a NUL inside would be another name.
std::string need_name(RecordReader& in) {
  auto name = in.text();
  if (name.empty() || name.find('\0') != name.npos) {
    in.refuse("has no name, or one with a NUL inside");
  }
  return name;
}

std::uint8_t need_charset(RecordReader& in) {
  const auto charset = in.number<std::uint8_t>();
  if (charset > 1) {
    in.refuse("has an unknown character set");
  }
  return charset;
}

void check_extent(const Header& o, const RecordReader& in) {
  if (o.space_class > 2) {
    in.refuse("has a dataspace of an unknown class");
  }
  const auto rank = o.extent.size();
  if ((o.space_class == 1) != (rank > 0) || rank > max_rank) {
    in.refuse("has a number of axes that does not match its dataspace");
  }
  if (o.extent_max.size() != rank || (!o.chunk.empty() && o.chunk.size() != rank)) {
    in.refuse("has limits or chunks with a different number of axes");
  }
  std::uint64_t elements = 1;
  for (std::size_t d = 0; d < rank; ++d) {
    if (o.extent[d] > o.extent_max[d]) {
      in.refuse("has an axis that is longer than its limit");
    }
    if (o.chunk.empty()) {
      continue;
    }
    if (o.chunk[d] == 0 || o.chunk[d] > std::numeric_limits<std::uint64_t>::max() / elements) {
      in.refuse("has empty chunks, or chunks of more than 2^64 elements");
    }
    elements *= o.chunk[d];
  }
  if (o.chunk.empty() ? o.filtered : o.compact) {
    in.refuse("has an invalid layout");
  }
}

}  // namespace

// ---- keys

std::string hex(std::uint64_t value) {
  char text[17];
  std::snprintf(text, sizeof text, "%016" PRIx64, value);
  return text;
}

std::string header_key(ObjectId id) { return 'o' + hex(id); }

// A key has at most 440 bytes, but an HDF5 name has no such limit. A long name is cut, and a 128-bit hash makes its key
// unique.
std::string named_key(char kind, ObjectId id, std::string_view name) {
  std::string key = kind + hex(id);
  if (name.size() <= long_name_bytes) {
    return key.append(name);
  }
  return key.append(name.substr(0, long_name_bytes - 33))
      .append(1, '\x01')
      .append(hex(mix(name, 1)))
      .append(hex(mix(name, 2)));
}

std::string chunk_key(ObjectId id, const ChunkAt& at) {
  std::string key = 'c' + hex(id);
  for (std::size_t k = 0; k < at.size(); ++k) {
    key.append(k ? "." : "").append(std::to_string(at[k]));
  }
  return key;
}

ChunkAt chunk_at(std::string_view text) {
  constexpr auto most = std::numeric_limits<std::uint64_t>::max();
  const RecordReader in(text, "a chunk's place");
  ChunkAt at;
  for (std::size_t begin = 0;; ++begin) {
    const auto end = std::min(text.find('.', begin), text.size());
    const auto digits = text.substr(begin, end - begin);
    // Each place has only one spelling: two keys must not mean the same chunk.
    if (digits.empty() || (digits.size() > 1 && digits[0] == '0') || at.size() == max_rank) {
      in.refuse("is not a list of numbers");
    }
    std::uint64_t value = 0;
    for (const char c : digits) {
      const auto digit = static_cast<std::uint64_t>(c - '0');
      if (c < '0' || c > '9' || value > (most - digit) / 10) {
        in.refuse("is not a list of numbers");
      }
      value = value * 10 + digit;
    }
    at.push_back(value);
    if (end == text.size()) {
      return at;
    }
    begin = end;
  }
}

// ---- the file

std::string encode(const FileRecord& file) {
  return RecordWriter()
      .number(record_version)
      .number(file.number)
      .number(file.session)
      .number(file.stripes)
      .number(file.stripe_bytes)
      .text(file.properties)
      .take();
}

FileRecord decode_file(std::string_view record, std::string_view file) {
  const std::string what = "the file '" + std::string(file) + "'";
  RecordReader in(record, what);
  if (const auto version = in.number<std::uint8_t>(); version != record_version) {
    fail(Why::unsupported, "'" + std::string(file) + "' was written in version " + std::to_string(version) +
                               " of the store's HDF5 layout; this Sonde reads " + std::to_string(record_version) +
                               "; hint: use the Sonde version that wrote it, or a later one");
  }
  FileRecord out;
  out.number = in.number<std::uint64_t>();
  out.session = in.number<std::uint32_t>();
  out.stripes = in.number<std::uint32_t>();
  out.stripe_bytes = in.number<std::uint64_t>();
  out.properties = in.text();
  in.finish();
  if (out.stripes == 0 || out.stripe_bytes == 0) {
    in.refuse("has empty stripes");
  }
  return out;
}

// ---- objects

std::string encode(const Header& o) {
  RecordWriter out;
  out.number(record_version)
      .number(o.kind)
      .number(o.links_to)
      .number(o.changed_s)
      .text(o.properties)
      .text(o.comment)
      .number<std::uint8_t>(static_cast<std::uint8_t>(o.tracks_times | o.tracks_link_order << 1 |
                                                      o.indexes_link_order << 2 | o.tracks_attribute_order << 3 |
                                                      o.compact << 4 | o.allocated << 5 | o.filtered << 6))
      .number(o.next_link_order)
      .number(o.link_count)
      .number(o.next_attribute_order)
      .number(o.attribute_count);
  if (o.kind != Kind::group) {
    out.text(o.type).number(o.named_type);
  }
  if (o.kind == Kind::dataset) {
    out.number(o.space_class);
    for (const auto* list : {&o.extent, &o.extent_max, &o.chunk}) {
      out.number(static_cast<std::uint8_t>(list->size()));
      for (const auto n : *list) {
        out.number(n);
      }
    }
    out.number(o.data_end).number(o.heap_end).number(o.pool).number(o.pool_at).text(o.fill);
  }
  return out.take();
}

Header decode_header(std::string_view record) {
  RecordReader in(record, "an object");
  need_version(in);
  Header o;
  o.kind = in.number<Kind>();
  if (o.kind != Kind::group && o.kind != Kind::dataset && o.kind != Kind::datatype) {
    in.refuse("is of an unknown kind");
  }
  o.links_to = in.number<std::uint32_t>();
  o.changed_s = in.number<std::int64_t>();
  o.properties = in.text();
  o.comment = in.text();
  const auto bits = in.number<std::uint8_t>();
  o.tracks_times = bits & 1;
  o.tracks_link_order = bits & 2;
  o.indexes_link_order = bits & 4;
  o.tracks_attribute_order = bits & 8;
  o.compact = bits & 16;
  o.allocated = bits & 32;
  o.filtered = bits & 64;
  if (bits & 128) {
    in.refuse("has an unknown flag");
  }
  o.next_link_order = in.number<std::int64_t>();
  o.link_count = in.number<std::uint64_t>();
  o.next_attribute_order = in.number<std::int64_t>();
  o.attribute_count = in.number<std::uint64_t>();
  if (o.kind != Kind::group) {
    o.type = in.text();
    o.named_type = in.number<ObjectId>();
  }
  if (o.kind == Kind::dataset) {
    o.space_class = in.number<std::uint8_t>();
    for (auto* list : {&o.extent, &o.extent_max, &o.chunk}) {
      list->resize(in.number<std::uint8_t>());
      for (auto& n : *list) {
        n = in.number<std::uint64_t>();
      }
    }
    o.data_end = in.number<std::uint64_t>();
    o.heap_end = in.number<std::uint64_t>();
    o.pool = in.number<std::uint64_t>();
    o.pool_at = in.number<std::uint64_t>();
    o.fill = in.text();
    check_extent(o, in);
  }
  in.finish();
  return o;
}

// ---- links

std::string encode(std::string_view name, const Link& link) {
  return RecordWriter()
      .number(record_version)
      .number(link.kind)
      .number(link.target)
      .text(link.path)
      .text(link.file)
      .number(link.order)
      .number(link.charset)
      .text(name)
      .take();
}

Link decode_link(std::string_view record, std::string& name) {
  RecordReader in(record, "a link");
  need_version(in);
  Link link;
  link.kind = in.number<Link::Kind>();
  if (link.kind > Link::Kind::external) {
    in.refuse("is of an unknown kind");
  }
  link.target = in.number<ObjectId>();
  link.path = in.text();
  link.file = in.text();
  link.order = in.number<std::int64_t>();
  link.charset = need_charset(in);
  name = need_name(in);
  in.finish();
  return link;
}

// ---- attributes

std::string encode(std::string_view name, const Attribute& a) {
  return RecordWriter()
      .number(record_version)
      .text(a.type)
      .text(a.space)
      .number(a.named_type)
      .text(a.data)
      .text(a.heap)
      .number(a.order)
      .number(a.charset)
      .text(name)
      .take();
}

Attribute decode_attribute(std::string_view record, std::string& name) {
  RecordReader in(record, "an attribute");
  need_version(in);
  Attribute a;
  a.type = in.text();
  a.space = in.text();
  a.named_type = in.number<ObjectId>();
  a.data = in.text();
  a.heap = in.text();
  a.order = in.number<std::int64_t>();
  a.charset = need_charset(in);
  name = need_name(in);
  in.finish();
  return a;
}

// ---- chunks and regions

std::string encode(const Chunk& chunk) {
  return RecordWriter()
      .number(chunk.offset)
      .number(chunk.bytes)
      .number(chunk.capacity)
      .number(chunk.filter_mask)
      .take();
}

Chunk decode_chunk(std::string_view record) {
  RecordReader in(record, "a chunk");
  Chunk chunk;
  chunk.offset = in.number<std::uint64_t>();
  chunk.bytes = in.number<std::uint32_t>();
  chunk.capacity = in.number<std::uint32_t>();
  chunk.filter_mask = in.number<std::uint32_t>();
  in.finish();
  if (chunk.bytes == 0) {
    in.refuse("has no bytes");  // HDF5 crashes when a filter gets no bytes
  }
  if (chunk.bytes > chunk.capacity || chunk.offset > std::numeric_limits<std::uint64_t>::max() - chunk.capacity) {
    in.refuse("is larger than its place");
  }
  return chunk;
}

std::string encode(const RegionRecord& region) {
  return RecordWriter().number(region.dataset).text(region.space).take();
}

RegionRecord decode_region(std::string_view record) {
  RecordReader in(record, "a region reference");
  RegionRecord region;
  region.dataset = in.number<ObjectId>();
  region.space = in.text();
  in.finish();
  return region;
}

}  // namespace sonde::store::h5

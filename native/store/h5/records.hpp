#pragma once
/// The records of an HDF5 file in the key-value store, and their keys (container.hpp). Anybody with write access to the
/// store may have changed them, so the readers are strict: a version, a kind, a length or a name that this Sonde does
/// not write is a Failure (io), and each value has exactly one valid encoding. Pure, without HDF5 and without the
/// client. Any-thread.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace sonde::store::h5 {

using ObjectId = std::uint64_t;

/// The first record of a file.
struct FileRecord {
  std::uint64_t number = 0;   ///< differs between files
  std::uint32_t session = 0;  ///< number of times that it was opened for writing
  std::uint32_t stripes = 1;  ///< data servers
  std::uint64_t stripe_bytes = 1u << 20;
  std::string properties;  ///< creation property list as H5Pencode gives it
};

struct Link {
  enum class Kind : std::uint8_t { hard = 0, soft = 1, external = 2 };
  Kind kind = Kind::hard;
  ObjectId target = 0;     ///< hard
  std::string path, file;  ///< soft: path; external: both
  std::int64_t order = 0;
  std::uint8_t charset = 0;
};

struct Attribute {
  std::string type, space;  ///< as H5Tencode and H5Sencode give them
  ObjectId named_type = 0;  ///< the committed type that it was made with, 0: none
  std::string data, heap;   ///< elements in stored form (datatype.hpp), and their heap
  std::int64_t order = 0;
  std::uint8_t charset = 0;
  bool unwritten = false;  ///< this process has created it and not yet written to it; not in the record
};

enum class Kind : std::uint8_t { group = 1, dataset = 2, datatype = 3 };

/// The place of a chunk in its dataset's data.
struct Chunk {
  std::uint64_t offset = 0;
  std::uint32_t bytes = 0, capacity = 0;
  std::uint32_t filter_mask = 0;
};
using ChunkAt = std::vector<std::uint64_t>;  ///< chunk coordinates: element coordinates divided by the chunk's size

/// The stored properties of an object, without its links, attributes, chunks and data.
struct Header {
  Kind kind = Kind::group;
  std::uint32_t links_to = 0;  ///< hard links; an object with 0 links and no handle is removed
  std::int64_t changed_s = 0;  ///< ctime, 0 where times are not tracked
  std::string properties;      ///< creation property list as H5Pencode gives it
  std::string comment;
  bool tracks_times = false;

  // group
  bool tracks_link_order = false, indexes_link_order = false;
  std::int64_t next_link_order = 0;
  std::uint64_t link_count = 0;

  // attributes, any kind
  bool tracks_attribute_order = false;
  std::int64_t next_attribute_order = 0;
  std::uint64_t attribute_count = 0;

  // dataset, named type
  std::string type;
  ObjectId named_type = 0;
  std::uint8_t space_class = 0;                          ///< 0 scalar, 1 simple, 2 null
  std::vector<std::uint64_t> extent, extent_max, chunk;  ///< chunk empty: contiguous
  bool compact = false, filtered = false;
  bool allocated = false;  ///< contiguous: data was written
  std::uint64_t data_end = 0, heap_end = 0;
  std::uint64_t pool = 0, pool_at = 0;  ///< the place of a small contiguous dataset; pool 0: it has its own object
  std::string fill;                     ///< the user's fill value in stored form; empty: none was given
};

/// The target of a region reference, as it is stored in a heap.
struct RegionRecord {
  ObjectId dataset = 0;
  std::string space;  ///< as H5Sencode gives it
};

std::string encode(const FileRecord& file);
std::string encode(const Header& header);
std::string encode(std::string_view name, const Link& link);
std::string encode(std::string_view name, const Attribute& attribute);
std::string encode(const Chunk& chunk);
std::string encode(const RegionRecord& region);

/// `file` names the file in the error. Errors: unsupported, if the layout has another version than this Sonde's.
FileRecord decode_file(std::string_view record, std::string_view file);
/// A dataset's extent, its limits and its chunks have the same number of axes, and no chunk is empty.
Header decode_header(std::string_view record);
Link decode_link(std::string_view record, std::string& name);
Attribute decode_attribute(std::string_view record, std::string& name);
Chunk decode_chunk(std::string_view record);
RegionRecord decode_region(std::string_view record);

std::string hex(std::uint64_t value);
std::string header_key(ObjectId id);
/// kind: 'l' for a link, 'a' for an attribute. A name of more than 380 bytes is cut, and a hash makes its key unique.
std::string named_key(char kind, ObjectId id, std::string_view name);
std::string chunk_key(ObjectId id, const ChunkAt& at);
/// Parses the part of a chunk's key that follows the id.
ChunkAt chunk_at(std::string_view text);

}  // namespace sonde::store::h5

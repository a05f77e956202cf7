#pragma once
/// HDF5's filter pipeline (deflate, shuffle, fletcher32, szip, LZF, plug-ins …) for chunks that lie in the store.
///
/// HDF5 does not offer its pipeline to connectors. It does offer writing elements to a dataset and reading the filtered
/// chunk, and the reverse; so each filtered dataset has a twin in a file in memory, through whose first chunk its
/// chunks go. Whatever filter the library has, or loads, works, bit for bit as in a file.
///
/// Filters take for granted that a chunk is as long as they made it, and so does HDF5 of what they make of it: before
/// 2.2 it reads a whole chunk out of a shorter one. Chunks out of the store are what somebody wrote there, so the twin
/// has filters of our own between the others, which change nothing and refuse what is too short.

#include <hdf5.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "store/h5/datatype.hpp"
#include "store/h5/shadow.hpp"

namespace sonde::store::h5 {

struct Filter {
  H5Z_filter_t id = 0;
  unsigned flags = 0;
  std::vector<unsigned> values;
};
/// The filters of a creation property list.
std::vector<Filter> filters_of(hid_t properties);

class Pipeline {
 public:
  /// `element`: the type that filters see; a chunk has less than 4 GiB of it. The properties' fill value counts, since
  /// scaleoffset leaves it out of its range. Errors: unsupported, when a filter is missing or cannot take the type; io,
  /// when the list has no filter.
  Pipeline(hid_t properties, hid_t element, const std::vector<std::uint64_t>& chunk);
  ~Pipeline();
  Pipeline(const Pipeline&) = delete;
  Pipeline& operator=(const Pipeline&) = delete;

  /// The filters with what they made of their parameters (their set_local). One that is optional and missing is as it
  /// was given.
  std::vector<Filter> filters() const;

  std::vector<std::byte> encode(Bytes raw, std::uint32_t& filter_mask);
  /// raw: a whole chunk. Errors: io, where a checksum does not fit or a filter gives up; unsupported, when a filter
  /// that made the chunk is missing.
  void decode(Bytes filtered, std::uint32_t filter_mask, MutableBytes raw, hid_t transfer);

 private:
  static constexpr int missing = -1;  // optional, and not there: chunks are written without it, as HDF5 does

  void put(const std::vector<hsize_t>& at, Bytes filtered, std::uint32_t twin_mask);

  std::vector<Filter> given_;
  Id element_, chunk_space_, first_chunk_;  // the chunk in memory, and in the twin
  std::vector<hsize_t> first_, second_;     // where the twin's chunks begin
  std::size_t held_bytes_ = 0;              // of what is in the twin's first chunk
  std::optional<std::uint32_t> held_mask_;  // and of the mask in its index; nullopt: not known
  std::vector<int> twin_at_;                // where each filter of the dataset stands among those of the twin
  void* twin_ = nullptr;                    // HDF5's own dataset
};

}  // namespace sonde::store::h5

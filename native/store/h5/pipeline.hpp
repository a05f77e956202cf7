#pragma once
/// HDF5's filter pipeline (deflate, shuffle, fletcher32, szip, LZF, plug-ins …) for stored chunks.
///
/// HDF5 does not offer its pipeline to connectors. But it can write elements to a dataset and read the filtered chunk,
/// and the reverse. So each filtered dataset has a twin in a file in memory, and its chunks pass through the twin's
/// first chunk. Every filter that the library has, or loads, works, bit for bit as in a file.
///
/// Filters assume that a chunk is as long as they made it, and HDF5 assumes the same for their output: before 2.2 it
/// reads a whole chunk out of a shorter one. Chunks from the store may contain anything, so the twin has filters of our
/// own between the others. They change nothing, and refuse chunks that are too short.

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
  /// `element`: the type that filters see; a chunk has less than 4 GiB of it. The fill value in the properties matters,
  /// because scaleoffset excludes it from its range. Errors: unsupported, if a filter is missing or does not support
  /// the type; io, if the list has no filter.
  Pipeline(hid_t properties, hid_t element, const std::vector<std::uint64_t>& chunk);
  ~Pipeline();
  Pipeline(const Pipeline&) = delete;
  Pipeline& operator=(const Pipeline&) = delete;

  /// The filters with the parameters that their set_local computed. An optional filter that is missing has its original
  /// ones.
  std::vector<Filter> filters() const;

  std::vector<std::byte> encode(Bytes raw, std::uint32_t& filter_mask);
  /// raw: a whole chunk. Errors: io, if a checksum is wrong or a filter fails; unsupported, if a filter that made the
  /// chunk is missing.
  void decode(Bytes filtered, std::uint32_t filter_mask, MutableBytes raw, hid_t transfer);

 private:
  static constexpr int missing = -1;  // an optional filter that is missing: chunks are written without it, as in HDF5

  void put(const std::vector<hsize_t>& at, Bytes filtered, std::uint32_t twin_mask);

  std::vector<Filter> given_;
  Id element_, chunk_space_, first_chunk_;  // the chunk in memory, and in the twin
  std::vector<hsize_t> first_, second_;     // where the twin's chunks begin
  std::size_t held_bytes_ = 0;              // size of the twin's present first chunk
  std::optional<std::uint32_t> held_mask_;  // the mask in the twin's index; nullopt: not known
  std::vector<int> twin_at_;                // position of each of the dataset's filters in the twin's pipeline
  void* twin_ = nullptr;                    // HDF5's own dataset
};

}  // namespace sonde::store::h5

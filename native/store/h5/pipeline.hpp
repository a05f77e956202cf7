#pragma once
/// HDF5's filter pipeline (deflate, shuffle, fletcher32, szip, LZF, plug-ins …) for chunks that lie in the store.
///
/// HDF5 does not offer its pipeline to connectors. It does offer writing elements to a dataset and reading the filtered
/// chunk, and the reverse; so each filtered dataset has a twin of one chunk in a file in memory, through which its
/// chunks go. Whatever filter the library has, or loads, works, bit for bit as in a file.

#include <hdf5.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "store/h5/datatype.hpp"
#include "store/h5/shadow.hpp"

namespace sonde::store::h5 {

class Pipeline {
 public:
  /// `element`: the type that filters see. Errors: unsupported, when a filter is missing or cannot take the type.
  Pipeline(hid_t properties, hid_t element, const std::vector<std::uint64_t>& chunk);
  ~Pipeline();
  Pipeline(const Pipeline&) = delete;
  Pipeline& operator=(const Pipeline&) = delete;

  /// The properties with what the filters made of their parameters (their set_local).
  Id properties() const;

  std::vector<std::byte> encode(Bytes raw, std::uint32_t& filter_mask);
  /// raw: a whole chunk. Errors: io, where a checksum does not fit or a filter gives up.
  void decode(Bytes filtered, std::uint32_t filter_mask, MutableBytes raw, hid_t transfer);

 private:
  Id element_;
  std::vector<std::uint64_t> origin_;
  void* twin_ = nullptr;  // HDF5's own dataset
};

}  // namespace sonde::store::h5

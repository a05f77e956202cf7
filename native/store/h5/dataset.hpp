#pragma once
/// The bytes of one open dataset: selections, type conversion, chunks, filters, fill values, elements of variable
/// length.

#include <hdf5.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "store/h5/container.hpp"
#include "store/h5/datatype.hpp"
#include "store/h5/pipeline.hpp"

namespace sonde::store::h5 {

class DatasetIo : public DatasetState {
 public:
  DatasetIo(Container& container, Object& object);

  void write(hid_t memory_type, hid_t memory_space, hid_t file_space, hid_t transfer, const void* from,
             const ReferenceCodec* references);
  void read(hid_t memory_type, hid_t memory_space, hid_t file_space, hid_t transfer, void* into,
            const ReferenceCodec* references);
  void resize(const std::vector<std::uint64_t>& extent);
  void flush() override;
  void refresh();

  /// A dataspace with the present extent, all selected.
  Id space() const;
  /// The creation properties, unchanged.
  Id properties(const ReferenceCodec& references);
  /// A dataset without chunks has storage after the first write, or after its creation if early allocation was
  /// requested.
  bool allocated() const;
  std::uint64_t storage_bytes();
  /// The chunk at this offset, after flush(); nullptr: it was never written.
  const Chunk* find_chunk(const hsize_t* offset);
  void read_raw(const Chunk& chunk, void* into);
  void write_raw(const hsize_t* offset, Bytes bytes, std::uint32_t filter_mask);
  /// Whether a chunked dataset's extent includes this element.
  bool extends_to(const hsize_t* offset) const;
  ChunkAt chunk_holding(const hsize_t* offset) const;
  /// After a copy: see ElementLayout::map_references.
  void map_references(const std::function<std::uint64_t(std::uint64_t)>& map);
  /// The result for H5Dvlen_get_buf_size.
  std::uint64_t variable_bytes(hid_t file_space, const ReferenceCodec* references);

 private:
  struct Piece {
    std::uint64_t in_chunk, packed, n;  // elements
  };
  using Pieces = std::map<ChunkAt, std::vector<Piece>>;
  struct Cached {
    std::vector<std::byte> raw;
    bool dirty = false;
    std::uint64_t used = 0;
  };
  class Stage;

  std::uint64_t element_count() const;
  std::uint64_t points(hid_t file_space) const;
  void each_run(hid_t file_space, const std::function<void(std::uint64_t element, std::uint64_t n)>& each) const;
  Pieces pieces(hid_t file_space) const;
  void write_stored(hid_t file_space, Bytes stored);
  void read_stored(hid_t file_space, MutableBytes stored, hid_t transfer);
  /// Elements of the file's type in memory form. `unpacker` owns their variable parts.
  std::vector<std::byte> read_elements(hid_t file_space, std::uint64_t n, hid_t transfer, Unpacker& unpacker);
  /// For up to `n` elements of this dataset.
  Unpacker unpacker(std::uint64_t n, const ReferenceCodec* references);
  /// The size of a chunk in the store: exact without filters, the maximum with them.
  std::uint64_t stored_chunk_max() const;
  void check_chunk(const Chunk& chunk) const;  ///< before memory is allocated for it
  void fill(MutableBytes stored) const;
  std::uint64_t clipped_elements(const ChunkAt& at) const;
  std::vector<std::byte> load(const ChunkAt& at, hid_t transfer);
  void store(const ChunkAt& at, Bytes raw, Stage& stage);
  void place(const ChunkAt& at, Bytes bytes, std::uint32_t filter_mask, Stage& stage);
  Cached& cache(const ChunkAt& at, std::vector<std::byte> raw);
  void trim();

  Container& container_;
  Object& object_;
  Id type_;
  ElementLayout layout_;
  std::uint64_t chunk_elements_ = 0;
  bool fills_with_zeros_ = true;
  std::unique_ptr<Pipeline> pipeline_;
  std::map<ChunkAt, Cached> cached_;
  std::uint64_t cached_bytes_ = 0, clock_ = 0;
};

/// The size of a chunk before filters. nullopt: over 4 GiB, which the record cannot hold.
std::optional<std::uint64_t> chunk_bytes(const std::vector<std::uint64_t>& chunk, const ElementLayout& layout);

/// The type that a filtered dataset's pipeline sees: elements in stored form.
Id filtered_type(hid_t type, const ElementLayout& layout);

}  // namespace sonde::store::h5

#include "store/h5/pipeline.hpp"

#include <H5VLconnector_passthru.h>
#include <H5VLnative.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <string>

#include "store/h5/failure.hpp"
#include "store/h5/shadow.hpp"

namespace sonde::store::h5 {
namespace {

constexpr std::size_t scaleoffset_has_fill = 7;  // H5Z_SCALEOFFSET_PARM_FILAVAIL of H5Zscaleoffset.c

// Operations of the native connector beyond the common ones are called by number.
void chunk_operation(void* twin, int operation, H5VL_native_dataset_optional_args_t& args, hid_t transfer,
                     const char* what) {
  H5VL_optional_args_t call{operation, &args};
  if (H5VLdataset_optional(twin, H5VL_NATIVE, &call, transfer, nullptr) < 0) {
    fail(Why::io, what);
  }
}

// values: the minimum and maximum size of a chunk on its way back, and the minimum size of its buffer.
std::size_t guard(unsigned flags, std::size_t count, const unsigned* values, std::size_t bytes, std::size_t* room,
                  void** buffer) {
  if (!(flags & H5Z_FLAG_REVERSE)) {
    return bytes;
  }
  if (count != 3 || bytes < values[0] || bytes > values[1]) {
    return 0;  // HDF5 treats this as a failure
  }
  const std::size_t wanted = values[2];
  if (bytes < wanted) {
    if (*room < wanted) {
      void* const longer = H5resize_memory(*buffer, wanted);
      if (!longer) {
        return 0;
      }
      *buffer = longer;
      *room = wanted;
    }
    std::memset(static_cast<std::byte*>(*buffer) + bytes, 0, wanted - bytes);
  }
  return bytes;
}

// Registered once, under the first free number of the range for tests.
H5Z_filter_t guard_id() {
  static const H5Z_filter_t id = [] {
    constexpr H5Z_filter_t first = 511, last = 256;
    H5Z_filter_t free = first;
    while (free > last && H5Zfilter_avail(free) > 0) {
      --free;
    }
    const H5Z_class2_t how{H5Z_CLASS_T_VERS, free, 1, 1, "sonde guard", nullptr, nullptr, guard};
    need_ok(H5Zregister(&how), "a filter of the connector's own");
    return free;
  }();
  return id;
}

// Whether a guard of ours follows this filter in the twin.
bool needs_guard(H5Z_filter_t id) {
  return id == H5Z_FILTER_FLETCHER32 || id == H5Z_FILTER_SZIP || id == H5Z_FILTER_NBIT || id == H5Z_FILTER_SCALEOFFSET;
}

void add_filter(hid_t list, const Filter& filter) {
  need_ok(H5Pset_filter(list, filter.id, filter.flags, filter.values.size(), filter.values.data()), "a filter");
}

void add_guard(hid_t list, std::uint64_t least, std::uint64_t most, std::uint64_t room) {
  add_filter(list, {guard_id(),
                    H5Z_FLAG_MANDATORY,
                    {static_cast<unsigned>(least), static_cast<unsigned>(most), static_cast<unsigned>(room)}});
}

}  // namespace

std::vector<Filter> filters_of(hid_t properties) {
  constexpr std::size_t most = 256;  // HDF5 returns no more
  std::vector<Filter> all(static_cast<std::size_t>(std::max(0, H5Pget_nfilters(properties))));
  for (unsigned k = 0; k < all.size(); ++k) {
    auto& filter = all[k];
    unsigned config = 0;
    std::size_t count = 0;
    filter.id = H5Pget_filter2(properties, k, &filter.flags, &count, nullptr, 0, nullptr, &config);
    if (filter.id >= 0 && count > most) {
      if (filter.id == H5Z_FILTER_NBIT) {
        continue;  // the filter computes them again from the type
      }
      fail(Why::unsupported, "filter " + std::to_string(filter.id) + " has " + std::to_string(count) +
                                 " parameters; HDF5 returns at most " + std::to_string(most));
    }
    filter.values.resize(count);
    if (filter.id < 0 ||
        H5Pget_filter2(properties, k, &filter.flags, &count, filter.values.data(), 0, nullptr, &config) < 0) {
      fail(Why::invalid, "HDF5 refused to name a filter");
    }
  }
  return all;
}

Pipeline::Pipeline(hid_t properties, hid_t element, const std::vector<std::uint64_t>& chunk)
    : given_(filters_of(properties)),
      element_(need_id(H5Tcopy(element), "a copy of a type")),
      first_(chunk.size(), 0),
      second_(chunk.size(), 0) {
  if (given_.empty()) {
    fail(Why::io, "a dataset in the store is damaged: it is filtered, but has no filter");
  }
  const Id creation = need_id(H5Pcopy(properties), "a copy of creation properties");
  need_ok(H5Premove_filter(creation, H5Z_FILTER_ALL), "to replace filters");
  constexpr std::uint64_t any = std::numeric_limits<unsigned>::max();
  std::uint64_t bytes = H5Tget_size(element_);
  for (const auto n : chunk) {
    bytes *= n;
  }
  add_guard(creation, bytes, bytes, 0);
  // An opaque element may represent one of variable length, whose fill value would not fit.
  bool fills = H5Tget_class(element_) != H5T_OPAQUE;
  for (const auto& filter : given_) {
    if (filter.id == guard_id()) {
      fail(Why::unsupported, "filter " + std::to_string(filter.id) + " is for tests");
    }
    if ((filter.flags & H5Z_FLAG_OPTIONAL) && H5Zfilter_avail(filter.id) <= 0) {
      twin_at_.push_back(missing);
      continue;
    }
    twin_at_.push_back(H5Pget_nfilters(creation));
    add_filter(creation, filter);
    if (filter.id == H5Z_FILTER_FLETCHER32 || filter.id == H5Z_FILTER_SZIP) {
      add_guard(creation, 4, any, 0);  // both first subtract four bytes from the size
    } else if (filter.id == H5Z_FILTER_NBIT) {
      add_guard(creation, 1, any, bytes);  // this filter reads as many bytes as its parameters claim
    } else if (filter.id == H5Z_FILTER_SCALEOFFSET) {
      // Chunks that were made without a fill value cannot be read with one.
      fills = fills && !(filter.values.size() > scaleoffset_has_fill && filter.values[scaleoffset_has_fill] == 0);
      add_guard(creation, 1, any, std::min(any, bytes + 64));  // the same, after a header of 21 bytes
    }
  }
  if (!fills) {
    need_ok(H5Pset_fill_value(creation, element_, nullptr), "no fill value");
  }
  need_ok(H5Pset_fill_time(creation, H5D_FILL_TIME_NEVER), "to leave chunks unfilled");
  need_ok(H5Pset_alloc_time(creation, H5D_ALLOC_TIME_INCR), "to allocate chunks late");
  const std::vector<hsize_t> dims(chunk.begin(), chunk.end());
  need_ok(H5Pset_chunk(creation, static_cast<int>(dims.size()), dims.data()), "the chunk's size");
  const Id access = need_id(H5Pcreate(H5P_DATASET_ACCESS), "a dataset access list");
  need_ok(H5Pset_chunk_cache(access, 0, 0, 0), "no chunk cache");  // every write reaches the filters at once
  const auto rank = static_cast<int>(dims.size());
  chunk_space_ = need_id(H5Screate_simple(rank, dims.data(), nullptr), "the chunk's space");
  auto both = dims;
  both[0] *= 2;
  second_[0] = dims[0];
  first_chunk_ = need_id(H5Screate_simple(rank, both.data(), nullptr), "the space of two chunks");
  need_ok(H5Sselect_hyperslab(first_chunk_, H5S_SELECT_SET, first_.data(), nullptr, dims.data(), nullptr),
          "to select the first of them");
  static Shadow* const memory = take_shadow();
  const auto at = self(H5I_GROUP);
  twin_ = H5VLdataset_create(memory->native(H5I_GROUP), &at, H5VL_NATIVE, nullptr, H5P_LINK_CREATE_DEFAULT, element_,
                             first_chunk_, creation, access, H5P_DATASET_XFER_DEFAULT, nullptr);
  if (!twin_) {
    fail(Why::unsupported,
         "HDF5 cannot apply the dataset's filters: one is missing, or does not support this type or chunk");
  }
  put(second_, std::vector<std::byte>(1), 0);  // decode() reads it
}

Pipeline::~Pipeline() {
  if (twin_) {
    H5VLdataset_close(twin_, H5VL_NATIVE, H5P_DATASET_XFER_DEFAULT, nullptr);
  }
}

std::vector<Filter> Pipeline::filters() const {
  H5VL_dataset_get_args_t args{};
  args.op_type = H5VL_DATASET_GET_DCPL;
  need_ok(H5VLdataset_get(twin_, H5VL_NATIVE, &args, H5P_DATASET_XFER_DEFAULT, nullptr), "a dataset's properties");
  const auto all = filters_of(Id(args.args.get_dcpl.dcpl_id));
  std::vector<Filter> out;
  for (std::size_t k = 0; k < twin_at_.size(); ++k) {
    out.push_back(twin_at_[k] == missing ? given_[k] : all.at(static_cast<std::size_t>(twin_at_[k])));
  }
  return out;
}

std::vector<std::byte> Pipeline::encode(Bytes raw, std::uint32_t& filter_mask) {
  void* datasets[] = {twin_};
  hid_t types[] = {element_}, spaces[] = {chunk_space_}, places[] = {first_chunk_};
  const void* from[] = {raw.data()};
  if (H5VLdataset_write(1, datasets, H5VL_NATIVE, types, spaces, places, H5P_DATASET_XFER_DEFAULT, from, nullptr) < 0) {
    fail(Why::io, "a filter failed to encode a chunk");
  }
  hsize_t bytes = 0;
  H5VL_native_dataset_optional_args_t args{};
  args.get_chunk_storage_size = {first_.data(), &bytes};
  chunk_operation(twin_, H5VL_NATIVE_DATASET_GET_CHUNK_STORAGE_SIZE, args, H5P_DATASET_XFER_DEFAULT,
                  "the size of a filtered chunk is not known");
  std::vector<std::byte> out(bytes);
  held_bytes_ = bytes;
  held_mask_.reset();
  args = {};
  args.chunk_read.offset = first_.data();
  args.chunk_read.buf = out.data();
#if H5_VERSION_GE(2, 0, 0)
  std::size_t room = out.size();
  args.chunk_read.buf_size = &room;
#endif
  chunk_operation(twin_, H5VL_NATIVE_DATASET_CHUNK_READ, args, H5P_DATASET_XFER_DEFAULT,
                  "a filtered chunk cannot be read back");
  filter_mask = 0;
  for (std::size_t k = 0; k < twin_at_.size(); ++k) {
    const bool left_out = twin_at_[k] == missing || (args.chunk_read.filters >> twin_at_[k] & 1);
    filter_mask |= std::uint32_t{left_out} << k;
  }
  return out;
}

void Pipeline::put(const std::vector<hsize_t>& at, Bytes filtered, std::uint32_t twin_mask) {
  H5VL_native_dataset_optional_args_t args{};
  args.chunk_write.offset = at.data();
  args.chunk_write.filters = twin_mask;
  args.chunk_write.size = static_cast<decltype(args.chunk_write.size)>(filtered.size());
  args.chunk_write.buf = filtered.data();
  chunk_operation(twin_, H5VL_NATIVE_DATASET_CHUNK_WRITE, args, H5P_DATASET_XFER_DEFAULT,
                  "a filtered chunk cannot be passed to HDF5");
}

void Pipeline::decode(Bytes filtered, std::uint32_t filter_mask, MutableBytes raw, hid_t transfer) {
  std::uint32_t twin_mask = 0;
  for (std::size_t k = 0; k < twin_at_.size(); ++k) {
    const bool left_out = filter_mask >> k & 1;
    if (twin_at_[k] == missing && !left_out) {
      fail(Why::unsupported,
           "a filter that made a chunk is missing; hint: HDF5_PLUGIN_PATH names folders with filters");
    }
    if (twin_at_[k] != missing) {
      twin_mask |= std::uint32_t{left_out} << twin_at_[k];
      if (needs_guard(given_[k].id)) {
        twin_mask |= std::uint32_t{left_out} << (twin_at_[k] + 1);  // the guard's check only holds after its filter
      }
    }
  }
  // HDF5 updates the mask in its index of chunks only if the chunk's length changes.
  if (filtered.size() == held_bytes_ && held_mask_ != twin_mask) {
    put(first_, std::vector<std::byte>(filtered.size() + 1), 0);
  }
  put(first_, filtered, twin_mask);
  held_bytes_ = filtered.size();
  held_mask_ = twin_mask;
  // HDF5 also caches the entry of this chunk until another one is requested.
  hsize_t ignored = 0;
  H5VL_native_dataset_optional_args_t args{};
  args.get_chunk_storage_size = {second_.data(), &ignored};
  chunk_operation(twin_, H5VL_NATIVE_DATASET_GET_CHUNK_STORAGE_SIZE, args, H5P_DATASET_XFER_DEFAULT,
                  "the size of another chunk is not known");
  void* datasets[] = {twin_};
  hid_t types[] = {element_}, spaces[] = {chunk_space_}, places[] = {first_chunk_};
  void* into[] = {raw.data()};
  if (H5VLdataset_read(1, datasets, H5VL_NATIVE, types, spaces, places, transfer, into, nullptr) < 0) {
    fail(Why::io, "a filter failed to decode a chunk: its data is damaged, or a filter is missing");
  }
}

}  // namespace sonde::store::h5

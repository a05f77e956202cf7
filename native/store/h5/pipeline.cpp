#include "store/h5/pipeline.hpp"

#include <H5VLconnector_passthru.h>
#include <H5VLnative.h>

#include "store/h5/failure.hpp"
#include "store/h5/shadow.hpp"

namespace sonde::store::h5 {
namespace {

// The native connector's operations beyond the common ones go by number.
void chunk_operation(void* twin, int operation, H5VL_native_dataset_optional_args_t& args, hid_t transfer,
                     const char* what) {
  H5VL_optional_args_t call{operation, &args};
  if (H5VLdataset_optional(twin, H5VL_NATIVE, &call, transfer, nullptr) < 0) {
    fail(Why::io, what);
  }
}

}  // namespace

Pipeline::Pipeline(hid_t properties, hid_t element, const std::vector<std::uint64_t>& chunk)
    : element_(need_id(H5Tcopy(element), "a copy of a type")), origin_(chunk.size(), 0) {
  const Id creation = need_id(H5Pcopy(properties), "a copy of creation properties");
  need_ok(H5Pset_fill_value(creation, element_, nullptr), "no fill value");
  need_ok(H5Pset_fill_time(creation, H5D_FILL_TIME_NEVER), "to leave chunks unfilled");
  need_ok(H5Pset_alloc_time(creation, H5D_ALLOC_TIME_INCR), "to allocate chunks late");
  const std::vector<hsize_t> dims(chunk.begin(), chunk.end());
  need_ok(H5Pset_chunk(creation, static_cast<int>(dims.size()), dims.data()), "the chunk's size");
  const Id access = need_id(H5Pcreate(H5P_DATASET_ACCESS), "a dataset access list");
  need_ok(H5Pset_chunk_cache(access, 0, 0, 0), "no chunk cache");  // a write reaches the filters at once
  const Id space = need_id(H5Screate_simple(static_cast<int>(dims.size()), dims.data(), nullptr), "the chunk's space");
  static Shadow* const memory = take_shadow();
  const auto at = self(H5I_GROUP);
  twin_ = H5VLdataset_create(memory->native(H5I_GROUP), &at, H5VL_NATIVE, nullptr, H5P_LINK_CREATE_DEFAULT, element_,
                             space, creation, access, H5P_DATASET_XFER_DEFAULT, nullptr);
  if (!twin_) {
    fail(Why::unsupported,
         "HDF5 cannot apply the dataset's filters: one is missing, or does not take this type or chunk");
  }
}

Pipeline::~Pipeline() {
  if (twin_) {
    H5VLdataset_close(twin_, H5VL_NATIVE, H5P_DATASET_XFER_DEFAULT, nullptr);
  }
}

Id Pipeline::properties() const {
  H5VL_dataset_get_args_t args{};
  args.op_type = H5VL_DATASET_GET_DCPL;
  need_ok(H5VLdataset_get(twin_, H5VL_NATIVE, &args, H5P_DATASET_XFER_DEFAULT, nullptr), "a dataset's properties");
  return Id(args.args.get_dcpl.dcpl_id);
}

std::vector<std::byte> Pipeline::encode(Bytes raw, std::uint32_t& filter_mask) {
  void* datasets[] = {twin_};
  hid_t types[] = {element_}, spaces[] = {H5S_ALL};
  const void* from[] = {raw.data()};
  if (H5VLdataset_write(1, datasets, H5VL_NATIVE, types, spaces, spaces, H5P_DATASET_XFER_DEFAULT, from, nullptr) < 0) {
    fail(Why::io, "a filter failed to encode a chunk");
  }
  const std::vector<hsize_t> origin(origin_.begin(), origin_.end());
  hsize_t bytes = 0;
  H5VL_native_dataset_optional_args_t args{};
  args.get_chunk_storage_size = {origin.data(), &bytes};
  chunk_operation(twin_, H5VL_NATIVE_DATASET_GET_CHUNK_STORAGE_SIZE, args, H5P_DATASET_XFER_DEFAULT,
                  "the size of a filtered chunk is not known");
  std::vector<std::byte> out(bytes);
  args = {};
  args.chunk_read.offset = origin.data();
  args.chunk_read.buf = out.data();
#if H5_VERSION_GE(2, 0, 0)
  std::size_t room = out.size();
  args.chunk_read.buf_size = &room;
#endif
  chunk_operation(twin_, H5VL_NATIVE_DATASET_CHUNK_READ, args, H5P_DATASET_XFER_DEFAULT,
                  "a filtered chunk cannot be read back");
  filter_mask = args.chunk_read.filters;
  return out;
}

void Pipeline::decode(Bytes filtered, std::uint32_t filter_mask, MutableBytes raw, hid_t transfer) {
  const std::vector<hsize_t> origin(origin_.begin(), origin_.end());
  H5VL_native_dataset_optional_args_t args{};
  args.chunk_write.offset = origin.data();
  args.chunk_write.filters = filter_mask;
  args.chunk_write.size = static_cast<decltype(args.chunk_write.size)>(filtered.size());
  args.chunk_write.buf = filtered.data();
  chunk_operation(twin_, H5VL_NATIVE_DATASET_CHUNK_WRITE, args, H5P_DATASET_XFER_DEFAULT,
                  "a filtered chunk cannot be taken up");
  void* datasets[] = {twin_};
  hid_t types[] = {element_}, spaces[] = {H5S_ALL};
  void* into[] = {raw.data()};
  if (H5VLdataset_read(1, datasets, H5VL_NATIVE, types, spaces, spaces, transfer, into, nullptr) < 0) {
    fail(Why::io, "a filter failed to decode a chunk: its data is damaged, or a filter is missing");
  }
}

}  // namespace sonde::store::h5

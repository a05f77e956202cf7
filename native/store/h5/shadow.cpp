#include "store/h5/shadow.hpp"

#include <H5VLconnector.h>
#include <H5VLconnector_passthru.h>
#include <H5VLnative.h>
#include <hdf5.h>

#include <string>
#include <utility>

#include "store/h5/datatype.hpp"
#include "store/h5/failure.hpp"

namespace sonde::store::h5 {
namespace {

void* need_object(void* object, const char* what) {
  if (!object) {
    fail(Why::invalid,
         std::string("HDF5 refused ") + what + " in memory, which the connector needs for old interfaces");
  }
  return object;
}

std::vector<Shadow*>& idle() {
  static auto* all = new std::vector<Shadow*>;
  return *all;
}

}  // namespace

H5VL_loc_params_t self(H5I_type_t type) {
  H5VL_loc_params_t at{};
  at.type = H5VL_OBJECT_BY_SELF;
  at.obj_type = type;
  return at;
}

Shadow::Shadow() {
  static unsigned made = 0;
  const Id access = need_id(H5Pcreate(H5P_FILE_ACCESS), "a file access list");
  need_ok(H5Pset_vol(access, H5VL_NATIVE, nullptr), "its own connector");
  need_ok(H5Pset_fapl_core(access, 64u << 10, false), "a file in memory");
  need_ok(H5Pset_fclose_degree(access, H5F_CLOSE_WEAK), "a weak close");
  const auto name = "sonde-shadow-" + std::to_string(++made);
  // The identifier is released, so nobody counts or closes it. The open root group keeps the file open.
  const Id id = need_id(H5Fcreate(name.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, access), "a file in memory");
  file_ = H5VLobject(id);
  const auto at = self(H5I_FILE);
  root_ = need_object(
      H5VLgroup_open(file_, &at, H5VL_NATIVE, "/", H5P_GROUP_ACCESS_DEFAULT, H5P_DATASET_XFER_DEFAULT, nullptr),
      "a group");
}

void* Shadow::native(H5I_type_t type) {
  const auto at = self(H5I_GROUP);
  const hid_t transfer = H5P_DATASET_XFER_DEFAULT;
  switch (type) {
    case H5I_FILE: return file_;
    case H5I_GROUP: return root_;
    case H5I_DATASET:
      if (!dataset_) {
        const Id space = need_id(H5Screate(H5S_NULL), "a dataspace");
        dataset_ = need_object(
            H5VLdataset_create(root_, &at, H5VL_NATIVE, "dataset", H5P_LINK_CREATE_DEFAULT, H5T_NATIVE_CHAR, space,
                               H5P_DATASET_CREATE_DEFAULT, H5P_DATASET_ACCESS_DEFAULT, transfer, nullptr),
            "a dataset");
      }
      return dataset_;
    case H5I_DATATYPE:
      if (!type_) {
        const Id copy = need_id(H5Tcopy(H5T_NATIVE_CHAR), "a type");
        type_ = need_object(
            H5VLdatatype_commit(root_, &at, H5VL_NATIVE, "type", copy, H5P_LINK_CREATE_DEFAULT,
                                H5P_DATATYPE_CREATE_DEFAULT, H5P_DATATYPE_ACCESS_DEFAULT, transfer, nullptr),
            "a datatype");
      }
      return type_;
    case H5I_ATTR:
      if (!attribute_) {
        const Id space = need_id(H5Screate(H5S_NULL), "a dataspace");
        attribute_ =
            need_object(H5VLattr_create(root_, &at, H5VL_NATIVE, "attribute", H5T_NATIVE_CHAR, space,
                                        H5P_ATTRIBUTE_CREATE_DEFAULT, H5P_ATTRIBUTE_ACCESS_DEFAULT, transfer, nullptr),
                        "an attribute");
      }
      return attribute_;
    default: return nullptr;
  }
}

void Shadow::resize(Twin& twin, const std::vector<std::uint64_t>& extent) {
  if (twin.extent == extent) {
    return;
  }
  if (twin.extent.size() != extent.size()) {
    fail(Why::io, "a dataset's number of axes has changed; hint: close the file, and open it again");
  }
  const std::vector<hsize_t> dims(extent.begin(), extent.end());
  H5VL_dataset_specific_args_t args{};
  args.op_type = H5VL_DATASET_SET_EXTENT;
  args.args.set_extent.size = dims.data();
  need_ok(H5VLdataset_specific(twin.dataset, H5VL_NATIVE, &args, H5P_DATASET_XFER_DEFAULT, nullptr), "another extent");
  twin.extent = extent;
}

Shadow::Twin Shadow::make_twin(const std::vector<std::uint64_t>& extent) {
  const hid_t transfer = H5P_DATASET_XFER_DEFAULT;
  const std::vector<hsize_t> dims(extent.begin(), extent.end()), most(extent.size(), H5S_UNLIMITED),
      chunk(extent.size(), 1);
  const Id space = need_id(
      dims.empty() ? H5Screate(H5S_SCALAR) : H5Screate_simple(static_cast<int>(dims.size()), dims.data(), most.data()),
      "a dataspace");
  const Id creation = need_id(H5Pcreate(H5P_DATASET_CREATE), "a property list");
  if (!dims.empty()) {
    need_ok(H5Pset_chunk(creation, static_cast<int>(chunk.size()), chunk.data()), "a chunk");
  }
  const auto at = self(H5I_GROUP);
  const auto name = "twin " + std::to_string(++twins_made_);  // linked, or it would be removed with its handle
  Twin twin{
      need_object(H5VLdataset_create(root_, &at, H5VL_NATIVE, name.c_str(), H5P_LINK_CREATE_DEFAULT, H5T_NATIVE_CHAR,
                                     space, creation, H5P_DATASET_ACCESS_DEFAULT, transfer, nullptr),
                  "a dataset"),
      0, extent};
  H5O_info2_t info;
  H5VL_object_get_args_t args{};
  args.op_type = H5VL_OBJECT_GET_INFO;
  args.args.get_info.fields = H5O_INFO_BASIC;
  args.args.get_info.oinfo = &info;
  const auto itself = self(H5I_DATASET);
  need_ok(H5VLobject_get(twin.dataset, &itself, H5VL_NATIVE, &args, transfer, nullptr), "information of a dataset");
  for (std::size_t k = 0; k < sizeof twin.address; ++k) {
    twin.address |= std::uint64_t{info.token.__data[k]} << (8 * k);
  }
  return twin;
}

std::uint64_t Shadow::address_for(std::uint64_t object, const std::vector<std::uint64_t>& extent) {
  auto at = twins_.find(object);
  if (at == twins_.end()) {
    if (auto& spare = spare_[extent.size()]; spare.empty()) {
      at = twins_.emplace(object, make_twin(extent)).first;
    } else {
      at = twins_.emplace(object, std::move(spare.back())).first;
      spare.pop_back();
    }
    objects_[at->second.address] = object;
  }
  resize(at->second, extent);
  return at->second.address;
}

std::uint64_t Shadow::object_behind(std::uint64_t address) const {
  const auto at = objects_.find(address);
  return at == objects_.end() ? 0 : at->second;
}

void Shadow::forget() {
  for (auto& [object, twin] : twins_) {
    spare_[twin.extent.size()].push_back(std::move(twin));
  }
  twins_.clear();
  objects_.clear();
}

Shadow* take_shadow() {
  if (idle().empty()) {
    return new Shadow;
  }
  auto* const shadow = idle().back();
  idle().pop_back();
  return shadow;
}

void give_back(Shadow* shadow) {
  shadow->forget();
  idle().push_back(shadow);
}

}  // namespace sonde::store::h5

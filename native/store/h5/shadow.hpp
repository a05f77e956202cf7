#pragma once
/// Small files of HDF5's own format, in memory, for the places where HDF5 needs a real file. Each open file has such a
/// shadow.
///
/// HDF5 2.0 and 1.14 still let only their own connector answer the calls that came before 1.12 (H5Oget_info1,
/// H5Literate1, H5Rcreate and others), and h5py makes these calls. This connector therefore presents itself as one that
/// passes through to the native connector. When HDF5 asks for the object below one of its objects, it returns an object
/// of the shadow. HDF5 takes from it what those calls need (the conversion of tokens to addresses, a heap for region
/// references), and gets everything else from this connector.
///
/// Shadows and the datasets in them are not closed or removed but reused: closing or removing makes HDF5 inspect every
/// identifier, also the one that it is closing at that moment. Everything here runs under HDF5's own lock.

#include <H5Ipublic.h>
#include <H5VLconnector.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

namespace sonde::store::h5 {

/// Location parameters for calls of the native connector that mean the given object, not one below it.
H5VL_loc_params_t self(H5I_type_t type);

class Shadow {
 public:
  Shadow();
  Shadow(const Shadow&) = delete;
  Shadow& operator=(const Shadow&) = delete;

  /// A native object of this type. nullptr: there is no such type of object.
  void* native(H5I_type_t type);

  /// The address of a dataset in the shadow that has this extent and represents `object`.
  std::uint64_t address_for(std::uint64_t object, const std::vector<std::uint64_t>& extent);
  /// The object that an address represents; 0: none, so it may be an object's own id.
  std::uint64_t object_behind(std::uint64_t address) const;
  void forget();

 private:
  struct Twin {
    void* dataset;
    std::uint64_t address;
    std::vector<std::uint64_t> extent;
  };
  Twin make_twin(const std::vector<std::uint64_t>& extent);
  static void resize(Twin& twin, const std::vector<std::uint64_t>& extent);

  void *file_ = nullptr, *root_ = nullptr, *dataset_ = nullptr, *type_ = nullptr, *attribute_ = nullptr;
  std::map<std::uint64_t, Twin> twins_;             // by object
  std::map<std::uint64_t, std::uint64_t> objects_;  // by address
  std::map<std::size_t, std::vector<Twin>> spare_;  // from files that were closed since, by number of axes
  std::uint64_t twins_made_ = 0;
};

Shadow* take_shadow();
void give_back(Shadow* shadow);

}  // namespace sonde::store::h5

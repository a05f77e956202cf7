#pragma once
/// Small files of HDF5's own, in memory, that stand in where HDF5 insists on one: each open file has a shadow.
///
/// HDF5 2.0 and 1.14 still let no connector but their own answer the calls that came before 1.12 (H5Oget_info1,
/// H5Literate1, H5Rcreate and others), and h5py makes them. The connector therefore presents itself as one that passes
/// through to the native connector: asked for the objects beneath its own, it gives objects of the shadow. HDF5 takes
/// from them what those calls need (how tokens become addresses, a heap for region references) and gets all else from
/// the connector.
///
/// Shadows and the datasets in them are not closed or removed but used again: either makes HDF5 look at every
/// identifier, even the one whose close is just under way. Under HDF5's own lock, as everything here.

#include <H5Ipublic.h>
#include <H5VLconnector.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

namespace sonde::store::h5 {

/// For calls of the native connector that mean the object handed to them, not one below it.
H5VL_loc_params_t self(H5I_type_t type);

class Shadow {
 public:
  Shadow();
  Shadow(const Shadow&) = delete;
  Shadow& operator=(const Shadow&) = delete;

  /// A native object of that type. nullptr: there is no such type of object.
  void* native(H5I_type_t type);

  /// The address of a dataset in the shadow with this extent, which stands for `object`.
  std::uint64_t address_for(std::uint64_t object, const std::vector<std::uint64_t>& extent);
  /// What an address stands for; 0: nothing, it may be an object's own id.
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
  std::map<std::size_t, std::vector<Twin>> spare_;  // of files closed since, by number of axes
  std::uint64_t twins_made_ = 0;
};

Shadow* take_shadow();
void give_back(Shadow* shadow);

}  // namespace sonde::store::h5

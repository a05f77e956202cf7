#pragma once
/// HDF5 files in the store, used as in a C program: datasets and attributes through the connector. libhdf5 is not
/// linked: h5py's is loaded when a case needs it. Owner-thread.

#include <cstdint>
#include <memory>
#include <string>

#include "store/storebench/load.hpp"

namespace sonde::store::bench {

/// libhdf5 with the connector registered. One for the life of the process.
class Hdf5 {
 public:
  /// library: path of libhdf5. plugins: folder of libsonde-h5.so. Error: store.no_hdf5.
  static Result<std::unique_ptr<Hdf5>> open(const std::string& library, const std::string& plugins);
  /// Closes the library, and with it the connector's connections. All loads must be destroyed before.
  ~Hdf5();
  const std::string& version() const { return version_; }

  struct Calls;
  const Calls& calls() const { return *calls_; }
  /// The connector's identifier in HDF5.
  std::int64_t connector() const { return connector_; }
  /// HDF5's report on the call that just failed.
  Error failed(const std::string& doing) const;

 private:
  Hdf5();
  std::unique_ptr<Calls> calls_;
  std::string version_;
  std::int64_t connector_ = -1;
};

/// Whether it is a case for make_hdf5_load.
inline bool is_hdf5(const Case& what) { return what.client == "dataset" || what.client == "attribute"; }

/// The connector's settings for `config`; H5Fflush waits until `safety`. Error: store.bad_option, a value that the
/// settings cannot contain.
Result<std::string> connector_settings(const Config& config, Safety safety);

/// Writes go to a file of its own; reads use the file `shared`, which all variants have in common.
std::unique_ptr<Load> make_hdf5_load(const Case& what, const Hdf5& hdf5, std::string settings, std::string own,
                                     std::string shared, MutableBytes memory);

}  // namespace sonde::store::bench

// The file through parallel HDF5: a dataset of bytes for each segment, segment-00000000 and so on, with the blocks of
// all tasks one after another. Datasets have no fill values, so that the library writes no data of its own.

#include "io/load/access.hpp"

#ifdef SONDE_HAVE_HDF5

#include <hdf5.h>

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <cerrno>
#include <cstdio>

namespace sonde::ioload {

namespace {

/// The innermost reason on HDF5's error stack, which HDF5 would otherwise print: the one with the system's error, else
/// the first.
std::string reason() {
  std::string text;
  H5Ewalk2(
      H5E_DEFAULT, H5E_WALK_UPWARD,
      [](unsigned, const H5E_error2_t* entry, void* into) -> herr_t {
        auto& out = *static_cast<std::string*>(into);
        if (out.empty() && entry->desc) out = entry->desc;
        return 0;
      },
      &text);
  H5Eclear2(H5E_DEFAULT);
  return text.empty() ? "HDF5 gives no reason" : first_line(text);
}

class Hdf5 final : public Access {
 public:
  Hdf5(const Options& o, const Layout& layout, MPI_Comm comm)
      : layout_(layout), comm_(comm), block_(o.block), segments_(o.segments), hints_(o.hints) {
    H5dont_atexit();  // in an aborted job the files stay open, and closing them would wait for all ranks
    H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);
    int size = 1;
    MPI_Comm_size(comm, &size);
    together_ = size > 1;
    transfer_list_ = H5Pcreate(H5P_DATASET_XFER);
    H5Pset_dxpl_mpio(transfer_list_, o.collective ? H5FD_MPIO_COLLECTIVE : H5FD_MPIO_INDEPENDENT);
  }
  ~Hdf5() override { H5Pclose(transfer_list_); }

  Result<void> open(const std::string& path, Purpose purpose, int owner) override {
    path_ = path;
    owner_ = owner;
    MPI_Info info = make_info(hints_);
    const hid_t access = H5Pcreate(H5P_FILE_ACCESS);
    H5Pset_fapl_mpio(access, comm_, info);
    errno = 0;
    file_ = purpose == Purpose::write ? H5Fcreate(path.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, access)
                                      : H5Fopen(path.c_str(), H5F_ACC_RDONLY, access);
    Result<void> all = file_ < 0 ? failed("open", errno) : Result<void>{};
    H5Pclose(access);
    if (info != MPI_INFO_NULL) MPI_Info_free(&info);
    if (!all) return all;
    const hsize_t bytes = layout_.segment_bytes();
    const hid_t space = H5Screate_simple(1, &bytes, nullptr), creation = H5Pcreate(H5P_DATASET_CREATE);
    H5Pset_fill_time(creation, H5D_FILL_TIME_NEVER);
    H5Pset_alloc_time(creation, H5D_ALLOC_TIME_EARLY);
    for (std::uint64_t s = 0; s < segments_ && all; ++s) {
      char name[32];
      std::snprintf(name, sizeof name, "segment-%08llu", static_cast<unsigned long long>(s));
      errno = 0;
      const hid_t set = purpose == Purpose::write
                            ? H5Dcreate2(file_, name, H5T_NATIVE_UINT8, space, H5P_DEFAULT, creation, H5P_DEFAULT)
                            : H5Dopen2(file_, name, H5P_DEFAULT);
      if (set < 0) all = failed("open", errno);
      else sets_.push_back(set);
    }
    H5Pclose(creation);
    H5Sclose(space);
    return all;
  }

  Result<void> write(const Piece& piece, std::span<const std::uint64_t> words) override {
    return move("write", piece, words.size_bytes(), [&](hid_t set, hid_t memory, hid_t file) {
      return H5Dwrite(set, H5T_NATIVE_UINT8, memory, file, transfer_list_, words.data());
    });
  }

  Result<void> read(const Piece& piece, std::span<std::uint64_t> words) override {
    return move("read", piece, words.size_bytes(), [&](hid_t set, hid_t memory, hid_t file) {
      return H5Dread(set, H5T_NATIVE_UINT8, memory, file, transfer_list_, words.data());
    });
  }

  Result<void> sync() override {
    errno = 0;
    if (H5Fflush(file_, H5F_SCOPE_GLOBAL) < 0) return failed("sync", errno);
    return {};
  }

  Result<void> close() override {
    for (const hid_t set : sets_) H5Dclose(set);
    sets_.clear();
    const hid_t file = file_;
    file_ = -1;
    errno = 0;
    if (file >= 0 && H5Fclose(file) < 0) return failed("close", errno);
    return {};
  }

  bool opens_together() const override { return together_; }

 private:
  /// Call it directly after the failed call: the next call of HDF5 clears the reason.
  Result<void> failed(const char* verb, int number) {
    const std::string why = reason();
    number = likely_errno(verb, path_, number);
    return number ? file_error(verb, path_, number) : file_error(verb, path_, why, 0);
  }

  template <typename Call> Result<void> move(const char* verb, const Piece& piece, std::size_t bytes, Call&& call) {
    const hid_t set = sets_[piece.segment], file = H5Dget_space(set);
    const hsize_t begin = layout_.place(owner_) * block_ + piece.within, count = bytes;
    H5Sselect_hyperslab(file, H5S_SELECT_SET, &begin, nullptr, &count, nullptr);
    const hid_t memory = H5Screate_simple(1, &count, nullptr);
    errno = 0;
    const Result<void> moved = call(set, memory, file) < 0 ? failed(verb, errno) : Result<void>{};
    H5Sclose(memory);
    H5Sclose(file);
    return moved;
  }

  Layout layout_;
  MPI_Comm comm_;
  bool together_ = false;
  std::uint64_t block_, segments_;
  std::map<std::string, std::string> hints_;
  std::string path_;
  int owner_ = 0;
  hid_t transfer_list_, file_ = -1;
  std::vector<hid_t> sets_;
};

}  // namespace

std::unique_ptr<Access> make_hdf5(const Options& options, const Layout& layout, MPI_Comm comm) {
  return std::make_unique<Hdf5>(options, layout, comm);
}

std::string hdf5_version() {
  unsigned major = 0, minor = 0, release = 0;
  H5get_libversion(&major, &minor, &release);
  return std::to_string(major) + "." + std::to_string(minor) + "." + std::to_string(release);
}

}  // namespace sonde::ioload

#else

namespace sonde::ioload {

std::unique_ptr<Access> make_hdf5(const Options&, const Layout&, MPI_Comm) { return nullptr; }
std::string hdf5_version() { return ""; }

}  // namespace sonde::ioload

#endif

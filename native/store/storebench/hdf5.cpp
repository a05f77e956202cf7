#include "store/storebench/hdf5.hpp"

#include <H5VLconnector.h>
#include <H5VLconnector_passthru.h>
#include <dlfcn.h>
#include <hdf5.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <limits>
#include <utility>

#include "store/link_options.hpp"

namespace sonde::store::bench {

/// Functions by name, as the headers declare them. The two variables have their values only after `open`.
struct Hdf5::Calls {
#define SONDE_CALL(name) decltype(&::name) name = nullptr;  // NOLINT(bugprone-macro-parentheses): it is a declaration
  // clang-format off: it would treat the list as one long expression
#define SONDE_CALLS \
  SONDE_CALL(H5open) SONDE_CALL(H5close) SONDE_CALL(H5dont_atexit) SONDE_CALL(H5get_libversion) \
  SONDE_CALL(H5PLprepend) SONDE_CALL(H5VLregister_connector_by_name) SONDE_CALL(H5VLconnector_str_to_info) \
  SONDE_CALL(H5VLfree_connector_info) SONDE_CALL(H5Eset_auto2) SONDE_CALL(H5Ewalk2) SONDE_CALL(H5Pcreate) \
  SONDE_CALL(H5Pset_vol) SONDE_CALL(H5Pclose) SONDE_CALL(H5Fcreate) SONDE_CALL(H5Fopen) SONDE_CALL(H5Fflush) \
  SONDE_CALL(H5Fclose) SONDE_CALL(H5Fdelete) SONDE_CALL(H5Screate_simple) SONDE_CALL(H5Sclose) \
  SONDE_CALL(H5Dcreate2) SONDE_CALL(H5Dopen2) SONDE_CALL(H5Dwrite) SONDE_CALL(H5Dread) SONDE_CALL(H5Dclose) \
  SONDE_CALL(H5Acreate2) SONDE_CALL(H5Aopen) SONDE_CALL(H5Awrite) SONDE_CALL(H5Aread) SONDE_CALL(H5Aclose)
  // clang-format on
  SONDE_CALLS
#undef SONDE_CALL
  hid_t file_access_class = H5I_INVALID_HID, byte_type = H5I_INVALID_HID;
};

Hdf5::Hdf5() : calls_(std::make_unique<Calls>()) {}

Hdf5::~Hdf5() {
  if (calls_->H5close) calls_->H5close();
}

Result<std::unique_ptr<Hdf5>> Hdf5::open(const std::string& library, const std::string& plugins) {
  const auto none = [](const std::string& why) {
    return Error{"store.no_hdf5", why,
                 "install an h5py whose HDF5 the connector was built for: pip install 'h5py>=3.16'"};
  };
  std::unique_ptr<Hdf5> made(new Hdf5);
  Calls& calls = *made->calls_;
  // Global symbols: the connector finds its references to HDF5 here.
  void* const handle = ::dlopen(library.c_str(), RTLD_NOW | RTLD_GLOBAL);
  if (!handle) return none(std::string("HDF5 does not load: ") + ::dlerror());
  std::string missing;
#define SONDE_CALL(name)                                                       \
  calls.name = reinterpret_cast<decltype(calls.name)>(::dlsym(handle, #name)); \
  if (!calls.name) missing = #name;
  SONDE_CALLS
#undef SONDE_CALL
  const auto* const file_access = static_cast<const hid_t*>(::dlsym(handle, "H5P_CLS_FILE_ACCESS_ID_g"));
  const auto* const byte = static_cast<const hid_t*>(::dlsym(handle, "H5T_NATIVE_UINT8_g"));
  if (!missing.empty() || !file_access || !byte) {
    calls.H5close = nullptr;
    return none(library + " is not HDF5 1.14 or later: it has no " +
                (missing.empty() ? "file access properties" : missing));
  }
  unsigned version[3] = {};
  if (calls.H5dont_atexit() < 0 || calls.H5open() < 0 ||
      calls.H5get_libversion(&version[0], &version[1], &version[2]) < 0)
    return none(library + " cannot be used: it does not start");
  made->version_ = std::to_string(version[0]) + '.' + std::to_string(version[1]) + '.' + std::to_string(version[2]);
  // HDF5 2.0 crashes when it cannot load a connector, so this is checked first.
  const std::string connector =
      plugins + "/connector/sonde-h5-" + std::to_string(version[0]) + '.' + std::to_string(version[1]) + ".so";
  if (::access(connector.c_str(), F_OK) != 0) return none("this build has no connector for HDF5 " + made->version_);
  if (!::dlopen(connector.c_str(), RTLD_NOW | RTLD_LOCAL))
    return none("the connector for HDF5 " + made->version_ + " does not load: " + ::dlerror());
  calls.file_access_class = *file_access;
  calls.byte_type = *byte;
  calls.H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);
  const bool found = calls.H5PLprepend(plugins.c_str()) >= 0;
  if (found) made->connector_ = calls.H5VLregister_connector_by_name("sonde", H5P_DEFAULT);
  if (!found || made->connector_ < 0)
    return none("HDF5 " + made->version_ + " does not accept the connector: " + made->failed("loading it").what);
  return made;
}

Error Hdf5::failed(const std::string& doing) const {
  std::string text;
  // The deepest entry is the connector's own, a whole sentence.
  calls_->H5Ewalk2(
      H5E_DEFAULT, H5E_WALK_UPWARD,
      [](unsigned n, const H5E_error2_t* entry, void* out) -> herr_t {
        if (n == 0 && entry->desc) *static_cast<std::string*>(out) = entry->desc;
        return 0;
      },
      &text);
  return {"store.hdf5", doing + ": " + (text.empty() ? "HDF5 gives no reason" : text), "see the server's status"};
}

Result<std::string> connector_settings(const Config& config, Safety safety) {
  std::string text = "flush=" + std::string(safety == Safety::storage ? "storage" : "network") +
                     ";transport=" + config.transport + ";servers=";
  for (const auto& server : config.servers) text += server + ',';
  text += ";connections=" + std::to_string(config.connections) + ";checksum=" + (config.checksum ? "yes;" : "no;");
  if (config.tls) text += "tls=yes;";
  char timeout[48];
  std::snprintf(timeout, sizeof timeout, "timeout=%g;", config.timeout_s);
  text += timeout;
  LinkOptions link = config.link;
  std::replace(link.provider.begin(), link.provider.end(), ';', '+');
  text += link_option_words(link, ';');
  if (!config.auth.empty()) text += "auth=" + config.auth + ';';
  if (config.token_file.empty()) return text;
  if (config.token_file.find_first_of("; ") != std::string::npos)
    return Error{"store.bad_option",
                 "the token file '" + config.token_file +
                     "' has a ';' or a blank in its name, which the settings of the HDF5 connector cannot contain",
                 "rename it"};
  return text + "token=" + config.token_file + ';';
}

namespace {

constexpr std::size_t file_objects_max = 4096, file_bytes_max = 64u << 20;  ///< beyond these a new file is made

/// An HDF5 identifier with the call that closes it.
class Id {
 public:
  Id() = default;
  Id(hid_t id, herr_t (*close)(hid_t)) : id_(id), close_(close) {}
  Id(Id&& other) noexcept : id_(std::exchange(other.id_, H5I_INVALID_HID)), close_(other.close_) {}
  Id& operator=(Id&& other) noexcept {
    std::swap(id_, other.id_);
    std::swap(close_, other.close_);
    return *this;
  }
  ~Id() { (void)close(); }
  bool close() {
    const hid_t id = std::exchange(id_, H5I_INVALID_HID);
    return id < 0 || close_(id) >= 0;
  }
  operator hid_t() const { return id_; }

 private:
  hid_t id_ = H5I_INVALID_HID;
  herr_t (*close_)(hid_t) = nullptr;
};

class Hdf5Load final : public Load {
 public:
  Hdf5Load(const Case& what, const Hdf5& hdf5, std::string settings, std::string name, MutableBytes memory)
      : what_(what),
        hdf5_(hdf5),
        call_(hdf5.calls()),
        settings_(std::move(settings)),
        name_(std::move(name)),
        memory_(memory.first(memory_of(what))),
        writes_(what.operation == "write"),
        datasets_(what.client == "dataset") {}

  Result<void> prepare(bool fill) override {
    access_ = {call_.H5Pcreate(call_.file_access_class), call_.H5Pclose};
    void* info = nullptr;
    if (access_ < 0 || call_.H5VLconnector_str_to_info(settings_.c_str(), hdf5_.connector(), &info) < 0 ||
        call_.H5Pset_vol(access_, hdf5_.connector(), info) < 0)
      return failed("choosing the connector");
    call_.H5VLfree_connector_info(hdf5_.connector(), info);
    const hsize_t extent = what_.bytes;
    space_ = {call_.H5Screate_simple(1, &extent, nullptr), call_.H5Sclose};
    if (space_ < 0) return failed("making a dataspace");
    if (writes_) return make_file();
    if (!fill) return {};
    if (auto ok = make_file(); !ok) return ok;
    for (std::size_t k = 0; k < what_.batch; ++k)
      if (!write(k)) return failed("writing the data to be read");
    return file_.close() ? Result<void>() : failed("closing the file");
  }

  /// Writes use new names, in a file that is replaced before it grows large. Reads use a file that was just opened, so
  /// that everything comes from the server.
  Result<void> ready() override {
    if (writes_) {
      const bool room =
          (next_ + what_.batch) * what_.bytes <= file_bytes_max && next_ + what_.batch <= file_objects_max;
      return next_ == 0 || room ? Result<void>() : make_file();
    }
    if (!file_.close()) return failed("closing the file");
    file_ = {call_.H5Fopen(name_.c_str(), H5F_ACC_RDONLY, access_), call_.H5Fclose};
    return file_ < 0 ? failed("opening the file") : Result<void>();
  }

  Result<void> iterate(Stages& s) override {
    s = {not_known, not_known, not_known};
    for (std::size_t k = 0; k < what_.batch; ++k)
      if (!(writes_ ? write(next_ + k) : read(k))) return failed("an operation failed");
    next_ += what_.batch;
    if (writes_ && call_.H5Fflush(file_, H5F_SCOPE_LOCAL) < 0) return failed("flushing the file");
    return {};
  }

  void clean() override {
    (void)file_.close();
    (void)call_.H5Fdelete(name_.c_str(), access_);
  }

 private:
  Error failed(const char* doing) const { return hdf5_.failed(what_.text() + ": " + doing); }

  Result<void> make_file() {
    if (!file_.close()) return failed("closing the file");
    file_ = {call_.H5Fcreate(name_.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, access_), call_.H5Fclose};
    next_ = 0;
    return file_ < 0 ? failed("making the file") : Result<void>();
  }

  std::byte* room(std::size_t k) const { return memory_.data() + k % (memory_.size() / what_.bytes) * what_.bytes; }

  const char* name_of(std::size_t k) {
    std::snprintf(text_, sizeof text_, "n%09zu", k);
    return text_;
  }

  bool write(std::size_t k) {
    if (datasets_) {
      Id made(call_.H5Dcreate2(file_, name_of(k), call_.byte_type, space_, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT),
              call_.H5Dclose);
      return made >= 0 && call_.H5Dwrite(made, call_.byte_type, H5S_ALL, H5S_ALL, H5P_DEFAULT, room(k)) >= 0 &&
             made.close();
    }
    Id made(call_.H5Acreate2(file_, name_of(k), call_.byte_type, space_, H5P_DEFAULT, H5P_DEFAULT), call_.H5Aclose);
    return made >= 0 && call_.H5Awrite(made, call_.byte_type, room(k)) >= 0 && made.close();
  }

  bool read(std::size_t k) {
    if (datasets_) {
      Id there(call_.H5Dopen2(file_, name_of(k), H5P_DEFAULT), call_.H5Dclose);
      return there >= 0 && call_.H5Dread(there, call_.byte_type, H5S_ALL, H5S_ALL, H5P_DEFAULT, room(k)) >= 0 &&
             there.close();
    }
    Id there(call_.H5Aopen(file_, name_of(k), H5P_DEFAULT), call_.H5Aclose);
    return there >= 0 && call_.H5Aread(there, call_.byte_type, room(k)) >= 0 && there.close();
  }

  Case what_;
  const Hdf5& hdf5_;
  const Hdf5::Calls& call_;
  std::string settings_, name_;
  MutableBytes memory_;
  bool writes_, datasets_;
  Id access_, space_, file_;
  std::size_t next_ = 0;
  char text_[24];
};

}  // namespace

std::unique_ptr<Load> make_hdf5_load(const Case& what, const Hdf5& hdf5, std::string settings, std::string own,
                                     std::string shared, MutableBytes memory) {
  return std::make_unique<Hdf5Load>(what, hdf5, std::move(settings),
                                    what.operation == "write" ? std::move(own) : std::move(shared), memory);
}

}  // namespace sonde::store::bench

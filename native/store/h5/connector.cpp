#include "store/h5/connector.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <system_error>
#include <utility>

#include "core/units.hpp"
#include "store/h5/calls.hpp"
#include "store/h5/group.hpp"
#include "store/link_options.hpp"

namespace sonde::store::h5 {

// ---- the error stack

void push_error(const char* function, hid_t major, Why why, const char* text) {
  hid_t minor = H5E_CANTOPERATE;
  switch (why) {
    case Why::not_found: minor = H5E_NOTFOUND; break;
    case Why::exists: minor = H5E_EXISTS; break;
    case Why::read_only: minor = H5E_WRITEERROR; break;
    case Why::io: minor = H5E_READERROR; break;
    case Why::invalid: minor = H5E_BADVALUE; break;
    case Why::unsupported: minor = H5E_UNSUPPORTED; break;
    case Why::in_use: minor = H5E_CANTOPENFILE; break;
    case Why::type: minor = H5E_BADTYPE; break;
  }
  H5Epush2(H5E_DEFAULT, "sonde-h5", function, 0, H5E_ERR_CLS, major, minor, "%s", text);
}

// ---- settings

namespace {

struct Info {
  std::string settings;
};

std::map<std::string, std::shared_ptr<Service>>& services() {
  static auto* all = new std::map<std::string, std::shared_ptr<Service>>;
  return *all;
}

double seconds(const std::string& name, const std::string& value) {
  char* end = nullptr;
  const double s = std::strtod(value.c_str(), &end);
  if (value.empty() || *end || !(s >= 0)) {
    fail(Why::invalid, "HDF5_VOL_CONNECTOR: " + name + "=" + value + " is not a time in seconds");
  }
  return s;
}

std::uint64_t byte_count(const std::string& name, const std::string& value) {
  const auto parsed = parse_size(value);
  if (!parsed || *parsed == 0) {
    fail(Why::invalid, "HDF5_VOL_CONNECTOR: " + name + "=" + value + " is not a number of bytes; hint: 1MiB, 65536");
  }
  return *parsed;
}

unsigned connection_count(const std::string& value) {
  unsigned n = 0;
  const auto [end, why] = std::from_chars(value.data(), value.data() + value.size(), n);
  if (why != std::errc{} || end != value.data() + value.size() || n < 1 || n > 1024) {
    fail(Why::invalid, "HDF5_VOL_CONNECTOR: connections=" + value + " is not a number from 1 to 1024");
  }
  return n;
}

void add_servers(Config& config, std::string_view list) {
  while (!list.empty()) {
    const auto end = std::min(list.find(','), list.size());
    if (end > 0) {
      config.servers.emplace_back(list.substr(0, end));
    }
    list.remove_prefix(std::min(end + 1, list.size()));
  }
}

// make: creates a missing store, because a file will be created; reading creates nothing.
void add_embedded(Config& config, const std::string& path, bool make) {
  const bool memory = path == "memory";
  const auto part_there = [&](const char* part) {
    return access((path + '/' + part + "/sonde-store").c_str(), F_OK) == 0;
  };
  if (!memory && !make && !(part_there("keys") && part_there("objects"))) {
    fail(Why::not_found,
         "HDF5_VOL_CONNECTOR: embedded=" + path +
             ": this folder has no store with HDF5 files "
             "(errno = 2, error message = 'No such file or directory'); hint: correct the path, or write a file first");
  }
  if (!memory && make && mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) {
    const auto why = errno;
    fail(Why::io, "HDF5_VOL_CONNECTOR: embedded=" + path +
                      ": cannot make this folder: " + std::generic_category().message(why) +
                      (why == ENOENT ? "; hint: make the folder above it first" : "; hint: choose another path"));
  }
  // The same folders as `sonde store --embedded` and `sonde store serve --path`, so they see the same files.
  for (const auto& [role, text] :
       {std::pair{Role::kv, memory ? std::string("memory") : "lmdb,path=" + path + "/keys"},
        std::pair{Role::data, memory ? std::string("memory") : "posix,path=" + path + "/objects"}}) {
    auto spec = parse_backend(role, text);
    if (!spec) {
      fail(spec.error(), "HDF5_VOL_CONNECTOR: embedded=" + path);
    }
    config.embedded.push_back(*spec);
  }
}

}  // namespace

std::shared_ptr<Service> open_service(std::string_view settings, bool make) {
  // A child of fork() must not use its parent's connections.
  const auto label = std::to_string(getpid()) + " " + std::string(settings);
  if (const auto at = services().find(label); at != services().end()) {
    return at->second;
  }
  Config config;
  std::uint64_t stripe = 1u << 20, chunk_cache = 64u << 20;
  bool flush_durably = true;
  for (auto rest = settings; !rest.empty();) {
    const auto end = std::min(rest.find_first_of("; "), rest.size());
    const auto item = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    if (item.empty()) {
      continue;
    }
    const auto equal = std::min(item.find('='), item.size());
    const std::string name(item.substr(0, equal)), value(item.substr(std::min(equal + 1, item.size())));
    if (name == "servers") {
      add_servers(config, value);
    } else if (name == "embedded") {
      add_embedded(config, value, make);
    } else if (name == "transport") {
      config.transport = value;
    } else if (name == "auth") {
      config.auth = value;
    } else if (name == "token") {
      config.token_file = value;
    } else if (name == "tls" && (value == "yes" || value == "no")) {
      config.tls = value == "yes";
    } else if (name == "timeout") {
      config.timeout_s = seconds(name, value);
    } else if (name == "connect_timeout") {
      config.connect_timeout_s = seconds(name, value);
    } else if (name == "checksum" && (value == "yes" || value == "no")) {
      config.checksum = value == "yes";
    } else if (name == "connections") {
      config.connections = connection_count(value);
    } else if (name == "flush" && (value == "network" || value == "storage")) {
      flush_durably = value == "storage";
    } else if (name == "provider") {
      // The libfabric provider: "tcp;ofi_rxm" contains a ';'.
      std::string provider = value;
      std::replace(provider.begin(), provider.end(), '+', ';');
      config.link.provider = provider;
    } else if (set_link_option(config.link, name, value)) {
    } else if (name == "stripe") {
      stripe = byte_count(name, value);
    } else if (name == "chunk_cache") {
      chunk_cache = byte_count(name, value);
    } else {
      fail(Why::invalid, "HDF5_VOL_CONNECTOR: '" + std::string(item) +
                             "' is not a setting of the sonde connector; the settings are servers=H:P,… "
                             "embedded=PATH transport= auth= token= timeout= connect_timeout= checksum=yes|no stripe= "
                             "chunk_cache= flush=network|storage "
                             "connections=N " +
                             std::string(link_option_names) + ", with ';' between");
    }
  }
  if (config.servers.empty() && config.embedded.empty()) {
    const char* const servers = std::getenv("SONDE_STORE_SERVERS");
    if (!servers || !*servers) {
      fail(Why::invalid,
           "the sonde connector has no server; hint: HDF5_VOL_CONNECTOR=\"sonde servers=127.0.0.1:5440\", or set "
           "SONDE_STORE_SERVERS; `sonde store serve` starts one");
    }
    add_servers(config, servers);
  }
  auto client = Client::open(std::move(config));
  if (!client) {
    fail(client.error(), "opening the store");
  }
  for (const auto role : {Role::kv, Role::data}) {
    if (client->servers(role) == 0) {
      fail(Why::invalid, "none of the store's servers has the role " + std::string(name_of(role)) +
                             ", which HDF5 files need; "
                             "hint: sonde store serve --backend " +
                             std::string(name_of(role)) + "=…");
    }
  }
  auto service = std::make_shared<Service>(std::move(*client));
  service->label = label;
  service->stripe_bytes = stripe;
  service->chunk_cache_bytes = chunk_cache;
  service->flush_durably = flush_durably;
  services()[label] = service;
  return service;
}

void close_services() {
  for (auto& [label, service] : services()) {
    if (!service->ours()) {
      new std::shared_ptr<Service>(service);  // never closed here: its sockets also belong to the parent
    }
  }
  services().clear();
}

std::shared_ptr<Service> service_of(hid_t access, bool make) {
  std::string settings;
  hid_t connector = H5I_INVALID_HID;
  if (H5Pget_vol_id(access, &connector) >= 0) {
    void* info = nullptr;
    if (H5Pget_vol_info(access, &info) >= 0 && info) {
      settings = static_cast<Info*>(info)->settings;
      H5VLfree_connector_info(connector, info);
    }
    H5VLclose(connector);
  }
  return open_service(settings, make);
}

// ---- the table of the connector

namespace {

thread_local bool wants_raw = false;

void* copy_info(const void* info) { return new Info(*static_cast<const Info*>(info)); }

herr_t compare_info(int* order, const void* a, const void* b) {
  const auto* const left = static_cast<const Info*>(a);
  const auto* const right = static_cast<const Info*>(b);
  *order = !left || !right ? (left != nullptr) - (right != nullptr) : left->settings.compare(right->settings);
  return 0;
}

herr_t free_info(void* info) {
  delete static_cast<Info*>(info);
  return 0;
}

herr_t info_to_text(const void* info, char** text) {
  const auto& settings = static_cast<const Info*>(info)->settings;
  *text = static_cast<char*>(H5allocate_memory(settings.size() + 1, false));
  if (!*text) {
    return -1;
  }
  std::memcpy(*text, settings.c_str(), settings.size() + 1);
  return 0;
}

herr_t text_to_info(const char* text, void** info) {
  *info = new Info{text ? text : ""};
  return 0;
}

// See FileState: the objects that HDF5 takes for those below.
void* native_object(const void* object) {
  if (wants_raw || find_file(object)) {
    return const_cast<void*>(object);
  }
  void* native = nullptr;
  guarded_status("native object", H5E_VOL, [&] {
    const auto& handle = *static_cast<const Handle*>(object);
    native = handle.file->shadow->native(handle.type);
  });
  return native;
}

extern const H5VL_class_t connector;

herr_t connector_class(void*, H5VL_get_conn_lvl_t level, const H5VL_class_t** out) {
  if (level == H5VL_GET_CONN_LVL_CURR) {
    *out = &connector;
    return 0;
  }
  static const H5VL_class_t* native = nullptr;
  if (!native) {
    int any = 0;
    if (H5VLintrospect_get_conn_cls(&any, H5VL_NATIVE, H5VL_GET_CONN_LVL_TERM, &native) < 0) {
      return -1;
    }
  }
  *out = native;
  return 0;
}

herr_t capabilities(const void*, std::uint64_t* flags) {
  *flags = connector.cap_flags;
  return 0;
}

herr_t query_optional(void*, H5VL_subclass_t subclass, int operation, std::uint64_t* flags) {
  const bool known = (subclass == H5VL_SUBCLS_DATASET && operation >= H5VL_NATIVE_DATASET_GET_CHUNK_INDEX_TYPE &&
                      operation <= H5VL_NATIVE_DATASET_CHUNK_ITER) ||
                     (subclass == H5VL_SUBCLS_GROUP && operation <= H5VL_NATIVE_GROUP_GET_OBJINFO) ||
                     (subclass == H5VL_SUBCLS_OBJECT &&
                      (operation <= H5VL_NATIVE_OBJECT_SET_COMMENT || operation == H5VL_NATIVE_OBJECT_GET_NATIVE_INFO));
  *flags = known ? H5VL_OPT_QUERY_SUPPORTED : 0;
  return 0;
}

herr_t compare_tokens(void*, const H5O_token_t* a, const H5O_token_t* b, int* order) {
  *order = std::memcmp(a, b, sizeof *a);
  return 0;
}

herr_t token_to_text(void*, H5I_type_t, const H5O_token_t* token, char** text) {
  *text = static_cast<char*>(H5allocate_memory(17, false));
  return *text && std::snprintf(*text, 17, "%016llx", static_cast<unsigned long long>(id_of(*token))) == 16 ? 0 : -1;
}

herr_t text_to_token(void*, H5I_type_t, const char* text, H5O_token_t* token) {
  char* end = nullptr;
  *token = token_of(std::strtoull(text, &end, 16));
  return *text && !*end ? 0 : -1;
}

herr_t terminate() {
  close_services();
  return 0;
}

const H5VL_class_t connector = {
    H5VL_VERSION,
    connector_value,
    "sonde",
    1,
    H5VL_CAP_FLAG_FILE_BASIC | H5VL_CAP_FLAG_FILE_MORE | H5VL_CAP_FLAG_GROUP_BASIC | H5VL_CAP_FLAG_GROUP_MORE |
        H5VL_CAP_FLAG_DATASET_BASIC | H5VL_CAP_FLAG_DATASET_MORE | H5VL_CAP_FLAG_ATTR_BASIC | H5VL_CAP_FLAG_ATTR_MORE |
        H5VL_CAP_FLAG_LINK_BASIC | H5VL_CAP_FLAG_LINK_MORE | H5VL_CAP_FLAG_OBJECT_BASIC | H5VL_CAP_FLAG_OBJECT_MORE |
        H5VL_CAP_FLAG_OBJ_REF | H5VL_CAP_FLAG_REG_REF | H5VL_CAP_FLAG_STORED_DATATYPES | H5VL_CAP_FLAG_CREATION_ORDER |
        H5VL_CAP_FLAG_ITERATE | H5VL_CAP_FLAG_STORAGE_SIZE | H5VL_CAP_FLAG_BY_IDX | H5VL_CAP_FLAG_GET_PLIST |
        H5VL_CAP_FLAG_FLUSH_REFRESH | H5VL_CAP_FLAG_EXTERNAL_LINKS | H5VL_CAP_FLAG_HARD_LINKS |
        H5VL_CAP_FLAG_SOFT_LINKS | H5VL_CAP_FLAG_TRACK_TIMES | H5VL_CAP_FLAG_FILTERS | H5VL_CAP_FLAG_FILL_VALUES,
    nullptr,
    terminate,
    {sizeof(Info), copy_info, compare_info, free_info, info_to_text, text_to_info},
    {native_object, nullptr, nullptr, nullptr, nullptr},
    attribute_calls,
    dataset_calls,
    datatype_calls,
    file_calls,
    group_calls,
    link_calls,
    object_calls,
    {connector_class, capabilities, query_optional},
    {nullptr, nullptr, nullptr, nullptr, nullptr, nullptr},
    {nullptr, nullptr, nullptr, nullptr},
    {compare_tokens, token_to_text, text_to_token},
    nullptr,
};

}  // namespace

bool is_ours(hid_t id) {
  const hid_t of = H5VLget_connector_id(id);
  if (of < 0) {
    return false;
  }
  H5VL_class_value_t value = 0;
  const bool ours = H5VLget_value(of, &value) >= 0 && value == connector_value;
  H5VLclose(of);
  return ours;
}

const void* raw_object(hid_t id) {
  wants_raw = true;
  const void* const object = H5VLobject(id);
  wants_raw = false;
  return object;
}

}  // namespace sonde::store::h5

/// The entry point for the plug-in (plugin.cpp).
extern "C" __attribute__((visibility("default"))) const void* sonde_h5_connector() {
  return &sonde::store::h5::connector;
}

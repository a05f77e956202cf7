#include "store/h5/container.hpp"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <random>
#include <tuple>

#include "store/h5/container_parts.hpp"
#include "store/order.hpp"

namespace sonde::store::h5 {

namespace {

constexpr std::string_view directory = "h5.files";
constexpr std::size_t listed_bytes_max = std::size_t{1} << 30;  // for one object's links, attributes or chunks

std::int64_t now_s() {
  return std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch()).count();
}

std::uint64_t new_number() {
  std::random_device device;
  std::uint64_t number = 0;
  while (number == 0) {
    number = (std::uint64_t{device()} << 32) ^ device();
  }
  return number;
}

// HDF5 and h5py read the class of an error from the errno in its text.
[[noreturn]] void no_such_file(const std::string& name) {
  fail(Why::not_found, "the store has no HDF5 file '" + name +
                           "' (errno = 2, error message = 'No such file or directory'); "
                           "hint: no file on disk is read while HDF5_VOL_CONNECTOR names the store");
}

// The files that this process has open, by service and name.
std::map<std::pair<std::string, std::string>, std::weak_ptr<Container>>& open_files() {
  static auto* files = new std::map<std::pair<std::string, std::string>, std::weak_ptr<Container>>;
  return *files;
}

std::shared_ptr<Container> find_open(const Service& service, const std::string& name) {
  const auto at = open_files().find({service.label, name});
  return at == open_files().end() ? nullptr : at->second.lock();
}

std::optional<std::string> look_up(Service& service, const std::string& name) {
  auto batch = service.client.batch();
  const auto doing = "looking for the file '" + name + "' in the store";
  batch.get(directory, name);
  run(batch, doing);
  if (batch[0].status == Status::not_found && service.client.servers(Role::kv) > 1) {
    const auto stray = found_anywhere(service.client, directory, name);
    if (!stray) {
      fail(stray.error(), doing);
    }
    if (const std::optional<std::string>& space = *stray; space.has_value()) {
      const auto order = found_anywhere(service.client, *space, order_key());
      fail(wrong_order(service.client, "the file", order ? (*order).value_or("") : std::string()), doing);
    }
  }
  if (batch[0].status == Status::not_found) {
    return std::nullopt;
  }
  need(batch, 0, doing);
  return std::string(text_of(batch[0].data));
}

// Removes all keys and objects of a file that no name refers to any more.
void remove_contents(Service& service, const std::string& space) {
  const auto doing = "removing the contents of the file in " + space;
  for (const bool objects : {false, true}) {
    const int servers = objects ? static_cast<int>(service.client.servers(Role::data)) : 1;
    std::vector<std::string> names;
    const auto remove = [&] {
      if (names.empty()) {
        return;
      }
      auto batch = service.client.batch();
      for (const auto& name : names) {
        for (int server = 0; server < servers; ++server) {
          batch.add({.code = objects ? Code::object_remove : Code::kv_remove, .space = space, .key = name},
                    objects ? server : -1);
        }
      }
      run(batch, doing);
      names.clear();
    };
    const auto each = [&](std::string_view name) {
      names.emplace_back(name);
      if (names.size() == wave_ops) {
        remove();
      }
      return true;
    };
    auto done = objects ? service.client.list(space, "", each)
                        : service.client.scan(space, "", true, [&](std::string_view key, Bytes) { return each(key); });
    if (!done) {
      fail(done.error(), doing);
    }
    remove();
  }
}

}  // namespace

std::string absolute_name(const std::string& name) {
  std::error_code ignored;
  auto path = std::filesystem::absolute(name, ignored).lexically_normal().string();
  if (path.size() > limit::key_bytes) {
    fail(Why::invalid, "the file's absolute name has " + std::to_string(path.size()) +
                           " bytes; the store takes at most " + std::to_string(limit::key_bytes) +
                           "; hint: use a shorter path");
  }
  return path;
}

Container::Container(std::shared_ptr<Service> service, std::string name, std::string space)
    : service_(std::move(service)), name_(std::move(name)), space_(std::move(space)) {}

Container::~Container() {
  // The owner has flushed the file, or got the error of that flush. The network may still use our memory: its
  // operations end first.
  if (!service_->ours()) {
    std::ignore = flying_.release();
    std::ignore = filling_.release();
  }
  flying_.reset();
  filling_.reset();
  open_files().erase({service_->label, name_});
}

std::shared_ptr<Container> Container::create(const std::shared_ptr<Service>& service, const std::string& name,
                                             Create how, std::string properties, const Object& root) {
  if (find_open(*service, name)) {
    fail(Why::in_use, "'" + name + "' is open in this process, so it cannot be replaced; hint: close it first");
  }
  const auto before = look_up(*service, name);
  if (before && how == Create::exclusive) {
    fail(Why::exists, "the store already has a file '" + name +
                          "' (errno = 17, error message = 'File exists'); "
                          "hint: open it with r+, or replace it with w");
  }
  const auto number = new_number();
  const auto space = "h5." + hex(number);
  std::shared_ptr<Container> made(new Container(service, name, space));
  made->number_ = number;
  made->properties_ = std::move(properties);
  made->session_ = 1;
  made->session_begun_ = made->writable_ = true;
  made->stripes_ = static_cast<std::uint32_t>(std::max<std::size_t>(1, service->client.servers(Role::data)));
  made->stripe_bytes_ = service->stripe_bytes;
  const auto file_record = made->encode_file();
  const auto root_record = encode(static_cast<const Header&>(root));
  const auto root_key = header_key(root_id);
  auto batch = service->client.batch();
  batch.put(space, file_key(), bytes_of(file_record));
  batch.put(space, root_key, bytes_of(root_record));
  const auto order = order_of(service->client);
  if (service->client.config().servers.size() > 1) {
    batch.put(space, order_key(), bytes_of(order));
  }
  // The name is written last, and exclusively if the caller asks for that: if two processes create the same file, one
  // wins.
  const auto entry =
      batch.put(directory, name, bytes_of(space), how == Create::exclusive ? flag::exclusive : std::uint8_t{0});
  run(batch, "creating '" + name + "'");
  if (batch[entry].status == Status::exists) {
    remove_contents(*service, space);
    fail(Why::exists, "another process has just created '" + name + "' (errno = 17, error message = 'File exists')");
  }
  for (std::size_t k = 0; k < batch.size(); ++k) {
    need(batch, k, "creating '" + name + "'");
  }
  if (before) {
    remove_contents(*service, *before);
  }
  open_files()[{service->label, name}] = made;
  return made;
}

std::shared_ptr<Container> Container::open(const std::shared_ptr<Service>& service, const std::string& name,
                                           bool writable) {
  if (auto there = find_open(*service, name)) {
    if (writable && !there->writable_) {
      fail(
          Why::in_use,
          "'" + name + "' is open read-only in this process, so it cannot be opened for writing; hint: close it first");
    }
    return there;
  }
  const auto space = look_up(*service, name);
  if (!space) {
    no_such_file(name);
  }
  auto batch = service->client.batch();
  batch.get(*space, file_key());
  run(batch, "opening '" + name + "'");
  need(batch, 0, "opening '" + name + "'");
  if (service->client.config().servers.size() > 1) {
    const auto order = found_anywhere(service->client, *space, order_key());
    if (!order) {
      fail(order.error(), "opening '" + name + "'");
    }
    const std::optional<std::string>& written = *order;
    if (written.has_value() && other_order(*written, order_of(service->client))) {
      fail(wrong_order(service->client, "the file", *written), "opening '" + name + "'");
    }
  }
  if (batch[0].status == Status::not_found) {
    fail(Why::io, "'" + name +
                      "' is incomplete: its first record is missing; hint: name the servers in the same order as when "
                      "it was written");
  }
  std::shared_ptr<Container> opened(new Container(service, name, *space));
  const auto file = decode_file(text_of(batch[0].data), name);
  opened->number_ = file.number;
  opened->session_ = file.session;
  opened->stripes_ = file.stripes;
  opened->stripe_bytes_ = file.stripe_bytes;
  opened->properties_ = file.properties;
  opened->writable_ = writable;
  const auto servers = std::max<std::size_t>(1, service->client.servers(Role::data));
  if (opened->stripes_ != servers) {
    fail(Why::invalid, "'" + name + "' is striped over " + std::to_string(opened->stripes_) + " data servers, but " +
                           std::to_string(servers) +
                           " are named; hint: name all of them, in the same order as when it was written");
  }
  open_files()[{service->label, name}] = opened;
  return opened;
}

bool Container::exists(Service& service, const std::string& name) { return look_up(service, name).has_value(); }

void Container::remove(const std::shared_ptr<Service>& service, const std::string& name) {
  if (find_open(*service, name)) {
    fail(Why::in_use, "'" + name + "' is open in this process, so it cannot be deleted; hint: close it first");
  }
  const auto space = look_up(*service, name);
  if (!space) {
    no_such_file(name);
  }
  auto batch = service->client.batch();
  batch.remove(directory, name);
  run(batch, "deleting '" + name + "'");
  need(batch, 0, "deleting '" + name + "'");
  remove_contents(*service, *space);
}

void Container::check_writable() const {
  if (!writable_) {
    fail(Why::read_only, "'" + name_ + "' is open read-only (no write intent on file); hint: open it with r+ or a");
  }
}

void Container::check_health() const {
  if (!service_->ours()) {
    fail(Why::in_use,
         "'" + name_ + "' was opened before fork(), by the parent process; hint: open it again in the child");
  }
  if (broken_) {
    fail(Why::io, *broken_);
  }
}

// `sonde store rm`, or another process that replaced the file, has taken the name meanwhile. Data written since then
// would lie where nobody finds it, although it was reported as stored.
void Container::check_named() {
  auto batch = service_->client.batch();
  batch.get(directory, name_);
  run(batch, "flushing '" + name_ + "'");
  need(batch, 0, "flushing '" + name_ + "'");
  if (batch[0].status == Status::ok && text_of(batch[0].data) == space_) {
    return;
  }
  broken_ = "'" + name_ +
            "' was removed from the store, or replaced, by another program while it was open here; the data written "
            "to it is lost; "
            "hint: write it again when no other program removes it";
  remove_contents(*service_, space_);
  check_health();
}

void Container::mark_broken(const std::string& why) {
  if (!broken_) {
    broken_ = why;
  }
}

std::string Container::encode_file() const {
  return encode(FileRecord{number_, session_, stripes_, stripe_bytes_, properties_});
}

// ---- gathering and sending

void Container::put(std::string key, std::string value) {
  check_health();
  if (value.size() > limit::value_bytes) {
    fail(Why::invalid, "a value of " + std::to_string(value.size()) + " bytes; the store takes at most " +
                           std::to_string(limit::value_bytes >> 20) + " MiB for an attribute; hint: make it a dataset");
  }
  put_bytes_ += key.size() + value.size();
  puts_[std::move(key)] = std::move(value);
  if (put_bytes_ >= wave_bytes || puts_.size() >= wave_ops) {
    launch();
  }
}

void Container::erase(std::string key) {
  check_health();
  put_bytes_ += key.size();
  puts_[std::move(key)] = std::nullopt;
  if (puts_.size() >= wave_ops) {
    launch();
  }
}

void Container::changed(Object& object) {
  check_writable();
  check_health();
  if (object.tracks_times) {
    object.changed_s = now_s();
  }
  if (!object.dirty) {
    object.dirty = true;
    dirty_.insert(object.id);
    if (dirty_.size() >= wave_ops) {
      launch();
    }
  }
}

void Container::launch() {
  check_health();
  for (const auto id : dirty_) {
    if (const auto at = objects_.find(id); at != objects_.end()) {
      at->second->dirty = false;
      puts_[header_key(id)] = encode(static_cast<const Header&>(*at->second));
    }
  }
  dirty_.clear();
  if (puts_.empty() && !filling_) {
    return;
  }
  settle();
  if (!filling_) {
    filling_ = std::make_unique<Wave>(service_->client.batch());
  }
  end_run();
  auto& wave = *filling_;
  wave.values.reserve(puts_.size());
  for (auto& [key, value] : puts_) {
    if (value) {
      wave.batch.put(space_, key, bytes_of(wave.values.emplace_back(std::move(*value))));
    } else {
      wave.batch.remove(space_, key);
    }
  }
  puts_.clear();
  put_bytes_ = 0;
  flying_ = std::move(filling_);
  if (auto sent = flying_->batch.start(); !sent) {
    broken_ =
        "writing '" + name_ + "': " + sent.error().what + " [" + sent.error().code + "]; hint: " + sent.error().hint;
    flying_.reset();
    check_health();
  }
  flying_->started = true;
}

void Container::settle() {
  if (!flying_) {
    return;
  }
  const auto wave = std::move(flying_);
  if (auto done = wave->batch.wait(); !done) {
    broken_ = "writing '" + name_ + "': " + done.error().what + " [" + done.error().code + "]" +
              (done.error().hint.empty() ? "" : "; hint: " + done.error().hint) +
              "; data written since the last flush may be lost";
    check_health();
  }
  for (std::size_t k = 0; wave->batch.failed() && k < wave->batch.size(); ++k) {
    const auto status = wave->batch[k].status;
    if (status != Status::ok && status != Status::not_found && status != Status::aborted && status != Status::pending) {
      broken_ = "writing '" + name_ + "': " + wave->batch.why(k) + " [store." + std::string(name_of(status)) +
                "]; data written since the last flush may be lost";
      check_health();
    }
  }
}

void Container::flush(bool durably) {
  check_health();
  for (auto& [id, object] : objects_) {
    if (object->state) {
      object->state->flush();
    }
  }
  drain();
  if (writable_) {
    check_named();
  }
  // Without a server, data that is not yet on disk is visible in this process only.
  if (writable_ && ((durably && service_->flush_durably) || !service_->client.config().embedded.empty())) {
    // The memory backend has no stable storage. There a flush only means that the server has the data.
    if (auto done = service_->client.sync(); !done && done.error().code != "store.unsupported") {
      fail(done.error(), "flushing '" + name_ + "'");
    }
  }
  constexpr std::size_t cached_max = 100000;
  if (objects_.size() > cached_max) {
    std::erase_if(objects_,
                  [](const auto& entry) { return entry.second.use_count() == 1 && entry.second->handles == 0; });
  }
}

std::optional<std::string> Container::fetch(const std::string& key) {
  check_health();
  if (const auto at = puts_.find(key); at != puts_.end()) {
    return at->second;
  }
  settle();
  auto batch = service_->client.batch();
  batch.get(space_, key);
  run(batch, "reading '" + name_ + "'");
  if (batch[0].status == Status::not_found) {
    return std::nullopt;
  }
  need(batch, 0, "reading '" + name_ + "'");
  return std::string(text_of(batch[0].data));
}

void Container::scan(const std::string& prefix, const std::string& doing,
                     const std::function<void(std::string_view key, std::string_view record)>& each) const {
  std::size_t bytes = 0;
  auto done = service_->client.scan(space_, prefix, false, [&](std::string_view key, Bytes record) {
    bytes += key.size() + record.size();
    if (bytes > listed_bytes_max) {
      return false;
    }
    each(key, text_of(record));
    return true;
  });
  if (!done) {
    fail(done.error(), doing + " of '" + name_ + "'");
  }
  if (bytes > listed_bytes_max) {
    fail(Why::unsupported, doing + " of '" + name_ + "': its records take more than " +
                               std::to_string(listed_bytes_max >> 20) +
                               " MiB, which is the limit for records in memory");
  }
}

}  // namespace sonde::store::h5

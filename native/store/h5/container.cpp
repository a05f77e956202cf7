#include "store/h5/container.hpp"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <functional>
#include <limits>
#include <random>
#include <tuple>

#include "store/order.hpp"

namespace sonde::store::h5 {
namespace {

constexpr std::string_view directory = "h5.files";
constexpr std::size_t wave_bytes = 4u << 20;  // bytes gathered before a batch is sent; at most two waves are in memory
constexpr std::size_t wave_ops = 4096;
constexpr std::size_t pooled_bytes_max = 64u << 10;
constexpr std::size_t copied_bytes_max = 256u << 10;  // larger writes are sent from the caller's memory
constexpr std::size_t batch_bytes = 32u << 20;
constexpr std::size_t listed_bytes_max = std::size_t{1} << 30;  // for one object's links, attributes or chunks

ObjectPtr read_object(ObjectId id, std::string_view record) {
  auto object = std::make_shared<Object>();
  static_cast<Header&>(*object) = decode_header(record);
  object->id = id;
  return object;
}

// A record names the object, link or attribute that it describes. Under another key it would be found as something
// else.
void need_key(std::string_view key, char kind, ObjectId id, std::string_view name) {
  if (key != named_key(kind, id, name)) {
    fail(Why::io, std::string("the record of ") + (kind == 'l' ? "a link" : "an attribute") +
                      " in the store has the key of another record: it is damaged");
  }
}

// A chunk outside the extent may come from another process that has written since. A chunk that no extent can reach is
// damage.
void need_place(const Object& dataset, const ChunkAt& at) {
  bool right = at.size() == dataset.chunk.size();
  for (std::size_t d = 0; right && d < at.size(); ++d) {
    right = at[d] < std::numeric_limits<std::uint64_t>::max() / dataset.chunk[d];
  }
  if (!right) {
    fail(Why::io, "the record of a chunk in the store lies outside of its dataset: it is damaged");
  }
}

std::string data_name(const Object& object, Part part) {
  return part == Part::data && object.pool ? hex(object.pool) + 'p' : hex(object.id) + static_cast<char>(part);
}

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

void run(Batch& batch, const std::string& doing) {
  if (auto sent = batch.run(); !sent) {
    fail(sent.error(), doing);
  }
}

void need(const Batch& batch, std::size_t k, const std::string& doing) {
  if (const auto status = batch[k].status; status != Status::ok && status != Status::not_found) {
    fail(Why::io, doing + ": " + batch.why(k) + " [store." + std::string(name_of(status)) + "]");
  }
}

std::string file_key() { return "f"; }
std::string order_key() { return "s"; }

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

/// A batch of operations, and the memory that it is sent from.
struct Container::Wave {
  Wave(Batch empty) : batch(std::move(empty)) {}
  Batch batch;
  std::string run_name;  // the object and place whose data is being gathered
  std::uint64_t run_at = 0;
  std::vector<std::byte> run;
  std::deque<std::vector<std::byte>> runs;
  std::vector<std::string> values;       // of kv
  std::unordered_set<ObjectId> objects;  // objects whose data is in this wave
  std::size_t data_bytes = 0;
  bool started = false;
};

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

// ---- objects

ObjectPtr Container::object(ObjectId id) {
  if (const auto at = objects_.find(id); at != objects_.end()) {
    return at->second;
  }
  const auto record = fetch(header_key(id));
  if (!record) {
    fail(Why::not_found, "'" + name_ + "' has no object " + hex(id) + ": the reference or link is dangling");
  }
  return objects_[id] = read_object(id, *record);
}

ObjectPtr Container::make(Kind kind) {
  check_writable();
  check_health();
  if (!session_begun_) {
    // The ids of an interrupted session must not be used again, so the session's number is stored before the first of
    // them.
    ++session_;
    const auto record = encode_file();
    drain();
    auto batch = service_->client.batch();
    batch.put(space_, file_key(), bytes_of(record));
    run(batch, "writing '" + name_ + "'");
    need(batch, 0, "writing '" + name_ + "'");
    session_begun_ = true;
  }
  auto object = std::make_shared<Object>();
  object->id = (std::uint64_t{session_} << 32) | ++next_in_session_;
  object->kind = kind;
  object->links_loaded = object->attributes_loaded = object->chunks_loaded = true;
  objects_[object->id] = object;
  return object;
}

void Container::adjust(Object& object, int by) {
  object.links_to = static_cast<std::uint32_t>(std::max(0, static_cast<int>(object.links_to) + by));
  changed(object);
  if (object.links_to == 0 && object.handles == 0) {
    remove_object(object);
  }
}

void Container::release(const ObjectPtr& object) {
  if (--object->handles > 0) {
    return;
  }
  // The object was removed while it was open, or it is anonymous and was never linked.
  const bool goes = object->links_to == 0 && writable_ && object->id != root_id;
  if (object->state) {
    const auto state = std::move(object->state);
    if (!goes) {
      state->flush();
    }
  }
  if (goes) {
    remove_object(*object);
  }
}

void Container::remove_object(Object& object) {
  const auto keep = objects_.contains(object.id) ? objects_[object.id] : nullptr;
  if (object.kind == Kind::group) {
    for (const auto& [name, link] : links(object)) {
      erase(named_key('l', object.id, name));
      if (link.kind == Link::Kind::hard && link.target != object.id) {
        adjust(*this->object(link.target), -1);
      }
    }
  }
  for (const auto& [name, attribute] : attributes(object)) {
    erase(named_key('a', object.id, name));
    if (attribute->named_type) {
      adjust(*this->object(attribute->named_type), -1);
    }
  }
  if (object.named_type) {
    adjust(*this->object(object.named_type), -1);
  }
  if (object.kind == Kind::dataset) {
    if (!object.chunk.empty()) {
      for (const auto& [at, chunk] : chunks(object)) {
        erase(chunk_key(object.id, at));
      }
    }
    drain();
    auto batch = service_->client.batch();
    const std::string names[] = {data_name(object, Part::data), data_name(object, Part::heap)};
    for (std::size_t k = 0; k < 2; ++k) {
      if (k == 0 ? !object.pool && (object.allocated || object.data_end > 0) : object.heap_end > 0) {
        for (std::uint32_t server = 0; server < stripes_; ++server) {
          batch.add({.code = Code::object_remove, .space = space_, .key = names[k]},
                    stripes_ > 1 ? static_cast<int>(server) : -1);
        }
      }
    }
    if (batch.size() > 0) {
      run(batch, "removing a dataset of '" + name_ + "'");
    }
  }
  erase(header_key(object.id));
  dirty_.erase(object.id);
  object.dirty = false;
  objects_.erase(object.id);
}

void Container::refresh(Object& object) {
  if (object.state) {
    object.state->flush();
  }
  drain();
  const auto record = fetch(header_key(object.id));
  if (!record) {
    return;
  }
  auto now = decode_header(*record);
  if (now.kind != object.kind || now.type != object.type || now.space_class != object.space_class ||
      now.extent.size() != object.extent.size() || now.chunk != object.chunk || now.filtered != object.filtered ||
      now.fill != object.fill || now.properties != object.properties) {
    fail(Why::io, "an object of '" + name_ +
                      "' was replaced by another while it was open here; hint: close the file, and open it again");
  }
  static_cast<Header&>(object) = std::move(now);
  object.links_loaded = object.attributes_loaded = object.chunks_loaded = false;
  object.links.clear();
  object.by_order.clear();
  object.attributes.clear();
  object.chunks.clear();
}

std::uint64_t Container::heap_end(Object& dataset) {
  // Only this process writes to a file that is open for writing here, so the header here is the newest.
  if (!writable_) {
    if (const auto record = fetch(header_key(dataset.id))) {
      dataset.heap_end = std::max(dataset.heap_end, decode_header(*record).heap_end);
    }
  }
  return dataset.heap_end;
}

// ---- links

const Link* Container::find_link(Object& group, std::string_view name) {
  if (const auto at = group.links.find(name); at != group.links.end()) {
    return &at->second;
  }
  if (group.links_loaded || group.link_count == 0) {
    return nullptr;
  }
  // The first few links are fetched one by one. A caller that asks for more gets all of them.
  if (group.link_misses++ < 2) {
    const auto key = named_key('l', group.id, name);
    const auto record = fetch(key);
    if (!record) {
      return nullptr;
    }
    std::string whole;
    auto link = decode_link(*record, whole);
    need_key(key, 'l', group.id, whole);
    return &group.links.insert_or_assign(std::move(whole), std::move(link)).first->second;
  }
  links(group);
  prefetch(group, name);
  const auto at = group.links.find(name);
  return at == group.links.end() ? nullptr : &at->second;
}

// Fetches the headers of the next objects in the group with one message: a program that opens two neighbours usually
// opens more.
void Container::prefetch(const Object& group, std::string_view from) {
  constexpr std::size_t at_once = 256;
  std::vector<ObjectId> ids;
  for (auto at = group.links.lower_bound(from); at != group.links.end() && ids.size() < at_once; ++at) {
    if (at->second.kind == Link::Kind::hard && !objects_.contains(at->second.target)) {
      ids.push_back(at->second.target);
    }
  }
  if (ids.size() < 2) {
    return;
  }
  settle();
  auto batch = service_->client.batch();
  for (const auto id : ids) {
    batch.get(space_, header_key(id));
  }
  run(batch, "reading '" + name_ + "'");
  for (std::size_t k = 0; k < ids.size(); ++k) {
    if (batch[k].status == Status::ok && !objects_.contains(ids[k])) {
      objects_[ids[k]] = read_object(ids[k], text_of(batch[k].data));
    }
  }
}

const std::map<std::string, Link, std::less<>>& Container::links(Object& group) {
  if (!group.links_loaded) {
    if (group.link_count > 0) {
      drain();
      group.links.clear();
      scan('l' + hex(group.id), "listing a group", [&](std::string_view key, std::string_view record) {
        std::string name;
        auto link = decode_link(record, name);
        need_key(key, 'l', group.id, name);
        group.links.insert_or_assign(std::move(name), std::move(link));
      });
    }
    group.links_loaded = true;
  }
  return group.links;
}

const std::vector<std::string>& Container::links_by_order(Object& group) {
  links(group);
  if (group.by_order.size() != group.links.size()) {
    std::vector<std::pair<std::int64_t, const std::string*>> order;
    for (const auto& [name, link] : group.links) {
      order.emplace_back(link.order, &name);
    }
    std::sort(order.begin(), order.end());
    group.by_order.clear();
    for (const auto& [number, name] : order) {
      group.by_order.push_back(*name);
    }
  }
  return group.by_order;
}

void Container::add_link(Object& group, const std::string& name, Link link) {
  check_writable();
  link.order = group.next_link_order++;
  put(named_key('l', group.id, name), encode(name, link));
  group.links.insert_or_assign(name, std::move(link));
  group.by_order.clear();
  ++group.link_count;
  changed(group);
}

void Container::remove_link(Object& group, std::string_view name) {
  check_writable();
  erase(named_key('l', group.id, name));
  if (const auto at = group.links.find(name); at != group.links.end()) {
    group.links.erase(at);
  }
  group.by_order.clear();
  if (--group.link_count == 0) {
    group.next_link_order = 0;  // as in HDF5: an empty group starts to count at 0 again
  }
  changed(group);
}

// ---- attributes

const std::map<std::string, std::shared_ptr<Attribute>, std::less<>>& Container::attributes(Object& object) {
  if (!object.attributes_loaded) {
    if (object.attribute_count > 0) {
      drain();
      scan('a' + hex(object.id), "reading the attributes of an object",
           [&](std::string_view key, std::string_view record) {
             std::string name;
             auto attribute = decode_attribute(record, name);
             need_key(key, 'a', object.id, name);
             object.attributes.emplace(std::move(name), std::make_shared<Attribute>(std::move(attribute)));
           });
    }
    object.attributes_loaded = true;
  }
  return object.attributes;
}

std::shared_ptr<Attribute> Container::find_attribute(Object& object, std::string_view name) {
  const auto& all = attributes(object);
  const auto at = all.find(name);
  return at == all.end() ? nullptr : at->second;
}

void Container::put_attribute(Object& object, const std::string& name, const std::shared_ptr<Attribute>& attribute) {
  check_writable();
  attributes(object);
  if (!object.attributes.contains(name)) {
    ++object.attribute_count;
  }
  if (attribute->named_type) {
    adjust(*this->object(attribute->named_type), 1);  // it must outlive its own name
  }
  attribute->order = object.next_attribute_order++;
  store_attribute(object, name, *attribute);
  object.attributes.insert_or_assign(name, attribute);
}

void Container::store_attribute(Object& object, std::string_view name, const Attribute& attribute) {
  check_writable();
  put(named_key('a', object.id, name), encode(name, attribute));
  changed(object);
}

void Container::remove_attribute(Object& object, std::string_view name) {
  check_writable();
  attributes(object);
  erase(named_key('a', object.id, name));
  const auto at = object.attributes.find(name);
  const auto named_type = at->second->named_type;
  object.attributes.erase(at);
  if (--object.attribute_count == 0) {
    object.next_attribute_order = 0;
  }
  changed(object);
  if (named_type) {
    adjust(*this->object(named_type), -1);
  }
}

void Container::rename_attribute(Object& object, const std::string& from, const std::string& to) {
  check_writable();
  attributes(object);
  const auto attribute = object.attributes.find(from)->second;
  erase(named_key('a', object.id, from));
  object.attributes.erase(from);
  object.attributes.insert_or_assign(to, attribute);
  store_attribute(object, to, *attribute);
}

// ---- chunks

const std::map<ChunkAt, Chunk>& Container::chunks(Object& dataset) {
  if (!dataset.chunks_loaded) {
    if (dataset.data_end > 0) {
      drain();
      const auto prefix = 'c' + hex(dataset.id);
      scan(prefix, "reading the chunk index of a dataset", [&](std::string_view key, std::string_view record) {
        const auto at = chunk_at(key.substr(prefix.size()));
        need_place(dataset, at);
        dataset.chunks.insert_or_assign(at, decode_chunk(record));
      });
    }
    dataset.chunks_loaded = true;
  }
  return dataset.chunks;
}

void Container::put_chunk(Object& dataset, const ChunkAt& at, const Chunk& chunk) {
  put(chunk_key(dataset.id, at), encode(chunk));
  dataset.chunks[at] = chunk;
}

void Container::remove_chunk(Object& dataset, const ChunkAt& at) {
  erase(chunk_key(dataset.id, at));
  dataset.chunks.erase(at);
}

// ---- data

void Container::each_stripe(std::uint64_t offset, std::uint64_t length,
                            const std::function<void(int, std::uint64_t, std::uint64_t, std::uint64_t)>& each) const {
  if (stripes_ == 1) {
    each(-1, offset, 0, length);
    return;
  }
  // Stripe s is on server s modulo the number of servers; the stripes of a server lie one behind the other.
  for (std::uint64_t done = 0; done < length;) {
    const auto stripe = (offset + done) / stripe_bytes_;
    const auto within = (offset + done) % stripe_bytes_;
    const auto n = std::min(stripe_bytes_ - within, length - done);
    each(static_cast<int>(stripe % stripes_), stripe / stripes_ * stripe_bytes_ + within, done, n);
    done += n;
  }
}

void Container::place(Object& object, std::uint64_t bytes) {
  if (bytes > 0 && bytes <= pooled_bytes_max) {
    object.pool = session_;
    object.pool_at = pool_end_;
    pool_end_ += bytes;
  }
}

void Container::end_run() {
  auto& wave = *filling_;
  if (wave.run.empty()) {
    return;
  }
  const Bytes data = wave.runs.emplace_back(std::move(wave.run));
  wave.run.clear();
  each_stripe(wave.run_at, data.size(), [&](int server, std::uint64_t local, std::uint64_t at, std::uint64_t n) {
    wave.batch.add({.code = Code::object_write,
                    .space = space_,
                    .key = wave.run_name,
                    .offset = local,
                    .data = data.subspan(at, n)},
                   server);
  });
}

void Container::write(Object& object, Part part, const std::vector<WritePiece>& pieces) {
  check_writable();
  check_health();
  const auto name = data_name(object, part);
  const auto base = part == Part::data ? object.pool_at : 0;
  std::size_t total = 0;
  for (const auto& piece : pieces) {
    total += piece.bytes.size();
  }
  if (total <= copied_bytes_max) {
    for (const auto& piece : pieces) {
      if (!filling_) {
        filling_ = std::make_unique<Wave>(service_->client.batch());
      }
      auto& wave = *filling_;
      const auto at = base + piece.offset;
      if (wave.run_name != name || wave.run_at + wave.run.size() != at || wave.run.size() >= copied_bytes_max) {
        end_run();
        wave.run_name = name;
        wave.run_at = at;
      }
      wave.run.insert(wave.run.end(), piece.bytes.begin(), piece.bytes.end());
      wave.objects.insert(object.id);
      wave.data_bytes += piece.bytes.size();
      if (wave.data_bytes >= wave_bytes || wave.batch.size() >= wave_ops) {
        launch();
      }
    }
    return;
  }
  // Gathered writes are sent first: batches that are in flight at the same time have no order.
  drain();
  for (std::size_t k = 0; k < pieces.size();) {
    auto batch = service_->client.batch();
    for (std::size_t bytes = 0; k < pieces.size() && (bytes == 0 || bytes + pieces[k].bytes.size() <= batch_bytes) &&
                                batch.size() < limit::batch_ops / 2;
         ++k) {
      each_stripe(base + pieces[k].offset, pieces[k].bytes.size(),
                  [&](int server, std::uint64_t local, std::uint64_t at, std::uint64_t n) {
                    batch.add({.code = Code::object_write,
                               .space = space_,
                               .key = name,
                               .offset = local,
                               .data = pieces[k].bytes.subspan(at, n)},
                              server);
                  });
      bytes += pieces[k].bytes.size();
    }
    run(batch, "writing a dataset of '" + name_ + "'");
    for (std::size_t n = 0; batch.failed() && n < batch.size(); ++n) {
      need(batch, n, "writing a dataset of '" + name_ + "'");
    }
  }
}

// A program that reads small datasets in the order in which they were written gets the next ones with the first.
bool Container::read_ahead(const Object& object, std::uint64_t at, MutableBytes into) {
  constexpr std::uint64_t window = 256u << 10;
  constexpr auto valid = std::chrono::milliseconds(50);
  if (into.size() > pooled_bytes_max) {
    return false;  // no dataset of a pool is this long, but a damaged header may give such a length
  }
  const auto now = std::chrono::steady_clock::now();
  const bool follows = ahead_.pool == object.pool && at >= ahead_.next && at - ahead_.next <= pooled_bytes_max;
  const bool held = ahead_.pool == object.pool && at >= ahead_.at && at - ahead_.at <= ahead_.bytes.size() &&
                    into.size() <= ahead_.bytes.size() - (at - ahead_.at) && now - ahead_.read_at < valid;
  // Only forward: data that is read a second time comes from the server.
  const bool again = at < ahead_.next;
  ahead_.pool = object.pool;
  ahead_.next = at + into.size();
  if (!follows) {
    ahead_.bytes.clear();
    return false;
  }
  if (!held || again) {
    ahead_.bytes.resize(window);
    ahead_.at = at;
    ahead_.read_at = now;
    auto batch = service_->client.batch();
    std::vector<std::pair<std::size_t, MutableBytes>> into_window;
    const auto name = data_name(object, Part::data);
    each_stripe(at, window, [&](int server, std::uint64_t local, std::uint64_t offset, std::uint64_t n) {
      const auto part = MutableBytes(ahead_.bytes).subspan(offset, n);
      into_window.emplace_back(
          batch.add(
              {.code = Code::object_read, .space = space_, .key = name, .offset = local, .length = n, .into = part},
              server),
          part);
    });
    run(batch, "reading a dataset of '" + name_ + "'");
    for (const auto& [k, part] : into_window) {
      need(batch, k, "reading a dataset of '" + name_ + "'");
      const auto got = batch[k].status == Status::ok ? batch[k].data.size() : 0;
      std::fill(part.begin() + static_cast<std::ptrdiff_t>(got), part.end(), std::byte{0});
    }
  }
  std::copy_n(ahead_.bytes.begin() + static_cast<std::ptrdiff_t>(at - ahead_.at), into.size(), into.begin());
  return true;
}

void Container::read(Object& object, Part part, const std::vector<ReadPiece>& pieces, bool whole) {
  check_health();
  if (!writable_ && part == Part::data && object.pool && pieces.size() == 1 &&
      read_ahead(object, object.pool_at + pieces[0].offset, pieces[0].into)) {
    return;
  }
  if ((filling_ && filling_->objects.contains(object.id)) || (flying_ && flying_->objects.contains(object.id))) {
    drain();
  }
  const auto name = data_name(object, part);
  const auto base = part == Part::data ? object.pool_at : 0;
  for (std::size_t k = 0; k < pieces.size();) {
    auto batch = service_->client.batch();
    std::vector<MutableBytes> into;
    for (std::size_t bytes = 0; k < pieces.size() && (bytes == 0 || bytes + pieces[k].into.size() <= batch_bytes) &&
                                into.size() < limit::batch_ops / 2;
         ++k) {
      each_stripe(base + pieces[k].offset, pieces[k].into.size(),
                  [&](int server, std::uint64_t local, std::uint64_t at, std::uint64_t n) {
                    into.push_back(pieces[k].into.subspan(at, n));
                    batch.add({.code = Code::object_read,
                               .space = space_,
                               .key = name,
                               .offset = local,
                               .length = n,
                               .into = into.back()},
                              server);
                  });
      bytes += pieces[k].into.size();
    }
    if (batch.size() == 0) {
      continue;
    }
    run(batch, "reading a dataset of '" + name_ + "'");
    for (std::size_t n = 0; n < into.size(); ++n) {
      need(batch, n, "reading a dataset of '" + name_ + "'");
      // Beyond the object's end, and where there is no object, nothing was ever written.
      const auto got = batch[n].status == Status::ok ? batch[n].data.size() : 0;
      if (whole && got < into[n].size()) {
        fail(Why::io, "the data of a dataset of '" + name_ +
                          "' is truncated in the store: it is damaged; hint: if another process is writing the "
                          "file, read it when that process is done");
      }
      std::fill(into[n].begin() + static_cast<std::ptrdiff_t>(got), into[n].end(), std::byte{0});
    }
  }
}

std::vector<std::byte> Container::read_whole(Object& object, Part part, std::uint64_t offset, std::uint64_t bytes) {
  constexpr std::uint64_t step = 8u << 20;
  std::vector<std::byte> out;
  while (out.size() < bytes) {
    const auto at = out.size();
    out.resize(at + std::min<std::uint64_t>(step, bytes - at));
    read(object, part, {{offset + at, MutableBytes(out).subspan(at)}}, true);
  }
  return out;
}

}  // namespace sonde::store::h5

#include "store/h5/handle.hpp"

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <deque>
#include <exception>
#include <filesystem>
#include <iterator>
#include <unordered_map>
#include <unordered_set>

#include "store/h5/calls.hpp"
#include "store/h5/group.hpp"

namespace sonde::store::h5 {
namespace {

std::unordered_map<const void*, FilePtr>& files() {
  static auto* all = new std::unordered_map<const void*, FilePtr>;
  return *all;
}

std::vector<FilePtr>& unclaimed() {
  static auto* all = new std::vector<FilePtr>;
  return *all;
}

constexpr std::string_view by_id = "\x01id:";  // a path of the connector's own: finds an object by its id
constexpr int links_max = 16;

// Releases a file that nobody has open any more. If it could not be flushed, the call that closed it has reported that.
void close_if_done(const FilePtr& file) noexcept {
  if (file->has_id || file->handles > 0 || !files().contains(file->native)) {
    return;
  }
  if (call_depth > 1) {
    unclaimed().push_back(file);  // the present call may still open something in it
    return;
  }
  const auto closed = files().extract(file->native);  // a copy: the argument may be the map's own
  try {
    closed.mapped()->container->flush(false);
  } catch (const std::exception& failure) {
    if (!closed.mapped()->told) {
      std::fprintf(stderr, "sonde: error: %s\n", failure.what());  // no HDF5 call is left to report it
    }
  }
}

}  // namespace

// ---- files

FileState::~FileState() {
  if (shadow) {
    give_back(shadow);
  }
}

namespace {

// A program that asks for its own driver wants a file outside the store.
void check_driver(hid_t access) {
  const hid_t driver = H5Pget_driver(access);
  if (driver != H5FD_SEC2 && driver != H5FD_STDIO && driver != H5FD_CORE && driver != H5FD_LOG) {
    fail(Why::unsupported,
         "files of this driver (Python objects, split, family, multi, MPI, S3 …) are not supported in the store; hint: "
         "open them in a process without HDF5_VOL_CONNECTOR, or leave the driver out");
  }
  void* image = nullptr;
  std::size_t bytes = 0;
  if (driver == H5FD_CORE && H5Pget_file_image(access, &image, &bytes) >= 0) {
    H5free_memory(image);
    if (bytes > 0) {
      fail(Why::unsupported,
           "a file cannot be made from an image in the store; hint: open it in a process without HDF5_VOL_CONNECTOR");
    }
  }
}

}  // namespace

FilePtr open_file(const std::string& name, unsigned intent, hid_t access, bool create, Container::Create how,
                  hid_t properties) {
  check_driver(access);
  auto file = std::make_shared<FileState>();
  file->given_name = name;
  file->intent = intent & (H5F_ACC_RDWR | H5F_ACC_SWMR_READ | H5F_ACC_SWMR_WRITE);
  file->access = need_id(H5Pcopy(access), "a copy of access properties");
  const auto service = service_of(access, create);
  const auto whole = absolute_name(name);
  if (create) {
    Object root;
    root.id = root_id;
    root.links_to = 1;
    root_properties(root, properties);
    file->container = Container::create(service, whole, how, encode_properties(properties, PropertyClass::file), root);
  } else {
    file->container = Container::open(service, whole, intent & H5F_ACC_RDWR);
  }
  file->shadow = take_shadow();
  file->native = file->shadow->native(H5I_FILE);
  files()[file->native] = file;
  return file;
}

FilePtr find_file(const void* native) {
  const auto at = files().find(native);
  return at == files().end() ? nullptr : at->second;
}

void close_unclaimed() noexcept {
  const auto files = std::move(unclaimed());
  unclaimed().clear();
  for (const auto& file : files) {
    close_if_done(file);
  }
}

void close_file(const FilePtr& file) {
  if (!file->told) {
    try {
      file->container->flush(false);
    } catch (const Failure&) {
      file->told = true;
      throw;
    }
  }
  file->has_id = false;
  close_if_done(file);
}

// ---- handles

Handle::Handle(H5I_type_t type_, FilePtr file_, ObjectPtr object_, std::string path_)
    : type(type_), file(std::move(file_)), object(std::move(object_)), path(std::move(path_)) {
  ++object->handles;
  ++file->handles;
}

Handle::~Handle() { --file->handles; }

DatasetIo& Handle::io() const {
  if (!object->state) {
    object->state = std::make_unique<DatasetIo>(container(), *object);
  }
  return static_cast<DatasetIo&>(*object->state);
}

void close_handle(Handle* handle) noexcept {
  const auto file = handle->file;
  const auto object = handle->object;
  delete handle;
  try {
    file->container->release(object);
  } catch (const std::exception& failure) {
    file->container->mark_broken(failure.what());
  }
  close_if_done(file);
}

// ---- places

Place place_of(void* object) {
  if (const auto file = find_file(object)) {
    return {file, file->container->object(root_id), "/"};
  }
  const auto* const handle = static_cast<const Handle*>(object);
  return {handle->file, handle->object, handle->path};
}

namespace {

std::string joined(const std::string& path, std::string_view name) {
  if (path.empty()) {
    return {};
  }
  return path.back() == '/' ? path + std::string(name) : path + "/" + std::string(name);
}

// Takes the next component of a path; skips "." and "".
std::string_view next_name(std::string_view& path) {
  for (;;) {
    const auto begin = path.find_first_not_of('/');
    if (begin == path.npos) {
      path = {};
      return {};
    }
    const auto end = std::min(path.find('/', begin), path.size());
    const auto name = path.substr(begin, end - begin);
    path.remove_prefix(end);
    if (name != ".") {
      return name;
    }
  }
}

Place start(const Place& from, std::string_view path) {
  if (!path.empty() && path.front() == '/') {
    return {from.file, from.container().object(root_id), "/"};
  }
  return from;
}

void check_depth(int depth, std::string_view name) {
  if (depth >= links_max) {
    fail(Why::not_found, "too many soft or external links on the way to '" + std::string(name) + "' (at most " +
                             std::to_string(links_max) + ")");
  }
}

Place step(const Place& from, std::string_view name, hid_t link_access, int depth) {
  if (from.object->kind != Kind::group) {
    fail(Why::not_found, "'" + from.path + "' is not a group, so it has no '" + std::string(name) + "'");
  }
  const Link* const link = from.container().find_link(*from.object, name);
  if (!link) {
    fail(Why::not_found, "object '" + std::string(name) + "' doesn't exist");
  }
  return follow(from, name, Link(*link), link_access, depth);
}

Place walk_on(const Place& from, std::string_view path, hid_t link_access, int depth) {
  if (path.starts_with(by_id)) {
    return {from.file, from.container().object(std::stoull(std::string(path.substr(by_id.size())), nullptr, 16)), ""};
  }
  Place at = start(from, path);
  while (true) {
    const auto name = next_name(path);
    if (name.empty()) {
      return at;
    }
    at = step(at, name, link_access, depth);
  }
}

}  // namespace

Place follow(const Place& group, std::string_view name, const Link& link, hid_t link_access, int depth) {
  switch (link.kind) {
    case Link::Kind::hard: return {group.file, group.container().object(link.target), joined(group.path, name)};
    case Link::Kind::soft: {
      check_depth(depth, name);
      Place at = walk_on(group, link.path, link_access, depth + 1);
      at.path = joined(group.path, name);
      return at;
    }
    case Link::Kind::external: break;
  }
  check_depth(depth, name);
  // As in HDF5: the name as given, else in the folder of the file that contains the link.
  unsigned intent = group.file->intent;
  Id access;
  if (link_access > 0 && link_access != H5P_LINK_ACCESS_DEFAULT && H5Pisa_class(link_access, H5P_LINK_ACCESS) > 0) {
    unsigned flags = H5F_ACC_DEFAULT;
    if (H5Pget_elink_acc_flags(link_access, &flags) >= 0 && flags != H5F_ACC_DEFAULT) {
      intent = flags;
    }
    if (const hid_t list = H5Pget_elink_fapl(link_access); list > 0) {
      access.reset(list);
    }
  }
  if (access < 0) {
    access = need_id(H5Pcopy(group.file->access), "a copy of access properties");
  }
  const auto service = service_of(access, false);
  const auto beside = (std::filesystem::path(group.container().name()).parent_path() / link.file).string();
  std::string found;
  for (const auto& candidate : {beside, link.file}) {
    const auto whole = absolute_name(candidate);
    if (group.container().name() == whole || Container::exists(*service, whole)) {
      found = candidate;
      break;
    }
  }
  if (found.empty()) {
    fail(Why::not_found, "external link '" + std::string(name) + "' leads to the file '" + link.file +
                             "', which the store does not have " +
                             "(errno = 2, error message = 'No such file or directory')");
  }
  const auto file = open_file(found, intent, access, false, Container::Create::exclusive, H5I_INVALID_HID);
  unclaimed().push_back(file);
  return walk_on({file, file->container->object(root_id), "/"}, link.path, link_access, depth + 1);
}

Place walk(const Place& from, std::string_view path, hid_t link_access) { return walk_on(from, path, link_access, 0); }

std::optional<Place> try_walk(const Place& from, std::string_view path) {
  try {
    return walk(from, path);
  } catch (const Failure& f) {
    if (f.why() == Why::not_found) {
      return std::nullopt;
    }
    throw;
  }
}

bool leads_to_object(const Place& from, std::string_view path, int depth) {
  const auto last = seat(from, path);
  if (last.name.empty()) {
    return true;
  }
  const Link* const link = last.group.container().find_link(*last.group.object, last.name);
  if (!link || link->kind == Link::Kind::hard) {
    return link != nullptr;
  }
  check_depth(depth, last.name);
  return link->kind == Link::Kind::soft ? leads_to_object(last.group, std::string(link->path), depth + 1)
                                        : try_walk(last.group, last.name).has_value();
}

Seat seat(const Place& from, std::string_view path, hid_t create) {
  unsigned intermediate = 0;
  if (create > 0 && create != H5P_LINK_CREATE_DEFAULT) {
    H5Pget_create_intermediate_group(create, &intermediate);
  }
  Place at = start(from, path);
  std::string_view name = next_name(path);
  if (name.empty()) {
    // "/" or ".": the place itself, which has no name here.
    return {at, ""};
  }
  for (;;) {
    auto rest = path;
    const auto next = next_name(rest);
    if (next.empty()) {
      if (at.object->kind != Kind::group) {
        fail(Why::not_found, "'" + at.path + "' is not a group, so it has no '" + std::string(name) + "'");
      }
      return {at, std::string(name)};
    }
    if (intermediate && at.object->kind == Kind::group && !at.container().find_link(*at.object, name)) {
      at = make_group(at, std::string(name));
    } else {
      at = step(at, name, H5P_LINK_ACCESS_DEFAULT, 0);
    }
    path = rest;
    name = next;
  }
}

std::vector<std::string> ordered_links(const Place& group, H5_index_t index, H5_iter_order_t order) {
  auto& container = group.container();
  std::vector<std::string> names;
  if (index == H5_INDEX_CRT_ORDER) {
    if (!group.object->tracks_link_order) {
      fail(Why::invalid,
           "creation order is not tracked for the links of this group; hint: make it with track_order=True");
    }
    names = container.links_by_order(*group.object);
  } else {
    for (const auto& [name, link] : container.links(*group.object)) {
      names.push_back(name);
    }
  }
  if (order == H5_ITER_DEC) {
    std::reverse(names.begin(), names.end());
  }
  return names;
}

std::vector<std::string> ordered_attributes(Container& container, Object& object, H5_index_t index,
                                            H5_iter_order_t order) {
  std::vector<std::pair<std::int64_t, std::string>> all;
  for (const auto& [name, attribute] : container.attributes(object)) {
    all.emplace_back(attribute->order, name);
  }
  if (index == H5_INDEX_CRT_ORDER) {
    if (!object.tracks_attribute_order) {
      fail(Why::invalid,
           "creation order is not tracked for the attributes of this object; hint: make it with track_order=True");
    }
    std::sort(all.begin(), all.end());
  }
  std::vector<std::string> names;
  for (auto& [number, name] : all) {
    names.push_back(std::move(name));
  }
  if (order == H5_ITER_DEC) {
    std::reverse(names.begin(), names.end());
  }
  return names;
}

std::pair<std::string, Link> link_at(const Place& group, H5_index_t index, H5_iter_order_t order, hsize_t n) {
  auto& container = group.container();
  const auto& links = container.links(*group.object);
  if (n >= links.size()) {
    fail(Why::invalid, "link " + std::to_string(n) + " is requested; the group has " + std::to_string(links.size()));
  }
  const auto at = order == H5_ITER_DEC ? links.size() - 1 - n : n;
  if (index == H5_INDEX_CRT_ORDER && !group.object->tracks_link_order) {
    fail(Why::invalid,
         "creation order is not tracked for the links of this group; hint: make it with track_order=True");
  }
  if (index == H5_INDEX_CRT_ORDER) {
    const auto& name = container.links_by_order(*group.object)[at];
    return {name, links.find(name)->second};
  }
  return *std::next(links.begin(), static_cast<std::ptrdiff_t>(at));
}

Place locate(void* object, const H5VL_loc_params_t* at) {
  auto from = place_of(object);
  switch (at->type) {
    case H5VL_OBJECT_BY_SELF: return from;
    case H5VL_OBJECT_BY_NAME: return walk(from, at->loc_data.loc_by_name.name, at->loc_data.loc_by_name.lapl_id);
    case H5VL_OBJECT_BY_IDX: {
      const auto& by = at->loc_data.loc_by_idx;
      const auto group = walk(from, by.name, by.lapl_id);
      const auto [name, link] = link_at(group, by.idx_type, by.order, by.n);
      return follow(group, name, link, by.lapl_id);
    }
    case H5VL_OBJECT_BY_TOKEN:
      return {from.file, from.container().object(id_behind(*from.file, id_of(*at->loc_data.loc_by_token.token))), ""};
  }
  fail(Why::unsupported, "a location of an unknown kind");
}

// ---- tokens, identifiers, names

H5O_token_t token_of(ObjectId id) {
  H5O_token_t token{};
  for (std::size_t k = 0; k < sizeof id; ++k) {
    token.__data[k] = static_cast<std::uint8_t>(id >> (8 * k));
  }
  return token;
}

ObjectId id_of(const H5O_token_t& token) {
  ObjectId id = 0;
  for (std::size_t k = 0; k < sizeof id; ++k) {
    id |= ObjectId{token.__data[k]} << (8 * k);
  }
  return id;
}

ObjectId id_behind(const FileState& file, ObjectId token) {
  const auto id = file.shadow->object_behind(token);
  return id ? id : token;
}

H5I_type_t handle_type(Kind kind) {
  return kind == Kind::group ? H5I_GROUP : kind == Kind::dataset ? H5I_DATASET : H5I_DATATYPE;
}

H5O_type_t object_type(Kind kind) {
  return kind == Kind::group ? H5O_TYPE_GROUP : kind == Kind::dataset ? H5O_TYPE_DATASET : H5O_TYPE_NAMED_DATATYPE;
}

Id register_place(const Place& place) {
  auto* const handle = new Handle(handle_type(place.object->kind), place.file, place.object, place.path);
  const hid_t id = H5VLwrap_register(handle, handle->type);
  if (id < 0) {
    close_handle(handle);
    fail(Why::invalid, "HDF5 refused an identifier for an object");
  }
  return Id(id);
}

std::string find_path(Container& container, ObjectId id) {
  if (id == root_id) {
    return "/";
  }
  std::unordered_set<ObjectId> seen{root_id};
  std::deque<std::pair<ObjectId, std::string>> open{{root_id, "/"}};
  while (!open.empty()) {
    const auto [group_id, path] = open.front();
    open.pop_front();
    const auto group = container.object(group_id);
    if (group->kind != Kind::group) {
      continue;
    }
    for (const auto& [name, link] : container.links(*group)) {
      if (link.kind != Link::Kind::hard) {
        continue;
      }
      if (link.target == id) {
        return joined(path, name);
      }
      if (seen.insert(link.target).second) {
        open.emplace_back(link.target, joined(path, name));
      }
    }
  }
  return {};
}

ReferenceCodec reference_codec(const FilePtr& file) {
  // HDF5 makes region references relative to an identifier in the file: here one of its root group.
  auto location = [file] { return register_place({file, file->container->object(root_id), "/"}); };
  ReferenceCodec codec;
  codec.object = [file](std::uint64_t reference) { return id_behind(*file, reference); };
  codec.encode = [location](const void* reference) {
    const Id at = location();
    const Id object = need_id(H5Rdereference2(at, H5P_DATASET_ACCESS_DEFAULT, H5R_DATASET_REGION1, reference),
                              "a region reference's dataset");
    const Id region = need_id(H5Rget_region(at, H5R_DATASET_REGION1, reference), "a region reference's selection");
    H5O_info2_t info;
    need_ok(H5Oget_info3(object, &info, H5O_INFO_BASIC), "information of a region reference's dataset");
    return sonde::store::h5::encode(RegionRecord{id_of(info.token), encode_space(region)});
  };
  codec.decode = [location](const std::string& encoded, void* reference) {
    const auto record = decode_region(encoded);
    const std::string name = std::string(by_id) + hex(record.dataset);
    const Id region = decode_space(record.space);
    const Id at = location();
    need_ok(H5Rcreate(reference, at, name.c_str(), H5R_DATASET_REGION1, region), "a region reference");
  };
  return codec;
}

void put_text(std::string_view text, char* into, std::size_t room) {
  if (into && room > 0) {
    const auto n = std::min(text.size(), room - 1);
    std::memcpy(into, text.data(), n);
    into[n] = '\0';
  }
}

}  // namespace sonde::store::h5

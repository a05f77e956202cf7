#include "store/h5/container.hpp"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "store/h5/container_parts.hpp"
#include "store/order.hpp"

namespace sonde::store::h5 {

namespace {

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

}  // namespace

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

}  // namespace sonde::store::h5

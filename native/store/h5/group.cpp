#include "store/h5/group.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "store/h5/calls.hpp"

namespace sonde::store::h5 {

void common_properties(Object& object, hid_t creation) {
  bool times = false;
  unsigned order = 0;
  H5Pget_obj_track_times(creation, &times);
  H5Pget_attr_creation_order(creation, &order);
  object.tracks_times = times;
  object.tracks_attribute_order = order & H5P_CRT_ORDER_TRACKED;
}

namespace {

void group_properties(Object& object, hid_t creation) {
  unsigned order = 0;
  common_properties(object, creation);
  H5Pget_link_creation_order(creation, &order);
  object.tracks_link_order = order & H5P_CRT_ORDER_TRACKED;
  object.indexes_link_order = order & H5P_CRT_ORDER_INDEXED;
}

Place new_group(const Place& at, hid_t creation) {
  std::string properties;
  if (creation != H5P_GROUP_CREATE_DEFAULT) {
    properties = encode_properties(creation, PropertyClass::group);
  }
  const auto object = at.container().make(Kind::group);
  group_properties(*object, creation);
  object->properties = std::move(properties);
  at.container().changed(*object);
  return {at.file, object, ""};
}

void copy_link_properties(hid_t from, hid_t to) {
  unsigned order = 0, compact = 0, dense = 0, entries = 0, length = 0;
  need_ok(H5Pget_link_creation_order(from, &order), "an order of links");
  need_ok(H5Pset_link_creation_order(to, order), "an order of links");
  need_ok(H5Pget_link_phase_change(from, &compact, &dense), "numbers of links");
  need_ok(H5Pset_link_phase_change(to, compact, dense), "numbers of links");
  need_ok(H5Pget_est_link_info(from, &entries, &length), "the estimated links");
  need_ok(H5Pset_est_link_info(to, entries, length), "the estimated links");
}

}  // namespace

void root_properties(Object& root, hid_t file_creation) { group_properties(root, file_creation); }

Id creation_of(const Place& group) {
  Id list = decode_properties(group.object->properties, PropertyClass::group);
  if (group.object->id != root_id) {
    return list;
  }
  const Id file = decode_properties(group.container().properties(), PropertyClass::file);
  bool times = false;
  unsigned order = 0, compact = 0, dense = 0;
  copy_link_properties(file, list);
  need_ok(H5Pget_attr_creation_order(file, &order), "a file's order of attributes");
  need_ok(H5Pset_attr_creation_order(list, order), "an order of attributes");
  need_ok(H5Pget_obj_track_times(file, &times), "whether a file has times");
  need_ok(H5Pset_obj_track_times(list, times), "whether a group has times");
  need_ok(H5Pget_attr_phase_change(file, &compact, &dense), "a file's numbers of attributes");
  need_ok(H5Pset_attr_phase_change(list, compact, dense), "numbers of attributes");
  return list;
}

void need_free(const Seat& seat) {
  if (seat.name.empty() || seat.group.container().find_link(*seat.group.object, seat.name)) {
    fail(Why::exists, "name already exists: '" + (seat.name.empty() ? seat.group.path : seat.name) + "'");
  }
}

void link_new(const Seat& seat, const ObjectPtr& object, hid_t link_creation) {
  auto& container = seat.group.container();
  need_free(seat);
  H5T_cset_t charset = H5T_CSET_ASCII;
  if (link_creation > 0) {
    H5Pget_char_encoding(link_creation, &charset);
  }
  Link link;
  link.target = object->id;
  link.charset = static_cast<std::uint8_t>(charset);
  container.add_link(*seat.group.object, seat.name, std::move(link));
  container.adjust(*object, 1);
}

Place make_group(const Place& parent, const std::string& name) {
  // As in HDF5, a group that is made on the way gets the link properties of the group above it.
  const Id above = creation_of(parent), creation = need_id(H5Pcreate(H5P_GROUP_CREATE), "a property list");
  copy_link_properties(above, creation);
  auto made = new_group(parent, creation);
  link_new({parent, name}, made.object, H5P_LINK_CREATE_DEFAULT);
  made.path = parent.path.empty() ? "" : (parent.path.back() == '/' ? parent.path : parent.path + "/") + name;
  return made;
}

// ---- copying

namespace {

class Copier {
 public:
  Copier(const Place& from, Container& to, unsigned flags) : from_(from), to_(to), flags_(flags) {}

  ObjectPtr copy(const Place& place, unsigned depth) {
    auto& source_file = place.container();
    auto& source = *place.object;
    if (const auto at = done_.find(source.id); at != done_.end()) {
      return at->second;
    }
    if (source.state) {
      source.state->flush();
    }
    const auto made = to_.make(source.kind);
    done_[source.id] = made;
    made->properties =
        source.id == root_id ? encode_properties(creation_of(place), PropertyClass::group) : source.properties;
    made->comment = source.comment;
    made->tracks_times = source.tracks_times;
    made->tracks_link_order = source.tracks_link_order;
    made->indexes_link_order = source.indexes_link_order;
    made->tracks_attribute_order = source.tracks_attribute_order;
    to_.changed(*made);
    if (source.kind != Kind::group) {
      made->type = source.type;
    }
    if (source.kind == Kind::dataset) {
      copy_data(source_file, source, *made);
    }
    if (!(flags_ & H5O_COPY_WITHOUT_ATTR_FLAG)) {
      for (const auto& name : ordered_attributes(
               source_file, source, source.tracks_attribute_order ? H5_INDEX_CRT_ORDER : H5_INDEX_NAME, H5_ITER_INC)) {
        auto attribute = std::make_shared<Attribute>(*source_file.find_attribute(source, name));
        if (&source_file != &to_) {
          attribute->named_type = 0;
        }
        to_.put_attribute(*made, name, attribute);
      }
    }
    sources_.emplace_back(place, made);
    if (source.kind == Kind::group && !((flags_ & H5O_COPY_SHALLOW_HIERARCHY_FLAG) && depth > 0)) {
      copy_links(place, *made, depth);
    }
    return made;
  }

  /// References in the copied objects lead to the copies. With the flag, their targets are copied too. Between files a
  /// reference can only lead to a copy.
  void mend_references() {
    const bool expand = flags_ & H5O_COPY_EXPAND_REFERENCE_FLAG;
    if (!expand && &from_.container() == &to_) {
      return;
    }
    for (std::size_t k = 0; k < sources_.size(); ++k) {
      const auto [place, made] = sources_[k];
      auto map = [&, source = place](std::uint64_t id) -> std::uint64_t {
        if (const auto at = done_.find(id); at != done_.end()) {
          return at->second->id;
        }
        if (!expand) {
          return 0;
        }
        const auto copied = copy({source.file, source.container().object(id), ""}, 0);
        to_.adjust(*copied, 1);  // no link leads to it, so only its reference needs it
        return copied->id;
      };
      const auto holds = [](const std::string& type) { return H5Tdetect_class(decode_type(type), H5T_REFERENCE) > 0; };
      if (made->kind == Kind::dataset && holds(made->type)) {
        DatasetIo(to_, *made).map_references(map);
      }
      for (const auto& [name, attribute] : std::map(to_.attributes(*made))) {
        if (holds(attribute->type)) {
          const ElementLayout layout(decode_type(attribute->type));
          layout.map_references(reinterpret_cast<std::byte*>(attribute->data.data()),
                                attribute->data.size() / layout.stored_bytes(), attribute->heap, map);
          to_.store_attribute(*made, name, *attribute);
        }
      }
    }
  }

 private:
  void copy_links(const Place& place, Object& made, unsigned depth) {
    const auto names =
        ordered_links(place, place.object->tracks_link_order ? H5_INDEX_CRT_ORDER : H5_INDEX_NAME, H5_ITER_INC);
    for (const auto& name : names) {
      Link link = *place.container().find_link(*place.object, name);
      const bool expand = (link.kind == Link::Kind::soft && (flags_ & H5O_COPY_EXPAND_SOFT_LINK_FLAG)) ||
                          (link.kind == Link::Kind::external && (flags_ & H5O_COPY_EXPAND_EXT_LINK_FLAG));
      std::optional<Place> target;
      if (link.kind == Link::Kind::hard) {
        target = follow(place, name, link, H5P_LINK_ACCESS_DEFAULT);
      } else if (expand) {
        target = try_walk(place, name);  // a dangling link remains dangling
      }
      if (target) {
        const auto child = target->file->container == place.file->container || link.kind == Link::Kind::hard
                               ? copy(*target, depth + 1)
                               : copy_object(*target, to_, flags_);
        link.kind = Link::Kind::hard;
        link.target = child->id;
        link.path.clear();
        link.file.clear();
        to_.add_link(made, name, link);
        to_.adjust(*child, 1);
      } else {
        to_.add_link(made, name, link);
      }
    }
  }

  void copy_data(Container& source_file, Object& source, Object& made) {
    made.space_class = source.space_class;
    made.extent = source.extent;
    made.extent_max = source.extent_max;
    made.chunk = source.chunk;
    made.compact = source.compact;
    made.filtered = source.filtered;
    made.allocated = source.allocated;
    made.fill = source.fill;
    if (&source_file == &to_ && source.named_type) {
      made.named_type = source.named_type;
      to_.adjust(*to_.object(source.named_type), 1);
    }
    std::uint64_t data_bytes = source.data_end;
    if (source.chunk.empty() && source.allocated) {
      data_bytes = ElementLayout(decode_type(source.type)).stored_bytes();
      for (const auto n : source.extent) {
        data_bytes *= n;
      }
      to_.place(made, data_bytes);
    }
    made.data_end = source.data_end;
    made.heap_end = source.heap_end;
    for (const auto& [at, chunk] : source_file.chunks(source)) {
      to_.put_chunk(made, at, chunk);
    }
    std::vector<std::byte> part;
    for (const auto& [which, total] : {std::pair{Part::data, data_bytes}, std::pair{Part::heap, source.heap_end}}) {
      for (std::uint64_t at = 0; at < total; at += part.size()) {
        part.resize(std::min<std::uint64_t>(8u << 20, total - at));
        source_file.read(source, which, {{at, part}}, which == Part::heap);
        to_.write(made, which, {{at, part}});
      }
    }
  }

  Place from_;
  Container& to_;
  unsigned flags_;
  std::unordered_map<ObjectId, ObjectPtr> done_;
  std::vector<std::pair<Place, ObjectPtr>> sources_;
};

}  // namespace

ObjectPtr copy_object(const Place& from, Container& to, unsigned flags) {
  Copier copier(from, to, flags);
  auto made = copier.copy(from, 0);
  copier.mend_references();
  return made;
}

// ---- what HDF5 calls

namespace {

void* create(void* object, const H5VL_loc_params_t* at, const char* name, hid_t link_creation, hid_t creation, hid_t,
             hid_t, void**) {
  return guarded<void*>("group create", H5E_SYM, nullptr, [&]() -> void* {
    const auto from = locate(object, at);
    if (!name) {
      const auto made = new_group(from, creation);
      return new Handle(H5I_GROUP, made.file, made.object, "");
    }
    const auto to = seat(from, name, link_creation);
    need_free(to);
    const auto made = new_group(to.group, creation);
    link_new(to, made.object, link_creation);
    auto path = to.group.path;
    return new Handle(H5I_GROUP, made.file, made.object,
                      path.empty() ? path : (path.back() == '/' ? path : path + "/") + to.name);
  });
}

void* open(void* object, const H5VL_loc_params_t* at, const char* name, hid_t, hid_t, void**) {
  return guarded<void*>("group open", H5E_SYM, nullptr, [&]() -> void* {
    const auto place = walk(locate(object, at), name);
    if (place.object->kind != Kind::group) {
      fail(Why::type, "'" + std::string(name) + "' is not a group");
    }
    return new Handle(H5I_GROUP, place.file, place.object, place.path);
  });
}

herr_t get(void* object, H5VL_group_get_args_t* args, hid_t, void**) {
  return guarded_status("group get", H5E_SYM, [&] {
    switch (args->op_type) {
      case H5VL_GROUP_GET_GCPL: {
        args->args.get_gcpl.gcpl_id = creation_of(place_of(object)).release();
        return;
      }
      case H5VL_GROUP_GET_INFO: {
        const auto place = locate(object, &args->args.get_info.loc_params);
        if (place.object->kind != Kind::group) {
          fail(Why::type, "'" + place.path + "' is not a group");
        }
        auto& info = *args->args.get_info.ginfo;
        info.storage_type = H5G_STORAGE_TYPE_COMPACT;
        info.nlinks = place.object->links_loaded ? place.object->links.size() : place.object->link_count;
        info.max_corder = place.object->next_link_order;
        info.mounted = false;
        return;
      }
    }
    fail(Why::unsupported, "a query about groups that this connector does not know");
  });
}

herr_t specific(void* object, H5VL_group_specific_args_t* args, hid_t, void**) {
  return guarded_status("group specific", H5E_SYM, [&] {
    const auto place = place_of(object);
    switch (args->op_type) {
      case H5VL_GROUP_FLUSH: place.container().flush(true); return;
      case H5VL_GROUP_REFRESH: place.container().refresh(*place.object); return;
      default:
        fail(Why::unsupported, "files in the store cannot be mounted on one another; hint: use an external link");
    }
  });
}

H5G_obj_t old_type(H5O_type_t type) {
  return type == H5O_TYPE_GROUP ? H5G_GROUP : type == H5O_TYPE_DATASET ? H5G_DATASET : H5G_TYPE;
}

herr_t optional(void* object, H5VL_optional_args_t* args, hid_t, void**) {
  return guarded<herr_t>("group optional", H5E_SYM, -1, [&]() -> herr_t {
    auto& old = *static_cast<H5VL_native_group_optional_args_t*>(args->args);
    if (args->op_type == H5VL_NATIVE_GROUP_GET_OBJINFO) {
      auto& ask = old.get_objinfo;
      const auto from = place_of(object);
      const char* const name = ask.loc_params.loc_data.loc_by_name.name;
      H5G_stat_t ignored;
      auto& out = ask.statbuf ? *ask.statbuf : ignored;
      out = {};
      const auto number = from.container().number();
      out.fileno[0] = static_cast<unsigned long>(number);
      if (!ask.follow_link) {
        const auto to = seat(from, name);
        const Link* const link = to.name.empty() ? nullptr : to.group.container().find_link(*to.group.object, to.name);
        if (link && link->kind != Link::Kind::hard) {
          out.type = link->kind == Link::Kind::soft ? H5G_LINK : H5G_UDLINK;
          out.linklen =
              link->kind == Link::Kind::soft ? link->path.size() + 1 : link->path.size() + link->file.size() + 3;
          return 0;
        }
      }
      const auto place = walk(from, name);
      out.fileno[0] = static_cast<unsigned long>(place.container().number());
      out.objno[0] = static_cast<unsigned long>(place.object->id);
      out.nlink = place.object->links_to;
      out.type = old_type(object_type(place.object->kind));
      out.mtime = place.object->changed_s;
      return 0;
    }
    if (args->op_type == H5VL_NATIVE_GROUP_ITERATE_OLD) {
      auto& ask = old.iterate_old;
      const auto group = locate(object, &ask.loc_params);
      const Id id = register_place(group);
      const auto names = ordered_links(group, H5_INDEX_NAME, H5_ITER_INC);
      if (ask.idx > 0 && ask.idx >= names.size()) {
        fail(Why::invalid, "the first link to visit is beyond the group's last link");
      }
      herr_t answer = 0;
      for (hsize_t k = ask.idx; k < names.size() && answer == 0; ++k) {
        answer = ask.op(id, names[k].c_str(), ask.op_data);
        *ask.last_obj = k + 1;
      }
      return answer;
    }
    fail(Why::unsupported, "an operation on groups that only files of HDF5's own have");
  });
}

herr_t close(void* group, hid_t, void**) {
  return guarded_status("group close", H5E_SYM, [&] { close_handle(static_cast<Handle*>(group)); });
}

}  // namespace

const H5VL_group_class_t group_calls = {create, open, get, specific, optional, close};

}  // namespace sonde::store::h5

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "store/h5/calls.hpp"
#include "store/h5/group.hpp"

namespace sonde::store::h5 {
namespace {

Handle& handle(void* attribute) { return *static_cast<Handle*>(attribute); }

std::uint64_t elements(const Attribute& attribute) {
  const Id space = decode_space(attribute.space);
  return H5Sget_simple_extent_type(space) == H5S_NULL ? 0
                                                      : static_cast<std::uint64_t>(H5Sget_simple_extent_npoints(space));
}

// The stored value of an attribute must have the size that its type and dataspace give.
void check_value(const Attribute& attribute, const ElementLayout& layout, std::uint64_t n) {
  const auto bytes = attribute.data.size();
  if (bytes % layout.stored_bytes() != 0 || bytes / layout.stored_bytes() != n) {
    fail(Why::io, "an attribute in the store is damaged: its value has " + std::to_string(bytes) + " B instead of " +
                      std::to_string(n) + " elements of " + std::to_string(layout.stored_bytes()) + " B");
  }
}

H5A_info_t info_of(const Object& object, const Attribute& attribute) {
  H5A_info_t info{};
  info.corder_valid = object.tracks_attribute_order;
  info.corder = object.tracks_attribute_order ? static_cast<H5O_msg_crt_idx_t>(attribute.order) : 0;
  info.cset = static_cast<H5T_cset_t>(attribute.charset);
  info.data_size = attribute.data.size();
  return info;
}

std::shared_ptr<Attribute> need_attribute(const Place& place, std::string_view name) {
  auto found = place.container().find_attribute(*place.object, name);
  if (!found) {
    fail(Why::not_found, "can't locate attribute: '" + std::string(name) + "'");
  }
  return found;
}

// The attribute may have been renamed since it was opened, or removed: then only the handle still has it.
std::optional<std::string> present_name(const Handle& self) {
  for (const auto& [name, attribute] : self.container().attributes(*self.object)) {
    if (attribute == self.attribute) {
      return name;
    }
  }
  return std::nullopt;
}

std::string name_at(const Place& place, H5_index_t index, H5_iter_order_t order, hsize_t n) {
  const auto names = ordered_attributes(place.container(), *place.object, index, order);
  if (n >= names.size()) {
    fail(Why::not_found,
         "attribute " + std::to_string(n) + " is requested; the object has " + std::to_string(names.size()));
  }
  return names[n];
}

// The object at a location. An index counts attributes, not links.
Place owner(void* object, const H5VL_loc_params_t* at) {
  return at->type == H5VL_OBJECT_BY_IDX ? walk(place_of(object), at->loc_data.loc_by_idx.name) : locate(object, at);
}

void* make_handle(const Place& place, const std::string& name, std::shared_ptr<Attribute> attribute) {
  auto* const made = new Handle(H5I_ATTR, place.file, place.object, place.path);
  made->attribute_name = name;
  made->attribute = std::move(attribute);
  return made;
}

void* create(void* object, const H5VL_loc_params_t* at, const char* name, hid_t type, hid_t space, hid_t creation,
             hid_t, hid_t, void**) {
  return guarded<void*>("attribute create", H5E_ATTR, nullptr, [&]() -> void* {
    const auto place = locate(object, at);
    if (place.container().find_attribute(*place.object, name)) {
      fail(Why::exists, "attribute already exists: '" + std::string(name) + "'");
    }
    auto attribute = std::make_shared<Attribute>();
    attribute->type = encode_type(type);
    attribute->space = encode_space(space);
    attribute->named_type = named_type_of(place, type);
    H5T_cset_t charset = H5T_CSET_ASCII;
    if (creation > 0) {
      H5Pget_char_encoding(creation, &charset);
    }
    attribute->charset = static_cast<std::uint8_t>(charset);
    attribute->unwritten = true;
    attribute->data.assign(ElementLayout(type).stored_bytes() * elements(*attribute), '\0');
    place.container().put_attribute(*place.object, name, attribute);
    return make_handle(place, name, attribute);
  });
}

void* open(void* object, const H5VL_loc_params_t* at, const char* name, hid_t, hid_t, void**) {
  return guarded<void*>("attribute open", H5E_ATTR, nullptr, [&]() -> void* {
    const auto place = owner(object, at);
    std::string found;
    if (at->type == H5VL_OBJECT_BY_IDX) {
      const auto& by = at->loc_data.loc_by_idx;
      found = name_at(place, by.idx_type, by.order, by.n);
    } else {
      found = name;
    }
    return make_handle(place, found, need_attribute(place, found));
  });
}

herr_t read(void* opened, hid_t memory_type, void* into, hid_t transfer, void**) {
  return guarded_status("attribute read", H5E_ATTR, [&] {
    auto& self = handle(opened);
    const auto& attribute = *self.attribute;
    const auto n = elements(attribute);
    if (n == 0) {
      return;
    }
    const Id type = decode_type(attribute.type);
    const ElementLayout layout(type);
    check_value(attribute, layout, n);
    const auto target_size = H5Tget_size(memory_type);
    if (attribute.unwritten) {
      std::memset(into, 0, n * target_size);  // as HDF5 does, for every type
      return;
    }
    const bool same = H5Tequal(memory_type, type) > 0;
    const auto codec = reference_codec(self.file);
    Unpacker unpack(heap_in(attribute.heap), &codec);
    std::vector<std::byte> memory(n * std::max(target_size, layout.memory_bytes()));
    unpack.unpack(layout, reinterpret_cast<const std::byte*>(attribute.data.data()), n, memory.data());
    if (!same) {
      std::vector<std::byte> background;
      if (needs_background(type, memory_type)) {
        background.assign(static_cast<const std::byte*>(into), static_cast<const std::byte*>(into) + n * target_size);
      }
      if (H5Tconvert(type, memory_type, n, memory.data(), background.empty() ? nullptr : background.data(), transfer) <
          0) {
        fail(Why::type, "HDF5 cannot convert the attribute's data to the type in memory");
      }
    }
    std::memcpy(into, memory.data(), n * target_size);
    if (same) {
      unpack.release();  // the caller owns it now
    }
  });
}

herr_t write(void* opened, hid_t memory_type, const void* from, hid_t transfer, void**) {
  return guarded_status("attribute write", H5E_ATTR, [&] {
    auto& self = handle(opened);
    auto& attribute = *self.attribute;
    const auto n = elements(attribute);
    const Id type = decode_type(attribute.type);
    const ElementLayout layout(type);
    check_value(attribute, layout, n);
    const auto source_size = H5Tget_size(memory_type);
    const auto* source = static_cast<const std::byte*>(from);
    std::vector<std::byte> converted;
    const bool same = H5Tequal(memory_type, type) > 0;
    const auto codec = reference_codec(self.file);
    if (!same && n > 0) {
      converted.resize(n * std::max(source_size, layout.memory_bytes()));
      std::memcpy(converted.data(), from, n * source_size);
      Unpacker unpack(heap_in(attribute.heap), &codec);
      std::vector<std::byte> background;
      if (needs_background(memory_type, type)) {
        background.resize(n * layout.memory_bytes());
        unpack.unpack(layout, reinterpret_cast<const std::byte*>(attribute.data.data()), n, background.data());
      }
      if (H5Tconvert(memory_type, type, n, converted.data(), background.empty() ? nullptr : background.data(),
                     transfer) < 0) {
        fail(Why::type, "HDF5 cannot convert the data to the attribute's type");
      }
      unpack.release();  // it is part of the converted elements now
      source = converted.data();
    }
    std::string data(n * layout.stored_bytes(), '\0'), heap;
    if (n > 0) {
      Packer(0, heap, &codec).pack(layout, source, n, reinterpret_cast<std::byte*>(data.data()));
      if (!same && !layout.plain()) {
        const hsize_t count = n;
        const Id line = need_id(H5Screate_simple(1, &count, nullptr), "a dataspace");
        H5Treclaim(type, line, H5P_DEFAULT, converted.data());
      }
    }
    attribute.unwritten = false;
    attribute.data = std::move(data);
    attribute.heap = std::move(heap);
    if (const auto name = present_name(self)) {
      self.container().store_attribute(*self.object, *name, attribute);
    }
  });
}

herr_t get(void* object, H5VL_attr_get_args_t* args, hid_t, void**) {
  return guarded_status("attribute get", H5E_ATTR, [&] {
    switch (args->op_type) {
      case H5VL_ATTR_GET_ACPL: {
        Id list = need_id(H5Pcreate(H5P_ATTRIBUTE_CREATE), "a property list");
        H5Pset_char_encoding(list, static_cast<H5T_cset_t>(handle(object).attribute->charset));
        args->args.get_acpl.acpl_id = list.release();
        return;
      }
      case H5VL_ATTR_GET_INFO: {
        auto& ask = args->args.get_info;
        if (ask.loc_params.type == H5VL_OBJECT_BY_SELF && ask.loc_params.obj_type == H5I_ATTR) {
          *ask.ainfo = info_of(*handle(object).object, *handle(object).attribute);
          return;
        }
        const auto place = owner(object, &ask.loc_params);
        const auto& by = ask.loc_params.loc_data.loc_by_idx;
        const auto name = ask.loc_params.type == H5VL_OBJECT_BY_IDX ? name_at(place, by.idx_type, by.order, by.n)
                                                                    : std::string(ask.attr_name);
        *ask.ainfo = info_of(*place.object, *need_attribute(place, name));
        return;
      }
      case H5VL_ATTR_GET_NAME: {
        auto& ask = args->args.get_name;
        std::string name;
        if (ask.loc_params.type == H5VL_OBJECT_BY_IDX) {
          const auto& by = ask.loc_params.loc_data.loc_by_idx;
          name = name_at(owner(object, &ask.loc_params), by.idx_type, by.order, by.n);
        } else {
          name = present_name(handle(object)).value_or(handle(object).attribute_name);
        }
        put_text(name, ask.buf, ask.buf_size);
        *ask.attr_name_len = name.size();
        return;
      }
      case H5VL_ATTR_GET_SPACE:
        args->args.get_space.space_id = decode_space(handle(object).attribute->space).release();
        return;
      case H5VL_ATTR_GET_STORAGE_SIZE:
        *args->args.get_storage_size.data_size = handle(object).attribute->data.size();
        return;
      case H5VL_ATTR_GET_TYPE: {
        const auto& self = handle(object);
        args->args.get_type.type_id =
            type_id(place_of(object), self.attribute->named_type, self.attribute->type).release();
        return;
      }
    }
    fail(Why::unsupported, "a query about attributes that this connector does not know");
  });
}

herr_t specific(void* object, const H5VL_loc_params_t* at, H5VL_attr_specific_args_t* args, hid_t, void**) {
  return guarded<herr_t>("attribute specific", H5E_ATTR, -1, [&]() -> herr_t {
    const auto place = owner(object, at);
    auto& container = place.container();
    switch (args->op_type) {
      case H5VL_ATTR_DELETE:
        need_attribute(place, args->args.del.name);
        container.remove_attribute(*place.object, args->args.del.name);
        return 0;
      case H5VL_ATTR_DELETE_BY_IDX: {
        const auto& by = args->args.delete_by_idx;
        container.remove_attribute(*place.object, name_at(place, by.idx_type, by.order, by.n));
        return 0;
      }
      case H5VL_ATTR_EXISTS:
        *args->args.exists.exists = container.find_attribute(*place.object, args->args.exists.name) != nullptr;
        return 0;
      case H5VL_ATTR_ITER: {
        auto& ask = args->args.iterate;
        const Id location = register_place(place);
        const auto index =
            ask.idx_type == H5_INDEX_CRT_ORDER && !place.object->tracks_attribute_order ? H5_INDEX_NAME : ask.idx_type;
        const auto names = ordered_attributes(container, *place.object, index, ask.order);
        const hsize_t first = ask.idx ? *ask.idx : 0;
        if (first > 0 && first >= names.size()) {
          fail(Why::invalid, "the first attribute to visit is beyond the object's last attribute");
        }
        herr_t answer = 0;
        for (hsize_t k = first; k < names.size() && answer == 0; ++k) {
          const auto attribute = container.find_attribute(*place.object, names[k]);
          if (!attribute) {
            continue;
          }
          const auto info = info_of(*place.object, *attribute);
          answer = ask.op(location, names[k].c_str(), &info, ask.op_data);
          if (ask.idx) {
            *ask.idx = k + 1;
          }
        }
        return answer;
      }
      case H5VL_ATTR_RENAME: {
        const auto& ask = args->args.rename;
        need_attribute(place, ask.old_name);
        if (std::strcmp(ask.old_name, ask.new_name) != 0) {
          if (container.find_attribute(*place.object, ask.new_name)) {
            fail(Why::exists, "attribute already exists: '" + std::string(ask.new_name) + "'");
          }
          container.rename_attribute(*place.object, ask.old_name, ask.new_name);
        }
        return 0;
      }
    }
    fail(Why::unsupported, "an operation on attributes that this connector does not know");
  });
}

herr_t close(void* attribute, hid_t, void**) {
  return guarded_status("attribute close", H5E_ATTR, [&] { close_handle(static_cast<Handle*>(attribute)); });
}

}  // namespace

const H5VL_attr_class_t attribute_calls = {create, open, read, write, get, specific, nullptr, close};

}  // namespace sonde::store::h5

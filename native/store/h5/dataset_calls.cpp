#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "store/h5/calls.hpp"
#include "store/h5/group.hpp"

namespace sonde::store::h5 {

ObjectId named_type_of(const Place& place, hid_t type) {
  if (H5Tcommitted(type) <= 0) {
    return 0;
  }
  H5O_info2_t info;
  need_ok(H5Oget_info3(type, &info, H5O_INFO_BASIC), "information of a committed datatype");
  return info.fileno == static_cast<unsigned long>(place.container().number()) ? id_of(info.token) : 0;
}

Id type_id(const Place& place, ObjectId named_type, const std::string& encoded) {
  if (named_type) {
    const auto object = place.container().object(named_type);
    if (object->kind != Kind::datatype) {
      fail(Why::io, "a committed datatype in the store is damaged: it is another kind of object");
    }
    return register_place({place.file, object, ""});
  }
  return decode_type(encoded);
}

namespace {

Handle& handle(void* dataset) { return *static_cast<Handle*>(dataset); }

void keep_access(Handle& opened, hid_t access) {
  if (access > 0 && access != H5P_DATASET_ACCESS_DEFAULT) {
    opened.access.reset(H5Pcopy(access));
  }
}

std::string child_path(const Seat& to) {
  const auto& path = to.group.path;
  return path.empty() ? path : (path.back() == '/' ? path : path + "/") + to.name;
}

void take_space(Object& object, hid_t space) {
  const auto kind = H5Sget_simple_extent_type(space);
  object.space_class = kind == H5S_SCALAR ? 0 : kind == H5S_NULL ? 2 : 1;
  if (kind != H5S_SIMPLE) {
    return;
  }
  std::vector<hsize_t> now(static_cast<std::size_t>(H5Sget_simple_extent_ndims(space))), most(now.size());
  H5Sget_simple_extent_dims(space, now.data(), most.data());
  object.extent.assign(now.begin(), now.end());
  object.extent_max.assign(most.begin(), most.end());
}

void take_layout(Object& object, hid_t creation) {
  const auto layout = H5Pget_layout(creation);
  if (layout == H5D_VIRTUAL) {
    fail(Why::unsupported, "the store does not support virtual datasets; hint: copy the sources into one dataset");
  }
  if (H5Pget_external_count(creation) > 0) {
    fail(Why::unsupported, "the store does not support datasets in external files; hint: leave `external` out");
  }
  object.compact = layout == H5D_COMPACT;
  if (layout != H5D_CHUNKED) {
    H5D_alloc_time_t when = H5D_ALLOC_TIME_EARLY;
    need_ok(H5Pget_alloc_time(creation, &when), "when to allocate");
    if (object.compact && when != H5D_ALLOC_TIME_EARLY) {
      fail(Why::invalid, "a compact dataset is allocated when it is created; hint: leave its allocation time alone");
    }
    if (object.extent != object.extent_max) {
      fail(Why::invalid, "a dataset that can grow needs a chunked layout; hint: give chunks=True");
    }
    return;
  }
  std::vector<hsize_t> chunk(H5S_MAX_RANK);
  const int rank = H5Pget_chunk(creation, static_cast<int>(chunk.size()), chunk.data());
  if (rank < 0 || object.space_class != 1 || static_cast<std::size_t>(rank) != object.extent.size()) {
    fail(Why::invalid,
         "the chunk has " + std::to_string(rank) + " axes and the dataset " + std::to_string(object.extent.size()));
  }
  object.chunk.assign(chunk.begin(), chunk.begin() + rank);
  for (std::size_t d = 0; d < object.chunk.size(); ++d) {
    // As in HDF5 (H5D__chunk_construct): an axis without elements accepts a chunk of any length.
    if (object.extent[d] > 0 && object.extent_max[d] != H5S_UNLIMITED && object.chunk[d] > object.extent_max[d]) {
      fail(Why::invalid, "Chunk size must be <= maximum dimension size for fixed-sized dimensions: axis " +
                             std::to_string(d) + " has " + std::to_string(object.extent_max[d]) + ", the chunk " +
                             std::to_string(object.chunk[d]));
    }
  }
  object.filtered = H5Pget_nfilters(creation) > 0;
}

// As in HDF5 (H5Z_ignore_filters): a dataset whose elements have no fixed size, or that has no axes, accepts optional
// filters, and leaves their parameters unchanged.
bool ignores_filters(const Object& object, hid_t type, hid_t creation) {
  const bool unsuitable = object.space_class != 1 || H5Tget_class(type) == H5T_VLEN || H5Tis_variable_str(type) > 0;
  if (unsuitable) {
    for (const auto& filter : filters_of(creation)) {
      if (!(filter.flags & H5Z_FLAG_OPTIONAL)) {
        fail(Why::invalid, "filter " + std::to_string(filter.id) +
                               " is mandatory but cannot be applied: the dataset has no axes, or elements of variable "
                               "length; hint: leave the filter out");
      }
    }
  }
  return unsuitable;
}

// As in HDF5 (H5D__update_oh_info): elements of variable length are always filled when they are allocated.
void settle_fill_time(hid_t properties, const ElementLayout& layout) {
  H5D_fill_value_t state = H5D_FILL_VALUE_DEFAULT;
  H5D_fill_time_t when = H5D_FILL_TIME_IFSET;
  need_ok(H5Pfill_value_defined(properties, &state), "the fill value");
  need_ok(H5Pget_fill_time(properties, &when), "when to fill");
  if (layout.variable() && when == H5D_FILL_TIME_NEVER) {
    fail(Why::unsupported,
         "a dataset with elements of variable length needs a fill value; hint: choose another fill time than 'never'");
  }
  if (layout.variable() && when == H5D_FILL_TIME_IFSET && state == H5D_FILL_VALUE_DEFAULT) {
    need_ok(H5Pset_fill_time(properties, when = H5D_FILL_TIME_ALLOC), "when to fill");
  }
  if (state == H5D_FILL_VALUE_UNDEFINED && when == H5D_FILL_TIME_ALLOC) {
    fail(Why::invalid, "the dataset is to be filled when it is allocated, but its fill value is undefined");
  }
}

// One element with the user's fill value in stored form; empty without a fill value.
std::string fill_of(hid_t creation, hid_t type, const ElementLayout& layout, std::string& heap,
                    const ReferenceCodec& codec) {
  H5D_fill_value_t state = H5D_FILL_VALUE_DEFAULT;
  H5Pfill_value_defined(creation, &state);
  if (state != H5D_FILL_VALUE_USER_DEFINED) {
    return {};
  }
  std::vector<std::byte> memory(layout.memory_bytes());
  need_ok(H5Pget_fill_value(creation, type, memory.data()), "the fill value in the dataset's type");
  std::string fill(layout.stored_bytes(), '\0');
  Packer(0, heap, &codec).pack(layout, memory.data(), 1, reinterpret_cast<std::byte*>(fill.data()));
  if (!layout.plain()) {
    const hsize_t one = 1;
    const Id line = need_id(H5Screate_simple(1, &one, nullptr), "a dataspace");
    H5Treclaim(type, line, H5P_DEFAULT, memory.data());
  }
  return fill;
}

void* create(void* object, const H5VL_loc_params_t* at, const char* name, hid_t link_creation, hid_t type, hid_t space,
             hid_t creation, hid_t access, hid_t, void**) {
  return guarded<void*>("dataset create", H5E_DATASET, nullptr, [&]() -> void* {
    const auto from = locate(object, at);
    Seat to{from, ""};
    if (name) {
      to = seat(from, name, link_creation);
      need_free(to);
    }
    auto& container = from.container();
    if (container.writable()) {
      // All checks come before anything is created.
      Object probe;
      take_space(probe, space);
      take_layout(probe, creation);
      const Id own_type = decode_type(encode_type(type));
      const ElementLayout layout(own_type);
      if (!chunk_bytes(probe.chunk, layout)) {
        fail(Why::unsupported, "the store does not support chunks of 4 GiB or more; hint: make the chunks smaller");
      }
      Id properties = need_id(H5Pcopy(creation), "a copy of a property list");
      settle_fill_time(properties, layout);
      const bool ignored = ignores_filters(probe, type, creation);
      if (!ignored && probe.chunk.empty() && H5Pget_nfilters(creation) > 0) {
        fail(Why::invalid, "filters need a chunked layout; hint: give chunks=True");
      }
      if (!ignored && probe.filtered) {
        // Only the parameters of the filters are taken from the twin: it has no fill value, and its type is not ours.
        const auto filters = Pipeline(creation, filtered_type(own_type, layout), probe.chunk).filters();
        need_ok(H5Premove_filter(properties, H5Z_FILTER_ALL), "to replace filters");
        for (const auto& filter : filters) {
          need_ok(H5Pset_filter(properties, filter.id, filter.flags, filter.values.size(), filter.values.data()),
                  "a filter's parameters");
        }
      }
      std::string heap;
      const auto fill = fill_of(creation, own_type, layout, heap, reference_codec(from.file));
      if (!fill.empty()) {
        // HDF5 encodes a string fill value as a pointer. So the fill value is stored separately, and get() puts it
        // back.
        need_ok(H5Pset_fill_value(properties, own_type, nullptr), "to take out a fill value");
      }
      auto encoded = encode_properties(properties, PropertyClass::dataset);
      const auto made = container.make(Kind::dataset);
      take_space(*made, space);
      take_layout(*made, creation);
      common_properties(*made, creation);
      if (made->chunk.empty()) {
        std::uint64_t bytes = made->space_class == 2 ? 0 : layout.stored_bytes();
        for (const auto n : made->extent) {
          bytes *= n;
        }
        container.place(*made, bytes);
      }
      made->type = encode_type(type);
      made->properties = std::move(encoded);
      made->fill = fill;
      made->named_type = named_type_of(from, type);
      if (made->named_type != 0) {
        container.adjust(*container.object(made->named_type), 1);
      }
      container.changed(*made);
      auto* const opened = new Handle(H5I_DATASET, from.file, made, name ? child_path(to) : "");
      keep_access(*opened, access);
      if (!heap.empty()) {
        container.write(*made, Part::heap, {{0, std::as_bytes(std::span(heap))}});
        made->heap_end = heap.size();
      }
      if (name) {
        link_new(to, made, link_creation);
      }
      return opened;
    }
    container.make(Kind::dataset);  // always fails, with the reason
    return nullptr;
  });
}

void* open(void* object, const H5VL_loc_params_t* at, const char* name, hid_t access, hid_t, void**) {
  return guarded<void*>("dataset open", H5E_DATASET, nullptr, [&]() -> void* {
    const auto place = name ? walk(locate(object, at), name) : locate(object, at);
    if (place.object->kind != Kind::dataset) {
      fail(Why::type, (name ? std::string(name) : place.path) + " is not a dataset");
    }
    auto* const opened = new Handle(H5I_DATASET, place.file, place.object, place.path);
    keep_access(*opened, access);
    return opened;
  });
}

herr_t read(std::size_t count, void* datasets[], hid_t memory_types[], hid_t memory_spaces[], hid_t file_spaces[],
            hid_t transfer, void* into[], void**) {
  return guarded_status("dataset read", H5E_DATASET, [&] {
    for (std::size_t k = 0; k < count; ++k) {
      const auto codec = reference_codec(handle(datasets[k]).file);
      handle(datasets[k]).io().read(memory_types[k], memory_spaces[k], file_spaces[k], transfer, into[k], &codec);
    }
  });
}

herr_t write(std::size_t count, void* datasets[], hid_t memory_types[], hid_t memory_spaces[], hid_t file_spaces[],
             hid_t transfer, const void* from[], void**) {
  return guarded_status("dataset write", H5E_DATASET, [&] {
    for (std::size_t k = 0; k < count; ++k) {
      if (!handle(datasets[k]).container().writable()) {
        fail(Why::read_only, "no write intent on file: it is open read-only; hint: open it with r+ or a");
      }
      const auto codec = reference_codec(handle(datasets[k]).file);
      handle(datasets[k]).io().write(memory_types[k], memory_spaces[k], file_spaces[k], transfer, from[k], &codec);
    }
  });
}

herr_t get(void* dataset, H5VL_dataset_get_args_t* args, hid_t, void**) {
  return guarded_status("dataset get", H5E_DATASET, [&] {
    auto& self = handle(dataset);
    switch (args->op_type) {
      case H5VL_DATASET_GET_DAPL:
        args->args.get_dapl.dapl_id =
            need_id(H5Pcopy(self.access > 0 ? self.access : H5P_DATASET_ACCESS_DEFAULT), "a property list").release();
        return;
      case H5VL_DATASET_GET_DCPL:
        args->args.get_dcpl.dcpl_id = self.io().properties(reference_codec(self.file)).release();
        return;
      case H5VL_DATASET_GET_SPACE: args->args.get_space.space_id = self.io().space().release(); return;
      case H5VL_DATASET_GET_SPACE_STATUS: {
        auto& status = *args->args.get_space_status.status;
        const auto& object = *self.object;
        if (object.chunk.empty()) {
          status = self.io().allocated() ? H5D_SPACE_STATUS_ALLOCATED : H5D_SPACE_STATUS_NOT_ALLOCATED;
          return;
        }
        std::uint64_t all = 1;
        for (std::size_t d = 0; d < object.chunk.size(); ++d) {
          all *= (object.extent[d] + object.chunk[d] - 1) / object.chunk[d];
        }
        self.io().flush();
        const auto n = self.container().chunks(*self.object).size();
        status = n == 0    ? H5D_SPACE_STATUS_NOT_ALLOCATED
                 : n < all ? H5D_SPACE_STATUS_PART_ALLOCATED
                           : H5D_SPACE_STATUS_ALLOCATED;
        return;
      }
      case H5VL_DATASET_GET_STORAGE_SIZE: *args->args.get_storage_size.storage_size = self.io().storage_bytes(); return;
      case H5VL_DATASET_GET_TYPE:
        args->args.get_type.type_id = type_id(place_of(dataset), self.object->named_type, self.object->type).release();
        return;
    }
    fail(Why::unsupported, "a query about datasets that this connector does not know");
  });
}

herr_t specific(void* dataset, H5VL_dataset_specific_args_t* args, hid_t, void**) {
  return guarded_status("dataset specific", H5E_DATASET, [&] {
    auto& self = handle(dataset);
    switch (args->op_type) {
      case H5VL_DATASET_SET_EXTENT: {
        if (!self.container().writable()) {
          fail(Why::read_only, "no write intent on file: it is open read-only; hint: open it with r+ or a");
        }
        const hsize_t* const size = args->args.set_extent.size;
        self.io().resize({size, size + self.object->extent.size()});
        return;
      }
      case H5VL_DATASET_FLUSH:
        self.io().flush();
        self.container().flush(true);
        return;
      case H5VL_DATASET_REFRESH:
        self.io().refresh();
        self.container().refresh(*self.object);
        return;
    }
    fail(Why::unsupported, "an operation on datasets that this connector does not know");
  });
}

// Stored chunks. A chunk's address is its place in the dataset's data.
herr_t optional(void* dataset, H5VL_optional_args_t* args, hid_t, void**) {
  return guarded<herr_t>("dataset optional", H5E_DATASET, -1, [&]() -> herr_t {
    auto& self = handle(dataset);
    auto& io = self.io();
    auto& ask = *static_cast<H5VL_native_dataset_optional_args_t*>(args->args);
    auto& object = *self.object;
    auto need_chunks = [&]() -> const std::map<ChunkAt, Chunk>& {
      if (object.chunk.empty()) {
        fail(Why::invalid, "not a chunked dataset");
      }
      io.flush();
      return self.container().chunks(object);
    };
    auto tell = [&](const ChunkAt* at, const Chunk* chunk, hsize_t* offset, unsigned* mask, haddr_t* address,
                    hsize_t* size) {
      for (std::size_t d = 0; offset && at && d < at->size(); ++d) {
        offset[d] = (*at)[d] * object.chunk[d];
      }
      if (mask) {
        *mask = chunk ? chunk->filter_mask : 0;
      }
      if (address) {
        *address = chunk ? chunk->offset : HADDR_UNDEF;
      }
      if (size) {
        *size = chunk ? chunk->bytes : 0;
      }
    };
    switch (args->op_type) {
      case H5VL_NATIVE_DATASET_GET_NUM_CHUNKS: *ask.get_num_chunks.nchunks = need_chunks().size(); return 0;
      case H5VL_NATIVE_DATASET_GET_CHUNK_INFO_BY_IDX: {
        auto& by = ask.get_chunk_info_by_idx;
        const auto& chunks = need_chunks();
        if (by.chk_index >= chunks.size()) {
          fail(Why::invalid, "chunk index is out of range");
        }
        const auto& [at, chunk] = *std::next(chunks.begin(), static_cast<std::ptrdiff_t>(by.chk_index));
        tell(&at, &chunk, by.offset, by.filter_mask, by.addr, by.size);
        return 0;
      }
      case H5VL_NATIVE_DATASET_GET_CHUNK_INFO_BY_COORD: {
        auto& by = ask.get_chunk_info_by_coord;
        tell(nullptr, io.extends_to(by.offset) ? io.find_chunk(by.offset) : nullptr, nullptr, by.filter_mask, by.addr,
             by.size);
        return 0;
      }
      case H5VL_NATIVE_DATASET_GET_CHUNK_STORAGE_SIZE: {
        const auto* const chunk = io.find_chunk(ask.get_chunk_storage_size.offset);
        *ask.get_chunk_storage_size.size = chunk ? chunk->bytes : 0;
        return 0;
      }
      case H5VL_NATIVE_DATASET_CHUNK_READ: {
        const auto* const chunk = io.find_chunk(ask.chunk_read.offset);
        if (!chunk) {
          fail(Why::invalid, "chunk address isn't defined: nothing was written there");
        }
        ask.chunk_read.filters = chunk->filter_mask;
#if H5_VERSION_GE(2, 0, 0)
        if (ask.chunk_read.buf_size) {
          const auto room = *ask.chunk_read.buf_size;
          *ask.chunk_read.buf_size = chunk->bytes;
          if (!ask.chunk_read.buf || room < chunk->bytes) {
            return 0;
          }
        }
#endif
        io.read_raw(*chunk, ask.chunk_read.buf);
        return 0;
      }
      case H5VL_NATIVE_DATASET_CHUNK_WRITE:
        if (!self.container().writable()) {
          fail(Why::read_only, "no write intent on file: it is open read-only; hint: open it with r+ or a");
        }
        io.write_raw(ask.chunk_write.offset, {static_cast<const std::byte*>(ask.chunk_write.buf), ask.chunk_write.size},
                     ask.chunk_write.filters);
        return 0;
      case H5VL_NATIVE_DATASET_CHUNK_ITER: {
        herr_t answer = 0;
        for (const auto& [at, chunk] : std::map<ChunkAt, Chunk>(need_chunks())) {
          std::vector<hsize_t> offset(at.size());
          tell(&at, &chunk, offset.data(), nullptr, nullptr, nullptr);
          answer =
              ask.chunk_iter.op(offset.data(), chunk.filter_mask, chunk.offset, chunk.bytes, ask.chunk_iter.op_data);
          if (answer != 0) {
            break;
          }
        }
        return answer;
      }
      case H5VL_NATIVE_DATASET_GET_VLEN_BUF_SIZE: {
        const auto codec = reference_codec(self.file);
        *ask.get_vlen_buf_size.size = io.variable_bytes(ask.get_vlen_buf_size.space_id, &codec);
        return 0;
      }
      case H5VL_NATIVE_DATASET_GET_OFFSET:
        *ask.get_offset.offset = HADDR_UNDEF;  // there is no file, so no offset
        return 0;
      case H5VL_NATIVE_DATASET_GET_CHUNK_INDEX_TYPE: *ask.get_chunk_idx_type.idx_type = H5D_CHUNK_IDX_BTREE; return 0;
      default: fail(Why::unsupported, "an operation on datasets that only files of HDF5's own have");
    }
  });
}

herr_t close(void* dataset, hid_t, void**) {
  return guarded_status("dataset close", H5E_DATASET, [&] { close_handle(static_cast<Handle*>(dataset)); });
}

// ---- committed datatypes

// HDF5 leaves this check to the connector, but offers no function for it. Without the check HDF5 would turn the type
// itself, which the whole process shares, into the committed one. HDF5's own types are atomic, and refuse even to be
// set to the byte order that they have.
bool is_immutable(hid_t type) {
  switch (H5Tget_class(type)) {
    case H5T_COMPOUND:
    case H5T_ENUM:
    case H5T_VLEN:
    case H5T_ARRAY: return false;
    default: break;
  }
  H5E_auto2_t report = nullptr;
  void* data = nullptr;
  H5Eget_auto2(H5E_DEFAULT, &report, &data);
  H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);
  const bool refused = H5Tset_order(type, H5Tget_order(type)) < 0;
  H5Eset_auto2(H5E_DEFAULT, report, data);
  return refused;
}

void* commit(void* object, const H5VL_loc_params_t* at, const char* name, hid_t type, hid_t link_creation,
             hid_t creation, hid_t, hid_t, void**) {
  return guarded<void*>("datatype commit", H5E_DATATYPE, nullptr, [&]() -> void* {
    const auto from = locate(object, at);
    Seat to{from, ""};
    if (name) {
      to = seat(from, name, link_creation);
      need_free(to);
    }
    if (is_immutable(type)) {
      fail(Why::type, "datatype is immutable: HDF5's own types cannot be committed; hint: commit a copy (H5Tcopy)");
    }
    const ElementLayout checked(type);
    auto encoded = encode_type(type);
    std::string properties;
    if (creation != H5P_DATATYPE_CREATE_DEFAULT) {
      properties = encode_properties(creation, PropertyClass::datatype);
    }
    const auto made = from.container().make(Kind::datatype);
    made->type = std::move(encoded);
    common_properties(*made, creation);
    made->properties = std::move(properties);
    from.container().changed(*made);
    auto* const opened = new Handle(H5I_DATATYPE, from.file, made, name ? child_path(to) : "");
    if (name) {
      link_new(to, made, link_creation);
    }
    return opened;
  });
}

void* open_type(void* object, const H5VL_loc_params_t* at, const char* name, hid_t, hid_t, void**) {
  return guarded<void*>("datatype open", H5E_DATATYPE, nullptr, [&]() -> void* {
    const auto place = name ? walk(locate(object, at), name) : locate(object, at);
    if (place.object->kind != Kind::datatype) {
      fail(Why::type, (name ? std::string(name) : place.path) + " is not a committed datatype");
    }
    return new Handle(H5I_DATATYPE, place.file, place.object, place.path);
  });
}

herr_t get_type(void* type, H5VL_datatype_get_args_t* args, hid_t, void**) {
  return guarded_status("datatype get", H5E_DATATYPE, [&] {
    const auto& object = *handle(type).object;
    switch (args->op_type) {
      case H5VL_DATATYPE_GET_BINARY_SIZE: *args->args.get_binary_size.size = object.type.size(); return;
      case H5VL_DATATYPE_GET_BINARY:
        check_type(object.type);
        std::memcpy(args->args.get_binary.buf, object.type.data(),
                    std::min(object.type.size(), args->args.get_binary.buf_size));
        return;
      case H5VL_DATATYPE_GET_TCPL:
        args->args.get_tcpl.tcpl_id = decode_properties(object.properties, PropertyClass::datatype).release();
        return;
    }
    fail(Why::unsupported, "a query about datatypes that this connector does not know");
  });
}

herr_t specific_type(void* type, H5VL_datatype_specific_args_t* args, hid_t, void**) {
  return guarded_status("datatype specific", H5E_DATATYPE, [&] {
    const auto place = place_of(type);
    if (args->op_type == H5VL_DATATYPE_FLUSH) {
      place.container().flush(true);
    } else {
      place.container().refresh(*place.object);
    }
  });
}

herr_t close_type(void* type, hid_t, void**) {
  return guarded_status("datatype close", H5E_DATATYPE, [&] { close_handle(static_cast<Handle*>(type)); });
}

}  // namespace

const H5VL_dataset_class_t dataset_calls = {create, open, read, write, get, specific, optional, close};
const H5VL_datatype_class_t datatype_calls = {commit, open_type, get_type, specific_type, nullptr, close_type};

}  // namespace sonde::store::h5

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "store/h5/calls.hpp"
#include "store/h5/connector.hpp"
#include "store/h5/group.hpp"

namespace sonde::store::h5 {
namespace {

void* create(const char* name, unsigned flags, hid_t creation, hid_t access, hid_t, void**) {
  return guarded<void*>("file create", H5E_FILE, nullptr, [&]() -> void* {
    const auto file =
        open_file(name, flags, access, true,
                  flags & H5F_ACC_TRUNC ? Container::Create::truncate : Container::Create::exclusive, creation);
    file->has_id = true;
    return file->native;
  });
}

void* open(const char* name, unsigned flags, hid_t access, hid_t, void**) {
  return guarded<void*>("file open", H5E_FILE, nullptr, [&]() -> void* {
    const auto file = open_file(name, flags, access, false, Container::Create::exclusive, H5I_INVALID_HID);
    file->has_id = true;
    return file->native;
  });
}

// The HDF5 identifiers that belong to a file: the answer to H5Fget_obj_ids.
struct Census {
  const FileState* file;
  bool local;  // only identifiers of this H5Fopen, not others of the same file
  std::vector<hid_t> found;
  H5I_type_t type;
};

herr_t count_one(hid_t id, void* data) {
  auto& census = *static_cast<Census*>(data);
  if (census.type == H5I_DATATYPE && H5Tcommitted(id) <= 0) {
    return 0;
  }
  if (!is_ours(id)) {
    return 0;
  }
  const void* const object = raw_object(id);
  FilePtr file = find_file(object);
  if (!file && object) {
    file = static_cast<const Handle*>(object)->file;
  }
  if (file && (file.get() == census.file || (!census.local && file->container == census.file->container))) {
    census.found.push_back(id);
  }
  return 0;
}

std::vector<hid_t> identifiers(const FileState& file, unsigned types) {
  Census census{&file, (types & H5F_OBJ_LOCAL) != 0, {}, H5I_BADID};
  for (const auto& [bit, type] : {std::pair{H5F_OBJ_FILE, H5I_FILE},
                                  {H5F_OBJ_DATASET, H5I_DATASET},
                                  {H5F_OBJ_GROUP, H5I_GROUP},
                                  {H5F_OBJ_DATATYPE, H5I_DATATYPE},
                                  {H5F_OBJ_ATTR, H5I_ATTR}}) {
    if (types & bit) {
      census.type = type;
      H5Iiterate(type, count_one, &census);
    }
  }
  return census.found;
}

herr_t get(void* object, H5VL_file_get_args_t* args, hid_t, void**) {
  return guarded_status("file get", H5E_FILE, [&] {
    const auto file = place_of(object).file;
    switch (args->op_type) {
      case H5VL_FILE_GET_CONT_INFO:
        args->args.get_cont_info.info->feature_flags = 0;
        args->args.get_cont_info.info->token_size = sizeof(ObjectId);
        args->args.get_cont_info.info->blob_id_size = 0;
        return;
      case H5VL_FILE_GET_FAPL:
        args->args.get_fapl.fapl_id = need_id(H5Pcopy(file->access), "a copy of a property list").release();
        return;
      case H5VL_FILE_GET_FCPL:
        args->args.get_fcpl.fcpl_id = decode_properties(file->container->properties(), PropertyClass::file).release();
        return;
      case H5VL_FILE_GET_FILENO:
        *args->args.get_fileno.fileno = static_cast<unsigned long>(file->container->number());
        return;
      case H5VL_FILE_GET_INTENT: *args->args.get_intent.flags = file->intent; return;
      case H5VL_FILE_GET_NAME:
        put_text(file->given_name, args->args.get_name.buf, args->args.get_name.buf_size);
        *args->args.get_name.file_name_len = file->given_name.size();
        return;
      case H5VL_FILE_GET_OBJ_COUNT:
        *args->args.get_obj_count.count = identifiers(*file, args->args.get_obj_count.types).size();
        return;
      case H5VL_FILE_GET_OBJ_IDS: {
        auto& ask = args->args.get_obj_ids;
        const auto found = identifiers(*file, ask.types);
        *ask.count = std::min(found.size(), ask.max_objs);
        std::copy_n(found.begin(), *ask.count, ask.oid_list);
        return;
      }
    }
    fail(Why::unsupported, "a query about files that this connector does not know");
  });
}

herr_t specific(void* object, H5VL_file_specific_args_t* args, hid_t, void**) {
  return guarded_status("file specific", H5E_FILE, [&] {
    switch (args->op_type) {
      case H5VL_FILE_FLUSH: place_of(object).container().flush(true); return;
      case H5VL_FILE_REOPEN: {
        const auto file = place_of(object).file;
        const auto again = open_file(file->given_name, file->intent, file->access, false, Container::Create::exclusive,
                                     H5I_INVALID_HID);
        again->has_id = true;
        *args->args.reopen.file = again->native;
        return;
      }
      case H5VL_FILE_IS_ACCESSIBLE: {
        auto& ask = args->args.is_accessible;
        try {
          *ask.accessible = Container::exists(*service_of(ask.fapl_id, false), absolute_name(ask.filename));
        } catch (const Failure& failure) {
          if (failure.why() != Why::not_found) {
            throw;
          }
          *ask.accessible = false;
        }
        return;
      }
      case H5VL_FILE_DELETE:
        Container::remove(service_of(args->args.del.fapl_id, false), absolute_name(args->args.del.filename));
        return;
      case H5VL_FILE_IS_EQUAL: {
        const auto other = find_file(args->args.is_equal.obj2);
        *args->args.is_equal.same_file = other && other->container == place_of(object).file->container;
        return;
      }
    }
    fail(Why::unsupported, "an operation on files that this connector does not know");
  });
}

herr_t optional(void* object, H5VL_optional_args_t* args, hid_t, void**) {
  return guarded_status("file optional", H5E_FILE, [&] {
    auto& ask = *static_cast<H5VL_native_file_optional_args_t*>(args->args);
    switch (args->op_type) {
      case H5VL_NATIVE_FILE_GET_FREE_SPACE: *ask.get_freespace.size = 0; return;
      case H5VL_NATIVE_FILE_POST_OPEN: return;
      case H5VL_NATIVE_FILE_START_SWMR_WRITE:
        // Readers always see whole batches. So SWMR only sets a visible flag.
        if (!(place_of(object).file->intent & H5F_ACC_RDWR)) {
          fail(Why::read_only, "no write intent on file: it is open read-only; hint: open it with r+ or a");
        }
        place_of(object).file->intent |= H5F_ACC_SWMR_WRITE;
        return;
      default:
        fail(Why::unsupported,
             "an operation on files that only files of HDF5's own have (its cache, image, size, free space, driver)");
    }
  });
}

herr_t close(void* object, hid_t, void**) {
  return guarded_status("file close", H5E_FILE, [&] { close_file(place_of(object).file); });
}

}  // namespace

const H5VL_file_class_t file_calls = {create, open, get, specific, optional, close};

}  // namespace sonde::store::h5

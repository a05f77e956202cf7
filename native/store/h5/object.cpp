#include <cstring>
#include <string>
#include <unordered_set>

#include "store/h5/calls.hpp"
#include "store/h5/group.hpp"

namespace sonde::store::h5 {
namespace {

H5O_info2_t info_of(const Place& place) {
  H5O_info2_t info{};
  const auto& object = *place.object;
  info.fileno = static_cast<unsigned long>(place.container().number());
  info.token = token_of(object.id);
  info.type = object_type(object.kind);
  info.rc = object.links_to;
  info.atime = info.mtime = info.ctime = info.btime = object.tracks_times ? object.changed_s : 0;
  info.num_attrs = object.attributes_loaded ? object.attributes.size() : object.attribute_count;
  return info;
}

void* open(void* object, const H5VL_loc_params_t* at, H5I_type_t* opened, hid_t, void**) {
  return guarded<void*>("object open", H5E_OHDR, nullptr, [&]() -> void* {
    const auto place = locate(object, at);
    *opened = handle_type(place.object->kind);
    return new Handle(*opened, place.file, place.object, place.path);
  });
}

herr_t copy(void* source, const H5VL_loc_params_t* from, const char* source_name, void* target,
            const H5VL_loc_params_t* at, const char* target_name, hid_t copying, hid_t link_creation, hid_t, void**) {
  return guarded_status("object copy", H5E_OHDR, [&] {
    const auto what = walk(locate(source, from), source_name);
    const auto to = seat(locate(target, at), target_name, link_creation);
    need_free(to);
    unsigned flags = 0;
    need_ok(H5Pget_copy_object(copying, &flags), "the flags of a copy");
    if (flags & H5O_COPY_MERGE_COMMITTED_DTYPE_FLAG) {
      fail(Why::unsupported, "a copy in the store does not merge committed datatypes; hint: copy without that flag");
    }
    link_new(to, copy_object(what, to.group.container(), flags), link_creation);
  });
}

herr_t get(void* object, const H5VL_loc_params_t* at, H5VL_object_get_args_t* args, hid_t, void**) {
  return guarded_status("object get", H5E_OHDR, [&] {
    const auto place = locate(object, at);
    switch (args->op_type) {
      case H5VL_OBJECT_GET_FILE:
        // HDF5 makes a new identifier for it, unless the file still has one.
        *args->args.get_file.file = place.file->native;
        place.file->has_id = true;
        return;
      case H5VL_OBJECT_GET_NAME: {
        auto& ask = args->args.get_name;
        auto path = place.path;
        if (!path.empty()) {
          // Links may have changed since the object was opened.
          const auto now = try_walk({place.file, place.container().object(root_id), "/"}, path);
          if (!now || now->object != place.object) {
            path.clear();
          }
        }
        if (path.empty() && (place.object->links_to > 0 || place.object->id == root_id)) {
          path = find_path(place.container(), place.object->id);
        }
        put_text(path, ask.buf, ask.buf_size);
        *ask.name_len = path.size();
        return;
      }
      case H5VL_OBJECT_GET_TYPE: *args->args.get_type.obj_type = object_type(place.object->kind); return;
      case H5VL_OBJECT_GET_INFO: *args->args.get_info.oinfo = info_of(place); return;
    }
    fail(Why::unsupported, "a query about objects that this connector does not know");
  });
}

struct Visit {
  H5VL_object_visit_args_t& ask;
  Id location;
  std::unordered_set<ObjectId> entered, seen;

  herr_t operator()(const Place& group, const std::string& prefix) {
    const auto index =
        ask.idx_type == H5_INDEX_CRT_ORDER && group.object->tracks_link_order ? H5_INDEX_CRT_ORDER : H5_INDEX_NAME;
    for (const auto& name : ordered_links(group, index, ask.order)) {
      const Link* const found = group.container().find_link(*group.object, name);
      if (!found || found->kind != Link::Kind::hard) {
        continue;
      }
      const auto child = follow(group, name, Link(*found), H5P_LINK_ACCESS_DEFAULT);
      const auto path = prefix + name;
      // As in HDF5: each group is entered once, but only objects with several links are remembered as seen.
      if (child.object->links_to <= 1 || seen.insert(child.object->id).second) {
        const auto info = info_of(child);
        if (const herr_t answer = ask.op(location, path.c_str(), &info, ask.op_data); answer != 0) {
          return answer;
        }
      }
      if (child.object->kind == Kind::group && entered.insert(child.object->id).second) {
        if (const herr_t answer = (*this)(child, path + "/"); answer != 0) {
          return answer;
        }
      }
    }
    return 0;
  }
};

herr_t specific(void* object, const H5VL_loc_params_t* at, H5VL_object_specific_args_t* args, hid_t, void**) {
  return guarded<herr_t>("object specific", H5E_OHDR, -1, [&]() -> herr_t {
    switch (args->op_type) {
      case H5VL_OBJECT_CHANGE_REF_COUNT: {
        const auto place = locate(object, at);
        place.container().adjust(*place.object, args->args.change_rc.delta);
        return 0;
      }
      case H5VL_OBJECT_EXISTS:
        *args->args.exists.exists = leads_to_object(place_of(object), at->loc_data.loc_by_name.name);
        return 0;
      case H5VL_OBJECT_LOOKUP: {
        // A reference will be made. For a region reference HDF5 looks for the dataset in the shadow.
        const auto place = locate(object, at);
        auto token = place.object->id;
        if (place.object->kind == Kind::dataset && place.object->space_class != 2) {
          token = place.file->shadow->address_for(token, place.object->extent);
        }
        *args->args.lookup.token_ptr = token_of(token);
        return 0;
      }
      case H5VL_OBJECT_VISIT: {
        auto& ask = args->args.visit;
        const auto from = locate(object, at);
        Visit visit{ask, register_place(from), {from.object->id}, {}};
        if (from.object->links_to > 1) {
          visit.seen.insert(from.object->id);
        }
        const auto info = info_of(from);
        if (const herr_t answer = ask.op(visit.location, ".", &info, ask.op_data);
            answer != 0 || from.object->kind != Kind::group) {
          return answer;
        }
        return visit(from, "");
      }
      case H5VL_OBJECT_FLUSH: place_of(object).container().flush(true); return 0;
      case H5VL_OBJECT_REFRESH: {
        const auto place = place_of(object);
        place.container().refresh(*place.object);
        return 0;
      }
    }
    fail(Why::unsupported, "an operation on objects that this connector does not know");
  });
}

herr_t optional(void* object, const H5VL_loc_params_t* at, H5VL_optional_args_t* args, hid_t, void**) {
  return guarded_status("object optional", H5E_OHDR, [&] {
    auto& ask = *static_cast<H5VL_native_object_optional_args_t*>(args->args);
    const auto place = locate(object, at);
    switch (args->op_type) {
      case H5VL_NATIVE_OBJECT_GET_COMMENT:
        put_text(place.object->comment, static_cast<char*>(ask.get_comment.buf), ask.get_comment.buf_size);
        *ask.get_comment.comment_len = place.object->comment.size();
        return;
      case H5VL_NATIVE_OBJECT_SET_COMMENT:
        if (const std::string text = ask.set_comment.comment ? ask.set_comment.comment : "";
            text != place.object->comment) {
          place.container().changed(*place.object);  // fails for a file that is open read-only
          place.object->comment = text;
        }
        return;
      case H5VL_NATIVE_OBJECT_GET_NATIVE_INFO:
        // The store has no object header, B-tree or heap whose size could be reported.
        *ask.get_native_info.ninfo = {};
        return;
      default: fail(Why::unsupported, "an operation on objects that only files of HDF5's own have");
    }
  });
}

}  // namespace

const H5VL_object_class_t object_calls = {open, copy, get, specific, optional};

}  // namespace sonde::store::h5

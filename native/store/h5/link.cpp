#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <unordered_set>
#include <utility>

#include "store/h5/calls.hpp"
#include "store/h5/group.hpp"

namespace sonde::store::h5 {
namespace {

// An external link's value as HDF5 packs it: a byte of version and flags, then file and path, each with its NUL.
std::string packed(const Link& link) {
  return link.kind == Link::Kind::soft ? link.path + '\0' : std::string(1, '\0') + link.file + '\0' + link.path + '\0';
}

H5L_info2_t info_of(const Link& link, bool tracks_order) {
  H5L_info2_t info{};
  info.type = link.kind == Link::Kind::hard   ? H5L_TYPE_HARD
              : link.kind == Link::Kind::soft ? H5L_TYPE_SOFT
                                              : H5L_TYPE_EXTERNAL;
  info.corder_valid = tracks_order;
  info.corder = tracks_order ? link.order : 0;
  info.cset = static_cast<H5T_cset_t>(link.charset);
  if (link.kind == Link::Kind::hard) {
    info.u.token = token_of(link.target);
  } else {
    info.u.val_size = packed(link).size();
  }
  return info;
}

// The link at a location, not its target.
std::pair<Place, std::pair<std::string, Link>> find(void* object, const H5VL_loc_params_t* at) {
  const auto from = place_of(object);
  if (at->type == H5VL_OBJECT_BY_IDX) {
    const auto& by = at->loc_data.loc_by_idx;
    const auto group = walk(from, by.name);
    return {group, link_at(group, by.idx_type, by.order, by.n)};
  }
  if (at->type != H5VL_OBJECT_BY_NAME) {
    fail(Why::unsupported, "a link must be given by its name or its index");
  }
  const auto to = seat(from, at->loc_data.loc_by_name.name);
  const Link* const link = to.name.empty() ? nullptr : to.group.container().find_link(*to.group.object, to.name);
  if (!link) {
    fail(Why::not_found, "component not found: '" + std::string(at->loc_data.loc_by_name.name) + "'");
  }
  return {to.group, {to.name, *link}};
}

const char* name_in(const H5VL_loc_params_t* at) {
  if (at->type != H5VL_OBJECT_BY_NAME) {
    fail(Why::unsupported, "a new link must be given by its name");
  }
  return at->loc_data.loc_by_name.name;
}

Seat free_seat(void* object, const H5VL_loc_params_t* at, hid_t creation) {
  const auto to = seat(place_of(object), name_in(at), creation);
  need_free(to);
  return to;
}

std::uint8_t charset_of(hid_t creation) {
  H5T_cset_t charset = H5T_CSET_ASCII;
  if (creation > 0) {
    H5Pget_char_encoding(creation, &charset);
  }
  return static_cast<std::uint8_t>(charset);
}

// As in HDF5 (H5G_normalize): one slash between names, and none after the last.
std::string normalized(std::string_view path) {
  std::string out;
  for (const char c : path) {
    if (c != '/' || out.empty() || out.back() != '/') {
      out.push_back(c);
    }
  }
  if (out.size() > 1 && out.back() == '/') {
    out.pop_back();
  }
  return out;
}

herr_t create(H5VL_link_create_args_t* args, void* object, const H5VL_loc_params_t* at, hid_t creation, hid_t, hid_t,
              void**) {
  return guarded_status("link create", H5E_LINK, [&] {
    switch (args->op_type) {
      case H5VL_LINK_CREATE_HARD: {
        auto& hard = args->args.hard;
        const auto target = locate(hard.curr_obj ? hard.curr_obj : object, &hard.curr_loc_params);
        const auto to = free_seat(object ? object : hard.curr_obj, at, creation);
        if (&to.group.container() != &target.container()) {
          fail(Why::invalid, "a hard link cannot lead from one file to another; hint: use an external link");
        }
        link_new(to, target.object, creation);
        return;
      }
      case H5VL_LINK_CREATE_SOFT:
      case H5VL_LINK_CREATE_UD: {
        const auto to = free_seat(object, at, creation);
        Link link;
        link.charset = charset_of(creation);
        if (args->op_type == H5VL_LINK_CREATE_SOFT) {
          link.kind = Link::Kind::soft;
          link.path = normalized(args->args.soft.target);
        } else {
          const auto& ud = args->args.ud;
          if (ud.type != H5L_TYPE_EXTERNAL) {
            fail(Why::unsupported, "the store does not support user-defined links; hint: use an external link");
          }
          const std::string_view value(static_cast<const char*>(ud.buf), ud.buf_size);
          const auto end = value.find('\0', 1);
          link.kind = Link::Kind::external;
          link.file = value.substr(1, end - 1);
          link.path = value.substr(end + 1, value.find('\0', end + 1) - end - 1);
        }
        to.group.container().add_link(*to.group.object, to.name, std::move(link));
        return;
      }
    }
    fail(Why::unsupported, "a link of an unknown kind");
  });
}

void relink(void* source, const H5VL_loc_params_t* from, void* target, const H5VL_loc_params_t* at, hid_t creation,
            bool move) {
  const auto [group, named] = find(source ? source : target, from);
  auto link = named.second;
  const auto to = free_seat(target ? target : source, at, creation);
  auto& container = to.group.container();
  if (&container != &group.container()) {
    fail(Why::invalid, "a link cannot be moved or copied to another file; hint: copy the object");
  }
  if (creation > 0 && creation != H5P_LINK_CREATE_DEFAULT) {
    link.charset = charset_of(creation);
  }
  container.add_link(*to.group.object, to.name, link);
  if (move) {
    container.remove_link(*group.object, named.first);
  } else if (link.kind == Link::Kind::hard) {
    container.adjust(*container.object(link.target), 1);
  }
}

herr_t copy(void* source, const H5VL_loc_params_t* from, void* target, const H5VL_loc_params_t* at, hid_t creation,
            hid_t, hid_t, void**) {
  return guarded_status("link copy", H5E_LINK, [&] { relink(source, from, target, at, creation, false); });
}

herr_t move(void* source, const H5VL_loc_params_t* from, void* target, const H5VL_loc_params_t* at, hid_t creation,
            hid_t, hid_t, void**) {
  return guarded_status("link move", H5E_LINK, [&] { relink(source, from, target, at, creation, true); });
}

herr_t get(void* object, const H5VL_loc_params_t* at, H5VL_link_get_args_t* args, hid_t, void**) {
  return guarded_status("link get", H5E_LINK, [&] {
    const auto [group, named] = find(object, at);
    const auto& [name, link] = named;
    switch (args->op_type) {
      case H5VL_LINK_GET_INFO: *args->args.get_info.linfo = info_of(link, group.object->tracks_link_order); return;
      case H5VL_LINK_GET_NAME:
        put_text(name, args->args.get_name.name, args->args.get_name.name_size);
        *args->args.get_name.name_len = name.size();
        return;
      case H5VL_LINK_GET_VAL: {
        if (link.kind == Link::Kind::hard) {
          fail(Why::invalid, "'" + name + "' is a hard link: only soft and external links have a value");
        }
        const auto value = packed(link);
        const auto n = std::min(value.size(), args->args.get_val.buf_size);
        if (args->args.get_val.buf) {
          std::memcpy(args->args.get_val.buf, value.data(), n);
        }
        return;
      }
    }
    fail(Why::unsupported, "a query about links that this connector does not know");
  });
}

// A visit reaches each group once, even if several links lead to it.
struct Visit {
  H5VL_link_iterate_args_t& ask;
  Id location;
  std::unordered_set<ObjectId> seen;

  herr_t operator()(const Place& group, const std::string& prefix) {
    for (const auto& name : ordered_links(group, index(group), ask.order)) {
      const Link* const found = group.container().find_link(*group.object, name);
      if (!found) {
        continue;  // the caller's callback has removed it
      }
      const Link link = *found;
      const auto info = info_of(link, group.object->tracks_link_order);
      const auto path = prefix + name;
      if (const herr_t answer = ask.op(location, path.c_str(), &info, ask.op_data); answer != 0) {
        return answer;
      }
      if (link.kind == Link::Kind::hard && seen.insert(link.target).second) {
        const auto child = follow(group, name, link, H5P_LINK_ACCESS_DEFAULT);
        if (child.object->kind == Kind::group) {
          if (const herr_t answer = (*this)(child, path + "/"); answer != 0) {
            return answer;
          }
        }
      }
    }
    return 0;
  }
  H5_index_t index(const Place& group) const {
    return ask.idx_type == H5_INDEX_CRT_ORDER && group.object->tracks_link_order ? H5_INDEX_CRT_ORDER : H5_INDEX_NAME;
  }
};

herr_t specific(void* object, const H5VL_loc_params_t* at, H5VL_link_specific_args_t* args, hid_t, void**) {
  return guarded<herr_t>("link specific", H5E_LINK, -1, [&]() -> herr_t {
    switch (args->op_type) {
      case H5VL_LINK_DELETE: {
        const auto [group, named] = find(object, at);
        auto& container = group.container();
        container.remove_link(*group.object, named.first);
        if (named.second.kind == Link::Kind::hard) {
          container.adjust(*container.object(named.second.target), -1);
        }
        return 0;
      }
      case H5VL_LINK_EXISTS: {
        const std::string_view path = name_in(at);
        const auto to = seat(place_of(object), path);
        // No link leads to "." or "/". HDF5 reports that too, except for "/" itself.
        *args->args.exists.exists =
            to.name.empty() ? path == "/" : to.group.container().find_link(*to.group.object, to.name) != nullptr;
        return 0;
      }
      case H5VL_LINK_ITER: {
        auto& ask = args->args.iterate;
        const auto group = locate(object, at);
        if (group.object->kind != Kind::group) {
          fail(Why::type, "'" + group.path + "' is not a group");
        }
        Visit visit{ask, register_place(group), {group.object->id}};
        if (ask.recursive) {
          return visit(group, "");
        }
        const auto names = ordered_links(group, ask.idx_type, ask.order);
        const hsize_t first = ask.idx_p ? *ask.idx_p : 0;
        if (first > 0 && first >= names.size()) {
          fail(Why::invalid, "the first link to visit is beyond the group's last link");
        }
        herr_t answer = 0;
        for (hsize_t k = first; k < names.size() && answer == 0; ++k) {
          const Link* const link = group.container().find_link(*group.object, names[k]);
          if (!link) {
            continue;
          }
          const auto info = info_of(*link, group.object->tracks_link_order);
          answer = ask.op(visit.location, names[k].c_str(), &info, ask.op_data);
          if (ask.idx_p) {
            *ask.idx_p = k + 1;
          }
        }
        return answer;
      }
    }
    fail(Why::unsupported, "an operation on links that this connector does not know");
  });
}

}  // namespace

const H5VL_link_class_t link_calls = {create, copy, move, get, specific, nullptr};

}  // namespace sonde::store::h5

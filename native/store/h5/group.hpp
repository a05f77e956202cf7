#pragma once
/// Making objects in groups, and what property lists say of them.

#include <string>

#include "store/h5/handle.hpp"

namespace sonde::store::h5 {

/// What the header needs to know from a creation property list.
void root_properties(Object& root, hid_t file_creation);
void common_properties(Object& object, hid_t creation);

/// Errors: exists.
void need_free(const Seat& seat);
/// Errors: as need_free().
void link_new(const Seat& seat, const ObjectPtr& object, hid_t link_creation);
Place make_group(const Place& parent, const std::string& name);
/// A group's creation properties. The root group's are in its file's.
Id creation_of(const Place& group);

/// The committed type of the same file that `type` is; 0: none.
ObjectId named_type_of(const Place& place, hid_t type);
/// A type as the caller may have it: the committed one, if there is one, else a copy.
Id type_id(const Place& place, ObjectId named_type, const std::string& encoded);

/// Copies an object, and with it what lies beneath unless `flags` (H5O_COPY_*) say otherwise.
ObjectPtr copy_object(const Place& from, Container& to, unsigned flags);

}  // namespace sonde::store::h5

#pragma once
/// Creates objects in groups, and reads their property lists.

#include <string>

#include "store/h5/handle.hpp"

namespace sonde::store::h5 {

/// Copies the facts that the header needs from a creation property list.
void root_properties(Object& root, hid_t file_creation);
void common_properties(Object& object, hid_t creation);

/// Errors: exists.
void need_free(const Seat& seat);
/// Errors: as need_free().
void link_new(const Seat& seat, const ObjectPtr& object, hid_t link_creation);
Place make_group(const Place& parent, const std::string& name);
/// A group's creation properties. The root group's are in its file's.
Id creation_of(const Place& group);

/// The committed type in the same file that `type` refers to; 0: none.
ObjectId named_type_of(const Place& place, hid_t type);
/// A type for the caller: the committed one, if there is one, else a copy.
Id type_id(const Place& place, ObjectId named_type, const std::string& encoded);

/// Copies an object and all below it, unless `flags` (H5O_COPY_*) say otherwise.
ObjectPtr copy_object(const Place& from, Container& to, unsigned flags);

}  // namespace sonde::store::h5

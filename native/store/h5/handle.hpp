#pragma once
/// The structures of this connector that HDF5 has pointers to: open files, and handles to objects and attributes in
/// them. Also the walk from a location (object, name, index or token) to an object.

#include <H5VLconnector.h>
#include <H5VLconnector_passthru.h>
#include <H5VLnative.h>
#include <hdf5.h>

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "store/h5/container.hpp"
#include "store/h5/dataset.hpp"
#include "store/h5/datatype.hpp"

namespace sonde::store::h5 {

/// One H5Fopen or H5Fcreate. It exists until its identifier is closed and no handle is left.
struct FileState : std::enable_shared_from_this<FileState> {
  std::shared_ptr<Container> container;
  std::string given_name;
  unsigned intent = 0;
  Id access;
  Shadow* shadow = nullptr;
  void* native = nullptr;  ///< the file in the shadow; HDF5 also identifies this file by it
  bool has_id = false;
  bool told = false;  ///< a failed flush was reported
  unsigned handles = 0;

  FileState() = default;
  FileState(const FileState&) = delete;
  FileState& operator=(const FileState&) = delete;
  ~FileState();
};
using FilePtr = std::shared_ptr<FileState>;

struct Handle {
  Handle(H5I_type_t type_, FilePtr file_, ObjectPtr object_, std::string path_);
  ~Handle();
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;

  H5I_type_t type;
  FilePtr file;
  ObjectPtr object;
  std::string path;  ///< the path that was used to open it; empty: not known
  Id access;         ///< for a dataset that was opened with its own properties
  std::string attribute_name;
  std::shared_ptr<Attribute> attribute;

  Container& container() const { return *file->container; }
  DatasetIo& io() const;
};

/// The present position of a walk.
struct Place {
  FilePtr file;
  ObjectPtr object;
  std::string path;
  Container& container() const { return *file->container; }
};

/// A place and the last name of a path, which need not exist.
struct Seat {
  Place group;
  std::string name;
};

FilePtr open_file(const std::string& name, unsigned intent, hid_t access, bool create, Container::Create how,
                  hid_t properties);
/// make: for a file that will be created. See open_service().
std::shared_ptr<Service> service_of(hid_t access, bool make);
FilePtr find_file(const void* native);
/// Closes files that a link led to, if nothing was opened in them. Called when the outermost call from HDF5 ends.
void close_unclaimed() noexcept;
/// Called when the identifier of the file is closed. If a flush fails, the first call throws: HDF5 then still has the
/// identifier, and closes it again, at the latest at its own end. Nothing may be freed before that.
void close_file(const FilePtr& file);
/// Frees a handle. If data cannot be written, the file's next call, or its close, reports the error.
void close_handle(Handle* handle) noexcept;

/// The place of a file, an object or the object of an attribute.
Place place_of(void* object);
Place locate(void* object, const H5VL_loc_params_t* at);
Place walk(const Place& from, std::string_view path, hid_t link_access = H5P_LINK_ACCESS_DEFAULT);
std::optional<Place> try_walk(const Place& from, std::string_view path);
/// As H5Oexists_by_name(): the last link on the way may be missing, or lead nowhere. Errors: not_found, if an earlier
/// link is missing or leads nowhere, or if links form a circle; type.
bool leads_to_object(const Place& from, std::string_view path, int depth = 0);
/// Makes missing groups on the way, if the `create` properties (H5P_LINK_CREATE) ask for that.
Seat seat(const Place& from, std::string_view path, hid_t create = H5P_LINK_CREATE_DEFAULT);
Place follow(const Place& group, std::string_view name, const Link& link, hid_t link_access, int depth = 0);
/// The n-th link of a group.
std::pair<std::string, Link> link_at(const Place& group, H5_index_t index, H5_iter_order_t order, hsize_t n);
/// The names of the links in this order. Errors: invalid, if creation order is requested but not tracked.
std::vector<std::string> ordered_links(const Place& group, H5_index_t index, H5_iter_order_t order);
std::vector<std::string> ordered_attributes(Container& container, Object& object, H5_index_t index,
                                            H5_iter_order_t order);

H5O_token_t token_of(ObjectId id);
ObjectId id_of(const H5O_token_t& token);
/// The object that a token or reference means. The token may be an address in the file's shadow.
ObjectId id_behind(const FileState& file, ObjectId token);
H5I_type_t handle_type(Kind kind);
H5O_type_t object_type(Kind kind);
/// A new handle, registered with HDF5 as an identifier.
Id register_place(const Place& place);
/// A path that leads to the object by hard links, shortest first; empty: none.
std::string find_path(Container& container, ObjectId id);
ReferenceCodec reference_codec(const FilePtr& file);
void put_text(std::string_view text, char* into, std::size_t room);

}  // namespace sonde::store::h5

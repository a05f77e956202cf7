#pragma once
/// The connector in HDF5's terms: name, number, configuration.
///
///   HDF5_PLUGIN_PATH=…/sonde/lib/hdf5  HDF5_VOL_CONNECTOR="sonde servers=127.0.0.1:5440"
///
/// Settings are name=value, with ';' between them. Without servers= or embedded= the servers come from
/// SONDE_STORE_SERVERS.
///
///   servers=H:P,H:P…     as Config::servers; the roles kv and data are needed
///   embedded=PATH        no server: kv in PATH/keys (lmdb), objects in PATH/objects (posix); "memory": in this process
///                        only
///   transport=NAME       tcp, or another one that the server offers
///   auth=NAME token=FILE timeout=S connect_timeout=S checksum=yes|no
///   stripe=BYTES         for new files over several data servers (1 MiB)
///   chunk_cache=BYTES    for each dataset (64 MiB)
///   flush=network        H5Fflush waits until every client can see the data; storage (the default): until the data
///                        survives power loss
///   connections=N        at most this number to each server
///   provider=P nodelay=… and the other options in link_options.hpp; '+' stands for the ';' in a provider's name

#include <H5VLconnector.h>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "store/h5/container.hpp"

namespace sonde::store::h5 {

/// From the range that HDF5 reserves for connectors that are not registered.
inline constexpr int connector_value = 320;

/// make: creates an embedded store that does not exist yet, but not the folder above it. Errors: invalid, with the
/// unknown setting and the known ones; not_found, if there is no such embedded store.
std::shared_ptr<Service> open_service(std::string_view settings, bool make);
void close_services();

bool is_ours(hid_t id);
/// The pointer that this connector gave HDF5 for one of its identifiers (a Handle, or a file's native address).
const void* raw_object(hid_t id);

}  // namespace sonde::store::h5

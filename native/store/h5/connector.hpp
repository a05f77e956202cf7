#pragma once
/// The connector as HDF5 sees it: name, number, configuration.
///
///   HDF5_PLUGIN_PATH=…/sonde/lib/hdf5  HDF5_VOL_CONNECTOR="sonde servers=127.0.0.1:5440"
///
/// Settings are name=value, with ';' between them; without servers= or embedded= they come from SONDE_STORE_SERVERS.
///
///   servers=H:P,H:P…     as Config::servers; roles kv and data are needed
///   embedded=PATH        no server: kv in PATH/keys (lmdb), objects in PATH/objects (posix); "memory": in this process
///                        only
///   transport=NAME       tcp and whatever else the server offers
///   auth=NAME token=FILE timeout=S connect_timeout=S checksum=yes|no
///   stripe=BYTES         of new files over several data servers (1 MiB)
///   chunk_cache=BYTES    of each dataset (64 MiB)
///   flush=network        H5Fflush waits until every client can see it; storage (the default): until it survives power
///                        loss
///   connections=N        to each server, at most
///   provider=P nodelay=… and what else link_options.hpp names; '+' stands for the ';' in a provider's name

#include <H5VLconnector.h>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "store/h5/container.hpp"

namespace sonde::store::h5 {

/// From the range that HDF5 leaves for connectors that are not registered with it.
inline constexpr int connector_value = 320;

/// make: an embedded store that is not there yet is made, but not the folder above it. Errors: invalid, naming the
/// setting and those that are known; not_found, there is no such embedded store.
std::shared_ptr<Service> open_service(std::string_view settings, bool make);
void close_services();

bool is_ours(hid_t id);
/// What this connector gave HDF5 for an identifier of its own (a Handle, or a file's native address).
const void* raw_object(hid_t id);

}  // namespace sonde::store::h5

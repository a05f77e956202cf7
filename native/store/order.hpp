#pragma once
/// In which order a client names its servers. It says where keys and blocks lie, so whoever reads must use the
/// writer's; what is described in the store (items, HDF5 files) keeps it, and another one is refused instead of read
/// wrongly. Any-thread.

#include <optional>
#include <string>
#include <string_view>

#include "store/store.hpp"

namespace sonde::store {

/// "n1:5440,data@n2:5440" as the client names them; empty of embedded backends.
std::string order_of(const Client& client);

/// Whether servers that both lists name stand in another order, for one role at least. The same server may have several
/// names: of lists without a common one nothing can be said.
bool other_order(std::string_view then, std::string_view now);

/// A key's value, wherever among the kv servers it lies: for one that is not where it belongs. nullopt: nowhere.
Result<std::optional<std::string>> found_anywhere(Client& client, std::string_view space, std::string_view key);

/// Error store.other_servers. what: "the item 'a' in 'b'"; then: order_of() whoever wrote it, empty where that is not
/// known.
Error wrong_order(const Client& client, const std::string& what, std::string_view then);

}  // namespace sonde::store

#pragma once
/// The order in which a client names its servers. It determines where keys and blocks are stored, so readers must use
/// the writer's order. Items and HDF5 files store the order, so that another order is refused instead of giving wrong
/// data. Any-thread.

#include <optional>
#include <string>
#include <string_view>

#include "store/store.hpp"

namespace sonde::store {

/// The servers as the client names them, "n1:5440,data@n2:5440"; empty for embedded backends.
std::string order_of(const Client& client);

/// Whether servers that both lists name are in another order, for one role at least. The same server may have several
/// names, so lists without a common name cannot be compared.
bool other_order(std::string_view then, std::string_view now);

/// The value of a key that is not on its proper server: all kv servers are asked. nullopt: no server has it.
Result<std::optional<std::string>> found_anywhere(Client& client, std::string_view space, std::string_view key);

/// Error store.other_servers. what: "the item 'a' in 'b'"; then: order_of() of the writer, empty when it is unknown.
Error wrong_order(const Client& client, const std::string& what, std::string_view then);

}  // namespace sonde::store

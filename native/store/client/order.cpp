#include "store/order.hpp"

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace sonde::store {

namespace {

/// The servers of a list that may have a role: "data+kv@n1:5440" has these only, "n1:5440" may have any.
std::vector<std::string_view> with_role(std::string_view list, Role role) {
  std::vector<std::string_view> out;
  while (!list.empty()) {
    const std::size_t end = std::min(list.find(','), list.size());
    const std::string_view word = list.substr(0, end);
    list.remove_prefix(std::min(end + 1, list.size()));
    const std::size_t at = word.find('@');
    const std::string_view address = at == std::string_view::npos ? word : word.substr(at + 1);
    const std::string roles =
        at == std::string_view::npos ? std::string(name_of(role)) : std::string(word.substr(0, at));
    if (('+' + roles + '+').find('+' + std::string(name_of(role)) + '+') != std::string::npos &&
        std::find(out.begin(), out.end(), address) == out.end())
      out.push_back(address);
  }
  return out;
}

std::string spaced(std::string_view list) {
  std::string out;
  for (const char ch : list) out += ch == ',' ? std::string(", ") : std::string(1, ch);
  return out;
}

}  // namespace

std::string order_of(const Client& client) {
  std::string out;
  for (const auto& server : client.config().servers) out += (out.empty() ? "" : ",") + server;
  return out;
}

bool other_order(std::string_view then, std::string_view now) {
  for (const Role role : {Role::data, Role::kv}) {
    auto a = with_role(then, role), b = with_role(now, role);
    const auto common = [](auto& list, const auto& other) {
      std::erase_if(list, [&](auto word) { return std::find(other.begin(), other.end(), word) == other.end(); });
    };
    common(a, b);
    common(b, a);
    if (a != b) return true;
  }
  return false;
}

Result<std::optional<std::string>> found_anywhere(Client& client, std::string_view space, std::string_view key) {
  Batch batch = client.batch();
  for (std::size_t k = 0; k < client.servers(Role::kv); ++k)
    batch.add({Code::kv_get, 0, space, key, 0, 0, {}, {}}, static_cast<int>(k));
  if (auto ok = batch.run(); !ok) return ok.error();
  for (std::size_t k = 0; k < batch.size(); ++k)
    if (batch[k].status == Status::ok) return std::optional<std::string>(text_of(batch[k].data));
  return std::optional<std::string>();
}

Error wrong_order(const Client& client, const std::string& what, std::string_view then) {
  const std::string now = spaced(order_of(client));
  if (then.empty())
    return {"store.other_servers", what + " exists, but not on the server that it should be on by the order " + now,
            "name the servers in the order in which they were named when it was stored"};
  return {"store.other_servers",
          what + " was stored on the servers " + spaced(then) + ", but the named servers are " + now,
          "name the same servers in the same order: the order determines where data are stored"};
}

}  // namespace sonde::store

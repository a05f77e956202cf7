// The client for Python: opening, lists in pages, status.
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <unistd.h>

#include "bind/store/store.hpp"

namespace sonde::store::py {

namespace {

/// The most that one call of page() returns, and its smallest request: a page of the wire has 192 KiB.
constexpr std::size_t page_bytes = 1u << 20, page_entries = 4096;

template <typename T> void take(const nb::dict& options, const char* name, T& value) {
  if (!options.contains(name)) return;
  value = nb::cast<T>(options[name]);
}

Config config_of(const nb::dict& options) {
  Config c;
  take(options, "transport", c.transport);
  take(options, "auth", c.auth);
  take(options, "token_file", c.token_file);
  take(options, "tls", c.tls);
  take(options, "checksum", c.checksum);
  take(options, "connect_timeout_s", c.connect_timeout_s);
  take(options, "timeout_s", c.timeout_s);
  take(options, "connections", c.connections);
  take(options, "provider", c.link.provider);
  take(options, "nodelay", c.link.nodelay);
  take(options, "cork", c.link.cork);
  take(options, "spin_s", c.link.spin_s);
  return c;
}

struct Page {
  std::vector<std::pair<std::string, std::string>> entries;
  bool more = false;
};

nb::object page(const ClientHolder& holder, bool keys, nb::handle space, nb::handle prefix, nb::handle after,
                bool keys_only) {
  const auto client = holder.client();
  const Name own_space(space), own_prefix(prefix), own_after(after);
  Page page;
  std::size_t bytes = 0;
  const auto add = [&](std::string_view key, Bytes value) {
    if (page.entries.size() >= page_entries || bytes >= page_bytes) {
      page.more = true;
      return false;
    }
    page.entries.emplace_back(key, text_of(value));
    bytes += key.size() + value.size();
    return true;
  };
  unwrap(away([&] {
    return keys ? client->scan(own_space, own_prefix, keys_only, add, own_after)
                : client->list(own_space, own_prefix, [&](std::string_view name) { return add(name, {}); }, own_after);
  }));
  nb::list out;
  for (const auto& [key, value] : page.entries) {
    if (keys && !keys_only) out.append(nb::make_tuple(name_to_python(key), nb::bytes(value.data(), value.size())));
    else out.append(name_to_python(key));
  }
  return nb::make_tuple(out, page.more);
}

}  // namespace

ClientHolder::ClientHolder(std::vector<std::string> servers,
                           const std::vector<std::pair<std::string, std::string>>& embedded, const nb::dict& options)
    : pid_(::getpid()) {
  Config config = config_of(options);
  config.servers = std::move(servers);
  // Ctrl-C ends the wait for a server that accepts the connection but does not answer. The handler's exception is
  // raised when the GIL is back.
  config.stop = [] {
    const nb::gil_scoped_acquire turn;
    return PyErr_Occurred() || PyErr_CheckSignals() != 0;
  };
  for (const auto& [role_name, text] : embedded) {
    bool known = false;
    for (const Role role : {Role::data, Role::kv, Role::db})
      if (role_name == name_of(role)) {
        config.embedded.push_back(unwrap(parse_backend(role, text)));
        known = true;
      }
    if (!known) raise({"store.bad_role", "'" + role_name + "' is not a role", "the roles are data, kv, db"});
  }
  client_ = std::make_shared<Client>(unwrap(away([&] { return Client::open(std::move(config)); })));
}

std::shared_ptr<Client> ClientHolder::client() const {
  if (!client_) raise({"store.closed", "the client is closed", "connect again with sonde.store.connect()"});
  if (pid_ != ::getpid())
    raise({"store.forked", "the client was opened by another process, before a fork",
           "connect in the process that uses it"});
  return client_;
}

void ClientHolder::close() {
  auto last = std::move(client_);
  const nb::gil_scoped_release release;
  last.reset();
}

void bind_client(nb::module_& m) {
  nb::class_<ClientHolder>(m, "Client")
      .def(nb::init<std::vector<std::string>, const std::vector<std::pair<std::string, std::string>>&,
                    const nb::dict&>(),
           nb::arg("servers"), nb::arg("embedded"), nb::arg("options"))
      .def("close", &ClientHolder::close)
      .def_prop_ro("closed", &ClientHolder::closed)
      .def(
          "keys",
          [](const ClientHolder& c, nb::handle space, nb::handle prefix, nb::handle after, bool keys_only) {
            return page(c, true, space, prefix, after, keys_only);
          },
          nb::arg("space"), nb::arg("prefix"), nb::arg("after"), nb::arg("keys_only"),
          "A page of keys, and whether more follow.")
      .def(
          "objects",
          [](const ClientHolder& c, nb::handle space, nb::handle prefix, nb::handle after) {
            return page(c, false, space, prefix, after, true);
          },
          nb::arg("space"), nb::arg("prefix"), nb::arg("after"), "A page of names of objects, and whether more follow.")
      .def("flush",
           [](const ClientHolder& c) {
             const auto client = c.client();
             unwrap(away([&] { return client->flush(); }));
           })
      .def("sync",
           [](const ClientHolder& c) {
             const auto client = c.client();
             unwrap(away([&] { return client->sync(); }));
           })
      .def(
          "servers",
          [](const ClientHolder& c, const std::string& role) {
            for (const Role r : {Role::data, Role::kv, Role::db})
              if (role == name_of(r)) return c.client()->servers(r);
            raise({"store.bad_role", "'" + role + "' is not a role", "the roles are data, kv, db"});
          },
          nb::arg("role"))
      .def(
          "status",
          [](const ClientHolder& c) {
            const auto client = c.client();
            nb::list out;
            for (const ServerInfo& info : unwrap(away([&] { return client->status(); }))) {
              nb::list roles;
              for (const Role role : info.roles) roles.append(nb::str(name_of(role).data(), name_of(role).size()));
              nb::dict one;
              one["address"] = info.address;
              one["roles"] = roles;
              one["transport"] = info.link.transport;
              one["provider"] = info.link.provider;
              one["detail"] = info.link.detail;
              one["status"] = nb::bytes(info.status.data(), info.status.size());
              out.append(one);
            }
            return out;
          },
          "The status of each server; `status` is the JSON that it sent, as bytes.");
}

}  // namespace sonde::store::py

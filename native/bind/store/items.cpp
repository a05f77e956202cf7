// Striped objects and items for Python.
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>

#include "bind/store/store.hpp"
#include "store/striped.hpp"

namespace sonde::store::py {

namespace {

/// An object over several servers, part of an item or alone. One call at a time.
class PyStriped {
  Striped& it() { return own_ ? *own_ : *borrowed_; }
  template <typename Work> auto alone(Work&& work) {
    return away([&] {
      const std::lock_guard turn(mutex_);
      return work();
    });
  }

 public:
  PyStriped(std::shared_ptr<Client> client, Striped striped)
      : client_(std::move(client)), own_(std::make_unique<Striped>(std::move(striped))) {}
  explicit PyStriped(std::shared_ptr<Client> client, Item& item)
      : client_(std::move(client)), borrowed_(&item.data()) {}

  void create(bool exclusive, const std::string& safety) {
    const Safety level = safety_named(safety);
    unwrap(alone([&] { return it().create(exclusive, level); }));
  }
  void write(std::uint64_t offset, nb::handle data, const std::string& safety) {
    const Safety level = safety_named(safety);
    const Buffer source(data, false);
    unwrap(alone([&] { return it().write(offset, source.bytes(), level); }));
  }
  std::uint64_t read_into(std::uint64_t offset, nb::handle into) {
    const Buffer target(into, true);
    return unwrap(alone([&] { return it().read(offset, target.room()); }));
  }
  nb::tuple status() {
    const ObjectInfo info = unwrap(alone([&] { return it().status(); }));
    return nb::make_tuple(info.size, info.changed_ns);
  }
  void truncate(std::uint64_t size, const std::string& safety) {
    const Safety level = safety_named(safety);
    unwrap(alone([&] { return it().truncate(size, level); }));
  }
  void remove(const std::string& safety) {
    const Safety level = safety_named(safety);
    unwrap(alone([&] { return it().remove(level); }));
  }
  std::string distribution() const { return (own_ ? *own_ : *borrowed_).distribution().text(); }

 private:
  std::shared_ptr<Client> client_;
  std::unique_ptr<Striped> own_;
  Striped* borrowed_ = nullptr;
  std::mutex mutex_;
};

Metadata metadata_of(const nb::dict& from) {
  Metadata out;
  for (const auto& [name, value] : from)
    out.emplace(std::string(std::string_view(Name(name))), std::string(std::string_view(Name(value))));
  return out;
}

/// One call at a time, for its description and for its data.
class PyItem {
 public:
  PyItem(std::shared_ptr<Client> client, Item item)
      : client_(client),
        item_(std::make_unique<Item>(std::move(item))),
        data_(std::make_shared<PyStriped>(client, *item_)) {}
  PyStriped& data() { return *data_; }
  nb::dict metadata() const {
    const Metadata own = away([&] {
      const std::lock_guard turn(mutex_);
      return item_->metadata();
    });
    nb::dict out;
    for (const auto& [name, value] : own) out[name_to_python(name)] = name_to_python(value);
    return out;
  }
  std::int64_t created_ns() const { return item_->created_ns(); }
  void describe(const nb::dict& metadata, const std::string& safety) {
    Metadata own = metadata_of(metadata);
    const Safety level = safety_named(safety);
    unwrap(away([&] {
      const std::lock_guard turn(mutex_);
      return item_->describe(std::move(own), level);
    }));
  }

 private:
  std::shared_ptr<Client> client_;
  std::unique_ptr<Item> item_;
  std::shared_ptr<PyStriped> data_;
  mutable std::mutex mutex_;  ///< for the metadata; locked without the GIL
};

}  // namespace

void bind_items(nb::module_& m) {
  nb::class_<PyStriped>(m, "Striped")
      .def("create", &PyStriped::create, nb::arg("exclusive") = false, nb::arg("safety") = "network")
      .def("write", &PyStriped::write, nb::arg("offset"), nb::arg("data"), nb::arg("safety") = "network")
      .def("read_into", &PyStriped::read_into, nb::arg("offset"), nb::arg("into"))
      .def("status", &PyStriped::status, "(size in bytes, last change in ns since 1970)")
      .def("truncate", &PyStriped::truncate, nb::arg("size"), nb::arg("safety") = "network")
      .def("remove", &PyStriped::remove, nb::arg("safety") = "network")
      .def_prop_ro("distribution", &PyStriped::distribution);
  nb::class_<PyItem>(m, "Item")
      .def_prop_ro("data", &PyItem::data, nb::rv_policy::reference_internal)
      .def_prop_ro("metadata", &PyItem::metadata)
      .def_prop_ro("created_ns", &PyItem::created_ns)
      .def("describe", &PyItem::describe, nb::arg("metadata"), nb::arg("safety") = "network");

  m.def(
      "striped",
      [](const ClientHolder& c, nb::handle space, nb::handle name, const std::string& distribution) {
        const auto client = c.client();
        auto how = unwrap(Distribution::parse(distribution));
        return new PyStriped(client, unwrap(Striped::make(*client, std::string(std::string_view(Name(space))),
                                                          std::string(std::string_view(Name(name))), std::move(how))));
      },
      nb::rv_policy::take_ownership);
  m.def(
      "create_item",
      [](const ClientHolder& c, nb::handle collection, nb::handle name, const std::string& distribution,
         const nb::dict& metadata, const std::string& safety) {
        const auto client = c.client();
        const auto how = unwrap(Distribution::parse(distribution));
        const Name own_collection(collection), own_name(name);
        Metadata own = metadata_of(metadata);
        const Safety level = safety_named(safety);
        return new PyItem(
            client,
            unwrap(away([&] { return Item::create(*client, own_collection, own_name, how, std::move(own), level); })));
      },
      nb::rv_policy::take_ownership);
  m.def(
      "open_item",
      [](const ClientHolder& c, nb::handle collection, nb::handle name) {
        const auto client = c.client();
        const Name own_collection(collection), own_name(name);
        return new PyItem(client, unwrap(away([&] { return Item::open(*client, own_collection, own_name); })));
      },
      nb::rv_policy::take_ownership);
  m.def("list_items", [](const ClientHolder& c, nb::handle collection, nb::handle prefix) {
    const auto client = c.client();
    const Name own_collection(collection), own_prefix(prefix);
    nb::list out;
    for (const std::string& name : unwrap(away([&] { return Item::list(*client, own_collection, own_prefix); })))
      out.append(name_to_python(name));
    return out;
  });
  m.def("remove_item", [](const ClientHolder& c, nb::handle collection, nb::handle name, const std::string& safety) {
    const auto client = c.client();
    const Name own_collection(collection), own_name(name);
    const Safety level = safety_named(safety);
    unwrap(away([&] { return Item::remove(*client, own_collection, own_name, level); }));
  });
}

}  // namespace sonde::store::py

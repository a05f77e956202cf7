// Writers and readers for Python.
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cstddef>
#include <deque>
#include <iterator>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "bind/bus/bus.hpp"

namespace sonde::bus::py {

namespace {

nb::dict numbers(const Status& s, const Counts& c) {
  nb::dict d;
  d["matched"] = s.matched;
  d["matched_ever"] = s.matched_ever;
  d["incompatible"] = s.incompatible;
  d["incompatible_policy"] = text(s.incompatible_policy);
  d["lost"] = s.lost;
  d["rejected"] = s.rejected;
  d["deadline_missed"] = s.deadline_missed;
  d["liveliness_lost"] = s.liveliness_lost;
  d["alive"] = s.alive;
  d["samples"] = c.samples;
  d["bytes"] = c.bytes;
  d["malformed"] = c.malformed;
  d["other_type"] = c.other_type;
  d["too_large"] = c.too_large;
  d["last_error"] = text(c.last_error);
  return d;
}

std::vector<std::string> guids(const std::vector<Guid>& all) {
  std::vector<std::string> made;
  for (const auto& guid : all) made.push_back(guid.text());
  return made;
}

class PyWriter {
 public:
  PyWriter(const BusHolder& holder, const std::string& topic, const std::string& type) {
    auto bus = holder.bus();
    TypePtr known = type.empty() ? nullptr : type_named(*bus, type);
    writer_.hold(unwrap(
        without_gil([&, bus = std::move(bus)] { return known ? bus->writer(topic, known) : bus->writer(topic); })));
  }
  std::shared_ptr<Writer> get() const { return writer_.get(); }
  void write(nb::handle value) { send(value, &Writer::write); }
  void dispose(nb::handle value) { send(value, &Writer::dispose); }
  void close() { writer_.close(); }

 private:
  void send(nb::handle value, Result<void> (Writer::*how)(Bytes)) {
    const auto writer = get();
    std::vector<std::byte> payload;
    unwrap(encode(*writer->type(), value_of(value), payload));
    unwrap(without_gil([&] { return ((*writer).*how)(payload); }));
  }
  Shared<Writer> writer_{"writer", "make another with Bus.writer()"};
};

/// A reader, its wait set, and the samples that were taken from it but not returned yet.
struct WaitedReader {
  struct One {
    SampleInfo info;
    std::vector<std::byte> payload;
  };
  std::unique_ptr<Reader> reader;
  std::unique_ptr<Waiter> waiter;
  std::mutex taking;     ///< for threads without the GIL: two that take at the same time would mix up their samples
  std::deque<One> rest;  ///< with the GIL

  ~WaitedReader() {
    if (waiter && reader) waiter->detach(*reader);
  }
  const Guid& guid() const { return reader->guid(); }
  const std::string& topic() const { return reader->topic(); }
  bool wait_matched(std::size_t n, Deadline deadline) { return reader->wait_matched(n, deadline); }
  std::vector<Guid> matched() const { return reader->matched(); }
  Status status() const { return reader->status(); }
  Counts counts() const { return reader->counts(); }
};

class PyReader {
 public:
  PyReader(const BusHolder& holder, const std::string& topic, const std::string& type) {
    auto bus = holder.bus();
    TypePtr known = type.empty() ? nullptr : type_named(*bus, type);
    reader_.hold(unwrap(without_gil([&, bus = std::move(bus)]() -> Result<std::unique_ptr<WaitedReader>> {
      auto made = std::make_unique<WaitedReader>();
      auto reader = known ? bus->reader(topic, known) : bus->reader(topic);
      if (!reader) return reader.error();
      made->reader = std::move(*reader);
      auto waiter = bus->waiter();
      if (!waiter) return waiter.error();
      made->waiter = std::move(*waiter);
      if (auto fine = made->waiter->attach(*made->reader, 1); !fine) return fine.error();
      return made;
    })));
  }
  ~PyReader() { close(); }
  std::shared_ptr<WaitedReader> get() const { return reader_.get(); }
  /// [(value or None, {writer, source_ns, received_ns, state})]
  nb::list take(std::size_t most) {
    using One = WaitedReader::One;
    const auto reader = get();
    auto& rest = reader->rest;
    // Conversion needs the GIL, and a taker must not throw. So payloads are copied out first.
    std::vector<One> fresh;
    if (rest.size() < most)
      without_gil([&, wanted = most - rest.size()] {
        const std::lock_guard lock(reader->taking);
        reader->reader->take(
            [&](const SampleInfo& info, Bytes payload) { fresh.push_back({info, {payload.begin(), payload.end()}}); },
            wanted);
      });
    std::move(fresh.begin(), fresh.end(), std::back_inserter(rest));
    nb::list all;
    while (!rest.empty() && nb::len(all) < most) {
      One one = std::move(rest.front());
      rest.pop_front();
      try {
        nb::dict info;
        info["writer"] = one.info.writer.text();
        info["source_ns"] = one.info.source_ns;
        info["received_ns"] = one.info.received_ns;
        info["state"] = one.info.state == InstanceState::alive      ? "alive"
                        : one.info.state == InstanceState::disposed ? "disposed"
                                                                    : "no_writers";
        info["has_data"] = one.info.has_data;
        all.append(nb::make_tuple(to_python(unwrap(decode(*reader->reader->type(), one.payload))), info));
      } catch (...) {
        // The error is raised alone, and no other sample is lost: samples before it are returned first, those after it
        // by the next call.
        if (nb::len(all) == 0) throw;
        rest.push_front(std::move(one));
        break;
      }
    }
    return all;
  }
  bool wait(double timeout_s) {
    const auto reader = get();
    if (!reader->rest.empty()) return true;
    return wait_for(timeout_s, [&](Deadline slice) { return !reader->waiter->wait(slice).empty(); }, [&] { get(); });
  }
  void close() {
    if (const auto last = reader_.close()) last->waiter->wake();
  }

 private:
  Shared<WaitedReader> reader_{"reader", "make another with Bus.reader()"};
};

template <typename T> bool wait_matched(T& self, std::size_t n, double timeout_s) {
  const auto endpoint = self.get();
  return wait_for(timeout_s, [&](Deadline slice) { return endpoint->wait_matched(n, slice); }, [&] { self.get(); });
}
template <typename T> std::vector<std::string> matched(T& self) {
  const auto endpoint = self.get();
  return guids(without_gil([&] { return endpoint->matched(); }));
}
template <typename T> nb::dict status(T& self) {
  const auto endpoint = self.get();
  const auto [status, counts] = without_gil([&] { return std::pair(endpoint->status(), endpoint->counts()); });
  return numbers(status, counts);
}

}  // namespace

void bind_endpoints(nb::module_& m) {
  nb::class_<PyWriter>(m, "Writer")
      .def(nb::init<const BusHolder&, const std::string&, const std::string&>(), nb::arg("bus"), nb::arg("topic"),
           nb::arg("type") = "")
      .def("write", &PyWriter::write, nb::arg("value"))
      .def("dispose", &PyWriter::dispose, nb::arg("value"))
      .def("flush",
           [](PyWriter& self) {
             const auto writer = self.get();
             without_gil([&] { writer->flush(); });
           })
      .def("assert_liveliness",
           [](PyWriter& self) {
             const auto writer = self.get();
             without_gil([&] { writer->assert_liveliness(); });
           })
      .def("wait_matched", &wait_matched<PyWriter>, nb::arg("n") = 1, nb::arg("timeout_s") = -1.0)
      .def(
          "wait_acknowledged",
          [](PyWriter& self, double timeout_s) {
            const auto writer = self.get();
            return wait_for(
                timeout_s, [&](Deadline slice) { return writer->wait_acknowledged(slice); }, [&] { self.get(); });
          },
          nb::arg("timeout_s") = -1.0)
      .def("matched", &matched<PyWriter>)
      .def("status", &status<PyWriter>)
      .def_prop_ro("topic", [](PyWriter& self) { return self.get()->topic(); })
      .def_prop_ro("guid", [](PyWriter& self) { return self.get()->guid().text(); })
      .def("close", &PyWriter::close);

  nb::class_<PyReader>(m, "Reader")
      .def(nb::init<const BusHolder&, const std::string&, const std::string&>(), nb::arg("bus"), nb::arg("topic"),
           nb::arg("type") = "")
      .def("take", &PyReader::take, nb::arg("most") = 4096)
      .def("wait", &PyReader::wait, nb::arg("timeout_s") = -1.0)
      .def("wait_matched", &wait_matched<PyReader>, nb::arg("n") = 1, nb::arg("timeout_s") = -1.0)
      .def("matched", &matched<PyReader>)
      .def("status", &status<PyReader>)
      .def_prop_ro("topic", [](PyReader& self) { return self.get()->topic(); })
      .def_prop_ro("guid", [](PyReader& self) { return self.get()->guid().text(); })
      .def("close", &PyReader::close);
}

}  // namespace sonde::bus::py

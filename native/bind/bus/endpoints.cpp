// Writers and readers for Python.
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

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

/// Goes without the GIL: a DDS's own threads may have to end first.
template <typename T>
void let_go(std::unique_ptr<T>& object) {
  const nb::gil_scoped_release release;
  object.reset();
}

class PyWriter {
 public:
  PyWriter(const BusHolder& bus, const std::string& topic, const std::string& type) {
    const auto& b = bus.bus();
    const TypePtr known = type.empty() ? nullptr : type_named(*b, type);
    auto made = [&] {
      const nb::gil_scoped_release release;
      return known ? b->writer(topic, known) : b->writer(topic);
    }();
    writer_ = taken(std::move(made));
  }
  ~PyWriter() {
    if (writer_) let_go(writer_);
  }
  Writer& get() {
    if (!writer_) raise({"bus.closed", "this writer is closed", "make another with Bus.writer()"});
    return *writer_;
  }
  void write(nb::handle value) {
    Writer& writer = get();
    std::vector<std::byte> payload;
    held_good(encode(*writer.type(), value_of(value), payload));
    send(payload, &Writer::write);
  }
  void dispose(nb::handle value) {
    Writer& writer = get();
    std::vector<std::byte> payload;
    held_good(encode(*writer.type(), value_of(value), payload));
    send(payload, &Writer::dispose);
  }
  void close() {
    if (writer_) let_go(writer_);
  }

 private:
  void send(const std::vector<std::byte>& payload, Result<void> (Writer::*how)(Bytes)) {
    Result<void> done;
    {
      const nb::gil_scoped_release release;
      done = (writer_.get()->*how)(payload);
    }
    held_good(done);
  }
  std::unique_ptr<Writer> writer_;
};

class PyReader {
 public:
  PyReader(const BusHolder& bus, const std::string& topic, const std::string& type) {
    const auto& b = bus.bus();
    const TypePtr known = type.empty() ? nullptr : type_named(*b, type);
    Result<void> ready;
    auto made = [&] {
      const nb::gil_scoped_release release;
      return known ? b->reader(topic, known) : b->reader(topic);
    }();
    reader_ = taken(std::move(made));
    waiter_ = taken(b->waiter());
    held_good(waiter_->attach(*reader_, 1));
  }
  ~PyReader() { close(); }
  Reader& get() {
    if (!reader_) raise({"bus.closed", "this reader is closed", "make another with Bus.reader()"});
    return *reader_;
  }
  /// [(value or None, {writer, source_ns, received_ns, state})]
  nb::list take(std::size_t most) {
    Reader& reader = get();
    nb::list all;
    // Conversion needs the GIL, and a taker must not throw: payloads are copied out first.
    struct One {
      SampleInfo info;
      std::vector<std::byte> payload;
    };
    std::vector<One> taken_samples;
    {
      const nb::gil_scoped_release release;
      reader.take([&](const SampleInfo& info, Bytes payload) { taken_samples.push_back({info, {payload.begin(), payload.end()}}); }, most);
    }
    for (const auto& one : taken_samples) {
      nb::dict info;
      info["writer"] = one.info.writer.text();
      info["source_ns"] = one.info.source_ns;
      info["received_ns"] = one.info.received_ns;
      info["state"] = one.info.state == InstanceState::alive ? "alive" : one.info.state == InstanceState::disposed ? "disposed" : "no_writers";
      info["has_data"] = one.info.has_data;
      all.append(nb::make_tuple(to_python(taken(decode(*reader.type(), one.payload))), info));
    }
    return all;
  }
  bool wait(double timeout_s) {
    get();
    return wait_for(timeout_s, [this](Deadline slice) { return !waiter_->wait(slice).empty(); });
  }
  void close() {
    if (!reader_) return;
    const nb::gil_scoped_release release;
    waiter_->detach(*reader_);
    waiter_.reset();
    reader_.reset();
  }

 private:
  std::unique_ptr<Reader> reader_;
  std::unique_ptr<Waiter> waiter_;
};

template <typename T>
bool wait_matched(T& self, std::size_t n, double timeout_s) {
  auto& endpoint = self.get();
  return wait_for(timeout_s, [&](Deadline slice) { return endpoint.wait_matched(n, slice); });
}

}  // namespace

void bind_endpoints(nb::module_& m) {
  nb::class_<PyWriter>(m, "Writer")
      .def(nb::init<const BusHolder&, const std::string&, const std::string&>(), nb::arg("bus"), nb::arg("topic"), nb::arg("type") = "")
      .def("write", &PyWriter::write, nb::arg("value"))
      .def("dispose", &PyWriter::dispose, nb::arg("value"))
      .def("flush",
           [](PyWriter& self) {
             Writer& writer = self.get();
             const nb::gil_scoped_release release;
             writer.flush();
           })
      .def("assert_liveliness", [](PyWriter& self) { self.get().assert_liveliness(); })
      .def("wait_matched", &wait_matched<PyWriter>, nb::arg("n") = 1, nb::arg("timeout_s") = -1.0)
      .def(
          "wait_acknowledged",
          [](PyWriter& self, double timeout_s) {
            Writer& writer = self.get();
            return wait_for(timeout_s, [&](Deadline slice) { return writer.wait_acknowledged(slice); });
          },
          nb::arg("timeout_s") = -1.0)
      .def("matched", [](PyWriter& self) { return guids(self.get().matched()); })
      .def("status", [](PyWriter& self) { return numbers(self.get().status(), self.get().counts()); })
      .def_prop_ro("topic", [](PyWriter& self) { return self.get().topic(); })
      .def_prop_ro("guid", [](PyWriter& self) { return self.get().guid().text(); })
      .def("close", &PyWriter::close);

  nb::class_<PyReader>(m, "Reader")
      .def(nb::init<const BusHolder&, const std::string&, const std::string&>(), nb::arg("bus"), nb::arg("topic"), nb::arg("type") = "")
      .def("take", &PyReader::take, nb::arg("most") = 4096)
      .def("wait", &PyReader::wait, nb::arg("timeout_s") = -1.0)
      .def("wait_matched", &wait_matched<PyReader>, nb::arg("n") = 1, nb::arg("timeout_s") = -1.0)
      .def("matched", [](PyReader& self) { return guids(self.get().matched()); })
      .def("status", [](PyReader& self) { return numbers(self.get().status(), self.get().counts()); })
      .def_prop_ro("topic", [](PyReader& self) { return self.get().topic(); })
      .def_prop_ro("guid", [](PyReader& self) { return self.get().guid().text(); })
      .def("close", &PyReader::close);
}

}  // namespace sonde::bus::py

// Block files for Python: the probes' own writer, for tests and benches, and for Python code that records.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "bind/raise.hpp"
#include "core/block.hpp"

namespace nb = nanobind;

namespace {

// The sink must outlive the writer, which has a pointer to it; hence the heap.
class BlockWriter {
 public:
  BlockWriter(const std::string& path, const std::string& header, std::size_t record_bytes, std::size_t buffer_records,
              std::uint64_t cap_bytes)
      : sink_(std::make_unique<sonde::FileSink>(sonde::py::unwrap(sonde::FileSink::create(path)))),
        record_bytes_(record_bytes),
        writer_(
            sonde::py::unwrap(sonde::RecordWriter::open(*sink_, {header, record_bytes}, buffer_records, cap_bytes))) {}

  std::size_t append(nb::handle records) {
    Py_buffer view;
    if (PyObject_GetBuffer(records.ptr(), &view, PyBUF_SIMPLE) != 0) throw nb::python_error();
    const std::unique_ptr<Py_buffer, void (*)(Py_buffer*)> release(&view, PyBuffer_Release);
    const auto bytes = static_cast<std::size_t>(view.len);
    if (bytes % record_bytes_ != 0) throw nb::value_error("the array is not a whole number of records");
    const auto* from = static_cast<const std::byte*>(view.buf);
    std::size_t kept = 0;
    for (std::size_t at = 0; at < bytes; at += record_bytes_) {
      void* to = open().reserve();
      if (to == nullptr) continue;  // every record that does not fit is counted, as in a probe
      std::memcpy(to, from + at, record_bytes_);
      open().commit();
      ++kept;
    }
    return kept;
  }

  void flush() {
    if (auto done = open().flush(); !done) sonde::py::raise(done.error());
  }

  void sync() {
    open();
    if (auto done = sink_->sync(); !done) sonde::py::raise(done.error());
  }

  void close() {
    if (!writer_) return;
    auto done = writer_->flush();
    writer_.reset();
    sink_.reset();
    if (!done) sonde::py::raise(done.error());
  }

  std::uint64_t dropped() { return open().dropped(); }
  std::uint64_t bytes_written() { return open().bytes_written(); }

 private:
  sonde::RecordWriter& open() {
    if (!writer_) throw nb::value_error("the block file is closed");
    return *writer_;
  }

  std::unique_ptr<sonde::FileSink> sink_;
  std::size_t record_bytes_;
  std::optional<sonde::RecordWriter> writer_;
};

}  // namespace

void bind_blocks(nb::module_& m) {
  nb::class_<BlockWriter>(m, "BlockWriter",
                          "Writes a block file with the writer that the probes use. See native/core/block.hpp.")
      .def(nb::init<const std::string&, const std::string&, std::size_t, std::size_t, std::uint64_t>(), nb::arg("path"),
           nb::arg("header"), nb::arg("record_bytes"), nb::arg("buffer_records"), nb::arg("cap_bytes") = 0)
      .def("append", &BlockWriter::append, nb::arg("records"),
           "Takes records from a contiguous array (structured, or bytes); returns how many fitted; the others\n"
           "are counted as dropped.")
      .def("flush", &BlockWriter::flush,
           "Writes the buffered records as one block. Raises EnvironmentFailure if that fails.")
      .def("sync", &BlockWriter::sync, "Waits until the flushed blocks are on the disk.")
      .def("close", &BlockWriter::close, "Flushes and closes; a second call does nothing.")
      .def_prop_ro("dropped", &BlockWriter::dropped)
      .def_prop_ro("bytes_written", &BlockWriter::bytes_written);
}

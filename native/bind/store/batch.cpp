// The batch for Python. Written data is sent from the caller's memory. Read data arrives in the caller's memory, or in
// the batch's, which exists as long as arrays refer to it.
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <unistd.h>

#include "bind/store/store.hpp"
#include "core/clock.hpp"

namespace sonde::store::py {

namespace {

/// A batch and all memory that it reads from and writes to. Arrays own a share of it.
struct Memory {
  Batch batch;
  double timeout_s;
  std::vector<Buffer> sources, targets;

  Memory(Client& client, Safety safety) : batch(client.batch(safety)), timeout_s(client.config().timeout_s) {}
  ~Memory() {
    // Waits before the buffers are freed: a batch in flight still uses them. It may have to wait for another thread.
    if (Py_IsInitialized()) {
      const nb::gil_scoped_release release;
      batch.clear();
    } else {
      batch.clear();
    }
  }
};

/// The result of one operation, for Python.
struct Answer {
  std::shared_ptr<Memory> memory;
  Outcome outcome;
  bool read_only;
};

class PyBatch {
 public:
  PyBatch(const ClientHolder& client, const std::string& safety)
      : client_(client.client()), safety_(safety_named(safety)) {
    renew();
  }

  std::size_t put(nb::handle space, nb::handle key, nb::handle value, bool exclusive) {
    return write_op({Code::kv_put, exclusive ? flag::exclusive : std::uint8_t{0}, {}, {}, 0, 0, {}, {}}, space, key,
                    value);
  }
  std::size_t get(nb::handle space, nb::handle key, nb::handle into) {
    return read_op({Code::kv_get, 0, {}, {}, 0, 0, {}, {}}, space, key, into);
  }
  std::size_t remove(nb::handle space, nb::handle key) {
    return plain({Code::kv_remove, 0, {}, {}, 0, 0, {}, {}}, space, key);
  }
  std::size_t create(nb::handle space, nb::handle name, bool exclusive) {
    return plain({Code::object_create, exclusive ? flag::exclusive : std::uint8_t{0}, {}, {}, 0, 0, {}, {}}, space,
                 name);
  }
  std::size_t write(nb::handle space, nb::handle name, std::uint64_t offset, nb::handle data, bool must_exist) {
    return write_op({Code::object_write, must_exist ? flag::must_exist : std::uint8_t{0}, {}, {}, offset, 0, {}, {}},
                    space, name, data);
  }
  std::size_t read(nb::handle space, nb::handle name, std::uint64_t offset, std::uint64_t length) {
    return plain({Code::object_read, 0, {}, {}, offset, length, {}, {}}, space, name);
  }
  std::size_t read_into(nb::handle space, nb::handle name, std::uint64_t offset, nb::handle into) {
    return read_op({Code::object_read, 0, {}, {}, offset, 0, {}, {}}, space, name, into);
  }
  std::size_t status(nb::handle space, nb::handle name, int server) {
    return plain({Code::object_status, 0, {}, {}, 0, 0, {}, {}}, space, name, server);
  }
  std::size_t truncate(nb::handle space, nb::handle name, std::uint64_t size) {
    return plain({Code::object_truncate, 0, {}, {}, 0, size, {}, {}}, space, name);
  }
  std::size_t remove_object(nb::handle space, nb::handle name, int server) {
    return plain({Code::object_remove, 0, {}, {}, 0, 0, {}, {}}, space, name, server);
  }
  /// An operation on a table; `data` as db.hpp encodes it.
  std::size_t table(const std::string& operation, nb::handle space, nb::handle name, nb::handle data,
                    std::uint64_t offset, std::uint64_t length) {
    for (const Code code : {Code::db_define, Code::db_describe, Code::db_undefine, Code::db_insert, Code::db_update,
                            Code::db_remove, Code::db_query})
      if (operation == name_of(code)) return write_op({code, 0, {}, {}, offset, length, {}, {}}, space, name, data);
    raise({"store.bad_value", "'" + operation + "' is not an operation on a table", "see Table"});
  }

  void start() {
    free_now();
    check_process();
    Result<void> done;
    begin_ns_ = now_ns();
    work([&] { done = memory_->batch.start(); });
    started_ = bool(done);
    if (safety_ == Safety::none) memory_->sources.clear();  // data without acknowledgement was copied
    unwrap(done);
  }

  void wait() {
    free_now();
    // Waits in slices, so that Ctrl-C does not have to wait for a server that does not answer.
    while (started_ && !finished_) {
      bool over = false;
      work([&] { over = memory_->batch.done_within(0.1); });
      const double spent_s = static_cast<double>(now_ns() - begin_ns_) * 1e-9;
      if (over || (memory_->timeout_s > 0 && spent_s > memory_->timeout_s)) break;
      if (PyErr_CheckSignals() != 0) {
        nb::python_error stopped;
        clear();
        throw stopped;
      }
    }
    Result<void> done;
    work([&] { done = memory_->batch.wait(); });
    finished_ = started_;
    memory_->sources.clear();
    unwrap(done);
  }

  void run() {
    start();
    wait();
  }

  bool done() {
    free_now();
    bool over = false;
    work([&] { over = memory_->batch.done(); });
    return over;
  }

  void clear() {
    free_now();
    started_ = finished_ = false;
    if (memory_.use_count() > 1) return renew();  // an array still refers to it
    work([&] { memory_->batch.clear(); });
    memory_->sources.clear();
    memory_->targets.clear();
  }

  std::size_t size() const { return memory_->batch.size(); }

  Answer at(std::ptrdiff_t k) const {
    free_now();
    const auto n = static_cast<std::ptrdiff_t>(size());
    if (k < -n || k >= n) throw nb::index_error("no such operation in the batch");
    const auto which = static_cast<std::size_t>(k < 0 ? k + n : k);
    // Without a server the value may be in the backend's own memory.
    const Op& op = memory_->batch.op(which);
    return {memory_, outcome(which), op.code == Code::kv_get && op.into.empty()};
  }

  nb::object why(std::size_t k) const {
    free_now();
    if (k >= size()) throw nb::index_error("no such operation in the batch");
    return text(memory_->batch.why(k));
  }

  nb::object operation(std::size_t k) const {
    if (k >= size()) throw nb::index_error("no such operation in the batch");
    const Op& op = memory_->batch.op(k);
    return nb::make_tuple(nb::str(name_of(op.code).data()), name_to_python(op.space), name_to_python(op.key));
  }

  nb::ndarray<nb::numpy, std::uint16_t, nb::ndim<1>> statuses() const {
    return gather<std::uint16_t>([](const Outcome& o) { return static_cast<std::uint16_t>(o.status); });
  }
  nb::ndarray<nb::numpy, std::uint64_t, nb::ndim<1>> values() const {
    return gather<std::uint64_t>([](const Outcome& o) { return o.value; });
  }

  std::size_t failed() const {
    free_now();
    return started_ ? memory_->batch.failed() : 0;
  }

  nb::dict timing() const {
    free_now();
    const Timing t = finished_ ? memory_->batch.timing() : Timing{};
    nb::dict out;
    out["total_s"] = t.total_s;
    out["serialise_s"] = t.serialise_s;
    out["wait_s"] = t.wait_s;
    out["backend_s"] = t.backend_s;
    return out;
  }

  nb::object safety() const { return nb::str(name_of(safety_).data()); }

 private:
  void renew() { memory_ = std::make_shared<Memory>(*client_, safety_); }
  void check_process() const {
    if (pid_ != ::getpid())
      raise({"store.forked", "the batch was made by another process, before a fork",
             "connect in the process that uses it"});
  }

  /// A batch belongs to one thread. Without this check a second thread would find it in the middle of its work.
  void free_now() const {
    if (busy_) raise({"store.busy", "the batch is in use by another thread", "give each thread a batch of its own"});
  }
  void open_now() const {
    free_now();
    if (started_)
      raise({"store.started", "the batch was already started", "call clear() to use it again, or make another"});
  }
  template <typename Work> void work(Work&& what) {
    busy_ = true;
    {
      const nb::gil_scoped_release release;
      what();
    }
    busy_ = false;
    if (PyErr_Occurred()) {  // a signal came while a connection was made; see Config::stop
      nb::python_error stopped;
      clear();
      throw stopped;
    }
  }

  Outcome outcome(std::size_t k) const { return started_ ? memory_->batch[k] : Outcome{}; }

  /// server: the index among the servers of the role, -1 for the one that the name chooses.
  std::size_t plain(Op op, nb::handle space, nb::handle key, int server = -1) {
    open_now();
    const Name own_space(space), own_key(key);
    op.space = own_space;
    op.key = own_key;
    return memory_->batch.add(op, server);
  }
  std::size_t write_op(Op op, nb::handle space, nb::handle key, nb::handle data) {
    open_now();
    Buffer source(data, false);
    op.data = source.bytes();
    const std::size_t k = plain(op, space, key);
    memory_->sources.push_back(std::move(source));
    return k;
  }
  std::size_t read_op(Op op, nb::handle space, nb::handle key, nb::handle into) {
    open_now();
    if (into.is_none() && op.code == Code::kv_get) return plain(op, space, key);
    Buffer target(into, true);
    op.into = target.room();
    if (op.code == Code::object_read) op.length = op.into.size();
    const std::size_t k = plain(op, space, key);
    memory_->targets.push_back(std::move(target));
    return k;
  }

  template <typename T, typename Get> nb::ndarray<nb::numpy, T, nb::ndim<1>> gather(Get get) const {
    free_now();
    auto made = std::make_unique<std::vector<T>>();
    made->reserve(size());
    for (std::size_t k = 0; k < size(); ++k) made->push_back(get(outcome(k)));
    auto* raw = made.release();
    nb::capsule owner(raw, [](void* p) noexcept { delete static_cast<std::vector<T>*>(p); });
    return {raw->data(), {raw->size()}, owner};
  }

  std::shared_ptr<Client> client_;
  Safety safety_;
  std::shared_ptr<Memory> memory_;
  bool started_ = false, finished_ = false, busy_ = false;
  std::int64_t begin_ns_ = 0;
  int pid_ = ::getpid();
};

nb::object array_of(const Answer& answer) {
  // The array owns a share of the batch's memory, which therefore outlives the batch.
  auto* share = new std::shared_ptr<Memory>(answer.memory);
  nb::capsule owner(share, [](void* p) noexcept { delete static_cast<std::shared_ptr<Memory>*>(p); });
  const Bytes data = answer.outcome.data;
  static std::uint8_t nothing = 0;  // numpy accepts no null pointer for an empty array
  auto* begin = data.empty() ? &nothing : reinterpret_cast<std::uint8_t*>(const_cast<std::byte*>(data.data()));
  if (answer.read_only)
    return nb::cast(nb::ndarray<nb::numpy, const std::uint8_t, nb::ndim<1>>(begin, {data.size()}, owner));
  return nb::cast(nb::ndarray<nb::numpy, std::uint8_t, nb::ndim<1>>(begin, {data.size()}, owner));
}

}  // namespace

void bind_batch(nb::module_& m) {
  nb::enum_<Status> status(m, "Status", nb::is_arithmetic(),
                           "The result of an operation; the numbers are those of the wire format.");
  for (const Status s :
       {Status::ok, Status::not_found, Status::exists, Status::invalid, Status::too_large, Status::no_space,
        Status::denied, Status::io_error, Status::corrupt, Status::unsupported, Status::aborted, Status::unavailable,
        Status::timed_out, Status::disconnected, Status::internal, Status::pending})
    status.value(std::string(name_of(s)).c_str(), s);

  nb::class_<Answer>(m, "Result", "The result of one operation of a batch.")
      .def_prop_ro("status", [](const Answer& a) { return a.outcome.status; })
      .def_prop_ro("ok", [](const Answer& a) { return a.outcome.status == Status::ok; })
      .def_prop_ro(
          "why", [](const Answer& a) { return text(explain(a.outcome)); },
          "The reason in words: \"no such object or key\".")
      .def_prop_ro(
          "value", [](const Answer& a) { return a.outcome.value; }, "Size in bytes, count or id, by operation.")
      .def_prop_ro(
          "time_ns", [](const Answer& a) { return a.outcome.time_ns; }, "Last change of an object, ns since 1970.")
      .def_prop_ro(
          "data", &array_of,
          "The data that was read, as an array of bytes that shares its memory with the batch; read-only for a value.")
      .def("__bytes__", [](const Answer& a) { return nb::bytes(a.outcome.data.data(), a.outcome.data.size()); })
      .def("__repr__", [](const Answer& a) {
        return "<Result " + std::string(name_of(a.outcome.status)) + ", value " + std::to_string(a.outcome.value) +
               ", " + std::to_string(a.outcome.data.size()) + " bytes>";
      });

  nb::class_<PyBatch>(m, "Batch")
      .def(nb::init<const ClientHolder&, const std::string&>(), nb::arg("client"), nb::arg("safety") = "network")
      .def("put", &PyBatch::put, nb::arg("space"), nb::arg("key"), nb::arg("value").none(),
           nb::arg("exclusive") = false)
      .def("get", &PyBatch::get, nb::arg("space"), nb::arg("key"), nb::arg("into").none() = nb::none())
      .def("remove", &PyBatch::remove, nb::arg("space"), nb::arg("key"))
      .def("create", &PyBatch::create, nb::arg("space"), nb::arg("name"), nb::arg("exclusive") = false)
      .def("write", &PyBatch::write, nb::arg("space"), nb::arg("name"), nb::arg("offset"), nb::arg("data").none(),
           nb::arg("must_exist") = false)
      .def("read", &PyBatch::read, nb::arg("space"), nb::arg("name"), nb::arg("offset"), nb::arg("length"))
      .def("read_into", &PyBatch::read_into, nb::arg("space"), nb::arg("name"), nb::arg("offset"),
           nb::arg("into").none())
      .def("status", &PyBatch::status, nb::arg("space"), nb::arg("name"), nb::arg("server") = -1)
      .def("truncate", &PyBatch::truncate, nb::arg("space"), nb::arg("name"), nb::arg("size"))
      .def("remove_object", &PyBatch::remove_object, nb::arg("space"), nb::arg("name"), nb::arg("server") = -1)
      .def("table", &PyBatch::table, nb::arg("operation"), nb::arg("space"), nb::arg("name"), nb::arg("data"),
           nb::arg("offset") = 0, nb::arg("length") = 0)
      .def("start", &PyBatch::start)
      .def("wait", &PyBatch::wait)
      .def("run", &PyBatch::run)
      .def("done", &PyBatch::done)
      .def("clear", &PyBatch::clear)
      .def("operation", &PyBatch::operation, nb::arg("k"))
      .def("why", &PyBatch::why, nb::arg("k"),
           "The reason in words, with the server's address if the server or the connection to it failed.")
      .def("__len__", &PyBatch::size)
      .def("__getitem__", &PyBatch::at, nb::arg("k"))
      .def_prop_ro("statuses", &PyBatch::statuses, nb::rv_policy::automatic)
      .def_prop_ro("values", &PyBatch::values, nb::rv_policy::automatic)
      .def_prop_ro("failed", &PyBatch::failed)
      .def_prop_ro("timing", &PyBatch::timing)
      .def_prop_ro("safety", &PyBatch::safety);
}

}  // namespace sonde::store::py

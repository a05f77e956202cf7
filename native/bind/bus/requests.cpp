// Requests and replies for Python.
#include <nanobind/stl/string.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "bind/bus/bus.hpp"
#include "bus/request.hpp"

namespace sonde::bus::py {

namespace {

ServiceTypes types_of(const Bus& bus, const std::string& request, const std::string& reply) {
  return {request.empty() ? nullptr : type_named(bus, request), reply.empty() ? nullptr : type_named(bus, reply)};
}

/// A body: a value of the type, or unchanged bytes if there is no type.
std::vector<std::byte> body_of(const TypePtr& type, nb::handle value) {
  std::vector<std::byte> body;
  if (type) {
    unwrap(encode(*type, value_of(value), body));
    return body;
  }
  const Value plain = value_of(value);
  if (const auto* blob = std::get_if<Blob>(&plain.is)) return *blob;
  if (std::holds_alternative<std::monostate>(plain.is)) return body;
  raise({"bus.bad_value",
         std::string("the body is a ") + Py_TYPE(value.ptr())->tp_name + ", but the service has no type for it",
         "give bytes, or name the service's types"});
}

nb::object body_to_python(const TypePtr& type, Bytes body) {
  if (type) return to_python(unwrap(decode(*type, body)));
  return nb::bytes(reinterpret_cast<const char*>(body.data()), body.size());
}

nb::dict answer_to_python(const TypePtr& type, const Answer& answer) {
  nb::dict d;
  d["code"] = text(name_of(answer.code));
  d["number"] = static_cast<std::uint32_t>(answer.code);
  d["message"] = text(answer.message);
  d["server"] = text(answer.server);
  d["tries"] = answer.tries;
  d["body"] = answer.code == ReplyCode::ok ? body_to_python(type, answer.body) : nb::object(nb::none());
  return d;
}

class PyClient {
 public:
  PyClient(const BusHolder& holder, const std::string& service, const std::string& request, const std::string& reply)
      : types_(types_of(*holder.bus(), request, reply)) {
    client_.hold(unwrap(without_gil([&, bus = holder.bus()] { return Client::open(bus, service, types_); })));
  }
  void close() { client_.close(); }
  nb::object call(nb::handle value, const std::string& target, double deadline_s, double retry_s) {
    auto client = client_.get();
    const auto body = body_of(types_.request, value);
    // Waits in slices, so that Ctrl-C works: the answer may come after this call has returned.
    struct Place {
      std::mutex mutex;
      std::condition_variable came;
      std::optional<Result<Answer>> answer;
    };
    const auto place = std::make_shared<Place>();
    // The share ends here: a thread that closes the client also ends the call, with bus.closed.
    without_gil([&, client = std::move(client)] {
      client->start(body, {target, deadline_s, retry_s}, [place](Result<Answer> answer) {
        const std::lock_guard lock(place->mutex);
        place->answer = std::move(answer);
        place->came.notify_all();
      });
    });
    // The client's own deadline ends the wait; the two seconds are for a client that another thread is closing.
    const bool over = wait_for(
        deadline_s + 2,
        [&](Deadline slice) {
          std::unique_lock lock(place->mutex);
          return place->came.wait_for(lock, std::chrono::milliseconds(std::max(slice.left_ms(), 1)),
                                      [&] { return place->answer.has_value(); });
        },
        [] {});
    if (!over)
      raise(
          {"bus.timed_out", "no answer within " + std::to_string(deadline_s) + " s", "check that a server is running"});
    return answer_to_python(types_.reply, unwrap(std::move(*place->answer)));
  }
  /// The share lasts until the deadline: answers until then are returned even if another thread closes the client.
  nb::list call_all(nb::handle value, const std::string& target, double deadline_s, std::size_t most) {
    auto client = client_.get();
    const auto body = body_of(types_.request, value);
    auto answers =
        without_gil([&, client = std::move(client)] { return client->call_all(body, {target, deadline_s, 0}, most); });
    nb::list all;
    for (const auto& answer : unwrap(std::move(answers))) all.append(answer_to_python(types_.reply, answer));
    return all;
  }
  bool wait_for_server(double timeout_s) {
    const auto client = client_.get();
    return wait_for(timeout_s, [&](Deadline slice) { return client->wait_for_server(slice); }, [&] { client_.get(); });
  }
  nb::dict counts() {
    const CallCounts c = without_gil([client = client_.get()] { return client->counts(); });
    nb::dict d;
    d["calls"] = c.calls, d["answered"] = c.answered, d["timed_out"] = c.timed_out, d["retried"] = c.retried;
    d["late"] = c.late, d["duplicate"] = c.duplicate, d["unasked"] = c.unasked, d["malformed"] = c.malformed;
    return d;
  }

 private:
  ServiceTypes types_;
  Shared<Client> client_{"client", "make another with Bus.client()"};
};

class PyServer {
 public:
  PyServer(const BusHolder& holder, const std::string& service, nb::object handler, const std::string& name,
           const std::string& request, const std::string& reply, unsigned threads)
      : handler_(std::move(handler)) {
    auto bus = holder.bus();
    const ServiceTypes types = types_of(*bus, request, reply);
    ServerOptions options;
    options.name = name;
    options.threads = threads;
    server_ = unwrap(without_gil([&, bus = std::move(bus)] {
      return Server::open(
          bus, service, types, [this, types](const Incoming& in) { return answered(in, types); }, options);
    }));
  }
  ~PyServer() { close(); }
  /// Without the GIL: handlers that are running need it to end.
  void close() {
    if (server_) without_gil([last = std::move(server_)] {});
  }
  /// With the GIL, so no other thread closes the server meanwhile. When close() returns, no handler is running.
  nb::dict counts() {
    if (!server_) raise({"bus.closed", "this server is closed", "make another with Bus.serve()"});
    const ServeCounts c = server_->counts();
    nb::dict d;
    d["requests"] = c.requests, d["answered"] = c.answered, d["repeated"] = c.repeated, d["expired"] = c.expired,
    d["busy"] = c.busy;
    d["malformed"] = c.malformed, d["not_for_us"] = c.not_for_us, d["failed"] = c.failed, d["clients"] = c.clients;
    return d;
  }

 private:
  /// The handler's answer: a body, or the error that it raised. Bus errors and LookupError have their own codes; no
  /// exception leaves this function.
  Answer answered(const Incoming& in, const ServiceTypes& types) {
    Answer answer;
    const nb::gil_scoped_acquire hold;
    try {
      nb::object body = body_to_python(types.request, in.body);
      const nb::object result = handler_(body, in.target, in.client.text());
      if (nb::isinstance<nb::tuple>(result) && nb::len(result) == 3) {  // (number, message, None): another code
        answer.code = static_cast<ReplyCode>(nb::cast<std::uint32_t>(result[0]));
        answer.message = nb::cast<std::string>(result[1]);
        return answer;
      }
      answer.body = body_of(types.reply, result);
    } catch (const nb::python_error& error) {
      answer.code = ReplyCode::failed;
      answer.message = error.what();
    } catch (const std::exception& error) {
      answer.code = ReplyCode::failed;
      answer.message = error.what();
    }
    return answer;
  }
  nb::object handler_;
  std::unique_ptr<Server> server_;
};

}  // namespace

void bind_requests(nb::module_& m) {
  nb::class_<PyClient>(m, "Client")
      .def(nb::init<const BusHolder&, const std::string&, const std::string&, const std::string&>(), nb::arg("bus"),
           nb::arg("service"), nb::arg("request") = "", nb::arg("reply") = "")
      .def("call", &PyClient::call, nb::arg("body").none(), nb::arg("target") = "", nb::arg("deadline_s") = 5.0,
           nb::arg("retry_s") = 0.5)
      .def("call_all", &PyClient::call_all, nb::arg("body").none(), nb::arg("target") = "", nb::arg("deadline_s") = 1.0,
           nb::arg("most") = 65536)
      .def("wait_for_server", &PyClient::wait_for_server, nb::arg("timeout_s") = -1.0)
      .def("counts", &PyClient::counts)
      .def("close", &PyClient::close);
  nb::class_<PyServer>(m, "Server")
      .def(nb::init<const BusHolder&, const std::string&, nb::object, const std::string&, const std::string&,
                    const std::string&, unsigned>(),
           nb::arg("bus"), nb::arg("service"), nb::arg("handler"), nb::arg("name") = "", nb::arg("request") = "",
           nb::arg("reply") = "", nb::arg("threads") = 1)
      .def("counts", &PyServer::counts)
      .def("close", &PyServer::close);
}

}  // namespace sonde::bus::py

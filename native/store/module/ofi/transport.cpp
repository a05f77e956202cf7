// The handshake over the Control, and the module's entry point.
//
//   client                                server
//   try=PROVIDER protocol= style= frame_data=
//                                    -->  (tried it itself; opens a Port)
//                                    <--  protocol= address= format= token= keys= buffers= bytes= frame_data=
//                                                                                                   or refuse=WHY
//   buffers= bytes= address=         -->                                                           or failed=WHY
//          … connect, hello both ways over the fabric; ofi-rma: the client measures …
//   go=1 rma_from=                   -->                                                           or failed=WHY
//
// `keys` are the keys for the tags of the client's messages, and of the server's (link.hpp). The Control is the TCP
// connection on which both sides have proved their identity: nobody else has the keys. After refuse or failed the
// client tries its next candidate.
#include "store/module/ofi/transport.hpp"

#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <span>

#include "core/clock.hpp"
#include "store/module.hpp"
#include "store/module/ofi/handshake.hpp"
#include "store/module/ofi/link.hpp"

namespace sonde::store::ofi {

namespace {

constexpr double attempt_s = 10;
constexpr int step_ms = 5;        ///< how often the server serves while it waits for the client's last message
constexpr int brisk_turns = 200;  ///< turns of a wait for the fabric before it looks only every millisecond

/// This host's address on the Control; loopback if the Control is not a network socket.
std::string own_node(const Control& control) {
  sockaddr_storage own{};
  socklen_t size = sizeof own;
  char text[NI_MAXHOST];
  if (::getsockname(control.fd(), reinterpret_cast<sockaddr*>(&own), &size) == 0 &&
      (own.ss_family == AF_INET || own.ss_family == AF_INET6) &&
      ::getnameinfo(reinterpret_cast<sockaddr*>(&own), size, text, sizeof text, nullptr, 0, NI_NUMERICHOST) == 0)
    return text;
  return "127.0.0.1";
}

/// Distinguishes this process from all others: its children, and later processes with the same number. Not secret.
std::string own_process() {
  static const std::string name = [] {
    std::uint64_t drawn = 0;
    if (!fill_random(std::as_writable_bytes(std::span(&drawn, 1)))) drawn = static_cast<std::uint64_t>(now_ns());
    return std::to_string(drawn);
  }();
  return name + '-' + std::to_string(::getpid());
}

Deadline sooner(Deadline a, double seconds) {
  const Deadline b = Deadline::in_s(seconds);
  return a.at_ns == 0 || b.at_ns < a.at_ns ? b : a;
}

/// A text from the peer, or the reason for its absence.
Result<wire::Text> hear(Control& control, Deadline deadline) {
  auto message = control.receive(deadline);
  if (!message) return message.error();
  return wire::decode_text(*message);
}

Result<void> tell(Control& control, const wire::Text& text) {
  const std::string bytes = wire::encode_text(text);
  return control.send(bytes_of(bytes));
}

/// Whether there is data to read on the Control.
bool speaks(const Control& control, int ms) {
  pollfd wait{control.fd(), POLLIN, 0};
  return ::poll(&wait, 1, ms) > 0;
}

struct Chosen {
  bool strict = false;  ///< see strict.hpp
  bool trust = false;   ///< use the provider without a trial: in the trial itself
  int lie = 0;
  std::vector<std::string> allowed;  ///< allowed although they trust strangers
};

/// The words of a text, separated by spaces.
std::vector<std::string> words_of(std::string_view text) {
  std::vector<std::string> words;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find(' ', at), text.size());
    if (end > at) words.emplace_back(text.substr(at, end - at));
    at = end + 1;
  }
  return words;
}

Result<Chosen> read_settings(const LinkOptions& options, const char* name) {
  Settings left = options.more;
  Chosen chosen;
  chosen.strict = take_setting(left, "ofi.strict") == "1";
  chosen.trust = take_setting(left, "ofi.trust") == "1";
  chosen.lie = std::atoi(take_setting(left, "ofi.lie").c_str());
  chosen.allowed = words_of(take_setting(left, "ofi.allow"));
  if (auto ok = no_more_settings(left, name, "ofi.allow, and those of its tests"); !ok) return ok.error();
  return chosen;
}

class OfiTransport final : public Transport {
 public:
  explicit OfiTransport(Flavour flavour) : flavour_(flavour) {}
  std::string name() const override { return name_of(flavour_); }

  std::vector<Found> probe(Deadline deadline) override {
    std::vector<Found> found;
    for (const Candidate& candidate : candidates_of(flavour_)) found.push_back(probed(flavour_, candidate, deadline));
    return found;
  }

  Result<std::unique_ptr<Link>> connect(Control& control, const LinkOptions& options, Sink& sink,
                                        Deadline deadline) override {
    const auto chosen = read_settings(options, name_of(flavour_));
    if (!chosen) return chosen.error();
    sweep_shared_memory();
    std::vector<Candidate> candidates = candidates_of(flavour_);
    std::string why;
    const auto note = [&](const Candidate& candidate, const std::string& reason) {
      why += (why.empty() ? "" : "; ") + candidate.provider + ": " + reason;
    };
    std::string names;
    for (const Candidate& candidate : candidates) names += (names.empty() ? "" : ", ") + candidate.provider;
    if (!options.provider.empty()) {
      std::erase_if(candidates, [&](const Candidate& c) { return c.provider != options.provider; });
      if (candidates.empty())
        return Error{"store.no_provider",
                     "libfabric has no provider '" + options.provider + "' that can do " + name_of(flavour_) + " here",
                     "it has: " + (names.empty() ? "none" : names)};
    } else {
      std::erase_if(candidates, [&](const Candidate& c) {
        return (only_local(c.provider) && !control.same_host()) || trusts_strangers(c.provider);
      });
    }
    for (const Candidate& candidate : candidates) {
      if (deadline.passed()) break;
      if (!(*chosen).trust)
        if (const Found found = probed(flavour_, candidate, deadline); !found.works) {
          note(candidate, found.why);
          continue;
        }
      bool talking = true;
      auto link = attempt(control, options, *chosen, candidate, sink, deadline, talking);
      if (link) return link;
      note(candidate, link.error().what);
      if (!talking) return link;
    }
    return Error{"store.no_provider",
                 std::string("no provider works for ") + name_of(flavour_) + (why.empty() ? "" : ": " + why),
                 "choose the transport tcp, which needs no fabric"};
  }

  Result<std::unique_ptr<Link>> accept(Control& control, Bytes first, const LinkOptions& options, Sink& sink,
                                       Deadline deadline) override {
    const auto chosen = read_settings(options, name_of(flavour_));
    if (!chosen) return chosen.error();
    sweep_shared_memory();
    wire::Text text = wire::decode_text(first);
    while (true) {
      bool talking = true;
      auto link = answer(control, options, *chosen, text, sink, sooner(deadline, 2 * attempt_s), talking);
      if (link || !talking) return link;
      if (deadline.passed()) return link;
      auto next = hear(control, deadline);
      if (!next) return next.error();
      text = *next;
    }
  }

 private:
  Result<std::unique_ptr<Link>> attempt(Control& control, const LinkOptions& options, const Chosen& chosen,
                                        const Candidate& candidate, Sink& sink, Deadline whole, bool& talking) {
    const Deadline deadline = sooner(whole, attempt_s);
    const auto broken = [&](const Error& error) {
      talking = false;
      return error;
    };
    if (auto ok = tell(control, {{"try", candidate.provider},
                                 {"protocol", std::to_string(protocol)},
                                 {"style", candidate.style == Style::msg ? "msg" : "rdm"},
                                 {"frame_data", std::to_string(options.frame_data)},
                                 {"process", own_process()}});
        !ok)
      return broken(ok.error());
    const auto offer = hear(control, sooner(whole, 4 * attempt_s));  // the server may have to try it first
    if (!offer) return broken(offer.error());
    if (const auto refuse = wire::text_value(*offer, "refuse"); !refuse.empty())
      return Error{"store.no_provider", "the server refused: " + std::string(refuse), ""};
    const auto give_up = [&](const Error& error) {
      if (auto ok = tell(control, {{"failed", error.what}}); !ok) talking = false;
      return error;
    };
    if (const std::string why = unlike(*offer, "server"); !why.empty()) return give_up({"store.no_provider", why, ""});
    PortOptions how = port_options(control, chosen, candidate);
    if (candidate.style == Style::msg) {
      how.peer = from_hex(wire::text_value(*offer, "address"));
      // Without an address the Port would be an end that waits for a connection.
      if (how.peer.empty())
        return give_up(
            {"store.bad_frame", "the server's address is invalid", "both sides must run the same version of Sonde"});
      how.peer_format = static_cast<std::uint32_t>(number_in(*offer, "format", 0));
    }
    auto port = Port::open(how);
    if (!port) return give_up(port.error());
    Agreement agreement = terms(candidate.provider, (*port)->demands(), options, *offer);
    agreement.style = candidate.style;
    agreement.lie = chosen.lie;
    agreement.token = std::strtoull(std::string(wire::text_value(*offer, "token")).c_str(), nullptr, 16);
    const std::vector<std::byte> keys = from_hex(wire::text_value(*offer, "keys"));
    if (keys.size() != agreement.own_key.size() + agreement.peer_key.size())
      return give_up({"store.bad_frame", "the server's keys have " + std::to_string(keys.size()) + " bytes",
                      "both sides must run the same version of Sonde"});
    std::memcpy(agreement.own_key.data(), keys.data(), agreement.own_key.size());
    std::memcpy(agreement.peer_key.data(), keys.data() + agreement.own_key.size(), agreement.peer_key.size());
    if (auto ok = take_receives(agreement, *offer); !ok) return give_up(ok.error());
    std::vector<std::byte> address;
    if (candidate.style == Style::rdm) {
      auto own = (*port)->address();
      if (!own) return give_up(own.error());
      address = *own;
      if (auto ok = (*port)->set_peer(from_hex(wire::text_value(*offer, "address"))); !ok) return give_up(ok.error());
    }
    auto link = std::make_unique<OfiLink>(std::move(*port), control, options, sink);
    if (auto ok = link->prepare(agreement); !ok) return give_up(ok.error());
    if (auto ok = tell(control, {{"buffers", std::to_string(agreement.own_buffers)},
                                 {"bytes", std::to_string(agreement.own_bytes)},
                                 {"address", to_hex(address)}});
        !ok)
      return broken(ok.error());
    if (candidate.style == Style::msg) {
      if (auto ok = link->port().connect(std::as_bytes(std::span(&agreement.token, 1))); !ok)
        return give_up(ok.error());
      if (auto ok = await(control, link->port(), Event::connected, nullptr, deadline); !ok) return give_up(ok.error());
    }
    std::int64_t answers_from = -1;
    if (flavour_ == Flavour::rma) link->enter_trial();
    if (auto ok = link->greet(deadline); !ok) return give_up(ok.error());
    if (flavour_ == Flavour::rma) {
      const auto from = options.rma_from >= 0 ? Result<Thresholds>(Thresholds{options.rma_from, options.rma_from})
                                              : link->measure_rma(deadline);
      if (!from) return give_up(from.error());
      if (auto ok = link->end_trial(deadline); !ok) return give_up(ok.error());
      link->leave_trial();
      link->set_rma_from((*from).used);
      answers_from = (*from).placed;
    }
    if (auto ok = tell(control, {{"go", "1"}, {"rma_from", std::to_string(answers_from)}}); !ok)
      return broken(ok.error());
    return std::unique_ptr<Link>(std::move(link));
  }

  Result<std::unique_ptr<Link>> answer(Control& control, const LinkOptions& options, const Chosen& chosen,
                                       const wire::Text& request, Sink& sink, Deadline deadline, bool& talking) {
    const auto refuse = [&](const Error& error) {
      if (auto ok = tell(control, {{"refuse", error.what}}); !ok) talking = false;
      return error;
    };
    const auto broken = [&](const Error& error) {
      talking = false;
      return error;
    };
    const Candidate candidate{std::string(wire::text_value(request, "try")),
                              wire::text_value(request, "style") == "msg" ? Style::msg : Style::rdm};
    if (candidate.provider.empty())
      return broken({"store.bad_frame",
                     std::string("the client's first message for ") + name_of(flavour_) + " is invalid",
                     "both sides must run the same version of Sonde"});
    if (const std::string why = unlike(request, "client"); !why.empty()) return refuse({"store.no_provider", why, ""});
    const auto known = candidates_of(flavour_);
    const bool here = std::any_of(known.begin(), known.end(), [&](const Candidate& c) {
      return c.provider == candidate.provider && c.style == candidate.style;
    });
    if (!here) return refuse({"store.no_provider", "there is no provider '" + candidate.provider + "' here", ""});
    if (!options.provider.empty() && options.provider != candidate.provider)
      return refuse({"store.no_provider", "only '" + options.provider + "' is allowed here", ""});
    if (only_local(candidate.provider) && !control.same_host())
      return refuse({"store.no_provider", "'" + candidate.provider + "' does not reach another host", ""});
    // A client that names such a provider decides only for itself; a server also serves others.
    if (trusts_strangers(candidate.provider) && options.provider.empty() &&
        std::find(chosen.allowed.begin(), chosen.allowed.end(), candidate.provider) == chosen.allowed.end())
      return refuse(
          {"store.no_provider",
           "over '" + candidate.provider +
               "' any process that reaches its port could end this server, so it is not offered; the server's owner "
               "can allow it: sonde store serve --allow-provider '" +
               candidate.provider + "'",
           ""});
    if (!chosen.trust)
      if (const Found found = probed(flavour_, candidate, deadline); !found.works)
        return refuse({"store.no_provider", found.why, ""});
    auto port = Port::open(port_options(control, chosen, candidate));
    if (!port) return refuse(port.error());
    auto address = (*port)->address();
    if (!address) return refuse(address.error());
    Agreement agreement = terms(candidate.provider, (*port)->demands(), options, request);
    agreement.style = candidate.style;
    agreement.lie = chosen.lie;
    // The keys for the client's messages, and for this side's.
    std::array<SipKey, 2> keys;
    if (auto ok = fill_random(std::as_writable_bytes(std::span(keys))); !ok) return refuse(ok.error());
    if (auto ok = fill_random(std::as_writable_bytes(std::span(&agreement.token, 1))); !ok) return refuse(ok.error());
    agreement.peer_key = keys[0];
    agreement.own_key = keys[1];
    char token[17];
    std::snprintf(token, sizeof token, "%016llx", static_cast<unsigned long long>(agreement.token));
    if (auto ok = tell(control, {{"protocol", std::to_string(protocol)},
                                 {"address", to_hex(*address)},
                                 {"format", std::to_string((*port)->address_format())},
                                 {"token", token},
                                 {"keys", to_hex(std::as_bytes(std::span(keys)))},
                                 {"buffers", std::to_string(agreement.own_buffers)},
                                 {"bytes", std::to_string(agreement.own_bytes)},
                                 {"frame_data", std::to_string(options.frame_data)},
                                 {"process", own_process()}});
        !ok)
      return broken(ok.error());
    const auto reply = hear(control, deadline);
    if (!reply) return broken(reply.error());
    const auto failed = [](const wire::Text& text) { return wire::text_value(text, "failed"); };
    const auto client_failed = [](std::string_view why) {
      return Error{"store.no_provider", "the client gave up: " + std::string(why), ""};
    };
    if (!failed(*reply).empty()) return client_failed(failed(*reply));
    if (auto ok = take_receives(agreement, *reply); !ok) return broken(ok.error());
    // From here on the client waits for the fabric, and reports on the Control when it gives up.
    const auto wait_for_failure = [&](const Error& error) -> Error {
      const auto word = hear(control, deadline);
      if (!word) talking = false;
      return error;
    };
    if (candidate.style == Style::rdm) {
      if (auto ok = (*port)->set_peer(from_hex(wire::text_value(*reply, "address"))); !ok)
        return wait_for_failure(ok.error());
    } else {
      while (true) {
        Bytes came;
        if (auto ok = await(control, **port, Event::request, &came, deadline); !ok) return wait_for_failure(ok.error());
        if (came.size() >= sizeof agreement.token &&
            std::memcmp(came.data(), &agreement.token, sizeof agreement.token) == 0)
          break;
        (*port)->reject_request();  // another process found the port
      }
      if (auto ok = (*port)->take_request(); !ok) return wait_for_failure(ok.error());
    }
    auto link = std::make_unique<OfiLink>(std::move(*port), control, options, sink);
    if (auto ok = link->prepare(agreement); !ok) return wait_for_failure(ok.error());
    if (candidate.style == Style::msg) {
      if (auto ok = link->port().accept(); !ok) return wait_for_failure(ok.error());
      if (auto ok = await(control, link->port(), Event::connected, nullptr, deadline); !ok)
        return wait_for_failure(ok.error());
    }
    if (flavour_ == Flavour::rma) link->enter_trial();
    if (auto ok = link->greet(deadline); !ok) return wait_for_failure(ok.error());
    while (!speaks(control, 0)) {
      if (deadline.passed())
        return broken({"store.timed_out", "the client did not finish the connection in time", "see the client's log"});
      link->serve();
      if (flavour_ == Flavour::rma) ::sched_yield();
      else (void)speaks(control, step_ms);
    }
    const auto word = hear(control, deadline);
    if (!word) return broken(word.error());
    if (!failed(*word).empty()) return client_failed(failed(*word));
    // The trial's last frame was sent before this message, but over the fabric.
    while (flavour_ == Flavour::rma && !link->served()) {
      if (deadline.passed())
        return broken({"store.timed_out", "the client's trial did not end in time", "see the client's log"});
      link->serve();
      ::sched_yield();
    }
    if (!link->open())
      return broken({"store.disconnected", "the client ended the connection during the trial", "see the client's log"});
    link->leave_trial();
    if (flavour_ == Flavour::rma)
      link->set_rma_from(options.rma_from >= 0 ? options.rma_from : number_in(*word, "rma_from", -1));
    return std::unique_ptr<Link>(std::move(link));
  }

  PortOptions port_options(const Control& control, const Chosen& chosen, const Candidate& candidate) const {
    PortOptions how;
    how.style = candidate.style;
    how.provider = candidate.provider;
    how.rma = flavour_ == Flavour::rma;
    how.node = own_node(control);
    how.strict = chosen.strict;
    return how;
  }

  Agreement terms(const std::string& provider, const Demands& demands, const LinkOptions& options,
                  const wire::Text& peer) const {
    Agreement agreement;
    agreement.transport = name_of(flavour_);
    agreement.one_process = only_local(provider) && wire::text_value(peer, "process") == own_process();
    agreement.frame_data = std::clamp<std::size_t>(
        std::max<std::size_t>(options.frame_data,
                              static_cast<std::size_t>(std::max<std::int64_t>(0, number_in(peer, "frame_data", 0)))),
        4096, wire::data_bytes_max);
    const BufferPlan plan = plan_buffers(demands, agreement.frame_data);
    agreement.own_buffers = plan.count;
    agreement.own_bytes = plan.bytes;
    return agreement;
  }

  /// Reads the peer's posted receives from its text. Error: store.bad_frame.
  static Result<void> take_receives(Agreement& agreement, const wire::Text& peer) {
    const auto there = receives_in(peer);
    if (!there) return there.error();
    agreement.peer_buffers = (*there).count;
    agreement.peer_bytes = (*there).bytes;
    return {};
  }

  /// Waits until the Port has an event, the peer sends a message on the Control, or the deadline passes.
  static Result<void> await(Control& control, Port& port, Event wanted, Bytes* token, Deadline deadline) {
    for (int turn = 0;; ++turn) {
      const Event event = port.event(token);
      if (event == wanted) return {};
      if (event == Event::failed || event == Event::shutdown)
        return Error{"store.fabric", "'" + port.provider() + "' could not make the connection",
                     "a firewall between the hosts? try another provider"};
      if (event != Event::none) continue;
      if (deadline.passed())
        return Error{"store.timed_out", "'" + port.provider() + "' did not connect in time",
                     "a firewall between the hosts? try another provider"};
      // A connection takes several steps of both ends, each a fraction of a millisecond.
      if (turn < brisk_turns) {
        const timespec pause{0, 30'000};
        ::nanosleep(&pause, nullptr);
      }
      if (speaks(control, turn < brisk_turns ? 0 : 1))
        return Error{"store.fabric", "the peer gave up before '" + port.provider() + "' was connected",
                     "see the peer's log"};
    }
  }

  Flavour flavour_;
};

}  // namespace

const char* name_of(Flavour flavour) {
  switch (flavour) {
    case Flavour::msg: return "ofi-msg";
    case Flavour::rdm: return "ofi-rdm";
    case Flavour::rma: return "ofi-rma";
  }
  return "?";
}

Flavour flavour_of(std::string_view name) {
  return name == "ofi-msg" ? Flavour::msg : name == "ofi-rma" ? Flavour::rma : Flavour::rdm;
}

std::vector<Candidate> candidates_of(Flavour flavour) {
  std::vector<Candidate> candidates;
  if (flavour != Flavour::rdm)
    for (auto& name : list_providers(Style::msg, flavour == Flavour::rma))
      candidates.push_back({std::move(name), Style::msg});
  if (flavour != Flavour::msg)
    for (auto& name : list_providers(Style::rdm, flavour == Flavour::rma))
      if (std::none_of(candidates.begin(), candidates.end(), [&](const Candidate& c) { return c.provider == name; }))
        candidates.insert(only_local(name) ? candidates.begin() : candidates.end(), {name, Style::rdm});
  return candidates;
}

std::unique_ptr<Transport> make_transport(Flavour flavour) { return std::make_unique<OfiTransport>(flavour); }

}  // namespace sonde::store::ofi

extern "C" const sonde::store::Module* sonde_store_module() {
  using namespace sonde::store;
  static const TransportEntry transports[] = {
      {"ofi-msg", [] { return ofi::make_transport(ofi::Flavour::msg); }},
      {"ofi-rma", [] { return ofi::make_transport(ofi::Flavour::rma); }},
      {"ofi-rdm", [] { return ofi::make_transport(ofi::Flavour::rdm); }},
  };
  static const Module module{module_abi, "ofi", {}, transports};
  return &module;
}

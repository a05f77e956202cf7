#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "bus/probe/way.hpp"

namespace sonde::bus::probe {

namespace {

class BusSender final : public Sender {
 public:
  explicit BusSender(std::unique_ptr<Writer> writer) : writer_(std::move(writer)) {}
  Result<void> write(Message& message) override { return writer_->write(message.payload()); }
  void flush() override { writer_->flush(); }
  bool wait_matched(std::size_t n, Deadline deadline) override { return writer_->wait_matched(n, deadline); }
  std::int64_t matched() override { return writer_->status().matched; }

 private:
  std::unique_ptr<Writer> writer_;
};

class BusReceiver final : public Receiver {
 public:
  BusReceiver(std::unique_ptr<Reader> reader, std::unique_ptr<Waiter> waiter)
      : reader_(std::move(reader)), waiter_(std::move(waiter)) {}
  ~BusReceiver() override { waiter_->detach(*reader_); }

  std::size_t receive(const Taker& taker, Deadline deadline) override {
    if (waiter_->wait(deadline).empty()) return 0;
    return look(taker);
  }
  std::size_t look(const Taker& taker) override {
    return reader_->take([&](const SampleInfo& info, Bytes payload) {
      if (info.has_data && payload.size() > Message::encapsulation) taker(payload.subspan(Message::encapsulation));
    });
  }
  void wake() override { waiter_->wake(); }
  bool wait_matched(std::size_t n, Deadline deadline) override { return reader_->wait_matched(n, deadline); }
  std::int64_t matched() override { return reader_->status().matched; }

 private:
  std::unique_ptr<Reader> reader_;
  std::unique_ptr<Waiter> waiter_;
};

class BusPlace final : public Place {
 public:
  BusPlace(std::shared_ptr<Bus> bus, const Variant& variant) : bus_(std::move(bus)), batch_s_(variant.batch_s) {}

  Result<std::unique_ptr<Sender>> sender(const EndOptions& o) override {
    Qos qos = qos_of(o);
    qos.latency_budget_s = batch_s_;
    auto writer = bus_->writer(o.topic, message_type(), qos);
    if (!writer) return writer.error();
    return std::unique_ptr<Sender>(std::make_unique<BusSender>(std::move(*writer)));
  }

  Result<std::unique_ptr<Receiver>> receiver(const EndOptions& o) override {
    auto reader = bus_->reader(o.topic, message_type(), qos_of(o));
    if (!reader) return reader.error();
    auto waiter = bus_->waiter();
    if (!waiter) return waiter.error();
    if (auto ok = (*waiter)->attach(**reader, 1); !ok) return ok.error();
    return std::unique_ptr<Receiver>(std::make_unique<BusReceiver>(std::move(*reader), std::move(*waiter)));
  }

  std::shared_ptr<Bus> bus() override { return bus_; }

 private:
  static Qos qos_of(const EndOptions& o) {
    Qos qos;
    qos.reliability = o.best_effort ? Reliability::best_effort : Reliability::reliable;
    if (o.keep_all) qos.history = History::keep_all;
    qos.partitions = o.partitions;
    return qos;
  }

  std::shared_ptr<Bus> bus_;
  double batch_s_;
};

std::string quoted(const std::string& text) {
  std::string out;
  for (const char ch : text)
    out += ch == '&' ? "&amp;" : ch == '<' ? "&lt;" : ch == '"' ? "&quot;" : std::string(1, ch);
  return '"' + out + '"';
}

}  // namespace

TypePtr message_type() {
  static const TypePtr type =
      structure("sonde::bus::probe::Message", {{"index", primitive(Kind::uint64), false, ""},
                                               {"sent", primitive(Kind::int64), false, "ns"},
                                               {"received", primitive(Kind::int64), false, "ns"},
                                               {"burst", primitive(Kind::uint32), false, ""},
                                               {"data", sequence_of(primitive(Kind::octet)), false, ""}});
  return type;
}

Result<Profile> profile_of(const Variant& variant, const PlaceOptions& options) {
  Profile profile;
  if (!variant.profile.empty()) {
    auto loaded = load_profile(variant.profile, variant.profile_name);
    if (!loaded) return loaded.error();
    profile = std::move(*loaded);
  } else {
    if (!variant.security.empty()) {
      // The schema of profiles knows the file names of a folder of keys.
      auto parsed = parse_profile(
          "<sonde-bus version=\"1\"><profile name=\"probe\"><security folder=" + quoted(variant.security) +
          " identity=" + quoted(variant.identity) + "/></profile></sonde-bus>");
      if (!parsed) return parsed.error();
      profile = std::move(*parsed);
    }
    profile.transport = variant.transport;
    profile.discovery = variant.discovery;
    profile.unprotected = variant.unprotected;
    profile.spin_s = variant.spin_s;
    profile.domain = options.domain;
    if (profile.transport.interfaces.empty() && profile.transport.kind != TransportKind::shared_memory)
      profile.transport.interfaces =
          profile.transport.kind == TransportKind::udp6 ? options.interfaces : options.addresses;
  }
  profile.name = "probe";
  if (!options.peers.empty()) profile.discovery.peers = options.peers;
  if (!options.servers.empty()) profile.discovery.servers = options.servers;
  profile.discovery.serve = options.serve;
  if (!options.participant.empty()) profile.participant = options.participant;
  if (auto ok = check(profile); !ok) return ok.error();
  return profile;
}

Result<std::unique_ptr<Place>> open_place(const Variant& variant, const PlaceOptions& options) {
  if (variant.raw()) return open_raw(variant, options);
  auto profile = profile_of(variant, options);
  if (!profile) return profile.error();
  auto bus = Bus::open(*profile, variant.implementation);
  if (!bus) return bus.error();
  return std::unique_ptr<Place>(std::make_unique<BusPlace>(std::move(*bus), variant));
}

}  // namespace sonde::bus::probe

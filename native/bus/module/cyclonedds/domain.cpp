#include "bus/module/cyclonedds/domain.hpp"

#include <dds/ddsrt/log.h>

#include <map>
#include <mutex>
#include <string_view>
#include <utility>

#include "bus/module/cyclonedds/confinement.hpp"

namespace sonde::bus::cyclonedds {

namespace {

constexpr std::size_t words_most = 600;

std::string& words() {
  thread_local std::string said;
  return said;
}

void keep_words(void*, const dds_log_data_t* line) {
  std::string& said = words();
  std::string_view text(line->message, line->size);
  while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) text.remove_suffix(1);
  if (text.empty() || said.size() + text.size() > words_most) return;
  if (!said.empty()) said += "; ";
  for (const char c : text) said += c == '\n' ? ' ' : c;  // OpenSSL's errors have several lines
}

struct Open {
  std::string config;
  dds_entity_t entity = 0;
  std::size_t shares = 0;
  bool confined = false;
  std::string refused;
  bool secured = false;
};

struct Domains {
  std::mutex mutex;
  std::map<std::uint32_t, Open> by_id;
};

/// Never destroyed: a program may close its last bus while it exits.
Domains& domains() {
  static auto* all = new Domains;
  return *all;
}

/// `refused`: the message of Confinement.
Error exposed(std::uint32_t id, const std::string& refused) {
  const std::string what =
      "domain " + std::to_string(id) +
      " could not be opened: its sockets would take what other hosts send to their ports, because ";
  const std::string keys = "<security folder=\"…\" identity=\"…\"/>, or unprotected=\"yes\" where that is meant";
  if (!refused.empty())
    return {
        "bus.open", what + "the system refuses them a filter (SO_ATTACH_FILTER: " + refused + ")",
        "look at net.core.optmem_max and net.core.bpf_jit_limit, and at the container's seccomp rules; or add " + keys};
  return {
      "bus.open", what + "this process had loaded Cyclone DDS before Sonde's bus",
      "open a bus before anything else loads Cyclone DDS, and do not link the program with libddsc; or add " + keys};
}

}  // namespace

std::string last_words() { return std::exchange(words(), {}); }

Error failed(const std::string& what, dds_return_t number, const std::string& hint) {
  const std::string said = last_words();
  return {"bus.open", what + ": Cyclone DDS says " + dds_strretcode(number) + (said.empty() ? "" : " (" + said + ")"),
          hint};
}

Result<std::unique_ptr<Domain>> Domain::get(std::uint32_t id, const DomainPlan& plan) {
  Domains& all = domains();
  const std::lock_guard lock(all.mutex);
  static const bool kept =
      (dds_set_log_mask(DDS_LC_FATAL | DDS_LC_ERROR | DDS_LC_WARNING), dds_set_log_sink(keep_words, nullptr), true);
  (void)kept;
  if (const auto there = all.by_id.find(id); there != all.by_id.end()) {
    if (there->second.secured != plan.secured)
      return Error{"bus.open",
                   "this process is in domain " + std::to_string(id) + " of Cyclone DDS already, with" +
                       (plan.secured ? "out" : "") +
                       " keys: all buses of a process in one domain have keys, or none has",
                   "give both profiles <security>, or neither; or take another domain for one of them"};
    if (there->second.config == plan.config) {
      if (plan.must_be_confined && !there->second.confined) return exposed(id, there->second.refused);
      ++there->second.shares;
      return std::unique_ptr<Domain>(new Domain(id));
    }
    return Error{"bus.open",
                 "this process is in domain " + std::to_string(id) +
                     " of Cyclone DDS already, with other transports or another discovery: both share the sockets of "
                     "the process",
                 "use one profile for all buses of a process in one domain, or another domain"};
  }
  last_words();
  const Confinement confinement(plan.filter);
  const dds_entity_t entity = dds_create_domain(id, plan.config.c_str());
  if (entity == DDS_RETCODE_PRECONDITION_NOT_MET)
    return Error{"bus.open",
                 "this process is in domain " + std::to_string(id) +
                     " of Cyclone DDS already, not by Sonde: its configuration would be another",
                 "open the bus before, or use another domain"};
  if (entity < 0)
    return failed(
        "domain " + std::to_string(id) + " could not be opened", entity,
        "look whether the interfaces are up, and whether more than 120 processes of this machine are in the domain");
  if (plan.must_be_confined && !confinement.complete()) {
    dds_delete(entity);
    return exposed(id, confinement.refused());
  }
  all.by_id[id] = {plan.config, entity, 1, confinement.complete(), confinement.refused(), plan.secured};
  return std::unique_ptr<Domain>(new Domain(id));
}

Domain::~Domain() {
  Domains& all = domains();
  const std::lock_guard lock(all.mutex);
  const auto mine = all.by_id.find(id_);
  if (--mine->second.shares) return;
  dds_delete(mine->second.entity);
  all.by_id.erase(mine);
}

}  // namespace sonde::bus::cyclonedds

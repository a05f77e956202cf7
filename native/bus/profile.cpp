// Profiles: XML to Profile and back. Tables describe each element; reading, refusing, listing and documenting elements
// use these tables.
// Long because: reading, writing and the list of keys come from the same tables of elements.
#include "bus/profile.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <set>
#include <utility>

#include <pugixml.hpp>

#include "bus/bus.hpp"
#include "bus/idl.hpp"
#include "bus/network.hpp"
#include "core/hostlist.hpp"
#include "core/nearest.hpp"
#include "core/number.hpp"
#include "core/text.hpp"
#include "core/units.hpp"

namespace sonde::bus {
namespace {

constexpr std::size_t most_file_bytes = 1u << 20;
constexpr std::size_t most_list_words = 64;  // interfaces, partitions, servers
constexpr std::size_t most_peers = 4096;
constexpr std::size_t most_types = 1024, most_topics = 4096;
constexpr unsigned most_participants = 120;      // of one host and domain: as many as DDSI-RTPS has ports for
constexpr double longest_s = 36525.0 * 86400.0;  // as parse_duration()
constexpr double most_spin_s = 0.01;             // a longer poll is not useful
constexpr std::uint32_t most_int = 0x7fffffff;

bool is_control(char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; }
bool is_word_character(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}
bool is_name(std::string_view text, std::string_view besides, std::size_t most) {
  return !text.empty() && text.size() <= most && std::all_of(text.begin(), text.end(), [&](char c) {
    return is_word_character(c) || besides.find(c) != std::string_view::npos;
  });
}

std::vector<std::string> words_of(std::string_view text) {
  std::vector<std::string> words;
  for (std::size_t at = 0; (at = text.find_first_not_of(" \t\r\n", at)) != std::string_view::npos;) {
    const std::size_t end = std::min(text.find_first_of(" \t\r\n", at), text.size());
    words.emplace_back(text.substr(at, end - at));
    at = end;
  }
  return words;
}

std::string spaced(const std::vector<std::string>& words) {
  std::string text;
  for (const auto& word : words) text += (text.empty() ? "" : " ") + word;
  return text;
}

// ---- errors of values; empty: no error

struct Wrong {
  std::string why, hint;
  explicit operator bool() const { return !why.empty(); }
};

Wrong wrong(const Error& error) { return {error.what, error.hint}; }

Wrong one_of(std::string_view text, const std::vector<std::string>& words) {
  return {shown(text) + " is unknown" + nearest(text, words), "allowed: " + joined(words)};
}

/// A text from which the same double is read.
std::string exact_duration(double seconds) {
  if (std::isinf(seconds)) return "forever";
  char text[400];
  const auto end = std::to_chars(text, text + sizeof text, seconds, std::chars_format::fixed);
  return std::string(text, end.ptr) + "s";
}

/// An attribute of an element that fills an Into; `read` makes the same value from the text of `write`.
template <typename Into> struct Attribute {
  const char* name;
  std::function<Wrong(Into&, std::string_view)> read;
  std::function<std::string(const Into&)> write = {};
  std::vector<std::string> values = {};
  bool required = false;
};

template <typename Into, typename Value>
Attribute<Into> choice(const char* name, Value Into::* member,
                       const std::vector<std::pair<std::string, Value>>& values) {
  std::vector<std::string> words;
  for (const auto& [word, value] : values) words.push_back(word);
  return {name,
          [member, values, words](Into& into, std::string_view text) -> Wrong {
            for (const auto& [word, value] : values)
              if (text == word) {
                into.*member = value;
                return {};
              }
            return one_of(text, words);
          },
          [member, values](const Into& from) -> std::string {
            for (const auto& [word, value] : values)
              if (from.*member == value) return word;
            return "";
          },
          words};
}

template <typename Into> Attribute<Into> yes_no(const char* name, bool Into::* member) {
  return choice<Into, bool>(name, member, {{"yes", true}, {"no", false}});
}

template <typename Into, typename Number>
Attribute<Into> whole(const char* name, Number Into::* member, std::int64_t least, std::int64_t most) {
  return {name,
          [=](Into& into, std::string_view text) -> Wrong {
            std::int64_t value = 0;
            if (!number(text, value) || value < least || value > most)
              return {shown(text) + " is not a whole number in the allowed range",
                      "allowed: " + std::to_string(least) + " to " + std::to_string(most)};
            into.*member = static_cast<Number>(value);
            return {};
          },
          [member](const Into& from) { return std::to_string(from.*member); }};
}

template <typename Into, typename Number>
Attribute<Into> size(const char* name, Number Into::* member, std::uint64_t least, std::uint64_t most) {
  return {name,
          [=](Into& into, std::string_view text) -> Wrong {
            const auto bytes = parse_size(text);
            if (!bytes) return wrong(bytes.error());
            if (*bytes < least || *bytes > most)
              return {shown(text) + " is outside of the allowed range",
                      "allowed: " + format_size(least, true) + " to " + format_size(most, true)};
            into.*member = static_cast<Number>(*bytes);
            return {};
          },
          [member](const Into& from) { return std::to_string(from.*member); }};
}

enum class Endless { no, yes };
template <typename Into>
Attribute<Into> duration(const char* name, double Into::* member, Endless endless = Endless::no) {
  return {name,
          [=](Into& into, std::string_view text) -> Wrong {
            if (endless == Endless::yes && text == "forever") {
              into.*member = forever;
              return {};
            }
            const auto seconds = parse_duration(text);
            if (!seconds)
              return {seconds.error().what, seconds.error().hint + (endless == Endless::yes ? ", or forever" : "")};
            into.*member = *seconds;
            return {};
          },
          [member](const Into& from) { return exact_duration(from.*member); }};
}

template <typename Into>
Attribute<Into> text_value(const char* name, std::string Into::* member, std::size_t most = 255) {
  return {name,
          [=](Into& into, std::string_view text) -> Wrong {
            if (text.empty()) return {"it is empty", "give a value, or omit it"};
            if (text.size() > most)
              return {"it has " + std::to_string(text.size()) + " B", "allowed: up to " + std::to_string(most)};
            into.*member = text;
            return {};
          },
          [member](const Into& from) { return from.*member; }};
}

template <typename Into> Attribute<Into> required(Attribute<Into> attribute) {
  attribute.required = true;
  return attribute;
}

template <typename Into>
Attribute<Into> list(const char* name, std::vector<std::string> Into::* member, std::size_t most = most_list_words) {
  return {name,
          [=](Into& into, std::string_view text) -> Wrong {
            auto words = words_of(text);
            if (words.size() > most)
              return {"it has " + std::to_string(words.size()) + " words", "allowed: up to " + std::to_string(most)};
            into.*member = std::move(words);
            return {};
          },
          [member](const Into& from) { return spaced(from.*member); }};
}

/// Peers, whose hosts may be host lists: "n[001-096]:2".
Wrong read_peers(Discovery& into, std::string_view text) {
  into.peers.clear();
  for (const auto& word : words_of(text)) {
    if (word.starts_with('[') || word.find('[') == std::string::npos) {
      into.peers.push_back(word);
    } else {
      const std::size_t colon = word.find(':', std::min(word.rfind(']'), word.size()));
      const auto hosts = hostlist_expand(std::string_view(word).substr(0, colon));
      if (!hosts) return wrong(hosts.error());
      for (const auto& host : *hosts)
        into.peers.push_back(colon == std::string::npos ? host : host + word.substr(colon));
    }
    if (into.peers.size() > most_peers)
      return {"it has more than " + std::to_string(most_peers) + " peers", "use a discovery server: kind=\"server\""};
  }
  return {};
}

// ---- the attributes of each element

/// <profile>, before its files are searched.
struct Draft {
  std::string name, implementation, participant;
  std::uint32_t domain = 0;
  double spin_s = -1;
  bool unprotected = false;
};
struct SecurityDraft {
  std::string folder, identity;
  Security files;
};
struct TopicDraft {
  std::string name, type;
  Qos qos;
};
struct TypesDraft {
  std::string idl;
};
struct FieldDraft {
  std::string name, type, unit;
  bool key = false;
  std::uint32_t bound = 0, array = 0, sequence = 0;
  bool is_sequence = false;
};
struct NameDraft {
  std::string name;
  std::int32_t value = 0;
  bool numbered = false;
};
struct Nothing {};
struct RootDraft {
  std::uint32_t version = 0;
};

const std::vector<Attribute<RootDraft>> root_attributes{required(whole("version", &RootDraft::version, 1, 1))};

const std::vector<Attribute<Draft>> profile_attributes{
    {"name",
     [](Draft& into, std::string_view text) -> Wrong {
       if (!is_name(text, "-.", 64))
         return {shown(text) + " is not a valid name", "allowed: 1 to 64 letters, digits, '_', '-', '.'"};
       into.name = text;
       return {};
     },
     [](const Draft& from) { return from.name; },
     {},
     true},
    text_value("implementation", &Draft::implementation, 64),
    whole("domain", &Draft::domain, 0, 232),
    text_value("participant", &Draft::participant),
    {"spin",
     [](Draft& into, std::string_view text) -> Wrong {
       if (text == "never" || text == "auto") {
         into.spin_s = text == "never" ? 0 : -1;
         return {};
       }
       const auto seconds = parse_duration(text);
       if (!seconds || *seconds > most_spin_s)
         return {shown(text) + " is not a valid time to poll", "allowed: auto, never, or up to 10 ms, as 100us"};
       into.spin_s = *seconds;
       return {};
     },
     [](const Draft& from) {
       return from.spin_s < 0 ? "auto" : from.spin_s == 0 ? "never" : exact_duration(from.spin_s);
     }},
    yes_no("unprotected", &Draft::unprotected),
};

const std::vector<Attribute<Transport>> transport_attributes{
    required(choice<Transport, TransportKind>("kind", &Transport::kind,
                                              {{"udp4", TransportKind::udp4},
                                               {"udp6", TransportKind::udp6},
                                               {"tcp4", TransportKind::tcp4},
                                               {"shared-memory", TransportKind::shared_memory}})),
    choice<Transport, Multicast>(
        "multicast", &Transport::multicast,
        {{"none", Multicast::none}, {"discovery", Multicast::discovery}, {"all", Multicast::all}}),
    list("interfaces", &Transport::interfaces),
    size("receive-buffer", &Transport::receive_buffer_bytes, 1024, most_int),
    size("send-buffer", &Transport::send_buffer_bytes, 1024, most_int),
    size("max-message", &Transport::max_message_bytes, 1024, 65500),
    whole("port", &Transport::port, 1, 65535),
};

const std::vector<Attribute<Discovery>> discovery_attributes{
    required(choice<Discovery, DiscoveryKind>(
        "kind", &Discovery::kind,
        {{"simple", DiscoveryKind::simple}, {"peers", DiscoveryKind::peers}, {"server", DiscoveryKind::server}})),
    {"peers", read_peers, [](const Discovery& from) { return spaced(from.peers); }},
    list("servers", &Discovery::servers),
    yes_no("serve", &Discovery::serve),
    text_value("backup", &Discovery::backup, 4095),
    duration("announce", &Discovery::announce_s),
    duration("lease", &Discovery::lease_s),
};

/// The six files of DDS Security, with their names in a folder of `sonde bus keys`.
struct SecurityFile {
  const char* attribute;
  std::string Security::* member;
  bool own;  ///< whether it is in the identity's folder
  const char* file;
};
constexpr SecurityFile security_files[] = {{"identity-ca", &Security::identity_ca, false, "identity_ca.pem"},
                                           {"certificate", &Security::certificate, true, "cert.pem"},
                                           {"private-key", &Security::private_key, true, "key.pem"},
                                           {"permissions-ca", &Security::permissions_ca, false, "permissions_ca.pem"},
                                           {"governance", &Security::governance, false, "governance.p7s"},
                                           {"permissions", &Security::permissions, true, "permissions.p7s"}};

constexpr const char* allowed_identity = "allowed: 1 to 64 letters, digits, '_', '-', '.', no '.' at the beginning";
bool is_identity(std::string_view text) { return is_name(text, "-.", 64) && !text.starts_with('.'); }

const std::vector<Attribute<SecurityDraft>> security_attributes = [] {
  std::vector<Attribute<SecurityDraft>> all{text_value("folder", &SecurityDraft::folder, 4095),
                                            {"identity", [](SecurityDraft& into, std::string_view text) -> Wrong {
                                               if (!is_identity(text))
                                                 return {shown(text) + " is not a valid identity", allowed_identity};
                                               into.identity = text;
                                               return {};
                                             }}};
  for (const auto& file : security_files)
    all.push_back({file.attribute,
                   [member = file.member, read = text_value("", &NameDraft::name, 4095).read](
                       SecurityDraft& into, std::string_view text) -> Wrong {
                     NameDraft path;
                     if (auto bad = read(path, text)) return bad;
                     into.files.*member = path.name;
                     return {};
                   },
                   [member = file.member](const SecurityDraft& from) { return from.files.*member; }});
  return all;
}();

const std::vector<Attribute<Qos>> qos_attributes{
    choice<Qos, Reliability>("reliability", &Qos::reliability,
                             {{"reliable", Reliability::reliable}, {"best-effort", Reliability::best_effort}}),
    duration("max-blocking", &Qos::max_blocking_s, Endless::yes),
    choice<Qos, Durability>("durability", &Qos::durability,
                            {{"volatile", Durability::volatile_}, {"transient-local", Durability::transient_local}}),
    choice<Qos, History>("history", &Qos::history,
                         {{"keep-last", History::keep_last}, {"keep-all", History::keep_all}}),
    whole("depth", &Qos::depth, 1, most_int),
    whole("max-samples", &Qos::max_samples, 1, most_int),
    duration("deadline", &Qos::deadline_s, Endless::yes),
    duration("lifespan", &Qos::lifespan_s, Endless::yes),
    duration("latency-budget", &Qos::latency_budget_s),
    choice<Qos, Liveliness>("liveliness", &Qos::liveliness,
                            {{"automatic", Liveliness::automatic},
                             {"manual-by-participant", Liveliness::manual_by_participant},
                             {"manual-by-topic", Liveliness::manual_by_topic}}),
    duration("lease", &Qos::lease_s, Endless::yes),
    choice<Qos, Ownership>("ownership", &Qos::ownership,
                           {{"shared", Ownership::shared}, {"exclusive", Ownership::exclusive}}),
    whole("strength", &Qos::strength, -std::int64_t{most_int} - 1, most_int),
    choice<Qos, bool>("order", &Qos::order_by_source, {{"arrival", false}, {"source", true}}),
    list("partitions", &Qos::partitions),
    text_value("user-data", &Qos::user_data, most_user_data),
};

const std::vector<Attribute<TopicDraft>> topic_attributes = [] {
  std::vector<Attribute<TopicDraft>> all{required(text_value("name", &TopicDraft::name)),
                                         required(text_value("type", &TopicDraft::type))};
  for (const auto& of_qos : qos_attributes)
    all.push_back({of_qos.name,
                   [read = of_qos.read](TopicDraft& into, std::string_view text) { return read(into.qos, text); },
                   [write = of_qos.write](const TopicDraft& from) { return write(from.qos); }, of_qos.values});
  return all;
}();

const std::vector<Attribute<TypesDraft>> types_attributes{text_value("idl", &TypesDraft::idl, 4095)};
const std::vector<Attribute<Nothing>> idl_attributes{};
const std::vector<Attribute<NameDraft>> declared_attributes{required(text_value("name", &NameDraft::name))};
const std::vector<Attribute<NameDraft>> value_attributes{
    required(text_value("name", &NameDraft::name)),
    {"value", [read = whole("", &NameDraft::value, -std::int64_t{most_int} - 1, most_int).read](NameDraft& into,
                                                                                                std::string_view text) {
       into.numbered = true;
       return read(into, text);
     }}};
const std::vector<Attribute<FieldDraft>> field_attributes{
    required(text_value("name", &FieldDraft::name)),
    required(text_value("type", &FieldDraft::type)),
    yes_no("key", &FieldDraft::key),
    text_value("unit", &FieldDraft::unit),
    whole("bound", &FieldDraft::bound, 1, most_int),
    whole("array", &FieldDraft::array, 1, most_int),
    {"sequence",
     [read = whole("", &FieldDraft::sequence, 1, most_int).read](FieldDraft& into, std::string_view text) -> Wrong {
       into.is_sequence = true;
       if (text == "unbounded") return {};
       if (auto bad = read(into, text)) return {bad.why, bad.hint + ", or unbounded"};
       return {};
     }}};

struct Element {
  const char* name;
  std::vector<std::string> children;
};
/// The allowed places of each element. writer and reader have QoS attributes, struct and enum a name.
const std::vector<Element> elements{
    {"sonde-bus", {"profile", "types", "topic"}},
    {"profile", {"transport", "discovery", "security", "types", "topic"}},
    {"transport", {}},
    {"discovery", {}},
    {"security", {}},
    {"types", {"idl", "struct", "enum"}},
    {"idl", {}},
    {"struct", {"field"}},
    {"field", {}},
    {"enum", {"value"}},
    {"value", {}},
    {"topic", {"writer", "reader"}},
    {"writer", {}},
    {"reader", {}},
};

const std::vector<std::string>& children_of(std::string_view element) {
  return std::find_if(elements.begin(), elements.end(), [&](const Element& e) { return element == e.name; })->children;
}

/// Calls `visit` with the attributes of an element, whatever type they fill.
template <typename Visit> auto with_attributes(std::string_view element, const Visit& visit) {
  if (element == "sonde-bus") return visit(root_attributes);
  if (element == "profile") return visit(profile_attributes);
  if (element == "transport") return visit(transport_attributes);
  if (element == "discovery") return visit(discovery_attributes);
  if (element == "security") return visit(security_attributes);
  if (element == "types") return visit(types_attributes);
  if (element == "struct" || element == "enum") return visit(declared_attributes);
  if (element == "field") return visit(field_attributes);
  if (element == "value") return visit(value_attributes);
  if (element == "topic") return visit(topic_attributes);
  if (element == "writer" || element == "reader") return visit(qos_attributes);
  return visit(idl_attributes);
}

// ---- reading

const std::vector<std::pair<std::string, Kind>> type_words{
    {"boolean", Kind::boolean}, {"octet", Kind::octet},  {"char", Kind::char8},    {"int8", Kind::int8},
    {"uint8", Kind::uint8},     {"int16", Kind::int16},  {"uint16", Kind::uint16}, {"int32", Kind::int32},
    {"uint32", Kind::uint32},   {"int64", Kind::int64},  {"uint64", Kind::uint64}, {"float", Kind::float32},
    {"double", Kind::float64},  {"string", Kind::string}};

std::string beside(const std::string& folder, const std::string& path) {
  return path.empty() || path.front() == '/' || folder.empty() || folder == "." ? path : folder + "/" + path;
}

/// The text of a file, with positions in it for errors.
class Document {
 public:
  Document(std::string_view text, std::string file, std::string folder)
      : original_(text), file_(std::move(file)), folder_(std::move(folder)) {}

  Result<pugi::xml_node> parse();
  Result<Profile> profile(pugi::xml_node root, std::string_view name) const;

 private:
  std::string where(std::size_t offset) const {
    const auto line =
        1 + std::count(original_.begin(),
                       original_.begin() + static_cast<std::ptrdiff_t>(std::min(offset, original_.size())), '\n');
    return (file_.empty() ? "line " : file_ + ":") + std::to_string(line) + ": ";
  }
  /// The place of a name or value, which has the same position in buffer_ as in the text.
  std::string where(const char* in_buffer) const {
    const bool is = in_buffer >= buffer_.data() && in_buffer < buffer_.data() + buffer_.size();
    return where(is ? static_cast<std::size_t>(in_buffer - buffer_.data()) : 0);
  }
  std::string where(pugi::xml_node node) const {
    return where(node.type() == pugi::node_element ? node.name() : node.value());
  }
  Error bad(const std::string& at, const std::string& what, const std::string& hint) const {
    return {"bus.bad_profile", at + what, hint};
  }
  Error within(pugi::xml_node node, const Error& error) const {
    return {error.code, where(node) + error.what, error.hint};
  }
  std::string called() const { return file_.empty() ? "the profile" : file_; }

  Result<void> refuse_entities() const;
  template <typename Into>
  Result<void> read(pugi::xml_node node, const std::vector<Attribute<Into>>& known, Into& into) const;
  Result<void> check_children(pugi::xml_node node) const;
  Result<Profile> read_profile(pugi::xml_node root, pugi::xml_node node) const;
  Result<void> read_shared(pugi::xml_node node, Profile& profile) const;
  Result<void> read_types(pugi::xml_node node, Profile& profile) const;
  Result<TypePtr> read_struct(pugi::xml_node node, const Profile& profile) const;
  Result<TypePtr> read_enum(pugi::xml_node node) const;
  Result<void> add_type(pugi::xml_node node, const std::string& name, const TypePtr& type, Profile& profile) const;
  Result<void> read_topic(pugi::xml_node node, Profile& profile) const;
  Result<Security> read_security(pugi::xml_node node) const;

  std::string original_, buffer_, file_, folder_;
  pugi::xml_document tree_;
};

/// pugixml leaves unknown entity references in the value. Only XML's five entities and numbers are allowed.
Result<void> Document::refuse_entities() const {
  const std::string_view text = original_;
  for (std::size_t at = 0; at < text.size(); ++at) {
    const auto skip = [&](std::string_view from, std::string_view to) {
      if (!text.substr(at).starts_with(from)) return false;
      at = std::min(text.find(to, at + from.size()), text.size());
      return true;
    };
    if (skip("<!--", "-->") || skip("<![CDATA[", "]]>") || skip("<?", "?>") || text[at] != '&') continue;
    const std::string_view name = text.substr(at + 1, std::min<std::size_t>(text.substr(at + 1, 12).find(';'), 12));
    const bool of_xml = name == "amp" || name == "lt" || name == "gt" || name == "quot" || name == "apos";
    const bool number = name.size() > 1 && name[0] == '#' &&
                        (name[1] == 'x' ? name.size() > 2 && name.find_first_not_of("0123456789abcdefABCDEF", 2) ==
                                                                 std::string_view::npos
                                        : name.find_first_not_of("0123456789", 1) == std::string_view::npos);
    if (!of_xml && !number)
      return bad(where(at), "the entity &" + std::string(name.substr(0, name.find_first_of(" <\"\n"))) + " is unknown",
                 "allowed: &amp; &lt; &gt; &quot; &apos; and numbers, as &#233;");
  }
  return {};
}

/// RFC 3629: without surrogates and overlong forms.
bool is_utf8(std::string_view text) {
  for (std::size_t at = 0; at < text.size();) {
    const auto lead = static_cast<unsigned char>(text[at]);
    const std::size_t more = lead < 0x80   ? 0
                             : lead < 0xc2 ? 4
                             : lead < 0xe0 ? 1
                             : lead < 0xf0 ? 2
                             : lead < 0xf5 ? 3
                                           : 4;
    if (more == 4 || more >= text.size() - at) return false;
    for (std::size_t k = 1; k <= more; ++k)
      if ((static_cast<unsigned char>(text[at + k]) & 0xc0) != 0x80) return false;
    const unsigned second = more ? static_cast<unsigned char>(text[at + 1]) : 0;
    const bool overlong = (lead == 0xe0 && second < 0xa0) || (lead == 0xf0 && second < 0x90);
    const bool no_character = (lead == 0xed && second >= 0xa0) || (lead == 0xf4 && second >= 0x90);
    if (overlong || no_character) return false;
    at += more + 1;
  }
  return true;
}

Result<pugi::xml_node> Document::parse() {
  if (original_.size() > most_file_bytes)
    return bad("",
               called() + " has " + format_size(original_.size()) + "; allowed: up to " + format_size(most_file_bytes),
               "move types to IDL files, and write peers as host lists");
  if (const std::size_t nul = original_.find('\0'); nul != std::string::npos)
    return bad(where(nul), "there is a NUL byte", "a profile is XML in UTF-8");
  if (!is_utf8(original_)) return bad("", called() + " is not in UTF-8", "save it in UTF-8");
  if (auto ok = refuse_entities(); !ok) return ok.error();
  buffer_ = original_;
  const auto parsed =
      tree_.load_buffer_inplace(buffer_.data(), buffer_.size(),
                                pugi::parse_default | pugi::parse_doctype | pugi::parse_fragment, pugi::encoding_utf8);
  if (!parsed) {
    std::string why = parsed.description();
    if (!why.empty() && why.front() >= 'A' && why.front() <= 'Z')
      why.front() = static_cast<char>(why.front() - 'A' + 'a');
    return bad(where(static_cast<std::size_t>(std::max<std::ptrdiff_t>(parsed.offset, 0))), "not valid XML: " + why,
               "see docs/reference/bus-profile.md for an example");
  }
  pugi::xml_node root;
  for (const auto node : tree_) {
    if (node.type() == pugi::node_doctype)
      return bad(where(node), "a DOCTYPE is not allowed", "remove it: entities and DTDs are not used here");
    if (node.type() != pugi::node_element)
      return bad(where(node), "there is text outside of the elements: " + shown(node.value()), "remove it");
    if (root)
      return bad(where(node), "there is a second element next to <sonde-bus>: <" + std::string(node.name()) + ">",
                 "move it into <sonde-bus>");
    root = node;
  }
  if (!root) return bad("", called() + " has no element", "begin with <sonde-bus version=\"1\">");
  if (std::string_view(root.name()) != "sonde-bus")
    return Error{"bus.unknown_key", where(root) + "the first element is " + shown(root.name()),
                 "begin with <sonde-bus version=\"1\">"};
  return root;
}

template <typename Into>
Result<void> Document::read(pugi::xml_node node, const std::vector<Attribute<Into>>& known, Into& into) const {
  const std::string element = node.name();
  std::set<std::string_view> seen;
  for (const auto attribute : node.attributes()) {
    const std::string_view name = attribute.name(), value = attribute.value();
    const auto at = std::find_if(known.begin(), known.end(), [&](const auto& k) { return name == k.name; });
    if (at == known.end()) {
      std::vector<std::string> names;
      for (const auto& k : known) names.emplace_back(k.name);
      return Error{"bus.unknown_key",
                   where(attribute.name()) + "<" + element + "> has no attribute " + shown(name) + nearest(name, names),
                   names.empty() ? "it has no attributes" : "it has: " + joined(names)};
    }
    const std::string what = "<" + element + "> " + at->name + ": ";
    if (!seen.insert(name).second)
      return bad(where(attribute.name()), "<" + element + "> has " + at->name + " twice", "remove one of them");
    if (std::any_of(value.begin(), value.end(), is_control))
      return bad(where(attribute.name()), what + shown(value) + " has a control character", "remove it");
    if (const Wrong found = at->read(into, value)) return bad(where(attribute.name()), what + found.why, found.hint);
  }
  for (const auto& k : known)
    if (k.required && !seen.contains(k.name)) {
      const std::string allowed = k.values.empty() ? "" : "; allowed: " + joined(k.values);
      return bad(where(node), "<" + element + "> has no " + k.name + allowed,
                 "add " + std::string(k.name) + "=\"" + (k.values.empty() ? "…" : k.values.front()) + "\"");
    }
  return {};
}

/// Only allowed elements, and no text.
Result<void> Document::check_children(pugi::xml_node node) const {
  const auto& allowed = children_of(node.name());
  const std::string element = node.name();
  for (const auto child : node) {
    if (child.type() != pugi::node_element)
      return bad(where(child), "<" + element + "> has text: " + shown(child.value()),
                 "write values as attributes: name=\"value\"");
    if (std::find(allowed.begin(), allowed.end(), child.name()) == allowed.end()) {
      std::string elsewhere;
      for (const auto& e : elements)
        if (std::find(e.children.begin(), e.children.end(), child.name()) != e.children.end())
          elsewhere = std::string("; <") + child.name() + "> belongs in <" + e.name + ">";
      return Error{"bus.unknown_key",
                   where(child) + "<" + element + "> has no element " + shown(child.name()) +
                       (elsewhere.empty() ? nearest(child.name(), allowed) : ""),
                   (allowed.empty() ? "it has no elements" : "it has: " + joined(allowed)) + elsewhere};
    }
  }
  return {};
}

Result<TypePtr> Document::read_enum(pugi::xml_node node) const {
  if (auto ok = check_children(node); !ok) return ok.error();
  NameDraft declared;
  if (auto ok = read(node, declared_attributes, declared); !ok) return ok.error();
  std::vector<Enumerator> enumerators;
  std::int64_t next = 0;
  for (const auto child : node) {
    NameDraft value;
    if (auto ok = check_children(child); !ok) return ok.error();
    if (auto ok = read(child, value_attributes, value); !ok) return ok.error();
    if (!value.numbered) {
      if (next > most_int)
        return bad(where(child), "the value before " + shown(value.name) + " was the largest possible value",
                   "give this one a value");
      value.value = static_cast<std::int32_t>(next);
    }
    next = std::int64_t{value.value} + 1;
    enumerators.push_back({value.name, value.value});
  }
  return enumeration(declared.name, std::move(enumerators));
}

Result<TypePtr> Document::read_struct(pugi::xml_node node, const Profile& profile) const {
  if (auto ok = check_children(node); !ok) return ok.error();
  NameDraft declared;
  if (auto ok = read(node, declared_attributes, declared); !ok) return ok.error();
  std::vector<Field> fields;
  for (const auto child : node) {
    FieldDraft draft;
    if (auto ok = check_children(child); !ok) return ok.error();
    if (auto ok = read(child, field_attributes, draft); !ok) return ok.error();
    if (draft.array && draft.is_sequence)
      return bad(where(child), "<field> " + draft.name + " is an array and a sequence",
                 "remove one; IDL files (<types idl=\"…\"/>) can declare sequences of arrays");
    if (draft.bound && draft.type != "string")
      return bad(where(child), "<field> bound: " + shown(draft.type) + " has no bound",
                 "bound is for strings; the bound of a sequence is sequence=\"" + std::to_string(draft.bound) + "\"");
    TypePtr type;
    std::vector<std::string> words;
    for (const auto& [word, kind] : type_words) {
      words.push_back(word);
      if (draft.type == word) type = kind == Kind::string ? string_type(draft.bound) : primitive(kind);
    }
    for (const auto& [name, its] : profile.types) {
      words.push_back(name);
      if (!type && draft.type == name) type = its;
    }
    if (!type)
      return bad(
          where(child),
          "<field> type: " + shown(draft.type) + " is not declared before this field" + nearest(draft.type, words),
          "allowed: " + joined(words));
    if (draft.array) type = array_of(type, draft.array);
    if (draft.is_sequence) type = sequence_of(type, draft.sequence);
    fields.push_back({draft.name, type, draft.key, draft.unit});
    if (fields.size() > limit::fields)
      return bad(where(child),
                 "<struct> " + declared.name + " has more than " + std::to_string(limit::fields) + " fields",
                 "move some of them to a structure of their own");
  }
  return structure(declared.name, std::move(fields));
}

Result<void> Document::add_type(pugi::xml_node node, const std::string& name, const TypePtr& type,
                                Profile& profile) const {
  const auto [at, fresh] = profile.types.emplace(name, type);
  if (!fresh && !equal(*at->second, *type))
    return bad(where(node), "the type " + shown(name) + " is declared twice, with different fields",
               "rename or remove one of them");
  if (profile.types.size() > most_types)
    return bad(where(node), "there are more than " + std::to_string(most_types) + " types",
               "remove those that no topic uses");
  return {};
}

Result<void> Document::read_types(pugi::xml_node node, Profile& profile) const {
  if (auto ok = check_children(node); !ok) return ok;
  TypesDraft draft;
  if (auto ok = read(node, types_attributes, draft); !ok) return ok;
  const auto add = [&](pugi::xml_node of, const Result<std::map<std::string, TypePtr>>& types) -> Result<void> {
    if (!types) return within(of, types.error());
    for (const auto& [name, type] : *types)
      if (auto ok = add_type(of, name, type, profile); !ok) return ok;
    return {};
  };
  if (!draft.idl.empty())
    if (auto ok = add(node, load_idl(beside(folder_, draft.idl))); !ok) return ok;
  for (const auto child : node) {
    const std::string_view element = child.name();
    if (element == "idl") {
      Nothing nothing;
      if (auto ok = read(child, idl_attributes, nothing); !ok) return ok;
      std::string text;
      for (const auto part : child) {
        if (part.type() == pugi::node_element)
          return Error{"bus.unknown_key", where(part) + "<idl> has no element " + shown(part.name()),
                       "it can have only text: write '<' as &lt;, or put all of it into <![CDATA[ … ]]>"};
        text += part.value();
      }
      if (auto ok = add(child, parse_idl(text, "<idl>")); !ok) return ok;
      continue;
    }
    const auto type = element == "enum" ? read_enum(child) : read_struct(child, profile);
    if (!type) return type.error();
    if (element == "struct")
      if (auto ok = check(**type); !ok) return within(child, ok.error());
    if (auto ok = add_type(child, (*type)->name, *type, profile); !ok) return ok;
  }
  return {};
}

Result<void> Document::read_topic(pugi::xml_node node, Profile& profile) const {
  if (auto ok = check_children(node); !ok) return ok;
  TopicDraft draft;
  if (auto ok = read(node, topic_attributes, draft); !ok) return ok;
  TopicProfile topic{draft.name, draft.type, draft.qos, draft.qos};
  if (auto ok = check_topic_name(draft.name); !ok) return within(node, ok.error());
  const auto type = profile.types.find(draft.type);
  if (type == profile.types.end() || type->second->kind != Kind::structure) {
    std::vector<std::string> names;
    for (const auto& [name, its] : profile.types)
      if (its->kind == Kind::structure) names.push_back(name);
    return bad(where(node), "<topic> type: there is no structure " + shown(draft.type) + nearest(draft.type, names),
               names.empty() ? "declare it before the topic, with <types idl=\"file.idl\"/> or in <types>"
                             : "there are: " + joined(names));
  }
  std::set<std::string_view> seen;
  for (const auto child : node) {
    if (!seen.insert(child.name()).second)
      return bad(where(child), "<topic> has <" + std::string(child.name()) + "> twice", "merge them into one");
    if (auto ok = check_children(child); !ok) return ok;
    if (auto ok = read(child, qos_attributes, std::string_view(child.name()) == "writer" ? topic.writer : topic.reader);
        !ok)
      return ok;
  }
  for (const auto& [qos, of] : {std::pair{&topic.writer, "writer"}, {&topic.reader, "reader"}})
    if (auto ok = check(*qos); !ok)
      return bad(where(node), "the " + std::string(of) + " of topic " + topic.name + ": " + ok.error().what,
                 ok.error().hint);
  if (!profile.topics.emplace(draft.name, topic).second)
    return bad(where(node), "the topic " + draft.name + " is declared twice", "remove one of them");
  if (profile.topics.size() > most_topics)
    return bad(where(node), "there are more than " + std::to_string(most_topics) + " topics",
               "remove those that are not needed");
  return {};
}

Result<Security> Document::read_security(pugi::xml_node node) const {
  SecurityDraft draft;
  if (auto ok = check_children(node); !ok) return ok.error();
  if (auto ok = read(node, security_attributes, draft); !ok) return ok.error();
  // Programs with separate keys can share a profile: the environment sets each program's identity.
  if (const char* own = std::getenv("SONDE_BUS_IDENTITY"); own && *own && !draft.folder.empty()) {
    if (!is_identity(own))
      return bad("SONDE_BUS_IDENTITY: ", shown(own) + " is not a valid identity", allowed_identity);
    draft.identity = own;
  }
  if (draft.folder.empty() != draft.identity.empty())
    return bad(where(node),
               std::string("<security> has ") +
                   (draft.folder.empty() ? "an identity but no folder" : "a folder but no identity"),
               "give both, as written by 'sonde bus keys': folder=\"keys\" identity=\"node-manager\"");
  for (const auto& file : security_files) {
    auto& path = draft.files.*file.member;
    if (path.empty() && draft.folder.empty())
      return bad(where(node), std::string("<security> has no ") + file.attribute,
                 "give all six files, or folder and identity");
    if (path.empty()) path = draft.folder + "/" + (file.own ? draft.identity + "/" : "") + file.file;
    path = beside(folder_, path);
  }
  return draft.files;
}

/// Reads the elements that profiles share.
Result<void> Document::read_shared(pugi::xml_node node, Profile& profile) const {
  for (const auto child : node) {
    const std::string_view element = child.name();
    if (element == "types")
      if (auto ok = read_types(child, profile); !ok) return ok;
    if (element == "topic")
      if (auto ok = read_topic(child, profile); !ok) return ok;
  }
  return {};
}

Result<Profile> Document::read_profile(pugi::xml_node root, pugi::xml_node node) const {
  Draft draft;
  if (auto ok = check_children(node); !ok) return ok.error();
  if (auto ok = read(node, profile_attributes, draft); !ok) return ok.error();
  Profile profile;
  profile.name = draft.name;
  profile.implementation = draft.implementation;
  profile.domain = draft.domain;
  profile.participant = draft.participant;
  profile.spin_s = draft.spin_s;
  profile.unprotected = draft.unprotected;
  std::set<std::string_view> seen;
  for (const auto child : node) {
    const std::string_view element = child.name();
    if (element == "types" || element == "topic") continue;
    if (!seen.insert(element).second)
      return bad(where(child), "<profile> has <" + std::string(element) + "> twice", "merge them into one");
    if (auto ok = check_children(child); !ok) return ok.error();
    if (element == "transport")
      if (auto ok = read(child, transport_attributes, profile.transport); !ok) return ok.error();
    if (element == "discovery") {
      if (auto ok = read(child, discovery_attributes, profile.discovery); !ok) return ok.error();
      profile.discovery.backup = beside(folder_, profile.discovery.backup);
    }
    if (element == "security") {
      auto files = read_security(child);
      if (!files) return files.error();
      profile.security = std::move(*files);
    }
  }
  for (const auto& of : {root, node})
    if (auto ok = read_shared(of, profile); !ok) return ok.error();
  if (auto ok = check(profile); !ok) return within(node, ok.error());
  return profile;
}

Result<Profile> Document::profile(pugi::xml_node root, std::string_view name) const {
  RootDraft draft;
  if (auto ok = check_children(root); !ok) return ok.error();
  if (auto ok = read(root, root_attributes, draft); !ok) return ok.error();
  std::map<std::string, Profile> profiles;
  for (const auto node : root) {
    if (std::string_view(node.name()) != "profile") continue;
    auto read_one = read_profile(root, node);
    if (!read_one) return read_one;
    const std::string its = read_one->name;
    if (!profiles.emplace(its, std::move(*read_one)).second)
      return bad(where(node), "the profile " + its + " is defined twice", "rename one of them");
  }
  std::vector<std::string> names;
  for (const auto& [its, profile] : profiles) names.push_back(its);
  if (names.empty()) return Error{"bus.no_profile", called() + " has no <profile>", "add <profile name=\"default\">"};
  if (name.empty() && names.size() == 1) return profiles.begin()->second;
  const auto at = profiles.find(name.empty() ? "default" : std::string(name));
  if (at == profiles.end() && name.empty())
    return Error{"bus.no_profile", called() + " has several profiles, but none is called default",
                 "name one of: " + joined(names)};
  if (at == profiles.end())
    return Error{"bus.no_profile", called() + " has no profile " + shown(name) + nearest(name, names),
                 "it has: " + joined(names)};
  return at->second;
}

Result<std::string> text_of_file(const std::string& path) {
  const auto no_file = [&](const std::string& why) {
    return Error{"bus.no_file", "cannot read the profile " + path + ": " + why,
                 "correct its path; docs/reference/bus-profile.md has an example"};
  };
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);  // opening a FIFO would block
  if (fd < 0) return no_file(std::strerror(errno));
  struct stat found{};
  std::string text;
  Result<std::string> result = no_file("it is not a file");
  if (::fstat(fd, &found) == 0 && S_ISREG(found.st_mode)) {
    char part[65536];
    ssize_t n = 0;
    while (text.size() <= most_file_bytes && (n = ::read(fd, part, sizeof part)) > 0)
      text.append(part, static_cast<std::size_t>(n));
    result = n < 0 ? Result<std::string>(no_file(std::strerror(errno))) : Result<std::string>(std::move(text));
  }
  ::close(fd);
  return result;
}

// ---- writing

/// Writes the attributes in which `from` differs from the default.
template <typename Into>
void write_attributes(pugi::xml_node node, const std::vector<Attribute<Into>>& known, const Into& from,
                      const Into& otherwise = {}) {
  for (const auto& k : known)
    if (k.write)
      if (const std::string text = k.write(from); k.required || text != k.write(otherwise))
        node.append_attribute(k.name).set_value(text.c_str());
}

struct Text final : pugi::xml_writer {
  std::string text;
  void write(const void* data, std::size_t bytes) override { text.append(static_cast<const char*>(data), bytes); }
};

Error bad_profile(const std::string& what, const std::string& hint) { return {"bus.bad_profile", what, hint}; }

Result<void> check_transport(const Transport& t) {
  const bool groups = t.kind == TransportKind::udp4 || t.kind == TransportKind::udp6;
  if (t.multicast == Multicast::all && !groups)
    return bad_profile("multicast=\"all\" needs udp4 or udp6: other transports have no groups",
                       "remove multicast, or use kind=\"udp4\"");
  if (t.port && t.kind != TransportKind::tcp4)
    return bad_profile("only tcp4 has a port: the ports of other transports follow from the domain",
                       "remove port, or change the domain");
  if (t.kind == TransportKind::shared_memory && !t.interfaces.empty())
    return bad_profile("shared memory has no interfaces", "remove interfaces, or use kind=\"udp4\"");
  for (const auto bytes : {t.receive_buffer_bytes, t.send_buffer_bytes})
    if (bytes > most_int)
      return bad_profile(
          "a socket buffer of " + std::to_string(bytes) + " B; allowed: up to " + std::to_string(most_int),
          "16MiB is usually more than enough");
  if (t.max_message_bytes && (t.max_message_bytes < 1024 || t.max_message_bytes > 65500))
    return bad_profile("datagrams of " + std::to_string(t.max_message_bytes) + " B at most; allowed: 1024 to 65500",
                       "1400 fits into Ethernet frames");
  if (t.interfaces.size() > most_list_words)
    return bad_profile("there are " + std::to_string(t.interfaces.size()) + " interfaces; allowed: up to " +
                           std::to_string(most_list_words),
                       "give a network instead, like 10.1.0.0/16");
  return {};
}

Result<void> check_discovery(const Discovery& d) {
  const auto belongs = [&](bool given, DiscoveryKind to, const char* what, const char* kind) -> Result<void> {
    if (given && d.kind != to)
      return bad_profile(std::string(what) + " belongs to discovery kind=\"" + kind + "\"",
                         std::string("write kind=\"") + kind + "\", or remove " + what);
    return {};
  };
  for (const auto& ok : {belongs(!d.peers.empty(), DiscoveryKind::peers, "peers", "peers"),
                         belongs(!d.servers.empty(), DiscoveryKind::server, "servers", "server"),
                         belongs(d.serve, DiscoveryKind::server, "serve", "server"),
                         belongs(!d.backup.empty(), DiscoveryKind::server, "backup", "server")})
    if (!ok) return ok;
  if (d.kind == DiscoveryKind::peers && d.peers.empty())
    return bad_profile("discovery by peers needs a list of peers",
                       "write peers=\"n001 n002\", or on one machine peers=\"localhost:8\"");
  if (d.kind == DiscoveryKind::server && d.servers.empty())
    return bad_profile("discovery by a server needs a list of servers", "write servers=\"10.1.0.1:11811\"");
  if (!d.backup.empty() && !d.serve)
    return bad_profile("only a discovery server has a backup file, but this participant is not one",
                       "remove backup, or write serve=\"yes\"");
  for (const auto& word : d.peers) {
    auto peer = parse_peer(word);
    if (!peer) return peer.error();
    if (peer->number > most_participants)
      return bad_profile("the peer " + shown(word) + " asks for " + std::to_string(peer->number) +
                             " participants; allowed: up to " + std::to_string(most_participants) +
                             " on one host in one domain",
                         "the number after a peer's colon is the largest number of participants there, not a port");
  }
  if (d.servers.size() > most_list_words)
    return bad_profile(
        "there are " + std::to_string(d.servers.size()) + " servers; allowed: up to " + std::to_string(most_list_words),
        "give fewer");
  for (const auto& word : d.servers) {
    auto server = parse_peer(word);
    if (!server) return server.error();
    if (!server->number) return bad_profile("the server " + shown(word) + " has no port", "write " + word + ":11811");
  }
  if (!(d.lease_s > 0) || d.lease_s > longest_s)
    return bad_profile("a participant's lease of " + exact_duration(d.lease_s) + "; allowed: above 0, and finite",
                       "10s is usual");
  if (!(d.announce_s >= 0) || d.announce_s >= d.lease_s)
    return bad_profile("announcements every " + exact_duration(d.announce_s) + " are too seldom for a lease of " +
                           exact_duration(d.lease_s),
                       "set announce to a third of the lease, or remove it");
  return {};
}

/// Checks paths and names that are copied into XML and into the configuration of a DDS.
Result<void> check_text(const std::string& text, const char* what, std::size_t most = 4095) {
  if (text.size() > most)
    return bad_profile(
        std::string(what) + " has " + std::to_string(text.size()) + " B; allowed: up to " + std::to_string(most),
        "shorten it");
  if (std::any_of(text.begin(), text.end(), is_control) || !is_utf8(text))
    return bad_profile(std::string(what) + " " + shown(text) + " has a control character, or is not UTF-8",
                       "correct it");
  return {};
}

}  // namespace

std::vector<ProfileElement> profile_elements() {
  std::vector<ProfileElement> all;
  for (const auto& element : elements) {
    ProfileElement one{element.name, {}, element.children};
    with_attributes(element.name, [&](const auto& known) {
      for (const auto& k : known) one.attributes.push_back({k.name, k.values, k.required});
    });
    all.push_back(std::move(one));
  }
  return all;
}

Result<void> check_topic_name(std::string_view name) {
  if (is_name(name, "/:", limit::name_bytes)) return {};
  return Error{"bus.bad_name",
               "the topic name " + shown(name) +
                   (name.size() > limit::name_bytes ? " has " + std::to_string(name.size()) + " B"
                                                    : " is not a valid name in every DDS"),
               "allowed: 1 to 255 letters, digits, '_', '/', ':'"};
}

Result<void> check(const Qos& qos) {
  const auto bad = [](const std::string& what, const std::string& hint) { return Error{"bus.bad_qos", what, hint}; };
  if (qos.history == History::keep_last && (qos.depth < 1 || qos.depth > most_int))
    return bad("a depth of " + std::to_string(qos.depth) + "; allowed: 1 to " + std::to_string(most_int),
               "depth=\"1\" keeps only the last sample");
  if (qos.history == History::keep_last && qos.max_samples)
    return bad("max-samples needs history keep-all", "write history=\"keep-all\", or limit the history with depth");
  if (qos.max_samples > most_int)
    return bad("max-samples of " + std::to_string(qos.max_samples) + "; allowed: up to " + std::to_string(most_int),
               "remove it");
  struct Time {
    const char* name;
    double value_s;
    bool zero, endless;
  };
  for (const auto& [name, value_s, zero, endless] : {Time{"max-blocking", qos.max_blocking_s, true, true},
                                                     {"deadline", qos.deadline_s, false, true},
                                                     {"lifespan", qos.lifespan_s, false, true},
                                                     {"lease", qos.lease_s, false, true},
                                                     {"latency-budget", qos.latency_budget_s, true, false}}) {
    const bool fits = value_s > 0 ? value_s <= longest_s || (endless && std::isinf(value_s)) : zero && value_s == 0;
    if (!fits)
      return bad(std::string(name) + " of " + (std::isnan(value_s) ? "nan" : exact_duration(value_s)) + "; allowed: " +
                     (zero ? "0 s and above" : "above 0 s") + (endless ? ", or forever" : ", up to 36525 d"),
                 "write it like 500ms");
  }
  if (qos.strength && qos.ownership == Ownership::shared)
    return bad("strength needs ownership exclusive", "write ownership=\"exclusive\", or remove strength");
  if (qos.partitions.size() > most_list_words)
    return bad("there are " + std::to_string(qos.partitions.size()) + " partitions; allowed: up to " +
                   std::to_string(most_list_words),
               "use a wildcard, like Node*");
  for (const auto& partition : qos.partitions) {
    const auto taken = [](char c) { return !is_control(c) && c != ' ' && c != '[' && c != ']' && c != '\\'; };
    if (partition.empty() || partition.size() > 255 || !is_utf8(partition) ||
        !std::all_of(partition.begin(), partition.end(), taken))
      return bad("the partition " + shown(partition) + " is a name that DDS implementations read differently",
                 "allowed: 1 to 255 characters without blanks, '[', ']', '\\'; '*' and '?' are wildcards");
  }
  if (qos.user_data.size() > most_user_data)
    return bad("user data of " + std::to_string(qos.user_data.size()) + " B; allowed: up to " +
                   std::to_string(most_user_data) + ", besides Sonde's own",
               "send it in a topic");
  if (std::any_of(qos.user_data.begin(), qos.user_data.end(), is_control) || !is_utf8(qos.user_data))
    return bad("the user data " + shown(qos.user_data) + " have a control character, or are not UTF-8",
               "user data must be text");
  return {};
}

Result<void> check(const Profile& profile) {
  if (!is_name(profile.name, "-.", 64))
    return bad_profile("the profile's name " + shown(profile.name) + " is not valid",
                       "allowed: 1 to 64 letters, digits, '_', '-', '.'");
  if (profile.domain > 232)
    return bad_profile(
        "domain " + std::to_string(profile.domain) + "; allowed: 0 to 232, for which DDSI-RTPS has ports",
        "choose another");
  if (auto ok = check_text(profile.implementation, "the implementation", 64); !ok) return ok;
  if (auto ok = check_text(profile.participant, "the participant's name", 255); !ok) return ok;
  if (auto ok = check_transport(profile.transport); !ok) return ok;
  if (auto ok = check_discovery(profile.discovery); !ok) return ok;
  if (auto ok = check_text(profile.discovery.backup, "the backup file"); !ok) return ok;
  if (profile.security && profile.domain > 230)
    return bad_profile(
        "domain " + std::to_string(profile.domain) + " cannot be secured: DDS Security is defined for domains 0 to 230",
        "choose one of these");
  if (profile.security)
    for (const auto& file : security_files) {
      const std::string& path = (*profile.security).*file.member;
      if (path.empty())
        return bad_profile(std::string("security has no ") + file.attribute,
                           "give all six files, or folder and identity");
      if (auto ok = check_text(path, file.attribute); !ok) return ok;
    }
  for (const auto& [name, type] : profile.types) {
    if (!type || type->name != name)
      return bad_profile("the type " + shown(name) + " is missing, or has another name",
                         "enter each type under its own name");
    if (type->kind != Kind::structure) continue;  // an enumeration is part of structures only
    if (auto ok = check(*type); !ok) return ok;
  }
  for (const auto& [name, topic] : profile.topics) {
    if (auto ok = check_topic_name(name); !ok) return ok;
    if (topic.name != name)
      return bad_profile("the topic " + name + " is called " + shown(topic.name),
                         "enter each topic under its own name");
    const auto type = profile.types.find(topic.type);
    if (type == profile.types.end() || type->second->kind != Kind::structure)
      return bad_profile("topic " + name + ": the profile has no structure " + shown(topic.type), "add its type, too");
    for (const Qos* qos : {&topic.writer, &topic.reader})
      if (auto ok = check(*qos); !ok)
        return Error{ok.error().code, "topic " + name + ": " + ok.error().what, ok.error().hint};
  }
  return {};
}

Result<Profile> parse_profile(std::string_view xml, std::string_view name, const std::string& folder,
                              const std::string& file) {
  Document document(xml, file, folder);
  const auto root = document.parse();
  if (!root) return root.error();
  return document.profile(*root, name);
}

Result<Profile> load_profile(const std::string& path, std::string_view name) {
  const auto text = text_of_file(path);
  if (!text) return text.error();
  const std::size_t slash = path.rfind('/');
  return parse_profile(*text, name, slash == std::string::npos ? "." : path.substr(0, std::max<std::size_t>(slash, 1)),
                       path);
}

std::string to_xml(const Profile& profile) {
  pugi::xml_document tree;
  auto root = tree.append_child("sonde-bus");
  write_attributes(root, root_attributes, RootDraft{1});
  auto node = root.append_child("profile");
  write_attributes(node, profile_attributes,
                   Draft{profile.name, profile.implementation, profile.participant, profile.domain, profile.spin_s,
                         profile.unprotected});
  write_attributes(node.append_child("transport"), transport_attributes, profile.transport);
  write_attributes(node.append_child("discovery"), discovery_attributes, profile.discovery);
  if (profile.security)
    write_attributes(node.append_child("security"), security_attributes, SecurityDraft{"", "", *profile.security});
  if (!profile.types.empty()) {
    auto types = node.append_child("types");
    for (const auto& [name, type] : profile.types) types.append_child("idl").text().set(to_idl(*type).c_str());
  }
  for (const auto& [name, topic] : profile.topics) {
    auto at = node.append_child("topic");
    const bool alike = topic.writer == topic.reader;
    write_attributes(at, topic_attributes, TopicDraft{topic.name, topic.type, alike ? topic.writer : Qos{}});
    if (alike) continue;
    write_attributes(at.append_child("writer"), qos_attributes, topic.writer);
    write_attributes(at.append_child("reader"), qos_attributes, topic.reader);
  }
  Text out;
  tree.save(out, "  ", pugi::format_indent | pugi::format_no_declaration, pugi::encoding_utf8);
  return out.text;
}

}  // namespace sonde::bus

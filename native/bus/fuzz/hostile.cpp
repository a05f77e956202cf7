#include "bus/fuzz/hostile.hpp"

#include <algorithm>
#include <cstring>
#include <fstream>
#include <map>

#include "bus/cdr.hpp"
#include "bus/idl.hpp"
#include "bus/value.hpp"

namespace sonde::bus::fuzz {

namespace {

std::vector<std::byte> from_hex(std::string_view text) {
  std::vector<std::byte> out;
  const auto digit = [](char c) { return static_cast<unsigned>(c <= '9' ? c - '0' : c - 'a' + 10); };
  for (std::size_t k = 0; k + 1 < text.size(); k += 2)
    out.push_back(static_cast<std::byte>(digit(text[k]) << 4 | digit(text[k + 1])));
  return out;
}

std::string judge_sample(const TypePtr& type, const Checker& checker, Bytes payload, bool& verified) {
  std::string why;
  verified = verify(*type, payload, &why);
  if (verified != why.empty())
    return "verify() is " + std::string(verified ? "true" : "false") + " and says '" + why + "'";
  if (verify(*type, payload) != verified) return "verify() depends on whether it is asked why";
  if (checker.verify(payload) != verified) return "Checker does not agree with verify(), which says '" + why + "'";
  auto value = decode(*type, payload);
  if (!verified)
    return value                       ? "what is no sample decodes"
           : value.error().what != why ? "decode() says '" + value.error().what + "', verify() '" + why + "'"
                                       : "";
  if (!value) return value.error().code == "bus.too_large" ? "" : "a sample does not decode: " + value.error().what;

  std::vector<std::byte> once, twice;
  if (auto fine = encode(*type, *value, once); !fine) return "what was decoded does not encode: " + fine.error().what;
  if (!checker.verify(once)) return "what was encoded is no sample";
  const auto again = decode(*type, once);
  if (!again || to_json(*again) != to_json(*value)) return "a sample changes on its way there and back";
  if (!encode(*type, *again, twice) || twice != once)
    return "a sample is encoded differently the second time";  // the first encoding may change NaNs to quiet ones

  const auto key = serialised_key(*type, payload);
  if (std::vector<std::byte> made; KeyMaker(type).make(payload, made), made != key)
    return "KeyMaker does not agree with serialised_key()";
  if (key.empty() == has_key(*type)) return "a key exists for a type without key, or is missing";
  if (key.size() > most_key_bytes(*type)) return "a key has more bytes than most_key_bytes()";
  if (key.empty()) return "";
  const auto of_key = payload_of_key(*type, key);
  if (!checker.verify(of_key)) return "payload_of_key() makes no sample";
  return serialised_key(*type, of_key) == key ? "" : "a key changes on its way there and back";
}

}  // namespace

std::vector<Seed> seeds(const std::string& golden) {
  std::vector<Seed> out;
  std::ifstream in(golden);
  Seed seed;
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with("idl ")) {
      const std::size_t blank = line.find(' ', 4);
      if (blank == std::string::npos) return {};
      seed.type = line.substr(4, blank - 4);
      seed.idl = line.substr(blank + 1);
    } else if (line.starts_with("le ") || line.starts_with("be ")) {
      seed.payload = from_hex(std::string_view(line).substr(3));
      out.push_back(seed);
    }
  }
  return out;
}

std::string judge_sample(const TypePtr& type, Bytes payload) {
  bool verified;
  return judge_sample(type, Checker(type), payload, verified);
}

std::string judge_idl(std::string_view idl) {
  const auto types = parse_idl(idl);
  if (!types)
    return types.error().code != "bus.bad_idl" || !types.error().what.starts_with("line ") ||
                   types.error().what.ends_with(": ")
               ? "an error without place or words: " + types.error().what
               : "";
  for (const auto& [name, type] : *types) {
    if (type->name != name) return "'" + name + "' is called '" + type->name + "'";
    if (type->kind == Kind::structure)
      if (auto fine = check(*type); !fine) return "what was parsed does not pass check(): " + fine.error().what;
    const std::string written = to_idl(*type);
    const auto again = parse_idl(written);
    if (!again) return "to_idl() writes what parse_idl() refuses: " + again.error().what + "\n" + written;
    const auto same = (*again).find(name);
    if (same == (*again).end() || !equal(*same->second, *type) || fingerprint(*same->second) != fingerprint(*type))
      return "to_idl() declares something else:\n" + written;
  }
  return "";
}

std::string judge(Bytes input) {
  const auto nul = std::find(input.begin(), input.end(), std::byte{0});
  const std::string idl(reinterpret_cast<const char*>(input.data()), static_cast<std::size_t>(nul - input.begin()));
  if (auto wrong = judge_idl(idl); !wrong.empty()) return wrong;
  const auto types = parse_idl(idl);
  if (!types || nul == input.end()) return "";
  const Bytes payload = input.subspan(idl.size() + 1);
  for (auto type = (*types).rbegin(); type != (*types).rend(); ++type)
    if (type->second->kind == Kind::structure) return judge_sample(type->second, payload);
  return "";
}

std::vector<std::byte> input_of(const Seed& seed) {
  std::vector<std::byte> out(seed.idl.size() + 1);
  std::memcpy(out.data(), seed.idl.data(), seed.idl.size());
  out.insert(out.end(), seed.payload.begin(), seed.payload.end());
  return out;
}

void spoil(std::mt19937_64& random, std::vector<std::byte>& payload) {
  static constexpr std::uint32_t lies[] = {0,      1,          2,          3,          5,          0x7f,      0xff,
                                           0xffff, 0x7fffffff, 0x80000000, 0xfffffffe, 0xffffffff, 0x20000001};
  for (std::size_t times = 1 + random() % 3; times--;) {
    if (payload.empty()) payload.resize(1 + random() % 8);
    const std::size_t at = random() % payload.size();
    switch (random() % 8) {
      case 0: payload[at] ^= static_cast<std::byte>(1u << (random() % 8)); break;
      case 1: payload[at] = static_cast<std::byte>(random()); break;
      case 2: {  // a wrong length or number, in either byte order
        std::uint32_t lie = random() % 4 ? lies[random() % std::size(lies)]
                                         : static_cast<std::uint32_t>(payload.size() - random() % (payload.size() + 4));
        if (random() % 2) lie = __builtin_bswap32(lie);
        const std::size_t where =
            std::min(at & ~std::size_t{3}, payload.size() - std::min<std::size_t>(payload.size(), 4));
        std::memcpy(payload.data() + where, &lie, std::min<std::size_t>(4, payload.size() - where));
        break;
      }
      case 3: payload.resize(at); break;
      case 4: payload.insert(payload.end(), random() % 9, static_cast<std::byte>(random() % 3)); break;
      case 5: {  // a piece of it at another place
        const std::size_t n = std::min(payload.size() - at, random() % 16);
        std::memmove(payload.data() + random() % (payload.size() - n + 1), payload.data() + at, n);
        break;
      }
      case 6:
        payload.erase(payload.begin() + static_cast<std::ptrdiff_t>(at),
                      payload.begin() + static_cast<std::ptrdiff_t>(std::min(payload.size(), at + 1 + random() % 8)));
        break;
      case 7:
        if (payload.size() >= 2 && random() % 4 == 0) payload[1] ^= std::byte{1};
        else payload[at] = static_cast<std::byte>(random() % 3);
        break;
    }
  }
}

void spoil(std::mt19937_64& random, std::string& idl) {
  static constexpr std::string_view words[] = {
      "struct",  "enum",        "module",     "typedef", "const", "long",       "sequence<",
      "string<", ">",           "{",          "}",       ";",     ",",          "[",
      "]",       "@key ",       "@value(1) ", "@",       "::",    "<<",         "(",
      ")",       "-",           "~",          "0",       "1",     "4294967295", "9223372036854775808",
      "0x",      "1e9",         "\"",         "'",       "/*",    "//",         "\n",
      "#",       "#ifndef A\n", "\n#endif\n", "_",       "S0",    "E0",         "e0_0",
      "x",       " ",           ":"};
  for (std::size_t times = 1 + random() % 2; times--;) {
    if (idl.empty()) idl = "struct S { long a; };";
    const std::size_t at = random() % idl.size(), n = 1 + random() % 24;
    switch (random() % 5) {
      case 0: idl.erase(at, random() % 2 ? 1 : n); break;
      case 1: idl.insert(at, words[random() % std::size(words)]); break;
      case 2: idl.insert(random() % idl.size(), idl.substr(at, n)); break;
      case 3: idl[at] = static_cast<char>(random() % 4 ? 32 + random() % 96 : random()); break;
      case 4: {
        const std::string_view word = words[random() % std::size(words)];
        idl.replace(at, std::min(idl.size() - at, word.size()), word);
        break;
      }
    }
  }
}

Tally attack(const std::vector<Seed>& seeds, std::uint64_t mutations, std::uint64_t random_seed) {
  struct Target {
    TypePtr type;
    Checker checker;
  };
  std::map<std::string, Target> targets;
  Tally tally;
  for (const Seed& seed : seeds) {
    const auto types = parse_idl(seed.idl);
    if (!types || !(*types).contains(seed.type)) {
      tally.wrong = "a seed's IDL is refused";
      tally.input = input_of(seed);
      return tally;
    }
    const TypePtr type = (*types).at(seed.type);
    targets.try_emplace(seed.idl, Target{type, Checker(type)});
  }
  std::mt19937_64 random(random_seed);
  for (std::uint64_t k = 0; k < mutations && !seeds.empty() && tally.wrong.empty(); ++k) {
    const Seed& seed = seeds[random() % seeds.size()];
    if (random() % 16 == 0) {
      std::string idl = seed.idl;
      spoil(random, idl);
      ++tally.declarations;
      tally.declared += bool(parse_idl(idl));
      tally.wrong = judge_idl(idl);
      if (!tally.wrong.empty()) tally.input = input_of({idl, "", {}});
    } else {
      // Some payloads are of a different type.
      auto payload = random() % 16 ? seed.payload : seeds[random() % seeds.size()].payload;
      spoil(random, payload);
      const Target& target = targets.at(seed.idl);
      bool verified;
      tally.wrong = judge_sample(target.type, target.checker, payload, verified);
      ++tally.samples;
      tally.verified += verified;
      if (!tally.wrong.empty()) tally.input = input_of({seed.idl, seed.type, payload});
    }
  }
  return tally;
}

}  // namespace sonde::bus::fuzz

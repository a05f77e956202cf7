#pragma once
/// C++ structures as samples: one description gives the Type, the encoder and the decoder.
///
///   struct NodePower { std::string node; double power_w; Mode mode; };
///   template <> struct sonde::bus::Described<Mode> {
///     static constexpr auto name = "regale::Mode";
///     static constexpr auto enumerators = std::array{enumerator("off", Mode::off), enumerator("on", Mode::on)};
///   };
///   template <> struct sonde::bus::Described<NodePower> {
///     static constexpr auto name = "regale::NodePower";
///     static constexpr auto fields = std::tuple{
///         key("node", &NodePower::node).at_most(64), field("power_w", &NodePower::power_w, "W"),
///         field("mode", &NodePower::mode)};
///   };
///
/// Members may be arithmetic (no long double), bool, std::byte, enum class with a Described of its own, std::string,
/// std::vector, std::array, described structures. char is IDL's char, std::uint8_t its uint8, std::byte its octet.
/// Functions any-thread; a Publisher or Subscriber is used by one thread at a time.

#include <array>
#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "bus/bus.hpp"
#include "bus/cdr.hpp"
#include "bus/request.hpp"

namespace sonde::bus {

template <typename T> struct Described;

template <typename Owner, typename Member> struct FieldOf {
  const char* name;
  Member Owner::* member;
  const char* unit = "";
  bool is_key = false;
  std::uint32_t bound = 0;

  /// The bound of a string or vector: characters or elements.
  constexpr FieldOf at_most(std::uint32_t most) const
    requires requires(Member m) { m.clear(); }
  {
    FieldOf out = *this;
    out.bound = most;
    return out;
  }
};
template <typename Owner, typename Member>
constexpr FieldOf<Owner, Member> field(const char* name, Member Owner::* member, const char* unit = "") {
  return {name, member, unit};
}
template <typename Owner, typename Member>
constexpr FieldOf<Owner, Member> key(const char* name, Member Owner::* member, const char* unit = "") {
  return {name, member, unit, true};
}

template <typename E> struct EnumeratorOf {
  const char* name;
  E value;
};
template <typename E> constexpr EnumeratorOf<E> enumerator(const char* name, E value) { return {name, value}; }

template <typename T>
concept DescribedStructure = std::is_class_v<T> && requires { Described<T>::fields; };
template <typename T>
concept DescribedEnumeration = std::is_enum_v<T> && requires { Described<T>::enumerators; };

template <typename T> const TypePtr& type_of();

namespace detail {

template <typename T> struct IsVector : std::false_type {};
template <typename E> struct IsVector<std::vector<E>> : std::true_type {};
template <typename T> struct IsArray : std::false_type {};
template <typename E, std::size_t n> struct IsArray<std::array<E, n>> : std::true_type {};

/// Types whose memory layout is that of the wire.
template <typename T>
concept Plain = std::same_as<T, std::byte> || (CdrNumber<T> && !std::same_as<T, wchar_t> && !std::same_as<T, char8_t> &&
                                               !std::same_as<T, char16_t> && !std::same_as<T, char32_t>);

template <Plain T> constexpr Kind kind_of() {
  if constexpr (std::same_as<T, std::byte>) return Kind::octet;
  else if constexpr (std::same_as<T, char>) return Kind::char8;
  else if constexpr (std::same_as<T, float>) return Kind::float32;
  else if constexpr (std::same_as<T, double>) return Kind::float64;
  else if constexpr (sizeof(T) == 1) return std::is_signed_v<T> ? Kind::int8 : Kind::uint8;
  else if constexpr (sizeof(T) == 2) return std::is_signed_v<T> ? Kind::int16 : Kind::uint16;
  else if constexpr (sizeof(T) == 4) return std::is_signed_v<T> ? Kind::int32 : Kind::uint32;
  else return std::is_signed_v<T> ? Kind::int64 : Kind::uint64;
}

/// Like least_bytes() of cdr.cpp, at compile time.
template <typename T> constexpr std::size_t least_bytes() {
  if constexpr (Plain<T> || std::same_as<T, bool>) return sizeof(T);
  else if constexpr (std::same_as<T, std::string>) return 5;
  else if constexpr (DescribedStructure<T>)
    return std::apply(
        [](const auto&... f) {
          return (std::size_t{0} + ... + least_bytes<std::remove_cvref_t<decltype(std::declval<T&>().*(f.member))>>());
        },
        Described<T>::fields);
  else if constexpr (IsArray<T>::value) return std::tuple_size_v<T> * least_bytes<typename T::value_type>();
  else return 4;
}

template <typename T> TypePtr make_type(std::uint32_t bound = 0) {
  if constexpr (Plain<T>) {
    return primitive(kind_of<T>());
  } else if constexpr (std::same_as<T, bool>) {
    return primitive(Kind::boolean);
  } else if constexpr (std::same_as<T, std::string>) {
    return string_type(bound);
  } else if constexpr (IsVector<T>::value) {
    return sequence_of(type_of<typename T::value_type>(), bound);
  } else if constexpr (IsArray<T>::value) {
    return array_of(type_of<typename T::value_type>(), static_cast<std::uint32_t>(std::tuple_size_v<T>));
  } else if constexpr (DescribedEnumeration<T>) {
    std::vector<Enumerator> all;
    for (const auto& e : Described<T>::enumerators) all.push_back({e.name, static_cast<std::int32_t>(e.value)});
    return enumeration(Described<T>::name, std::move(all));
  } else {
    static_assert(DescribedStructure<T>,
                  "a member's type must be allowed in samples, or have a sonde::bus::Described of its own");
    std::vector<Field> all;
    std::apply(
        [&](const auto&... f) {
          (all.push_back({f.name, make_type<std::remove_cvref_t<decltype(std::declval<T&>().*(f.member))>>(f.bound),
                          f.is_key, f.unit}),
           ...);
        },
        Described<T>::fields);
    return structure(Described<T>::name, std::move(all));
  }
}

class Encoding {
 public:
  explicit Encoding(std::vector<std::byte>& payload) : out_(payload) {}

  template <typename T> bool put(const T& value, std::uint32_t bound = 0) {
    if constexpr (std::same_as<T, std::byte>) {
      out_.put(static_cast<std::uint8_t>(value));
    } else if constexpr (Plain<T> || std::same_as<T, bool>) {
      out_.put(value);
    } else if constexpr (std::same_as<T, std::string>) {
      if (bound && value.size() > bound)
        return wrong("has " + std::to_string(value.size()) + " characters; " + std::to_string(bound) + " are allowed");
      if (value.size() > limit::sample_bytes)
        return wrong("has " + std::to_string(value.size()) + " characters; a sample can have " +
                     std::to_string(limit::sample_bytes) + " bytes");
      if (std::string_view(value).find('\0') != std::string_view::npos)
        return wrong("contains a NUL, which IDL strings cannot hold");
      out_.put(std::string_view(value));
    } else if constexpr (DescribedEnumeration<T>) {
      for (const auto& e : Described<T>::enumerators) {
        if (e.value != value) continue;
        out_.put(static_cast<std::int32_t>(value));
        return true;
      }
      return wrong("has the value " + std::to_string(static_cast<long long>(value)) + ", but " + Described<T>::name +
                   " has no such enumerator");
    } else if constexpr (IsVector<T>::value) {
      if (bound && value.size() > bound)
        return wrong("has " + std::to_string(value.size()) + " elements; " + std::to_string(bound) + " are allowed");
      if (value.size() > limit::sample_bytes)
        return wrong("has " + std::to_string(value.size()) + " elements; a sample can have " +
                     std::to_string(limit::sample_bytes) + " bytes");
      out_.put(static_cast<std::uint32_t>(value.size()));
      return elements(value);
    } else if constexpr (IsArray<T>::value) {
      return elements(value);
    } else {
      return std::apply([&](const auto&... f) { return (part(f.name, value.*(f.member), f.bound) && ...); },
                        Described<T>::fields);
    }
    return true;
  }

  Error error(const char* type) const {
    return {"bus.bad_value", std::string(type).append(path_).append(" ").append(what_),
            "nothing was sent; give the field a value that its type allows"};
  }

 private:
  template <typename List> bool elements(const List& list) {
    using E = typename List::value_type;
    if constexpr (Plain<E>) {
      out_.put_elements(std::as_bytes(std::span(list)), sizeof(E));
    } else {
      for (std::size_t k = 0; k < list.size(); ++k)
        if (!put<E>(list[k])) return within(std::string(1, '[').append(std::to_string(k)).append("]"));
    }
    return true;
  }
  template <typename M> bool part(const char* name, const M& value, std::uint32_t bound) {
    return put(value, bound) || within(std::string(1, '.').append(name));
  }
  bool wrong(std::string what) {
    what_ = std::move(what);
    return false;
  }
  bool within(const std::string& step) {
    path_.insert(0, step);
    return false;
  }

  CdrWriter out_;
  std::string what_, path_;
};

template <typename T> void get(CdrReader& in, T& value, std::uint32_t bound = 0) {
  if constexpr (std::same_as<T, std::byte>) {
    value = static_cast<std::byte>(in.get<std::uint8_t>());
  } else if constexpr (Plain<T>) {
    value = in.get<T>();
  } else if constexpr (std::same_as<T, bool>) {
    value = in.get_bool();
  } else if constexpr (std::same_as<T, std::string>) {
    value = in.get_string(bound);
  } else if constexpr (DescribedEnumeration<T>) {
    const auto number = in.get<std::int32_t>();
    for (const auto& e : Described<T>::enumerators) {
      if (static_cast<std::int32_t>(e.value) != number) continue;
      value = e.value;
      return;
    }
    in.refuse();
  } else if constexpr (IsVector<T>::value || IsArray<T>::value) {
    using E = typename T::value_type;
    if constexpr (IsVector<T>::value) value.resize(in.get_length(bound, least_bytes<E>()));
    if constexpr (Plain<E>) {
      const Bytes raw = in.get_elements(value.size(), sizeof(E));
      if (raw.empty()) return;
      if (in.swaps() && sizeof(E) > 1) {
        for (std::size_t k = 0; k < value.size(); ++k) {
          std::array<std::byte, sizeof(E)> one;
          for (std::size_t b = 0; b < sizeof(E); ++b) one[b] = raw[k * sizeof(E) + sizeof(E) - 1 - b];
          value[k] = std::bit_cast<E>(one);
        }
      } else {
        std::memcpy(value.data(), raw.data(), raw.size());
      }
    } else {
      for (std::size_t k = 0; k < value.size() && in.ok(); ++k) {
        if constexpr (std::same_as<E, bool>) value[k] = in.get_bool();
        else get(in, value[k]);
      }
    }
  } else {
    std::apply([&](const auto&... f) { (get(in, value.*(f.member), f.bound), ...); }, Described<T>::fields);
  }
}

/// Whether the type of a topic in the profile is that of T.
Result<void> same_type(const std::string& topic, const Type& declared, const Type& described);

}  // namespace detail

/// The type of T, created once. Opening a topic checks it with check().
template <typename T> const TypePtr& type_of() {
  static const TypePtr type = detail::make_type<T>();
  return type;
}

/// Errors: bus.bad_value (path, what is allowed), for a string with a NUL or above its bound, or a number that is not
/// an enumerator.
template <DescribedStructure T> Result<void> encode(const T& value, std::vector<std::byte>& payload) {
  detail::Encoding encoding(payload);
  if (encoding.put(value)) return {};
  return encoding.error(Described<T>::name);
}

/// Decodes into an existing object, whose memory is used again. Errors: bus.malformed, as from verify(); then the
/// content of `into` is undefined.
template <DescribedStructure T> Result<void> decode(Bytes payload, T& into) {
  CdrReader in(payload);
  detail::get(in, into);
  if (in.ok() && in.left() <= most_padding) return {};
  std::string why;
  verify(*type_of<T>(), payload, &why);
  return Error{"bus.malformed", std::move(why),
               "the writer must send what " + std::string(Described<T>::name) + " declares"};
}
template <DescribedStructure T> Result<T> decode(Bytes payload) {
  T out{};
  if (auto fine = decode(payload, out); !fine) return fine.error();
  return out;
}

template <DescribedStructure T> class Publisher {
 public:
  /// Opens a topic of the profile; with `qos` any topic. Errors: those of Bus::writer(), and bus.bad_type if the
  /// profile has another type than T.
  static Result<std::unique_ptr<Publisher>> open(const std::shared_ptr<Bus>& bus, const std::string& topic) {
    return opened(bus->writer(topic));
  }
  static Result<std::unique_ptr<Publisher>> open(const std::shared_ptr<Bus>& bus, const std::string& topic,
                                                 const Qos& qos) {
    return opened(bus->writer(topic, type_of<T>(), qos));
  }

  /// Errors: bus.bad_value, and those of Writer::write().
  Result<void> write(const T& value) {
    if (auto fine = encode(value, payload_); !fine) return fine;
    return writer_->write(payload_);
  }
  /// Disposes of the instance with its key.
  Result<void> dispose(const T& value) {
    if (auto fine = encode(value, payload_); !fine) return fine;
    return writer_->dispose(payload_);
  }
  Writer& writer() { return *writer_; }

 private:
  explicit Publisher(std::unique_ptr<Writer> writer) : writer_(std::move(writer)) {}
  static Result<std::unique_ptr<Publisher>> opened(Result<std::unique_ptr<Writer>> writer) {
    if (!writer) return writer.error();
    if (auto same = detail::same_type((*writer)->topic(), *(*writer)->type(), *type_of<T>()); !same)
      return same.error();
    return std::unique_ptr<Publisher>(new Publisher(std::move(*writer)));
  }

  std::unique_ptr<Writer> writer_;
  std::vector<std::byte> payload_;
};

template <DescribedStructure T> class Subscriber {
 public:
  /// Like Publisher::open().
  static Result<std::unique_ptr<Subscriber>> open(const std::shared_ptr<Bus>& bus, const std::string& topic) {
    return opened(bus->reader(topic));
  }
  static Result<std::unique_ptr<Subscriber>> open(const std::shared_ptr<Bus>& bus, const std::string& topic,
                                                  const Qos& qos) {
    return opened(bus->reader(topic, type_of<T>(), qos));
  }

  /// Takes the samples that have arrived, oldest first, at most `most`; never waits. `taker` is called with (const
  /// SampleInfo&, const T&); the sample is valid during the call.
  template <std::invocable<const SampleInfo&, const T&> F> std::size_t take(F&& taker, std::size_t most = SIZE_MAX) {
    // The reader has verified all samples against the same type, so all of them decode.
    return reader_->take(
        [&](const SampleInfo& info, Bytes payload) {
          if (decode(payload, sample_)) taker(info, std::as_const(sample_));
        },
        most);
  }
  Reader& reader() { return *reader_; }

 private:
  explicit Subscriber(std::unique_ptr<Reader> reader) : reader_(std::move(reader)) {}
  static Result<std::unique_ptr<Subscriber>> opened(Result<std::unique_ptr<Reader>> reader) {
    if (!reader) return reader.error();
    if (auto same = detail::same_type((*reader)->topic(), *(*reader)->type(), *type_of<T>()); !same)
      return same.error();
    return std::unique_ptr<Subscriber>(new Subscriber(std::move(*reader)));
  }

  std::unique_ptr<Reader> reader_;
  T sample_{};
};

/// An Answer whose body is a structure; empty with codes other than ok.
template <DescribedStructure Reply> struct AnswerOf {
  ReplyCode code = ReplyCode::ok;
  std::string message, server;
  int tries = 1;
  Reply body{};
};

template <DescribedStructure Request, DescribedStructure Reply> ServiceTypes service_types() {
  return {type_of<Request>(), type_of<Reply>()};
}

/// Errors: bus.bad_value, bus.malformed (the reply), those of Client::call().
template <DescribedStructure Reply, DescribedStructure Request>
Result<AnswerOf<Reply>> call(Client& client, const Request& request, const CallOptions& options = {}) {
  std::vector<std::byte> body;
  if (auto fine = encode(request, body); !fine) return fine.error();
  auto answer = client.call(body, options);
  if (!answer) return answer.error();
  AnswerOf<Reply> out{(*answer).code, std::move((*answer).message), std::move((*answer).server), (*answer).tries, {}};
  if (out.code == ReplyCode::ok)
    if (auto fine = decode((*answer).body, out.body); !fine) return fine.error();
  return out;
}

/// A handler for Server::open(), from a function of (const Incoming&, const Request&) that returns an AnswerOf<Reply>.
template <DescribedStructure Request, DescribedStructure Reply, std::invocable<const Incoming&, const Request&> F>
Server::Handler handler(F serve) {
  return [serve = std::move(serve)](const Incoming& incoming) -> Answer {
    auto request = decode<Request>(incoming.body);
    if (!request) return {ReplyCode::bad_request, request.error().what, {}, {}, 1};
    AnswerOf<Reply> reply = serve(incoming, *request);
    Answer out{reply.code, std::move(reply.message), {}, {}, 1};
    if (out.code != ReplyCode::ok) return out;
    if (auto fine = encode(reply.body, out.body); !fine) return {ReplyCode::failed, fine.error().what, {}, {}, 1};
    return out;
  };
}

}  // namespace sonde::bus

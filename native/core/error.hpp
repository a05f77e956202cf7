#pragma once
/// Errors as values. No exception leaves a Sonde library; a Result<T> holds a T or an Error.
///
/// An Error states what failed and with which value (`what`), what to do next (`hint`), and has a stable dotted `code`
/// ("net.peer_timeout") that scripts may test. Any-thread.

#include <string>
#include <utility>
#include <variant>

namespace sonde {

struct Error {
  std::string code;
  std::string what;
  std::string hint;
};

template <typename T> class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}
  Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}

  explicit operator bool() const { return state_.index() == 0; }
  T& operator*() { return std::get<0>(state_); }
  const T& operator*() const { return std::get<0>(state_); }
  T* operator->() { return &std::get<0>(state_); }
  const Error& error() const { return std::get<1>(state_); }

 private:
  std::variant<T, Error> state_;
};

template <> class [[nodiscard]] Result<void> {
 public:
  Result() = default;
  Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}

  explicit operator bool() const { return state_.index() == 0; }
  const Error& error() const { return std::get<1>(state_); }

 private:
  std::variant<std::monostate, Error> state_;
};

}  // namespace sonde

#include "store/conformance/suite.hpp"

#include <cstdint>

namespace sonde::store::conformance {

void Suite::open() {
  close();
  auto opened = open_({});
  if (!opened) throw Failed("it does not open: " + opened.error().what);
  if (!*opened) throw Failed("open gave no backend");
  backend_ = std::move(*opened);
  caps_ = backend_->caps();
}

void Suite::close() {
  if (!backend_) return;
  const auto settled = backend_->settle();
  backend_.reset();
  if (!settled) throw Failed("settle() failed: " + settled.error().what);
}

Answers Suite::run(const std::vector<Op>& ops, Safety safety) {
  for (const Op& op : ops)
    if (const Status status = store::check(op); status != Status::ok)
      throw Failed("the check itself is wrong: " + std::string(name_of(op.code)) + ' ' + std::string(name_of(status)));
  Answers answers;
  answers.outcomes.resize(ops.size());
  backend_->execute(ops, safety, answers.outcomes, *answers.arena);
  for (std::size_t k = 0; k < ops.size(); ++k)
    if (answers.outcomes[k].status == Status::pending)
      throw Failed("operation " + std::to_string(k) + " (" + std::string(name_of(ops[k].code)) + ") has no outcome");
  return answers;
}

std::string pattern(std::size_t n, unsigned seed) {
  std::string text(n, 0);
  std::uint32_t state = seed * 2654435761u + 1;
  for (char& c : text) {
    state = state * 1664525u + 1013904223u;
    c = static_cast<char>(state >> 24);
  }
  return text;
}

std::string shown(std::string_view text) {
  std::string out;
  constexpr char digits[] = "0123456789abcdef";
  for (const char c : text.substr(0, 40)) {
    if (c >= ' ' && c <= '~') {
      out += c;
    } else {
      const auto byte = static_cast<unsigned char>(c);
      out += {'\\', 'x', digits[byte >> 4], digits[byte & 15]};
    }
  }
  return std::string("'").append(out).append(text.size() > 40 ? "…' (" + std::to_string(text.size()) + " bytes)" : "'");
}

namespace {

void check_common(Suite& suite, Role role) {
  suite.check("reports the role that it serves", [&] {
    suite.expect(suite.caps().role == role, "caps() gives " + std::string(name_of(suite.caps().role)));
  });
  suite.check("describes itself in one line", [&] {
    const std::string text = suite.backend().describe();
    suite.expect(!text.empty() && text.find('\n') == std::string::npos, shown(text));
  });
  suite.check("a sync, a settle and an empty batch succeed", [&] {
    for (const bool all : {false, true})
      if (auto synced = suite.backend().sync(all); !synced) throw Failed(synced.error().what);
    if (auto settled = suite.backend().settle(); !settled) throw Failed(settled.error().what);
    (void)suite.run({});
    Op op;
    op.code = Code::sync;
    suite.expect(suite.status(op), Status::ok, "sync as an operation");
  });
  suite.check("codes of another role are unsupported", [&] {
    if (!suite.caps().keeps) return;
    Op op;
    op.space = "conformance";
    op.key = "k";
    op.code = role == Role::data ? Code::kv_get : Code::object_status;
    suite.expect(suite.status(op), Status::unsupported, std::string(name_of(op.code)));
  });
  suite.check("an unknown setting is refused, with its name", [&] {
    suite.close();
    auto opened = suite.try_open({{"no-such-setting", "1"}});
    suite.expect(!opened, "it opened");
    suite.expect(opened.error().code == "store.bad_setting", "the error is " + opened.error().code);
    suite.expect(opened.error().what.find("no-such-setting") != std::string::npos,
                 "the error does not name it: " + opened.error().what);
  });
}

}  // namespace

std::vector<Check> check_backend(Role role, const Open& open, const std::function<void(std::string_view)>& begin) {
  Suite suite(role, open, begin);
  bool opens = false;
  suite.check("opens", [&] {
    suite.open();
    opens = true;
  });
  if (!opens) return suite.take();
  check_common(suite, role);
  switch (role) {
    case Role::data: check_data(suite); break;
    case Role::kv: check_kv(suite); break;
    case Role::db: check_db(suite); break;
  }
  suite.check("ends cleanly", [&] { suite.close(); });
  return suite.take();
}

void expect_text(Suite& suite, const Outcome& found, std::string_view wanted, const std::string& what) {
  suite.expect(found.status, Status::ok, what);
  suite.expect(text_of(found.data) == wanted,
               what + ": " + shown(text_of(found.data)) + " instead of " + shown(wanted));
  suite.expect(found.value == wanted.size(),
               what + ": value is " + std::to_string(found.value) + ", not the number of bytes");
}

}  // namespace sonde::store::conformance

#include "store/db.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <set>
#include <type_traits>

namespace sonde::store::db {

static_assert(std::is_same_v<std::variant_alternative_t<static_cast<std::size_t>(Type::text), Value>, std::string>);
static_assert(std::is_same_v<std::variant_alternative_t<static_cast<std::size_t>(Type::float32), Value>, float>);
static_assert(std::variant_size_v<Value> == static_cast<std::size_t>(Type::blob) + 1);

std::string_view name_of(Type type) {
  switch (type) {
    case Type::null: return "null";
    case Type::boolean: return "boolean";
    case Type::int32: return "int32";
    case Type::uint32: return "uint32";
    case Type::int64: return "int64";
    case Type::uint64: return "uint64";
    case Type::float32: return "float32";
    case Type::float64: return "float64";
    case Type::text: return "text";
    case Type::blob: return "blob";
  }
  return "?";
}

bool is_text(std::string_view text) {
  const auto* at = reinterpret_cast<const unsigned char*>(text.data());
  const auto* const end = at + text.size();
  while (at != end) {
    const unsigned lead = *at++;
    if (lead == 0) return false;
    if (lead < 0x80) continue;
    const int following = lead >= 0xc2 && lead < 0xe0   ? 1
                          : lead >= 0xe0 && lead < 0xf0 ? 2
                          : lead >= 0xf0 && lead < 0xf5 ? 3
                                                        : 0;
    if (!following || end - at < following) return false;
    // Some values of the second byte would be overlong, a surrogate, or beyond U+10FFFF.
    const unsigned low = lead == 0xe0   ? 0xa0
                         : lead == 0xf0 ? 0x90
                                        : 0x80,
                   high = lead == 0xed   ? 0x9f
                          : lead == 0xf4 ? 0x8f
                                         : 0xbf;
    if (*at < low || *at > high) return false;
    ++at;
    for (int k = 1; k < following; ++k, ++at)
      if ((*at & 0xc0) != 0x80) return false;
  }
  return true;
}

namespace {

constexpr std::uint8_t version = 1;

// ---- writing

template <typename T> void put(Blob& out, T value) {
  static_assert(std::is_trivially_copyable_v<T>);
  const auto* bytes = reinterpret_cast<const std::byte*>(&value);
  out.insert(out.end(), bytes, bytes + sizeof value);
}
void put_bytes(Blob& out, Bytes bytes) { out.insert(out.end(), bytes.begin(), bytes.end()); }
void put_name(Blob& out, std::string_view name) {
  put(out, static_cast<std::uint8_t>(name.size()));
  put_bytes(out, bytes_of(name));
}
void put_names(Blob& out, const std::vector<std::string>& names) {
  put(out, static_cast<std::uint16_t>(names.size()));
  for (const auto& name : names) put_name(out, name);
}
void put_node(Blob& out, const Selector& node) {
  put(out, node.kind);
  if (node.kind == Selector::Kind::condition) {
    put(out, node.compare);
    put_name(out, node.field);
    append(out, node.value);
  } else if (node.kind != Selector::Kind::every) {
    put(out, static_cast<std::uint16_t>(node.parts.size()));
    for (const auto& part : node.parts) put_node(out, part);
  }
}
Blob begin(char letter) { return {static_cast<std::byte>(letter), std::byte{version}}; }

// ---- reading

/// Throws nothing: once something is wrong, `why` is set and every read gives nothing.
class Reader {
 public:
  explicit Reader(Bytes bytes) : bytes_(bytes) {}

  bool good() const { return why_.empty(); }
  void fail(std::string why) {
    if (why_.empty()) why_ = "at byte " + std::to_string(at_) + ": " + std::move(why);
  }
  Error error() const { return {"store.bad_encoding", why_, "native/store/db.hpp describes the encoding"}; }
  std::size_t left() const { return bytes_.size() - at_; }

  template <typename T> T number() {
    T value{};
    if (left() < sizeof value) fail("cut short");
    if (!good()) return T{};
    std::memcpy(&value, bytes_.data() + at_, sizeof value);
    at_ += sizeof value;
    return value;
  }
  std::string_view bytes(std::size_t n) {
    if (left() < n) fail("cut short");
    if (!good()) return {};
    const auto view = text_of(bytes_.subspan(at_, n));
    at_ += n;
    return view;
  }
  void begin(char letter) {
    if (number<std::uint8_t>() != static_cast<std::uint8_t>(letter))
      fail(std::string("not a message '") + letter + "'");
    if (number<std::uint8_t>() != version) fail("another version than 1");
  }
  void end() {
    if (left()) fail(std::to_string(left()) + " bytes too many");
  }
  /// A count whose items take at least `least` bytes each.
  std::size_t count(std::size_t n, std::size_t low, std::size_t high, std::size_t least, const char* what) {
    if (n < low || n > high)
      fail(std::to_string(n) + ' ' + what + ", allowed are " + std::to_string(low) + " to " + std::to_string(high));
    if (good() && n > left() / least) fail("cut short");
    return good() ? n : 0;
  }
  bool flag(const char* what) {
    const auto value = number<std::uint8_t>();
    if (value > 1) fail(std::string(what) + " is neither 0 nor 1");
    return value == 1;
  }
  std::string name(bool id_allowed) {
    const std::string_view text = bytes(count(number<std::uint8_t>(), 1, name_bytes_max, 1, "bytes of a name"));
    if (good() && !is_text(text)) fail("a name is not UTF-8 without NUL");
    if (good() && text.starts_with('_') && !(id_allowed && text == id_field)) fail("a field's name begins with '_'");
    return std::string(text);
  }
  std::vector<std::string> names(std::size_t low, const char* what) {
    std::vector<std::string> names(count(number<std::uint16_t>(), low, fields_max, 2, what));
    std::set<std::string_view> seen;
    for (auto& name : names) {
      name = this->name(false);
      if (good() && !seen.insert(name).second) fail("a field is named twice");
    }
    return names;
  }
  Value value() {
    const auto type = static_cast<Type>(number<std::uint8_t>());
    if (!good()) return {};
    switch (type) {
      case Type::null: return {};
      case Type::boolean: return flag("a boolean");
      case Type::int32: return number<std::int32_t>();
      case Type::uint32: return number<std::uint32_t>();
      case Type::int64: return number<std::int64_t>();
      case Type::uint64: return number<std::uint64_t>();
      case Type::float32: {
        const auto x = number<float>();
        if (std::isnan(x)) fail("a float32 is NaN");
        return x;
      }
      case Type::float64: {
        const auto x = number<double>();
        if (std::isnan(x)) fail("a float64 is NaN");
        return x;
      }
      case Type::text: {
        const std::string_view text = bytes(count(number<std::uint32_t>(), 0, value_bytes_max, 1, "bytes of a text"));
        if (good() && !is_text(text)) fail("a text is not UTF-8 without NUL");
        return std::string(text);
      }
      case Type::blob: {
        const Bytes raw = bytes_of(bytes(count(number<std::uint32_t>(), 0, value_bytes_max, 1, "bytes of a blob")));
        return Blob(raw.begin(), raw.end());
      }
    }
    fail("there is no type " + std::to_string(static_cast<unsigned>(type)));
    return {};
  }
  std::vector<Value> values(std::size_t n) {
    std::vector<Value> values;
    values.reserve(n);
    for (std::size_t k = 0; k < n && good(); ++k) values.push_back(value());
    return values;
  }
  Selector node(std::size_t depth = 1) {
    Selector node;
    if (depth > selector_depth_max) fail("a selector deeper than " + std::to_string(selector_depth_max));
    if (++nodes_ > selector_nodes_max) fail("a selector of more than " + std::to_string(selector_nodes_max) + " nodes");
    const auto kind = number<std::uint8_t>();
    if (kind > 3) fail("there is no node " + std::to_string(kind));
    if (!good()) return node;
    node.kind = static_cast<Selector::Kind>(kind);
    if (node.kind == Selector::Kind::all_of || node.kind == Selector::Kind::any_of) {
      const std::size_t n = count(number<std::uint16_t>(), 0, selector_nodes_max, 1, "parts");
      for (std::size_t k = 0; k < n && good(); ++k) node.parts.push_back(this->node(depth + 1));
    } else if (node.kind == Selector::Kind::condition) {
      const auto compare = number<std::uint8_t>();
      if (good() && (compare < 1 || compare > 10)) fail("there is no comparison " + std::to_string(compare));
      node.compare = static_cast<Compare>(compare);
      node.field = name(true);
      node.value = value();
      if (good()) condition(node);
    }
    return node;
  }

 private:
  void condition(const Selector& node) {
    const Type type = type_of(node.value);
    switch (node.compare) {
      case Compare::is_null:
      case Compare::not_null:
        if (type != Type::null) fail("is_null and not_null take no value");
        break;
      case Compare::like:
        if (type != Type::text) fail("like takes a text");
        else if (std::get<std::string>(node.value).size() > pattern_bytes_max)
          fail("a pattern of more than " + std::to_string(pattern_bytes_max) + " bytes");
        break;
      case Compare::prefix:
        if (type != Type::text && type != Type::blob) fail("prefix takes a text or a blob");
        break;
      default:
        if (type == Type::null) fail("a comparison with null; use is_null");
    }
  }

  Bytes bytes_;
  std::size_t at_ = 0, nodes_ = 0;
  std::string why_;
};

template <typename T> Result<T> done(Reader& in, T value) {
  in.end();
  if (!in.good()) return in.error();
  return value;
}

}  // namespace

void append(Blob& out, const Value& value) {
  put(out, static_cast<std::uint8_t>(value.index()));
  std::visit(
      [&](const auto& v) {
        using T = std::decay_t<decltype(v)>;
        if constexpr (std::is_same_v<T, std::string>) {
          put(out, static_cast<std::uint32_t>(v.size()));
          put_bytes(out, bytes_of(v));
        } else if constexpr (std::is_same_v<T, Blob>) {
          put(out, static_cast<std::uint32_t>(v.size()));
          put_bytes(out, v);
        } else if constexpr (std::is_same_v<T, bool>) {
          put(out, static_cast<std::uint8_t>(v));
        } else if constexpr (!std::is_same_v<T, std::monostate>) {
          put(out, v);
        }
      },
      value);
}

Blob encode(const Schema& schema) {
  Blob out = begin('S');
  put(out, static_cast<std::uint16_t>(schema.fields.size()));
  for (const auto& field : schema.fields) {
    put(out, field.type);
    put_name(out, field.name);
  }
  put(out, static_cast<std::uint16_t>(schema.indexes.size()));
  for (const auto& index : schema.indexes) {
    put(out, static_cast<std::uint8_t>(index.unique));
    put(out, static_cast<std::uint8_t>(index.fields.size()));
    for (const std::uint16_t field : index.fields) put(out, field);
  }
  return out;
}

Blob encode(const Rows& rows) {
  Blob out = begin('R');
  put_names(out, rows.fields);
  put(out, static_cast<std::uint32_t>(rows.rows.size()));
  for (const auto& row : rows.rows)
    for (const auto& value : row) append(out, value);
  return out;
}

Blob encode(const Selector& selector) {
  Blob out = begin('W');
  put_node(out, selector);
  return out;
}

Blob encode(const Update& update) {
  Blob out = begin('U');
  put_node(out, update.selector);
  put_names(out, update.fields);
  for (const auto& value : update.values) append(out, value);
  return out;
}

Blob encode(const Query& query) {
  Blob out = begin('Q');
  put_node(out, query.selector);
  put(out, static_cast<std::uint16_t>(query.order.size()));
  for (const auto& order : query.order) {
    put(out, static_cast<std::uint8_t>(order.descending));
    put_name(out, order.field);
  }
  put_names(out, query.fields);
  return out;
}

Blob encode(const Answer& answer) {
  AnswerWriter writer(answer.fields);
  for (std::size_t k = 0; k < answer.rows.size(); ++k) {
    writer.begin_row(answer.ids[k]);
    for (const auto& value : answer.rows[k]) append(writer.out(), value);
  }
  return writer.finish();
}

Result<Schema> decode_schema(Bytes bytes) {
  Reader in(bytes);
  in.begin('S');
  Schema schema;
  schema.fields.resize(in.count(in.number<std::uint16_t>(), 1, fields_max, 3, "fields"));
  std::set<std::string_view> seen;
  for (auto& field : schema.fields) {
    const auto type = in.number<std::uint8_t>();
    if (in.good() && (type < 1 || type > static_cast<unsigned>(Type::blob)))
      in.fail("there is no type " + std::to_string(type) + " of a field");
    field.type = static_cast<Type>(type);
    field.name = in.name(false);
    if (in.good() && !seen.insert(field.name).second) in.fail("a field is named twice");
  }
  schema.indexes.resize(in.count(in.number<std::uint16_t>(), 0, indexes_max, 2, "indexes"));
  for (auto& index : schema.indexes) {
    index.unique = in.flag("unique");
    index.fields.resize(in.count(in.number<std::uint8_t>(), 1, index_fields_max, 2, "fields of an index"));
    std::set<std::uint16_t> used;
    for (auto& field : index.fields) {
      field = in.number<std::uint16_t>();
      if (in.good() && field >= schema.fields.size())
        in.fail("an index has field " + std::to_string(field) + " of " + std::to_string(schema.fields.size()));
      if (in.good() && !used.insert(field).second) in.fail("an index has a field twice");
    }
  }
  return done(in, std::move(schema));
}

struct RowsReader::State {
  explicit State(Bytes bytes) : in(bytes) {}
  Reader in;
  std::vector<std::string> fields;
  std::size_t left = 0;
};

RowsReader::RowsReader(Bytes bytes) : state_(std::make_unique<State>(bytes)) {
  Reader& in = state_->in;
  in.begin('R');
  state_->fields = in.names(1, "columns");
  state_->left = in.count(in.number<std::uint32_t>(), 0, limit::batch_ops,
                          std::max<std::size_t>(1, state_->fields.size()), "rows");
  if (state_->left == 0) in.end();
}
RowsReader::~RowsReader() = default;

const std::vector<std::string>& RowsReader::fields() const { return state_->fields; }

bool RowsReader::next(std::vector<Value>& row) {
  if (state_->left == 0 || !state_->in.good()) return false;
  row.clear();
  for (std::size_t k = 0; k < state_->fields.size() && state_->in.good(); ++k) row.push_back(state_->in.value());
  if (--state_->left == 0) state_->in.end();
  return state_->in.good();
}

Result<void> RowsReader::error() const {
  if (state_->in.good()) return {};
  return state_->in.error();
}

Result<Rows> decode_rows(Bytes bytes) {
  RowsReader in(bytes);
  Rows rows;
  rows.fields = in.fields();
  for (std::vector<Value> row; in.next(row);) rows.rows.push_back(std::move(row));
  if (auto ok = in.error(); !ok) return ok.error();
  return rows;
}

Result<Selector> decode_selector(Bytes bytes) {
  Reader in(bytes);
  in.begin('W');
  Selector selector = in.node();
  return done(in, std::move(selector));
}

Result<Update> decode_update(Bytes bytes) {
  Reader in(bytes);
  in.begin('U');
  Update update;
  update.selector = in.node();
  update.fields = in.names(1, "columns");
  update.values = in.values(update.fields.size());
  return done(in, std::move(update));
}

Result<Query> decode_query(Bytes bytes) {
  Reader in(bytes);
  in.begin('Q');
  Query query;
  query.selector = in.node();
  query.order.resize(in.count(in.number<std::uint16_t>(), 0, orders_max, 3, "orders"));
  for (auto& order : query.order) {
    order.descending = in.flag("descending");
    order.field = in.name(true);
  }
  query.fields = in.names(0, "fields");
  return done(in, std::move(query));
}

Result<Answer> decode_answer(Bytes bytes) {
  Reader in(bytes);
  in.begin('A');
  Answer answer;
  answer.fields = in.names(0, "columns");
  const std::size_t n = in.count(in.number<std::uint32_t>(), 0, ~std::uint32_t{0}, 8 + answer.fields.size(), "rows");
  for (std::size_t k = 0; k < n && in.good(); ++k) {
    answer.ids.push_back(in.number<std::uint64_t>());
    answer.rows.push_back(in.values(answer.fields.size()));
  }
  return done(in, std::move(answer));
}

AnswerWriter::AnswerWriter(const std::vector<std::string>& fields) : out_(begin('A')) {
  put_names(out_, fields);
  count_at_ = out_.size();
  put(out_, std::uint32_t{0});
}

void AnswerWriter::begin_row(std::uint64_t id) {
  put(out_, id);
  ++rows_;
}

void AnswerWriter::cut(std::size_t bytes) {
  out_.resize(bytes);
  --rows_;
}

const Blob& AnswerWriter::finish() {
  std::memcpy(out_.data() + count_at_, &rows_, sizeof rows_);
  return out_;
}

}  // namespace sonde::store::db

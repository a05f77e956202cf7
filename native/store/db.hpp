#pragma once
/// Schemas, rows, selectors and queries of the role db, and how they are put into bytes. Any-thread.
///
/// All numbers little-endian. A message is two bytes, its letter and the version 1, then its body, to the last byte:
///
///   name      u8 length (1 .. 63), UTF-8 without NUL. Names of fields do not begin with '_'; `_id` is the row's
///             number.
///   value     u8 type, then by type: null nothing · boolean u8 0 or 1 · int32, uint32, float32 4 bytes · int64,
///             uint64,
///             float64 8 bytes · text, blob u32 length, bytes. Text is UTF-8 without NUL; floats are no NaN.
///   schema    'S'  u16 fields (1 .. 256), each: u8 type (not null), name
///                  u16 indexes (0 .. 32), each: u8 1 unique or 0, u8 fields (1 .. 8), each: u16 number of the field
///   rows      'R'  u16 columns (1 .. 256), each: name · u32 rows, each: a value for each column
///   node           u8 kind: 0 every row · 1 all of, 2 any of: u16 parts, each a node · 3 condition: u8 comparison,
///                  name, value
///   selector  'W'  node
///   update    'U'  node · u16 columns (1 .. 256), each: name · a value for each column
///   query     'Q'  node · u16 orders (0 .. 8), each: u8 1 descending or 0, name · u16 fields (0: all), each: name
///   answer    'A'  u16 columns, each: name · u32 rows, each: u64 id, a value for each column
///
/// A selector is at most 16 nodes deep and has at most 1024. Decoding is strict: what is not exactly that is refused,
/// and no memory is taken for what a count promises before the bytes for it are there.
///
/// Comparisons of conditions. A value is compared with a field of its own type only, texts and blobs by bytes. `like`
/// takes
/// '%' for any text, '_' for one character, '\' before either for itself; case counts. A null field meets `is_null` and
/// no other condition, `ne` neither. All of none is every row, any of none is no row.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "core/error.hpp"
#include "store/types.hpp"

namespace sonde::store::db {

/// Numbers are those of the encoding and of Value's alternatives.
enum class Type : std::uint8_t {
  null = 0,
  boolean = 1,
  int32 = 2,
  uint32 = 3,
  int64 = 4,
  uint64 = 5,
  float32 = 6,
  float64 = 7,
  text = 8,
  blob = 9
};
std::string_view name_of(Type type);

using Blob = std::vector<std::byte>;
using Value = std::variant<std::monostate, bool, std::int32_t, std::uint32_t, std::int64_t, std::uint64_t, float,
                           double, std::string, Blob>;
inline Type type_of(const Value& value) { return static_cast<Type>(value.index()); }

inline constexpr std::string_view id_field = "_id";  ///< in conditions and orders: the row's number, a uint64

inline constexpr std::size_t fields_max = 256;
inline constexpr std::size_t name_bytes_max = 63;
inline constexpr std::size_t indexes_max = 32;
inline constexpr std::size_t index_fields_max = 8;
inline constexpr std::size_t orders_max = 8;
inline constexpr std::size_t selector_depth_max = 16;
inline constexpr std::size_t selector_nodes_max = 1024;
inline constexpr std::size_t value_bytes_max = limit::value_bytes;
inline constexpr std::size_t pattern_bytes_max = 4096;  ///< of `like`

struct Field {
  std::string name;
  Type type = Type::null;
  bool operator==(const Field&) const = default;
};
/// `unique`: no two rows with the same values; nulls are not the same as each other.
struct Index {
  std::vector<std::uint16_t> fields;  ///< numbers in Schema::fields
  bool unique = false;
  bool operator==(const Index&) const = default;
};
struct Schema {
  std::vector<Field> fields;
  std::vector<Index> indexes;
  bool operator==(const Schema&) const = default;
};

enum class Compare : std::uint8_t {
  eq = 1,
  ne = 2,
  lt = 3,
  le = 4,
  gt = 5,
  ge = 6,
  prefix = 7,
  like = 8,
  is_null = 9,
  not_null = 10
};

struct Selector {
  enum class Kind : std::uint8_t { every = 0, all_of = 1, any_of = 2, condition = 3 };
  Kind kind = Kind::every;
  std::vector<Selector> parts;
  std::string field;
  Compare compare = Compare::eq;
  Value value;

  static Selector every() { return {}; }
  static Selector where(std::string field, Compare compare, Value value = {}) {
    return {Kind::condition, {}, std::move(field), compare, std::move(value)};
  }
  static Selector all_of(std::vector<Selector> parts) { return {Kind::all_of, std::move(parts), {}, Compare::eq, {}}; }
  static Selector any_of(std::vector<Selector> parts) { return {Kind::any_of, std::move(parts), {}, Compare::eq, {}}; }
  bool operator==(const Selector&) const = default;
};

/// Fields of the schema that are not in `fields` become null.
struct Rows {
  std::vector<std::string> fields;
  std::vector<std::vector<Value>> rows;
  bool operator==(const Rows&) const = default;
};
struct Update {
  Selector selector;
  std::vector<std::string> fields;
  std::vector<Value> values;
  bool operator==(const Update&) const = default;
};
struct Order {
  std::string field;
  bool descending = false;
  bool operator==(const Order&) const = default;
};
/// Rows that are equal by `order` come by their id, so that pages fit together. Null comes before every value.
struct Query {
  Selector selector;
  std::vector<Order> order;
  std::vector<std::string> fields;  ///< none: all, as in the schema
  bool operator==(const Query&) const = default;
};
struct Answer {
  std::vector<std::string> fields;
  std::vector<std::uint64_t> ids;
  std::vector<std::vector<Value>> rows;
  bool operator==(const Answer&) const = default;
};

Blob encode(const Schema& schema);
Blob encode(const Rows& rows);
Blob encode(const Selector& selector);
Blob encode(const Update& update);
Blob encode(const Query& query);
Blob encode(const Answer& answer);

/// Errors store.bad_encoding: where it stopped making sense, and why. What was encoded from a value within the limits
/// comes back as that value.
Result<Schema> decode_schema(Bytes bytes);
Result<Rows> decode_rows(Bytes bytes);
Result<Selector> decode_selector(Bytes bytes);
Result<Update> decode_update(Bytes bytes);
Result<Query> decode_query(Bytes bytes);
Result<Answer> decode_answer(Bytes bytes);

/// The rows of a message one by one, for a server: never more than one in memory, whatever the message promises.
class RowsReader {
 public:
  explicit RowsReader(Bytes bytes);
  ~RowsReader();
  const std::vector<std::string>& fields() const;
  /// False: no more, or the encoding is wrong; error() distinguishes them.
  bool next(std::vector<Value>& row);
  Result<void> error() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// The encoded bytes of one value, for code that builds an answer row by row.
void append(Blob& out, const Value& value);

/// An answer as it grows.
class AnswerWriter {
 public:
  explicit AnswerWriter(const std::vector<std::string>& fields);
  void begin_row(std::uint64_t id);
  Blob& out() { return out_; }
  std::size_t bytes() const { return out_.size(); }
  std::uint32_t rows() const { return rows_; }
  /// Takes back what was written since `bytes`, a row's begin.
  void cut(std::size_t bytes);
  /// The finished answer; nothing may be added after.
  const Blob& finish();

 private:
  Blob out_;
  std::size_t count_at_;
  std::uint32_t rows_ = 0;
};

/// UTF-8 without overlong forms, surrogates, or NUL.
bool is_text(std::string_view text);

}  // namespace sonde::store::db

// Checks of the role db.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "store/conformance/suite.hpp"
#include "store/db.hpp"

// From GCC 12 on, -O3 wrongly warns that alternatives of a moved variant are used (boostorg/variant2, issue 55).
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif

namespace sonde::store::conformance {

namespace {

using namespace db;
Op make(Code code, std::string_view key, const Blob& data = {}) {
  Op op;
  op.code = code;
  op.space = space;
  op.key = key;
  op.data = data;
  return op;
}

/// Operations with the bytes that they point to.
struct Ops {
  std::vector<Op> ops;
  std::vector<std::unique_ptr<Blob>> bytes;
  std::vector<std::unique_ptr<std::string>> keys;
  Ops& add(Code code, const std::string& key, Blob data = {}) {
    bytes.push_back(std::make_unique<Blob>(std::move(data)));
    keys.push_back(std::make_unique<std::string>(key));
    ops.push_back(make(code, *keys.back(), *bytes.back()));
    return *this;
  }
};

Schema every_type() {
  return {{{"b", Type::boolean},
           {"i", Type::int32},
           {"u", Type::uint32},
           {"I", Type::int64},
           {"U", Type::uint64},
           {"f", Type::float32},
           {"d", Type::float64},
           {"t", Type::text},
           {"x", Type::blob}},
          {{{3}, false}, {{7, 1}, false}, {{4}, false}}};
}

Schema people() {
  return {{{"name", Type::text}, {"age", Type::int32}, {"seen", Type::uint64}}, {{{0}, true}, {{1}, false}}};
}

Rows three() {
  return {{"name", "age", "seen"},
          {{std::string("ada"), std::int32_t{36}, std::uint64_t{1}},
           {std::string("Bob"), std::int32_t{-1}, std::uint64_t{1} << 63},
           {std::string("eve"), Value{}, ~std::uint64_t{0}}}};
}

struct Table {
  Suite& suite;
  std::string name;

  Outcome one(Code code, Blob data = {}) {
    Ops ops;
    ops.add(code, name, std::move(data));
    Answers got = suite.run(ops.ops);
    got.outcomes[0].data = {};
    return got.one();
  }
  void ok(Code code, Blob data, const std::string& what) {
    suite.expect(one(code, std::move(data)).status, Status::ok, what);
  }
  void define(const Schema& schema, const Rows& rows = {}) {
    ok(Code::db_define, encode(schema), "define " + name);
    if (!rows.rows.empty()) ok(Code::db_insert, encode(rows), "insert into " + name);
  }
  Answer page(const Query& query, std::uint64_t from, std::uint64_t length, bool* more = nullptr) {
    Ops ops;
    ops.add(Code::db_query, name, encode(query));
    ops.ops[0].offset = from;
    ops.ops[0].length = length;
    const Answers got = suite.run(ops.ops);
    suite.expect(got.one().status, Status::ok, "query of " + name);
    auto answer = decode_answer(got.one().data);
    if (!answer) throw Failed("the answer cannot be decoded: " + answer.error().what);
    suite.expect(answer->rows.size() == got.one().value, "value is not the number of rows");
    if (more) *more = got.one().time_ns == 1;
    return std::move(*answer);
  }
  Answer all(const Query& query) {
    Answer whole;
    for (bool more = true; more;) {
      Answer next = page(query, whole.rows.size(), 0, &more);
      suite.expect(!more || !next.rows.empty(), "an empty page says that more follow");
      whole.fields = next.fields;
      whole.ids.insert(whole.ids.end(), next.ids.begin(), next.ids.end());
      for (auto& row : next.rows) whole.rows.push_back(std::move(row));
      suite.expect(whole.rows.size() <= 100'000, "the pages do not end");
    }
    return whole;
  }
  /// The names of the selected rows, in order, as one string.
  std::string names(const Selector& selector, std::vector<Order> order = {}) {
    std::string text;
    for (const auto& row : all({selector, std::move(order), {"name"}}).rows)
      text += std::get<std::string>(row[0]) + ' ';
    return text;
  }
  void expect_names(const Selector& selector, const std::string& wanted, const std::string& what,
                    std::vector<Order> order = {}) {
    const std::string found = names(selector, std::move(order));
    suite.expect(found == wanted, what + ": '" + found + "' instead of '" + wanted + "'");
  }
};

}  // namespace

void check_db(Suite& suite) {
  if (!suite.caps().keeps) return;
  const auto where = [](std::string field, Compare compare, Value value = {}) {
    return Selector::where(std::move(field), compare, std::move(value));
  };
  using C = Compare;

  suite.check("a schema is returned as it was defined; the same definition again is ok, a different one is not", [&] {
    Table table{suite, "define"};
    suite.expect(table.one(Code::db_describe).status, Status::not_found, "describe before");
    table.define(every_type());
    Ops ops;
    ops.add(Code::db_describe, "define");
    const Answers got = suite.run(ops.ops);
    suite.expect(got.one().status, Status::ok, "describe");
    const auto back = decode_schema(got.one().data);
    suite.expect(back && *back == every_type(), "a different schema was returned");
    suite.expect(table.one(Code::db_define, encode(every_type())).status, Status::ok, "the same again");
    suite.expect(table.one(Code::db_define, encode(people())).status, Status::exists, "another");
    suite.expect(table.one(Code::db_undefine).status, Status::ok, "undefine");
    suite.expect(table.one(Code::db_undefine).status, Status::not_found, "undefine again");
    suite.expect(table.one(Code::db_define, encode(people())).status, Status::ok, "a different one, after undefine");
  });

  suite.check("a table without a schema is not found, and that undoes nothing", [&] {
    Ops ops;
    ops.add(Code::db_insert, "none", encode(three()))
        .add(Code::db_query, "none", encode(Query{}))
        .add(Code::db_update, "none", encode(Update{{}, {"age"}, {Value{}}}));
    ops.add(Code::db_remove, "none", encode(Selector{}))
        .add(Code::db_describe, "none")
        .add(Code::db_define, "some", encode(people()));
    const Answers got = suite.run(ops.ops);
    for (std::size_t k = 0; k < 5; ++k)
      suite.expect(got[k].status, Status::not_found, "operation " + std::to_string(k));
    suite.expect(got[5].status, Status::ok, "define");
    suite.expect(Table{suite, "some"}.one(Code::db_describe).status, Status::ok, "describe");
  });

  suite.check("every type preserves its extreme values, and null is null", [&] {
    Table table{suite, "types"};
    Rows rows;
    for (const auto& field : every_type().fields) rows.fields.push_back(field.name);
    using I = std::numeric_limits<std::int64_t>;
    using F = std::numeric_limits<float>;
    using D = std::numeric_limits<double>;
    Blob every_byte;
    for (int k = 0; k < 256; ++k) every_byte.push_back(static_cast<std::byte>(k));
    rows.rows.push_back({true, std::numeric_limits<std::int32_t>::min(), std::numeric_limits<std::uint32_t>::max(),
                         I::min(), ~std::uint64_t{0}, F::denorm_min(), D::max(), std::string("ä€𝄞'\";--"), every_byte});
    rows.rows.push_back({false, std::numeric_limits<std::int32_t>::max(), std::uint32_t{0}, I::max(), std::uint64_t{0},
                         -F::infinity(), -0.0, std::string(), Blob{}});
    rows.rows.push_back({Value{}, Value{}, Value{}, Value{}, Value{}, Value{}, Value{}, Value{}, Value{}});
    rows.rows.push_back({false, std::int32_t{-1}, std::uint32_t{1u << 31}, std::int64_t{-1}, std::uint64_t{1} << 63,
                         0.1f, D::denorm_min(), std::string(5000, 'x'), Blob(5000)});
    table.define(every_type(), rows);
    const Answer answer = table.all({});
    suite.expect(answer.fields == rows.fields, "different fields");
    suite.expect(answer.rows == rows.rows, "different values");
    suite.expect(std::signbit(std::get<double>(answer.rows[1][6])), "-0.0 lost its sign");
    Table one{suite, "types"};
    const Answer some = one.all({{}, {}, {"t", "b"}});
    suite.expect(
        some.fields == std::vector<std::string>{"t", "b"} && some.rows[0].size() == 2 && some.rows[0][1] == Value(true),
        "the requested fields");
    const Answer ordered = one.all({{}, {{"U", true}}, {"U"}});
    suite.expect(ordered.rows[0][0] == Value(~std::uint64_t{0}) &&
                     ordered.rows[1][0] == Value(std::uint64_t{1} << 63) &&
                     ordered.rows[2][0] == Value(std::uint64_t{0}),
                 "uint64 above 2^63 are out of order");
  });

  suite.check("ids: returned for the last inserted row, ascending, selectable, never reused", [&] {
    Table table{suite, "ids"};
    table.define(people());
    const Outcome inserted = table.one(Code::db_insert, encode(three()));
    const Answer answer = table.all({});
    suite.expect(inserted.value == answer.ids.back(), "insert's value is not the last row's id");
    suite.expect(std::is_sorted(answer.ids.begin(), answer.ids.end()), "ids are not ascending");
    table.expect_names(where("_id", C::eq, answer.ids[1]), "Bob ", "by id");
    table.expect_names(where("_id", C::lt, ~std::uint64_t{0}), "ada Bob eve ", "below the largest number");
    suite.expect(table.one(Code::db_remove, encode(where("_id", C::eq, answer.ids.back()))).value == 1,
                 "remove's value is not the rows removed");
    const Outcome again = table.one(Code::db_insert, encode(Rows{{"name"}, {{std::string("new")}}}));
    suite.expect(again.value > inserted.value, "an id was reused");
    suite.expect(table.one(Code::db_insert, encode(Rows{{"name"}, {}})).status, Status::ok, "an insert of no rows");
  });

  suite.check("conditions: every comparison, null, and trees of them", [&] {
    Table table{suite, "where"};
    table.define(people(), three());
    const std::int32_t age = 36;
    table.expect_names({}, "ada Bob eve ", "every row");
    table.expect_names(where("age", C::eq, age), "ada ", "eq");
    table.expect_names(where("age", C::ne, age), "Bob ", "ne excludes null");
    table.expect_names(where("age", C::lt, age), "Bob ", "lt");
    table.expect_names(where("age", C::le, age), "ada Bob ", "le");
    table.expect_names(where("age", C::gt, std::int32_t{-1}), "ada ", "gt");
    table.expect_names(where("age", C::ge, std::int32_t{-1}), "ada Bob ", "ge");
    table.expect_names(where("age", C::is_null), "eve ", "is null");
    table.expect_names(where("age", C::not_null), "ada Bob ", "not null");
    table.expect_names(where("seen", C::gt, std::uint64_t{5}), "Bob eve ", "uint64 above 2^63");
    table.expect_names(where("name", C::prefix, std::string("a")), "ada ", "prefix");
    table.expect_names(where("name", C::prefix, std::string()), "ada Bob eve ", "the empty prefix");
    table.expect_names(where("name", C::like, std::string("%b")), "Bob ", "like");
    table.expect_names(where("name", C::like, std::string("b%")), "", "like: case-sensitive");
    table.expect_names(where("name", C::like, std::string("_d_")), "ada ", "like: one character");
    table.expect_names(Selector::all_of({}), "ada Bob eve ", "all of no conditions");
    table.expect_names(Selector::any_of({}), "", "any of no conditions");
    table.expect_names(Selector::any_of({where("name", C::eq, std::string("eve")),
                                         Selector::all_of({where("age", C::gt, std::int32_t{-5}),
                                                           where("seen", C::ne, std::uint64_t{1})})}),
                       "Bob eve ", "a tree");
    Selector wide = Selector::any_of({});
    for (std::size_t k = 1; k < selector_nodes_max; ++k)
      wide.parts.push_back(where("age", C::eq, static_cast<std::int32_t>(k)));
    table.expect_names(wide, "ada ", "a thousand alternatives");
    Selector deep = where("age", C::eq, age);
    for (std::size_t k = 1; k < selector_depth_max; ++k) deep = Selector::all_of({deep});
    table.expect_names(deep, "ada ", "the maximum depth");
  });

  suite.check("prefix and like match escaped wildcards and the last character literally", [&] {
    Table table{suite, "wild"};
    Rows rows{{"name"}, {}};
    for (const char* name : {"a%", "ab", "a_", "a\\", "a", "b", "\xc3\xbf", "\xf4\x8f\xbf\xbf"})
      rows.rows.push_back({std::string(name)});
    table.define({{{"name", Type::text}}, {{{0}, false}}}, rows);
    table.expect_names(where("name", C::prefix, std::string("a%")), "a% ", "prefix");
    table.expect_names(where("name", C::like, std::string("a\\%")), "a% ", "like with an escaped %");
    table.expect_names(where("name", C::like, std::string("a\\_")), "a_ ", "like with an escaped _");
    table.expect_names(where("name", C::like, std::string("a\\\\")), "a\\ ", "like with an escaped backslash");
    table.expect_names(where("name", C::prefix, std::string("\xf4\x8f\xbf\xbf")), "\xf4\x8f\xbf\xbf ",
                       "prefix of the last character");
    Table blobs{suite, "wild-blobs"};
    blobs.define({{{"name", Type::text}, {"x", Type::blob}}, {}},
                 {{"name", "x"},
                  {{std::string("0"), Blob{}},
                   {std::string("1"), Blob{std::byte{0xff}}},
                   {std::string("2"), Blob{std::byte{0xff}, std::byte{0}}},
                   {std::string("3"), Blob{std::byte{0xfe}}}}});
    blobs.expect_names(where("x", C::prefix, Blob{std::byte{0xff}}), "1 2 ", "a blob's prefix of 0xff");
    blobs.expect_names(where("x", C::eq, Blob{}), "0 ", "the empty blob");
  });

  suite.check("order: by several fields, up and down, equal rows by id, null first", [&] {
    Table table{suite, "order"};
    table.define({{{"name", Type::text}, {"n", Type::int32}}, {}}, {{"name", "n"},
                                                                    {{std::string("b"), std::int32_t{2}},
                                                                     {std::string("a"), std::int32_t{2}},
                                                                     {std::string("c"), std::int32_t{1}},
                                                                     {std::string("d"), Value{}},
                                                                     {std::string("B"), std::int32_t{2}}}});
    table.expect_names({}, "d c b a B ", "up", {{"n", false}});
    table.expect_names({}, "b a B c d ", "down", {{"n", true}});
    table.expect_names({}, "B a b c d ", "two fields", {{"n", true}, {"name", false}});
    table.expect_names({}, "B d c a b ", "by id, down", {{"_id", true}});
  });

  suite.check("update and remove: only the selected rows, and their number", [&] {
    Table table{suite, "change"};
    table.define(people(), three());
    suite.expect(
        table.one(Code::db_update,
                  encode(Update{where("age", C::lt, std::int32_t{40}), {"age", "seen"}, {Value{}, std::uint64_t{7}}}))
                .value == 2,
        "rows updated");
    table.expect_names(where("seen", C::eq, std::uint64_t{7}), "ada Bob ", "after update");
    table.expect_names(where("age", C::is_null), "ada Bob eve ", "set to null");
    suite.expect(table.one(Code::db_update,
                           encode(Update{where("name", C::eq, std::string("none")), {"age"}, {std::int32_t{1}}}))
                         .value == 0,
                 "an update of no rows");
    suite.expect(table.one(Code::db_remove, encode(where("name", C::eq, std::string("Bob")))).value == 1,
                 "rows removed");
    table.expect_names({}, "ada eve ", "after remove");
    suite.expect(table.one(Code::db_remove, encode(Selector{})).value == 2, "all removed");
    table.expect_names({}, "", "no rows left");
  });

  suite.check("an operation that does not match the schema is invalid and changes nothing", [&] {
    Table table{suite, "invalid"};
    table.define(people(), three());
    const auto invalid = [&](Code code, Blob data, const std::string& what) {
      suite.expect(table.one(code, std::move(data)).status, Status::invalid, what);
    };
    invalid(Code::db_insert, encode(Rows{{"nobody"}, {{std::string("x")}}}), "insert into an unknown field");
    invalid(Code::db_insert, encode(Rows{{"Name"}, {{std::string("x")}}}), "a field's name in another case");
    invalid(Code::db_insert, encode(Rows{{"name"}, {{std::string("x")}, {std::int32_t{1}}}}),
            "a value of a different type, in the second row");
    invalid(Code::db_insert, encode(Rows{{"age"}, {{std::int64_t{1}}}}), "an integer of a different size");
    invalid(Code::db_update, encode(Update{{}, {"nobody"}, {Value{}}}), "update of an unknown field");
    invalid(Code::db_update, encode(Update{{}, {"age"}, {std::string("1")}}), "update to a different type");
    invalid(Code::db_remove, encode(where("nobody", C::is_null)), "a condition on an unknown field");
    invalid(Code::db_remove, encode(where("age", C::like, std::string("%"))), "like on a number");
    invalid(Code::db_query, encode(Query{where("name", C::eq, std::int32_t{1}), {}, {}}),
            "a comparison with a different type");
    invalid(Code::db_query, encode(Query{{}, {{"nobody", false}}, {}}), "order by an unknown field");
    invalid(Code::db_query, encode(Query{{}, {}, {"nobody"}}), "an unknown field requested");
    invalid(Code::db_query, encode(Query{where("_id", C::eq, std::int64_t{1}), {}, {}}), "an id of a different type");
    invalid(Code::db_query, {}, "a query of 0 bytes");
    invalid(Code::db_insert, encode(Query{}), "a query instead of rows");
    Blob cut = encode(Rows{{"name"}, {{std::string("whole")}, {std::string("cut")}}});
    cut.pop_back();
    invalid(Code::db_insert, cut, "truncated rows");
    table.expect_names({}, "ada Bob eve ", "afterwards");
  });

  suite.check("a batch is whole or absent, whatever fails in it", [&] {
    Table table{suite, "batch"};
    table.define(people(), three());
    const Rows two{{"name"}, {{std::string("new")}, {std::string("ada")}}};
    for (const bool unique : {true, false}) {
      Ops ops;
      ops.add(Code::db_insert, "batch", encode(Rows{{"name"}, {{std::string("first")}}}))
          .add(Code::db_remove, "batch", encode(where("name", C::eq, std::string("eve"))));
      ops.add(Code::db_define, "batch-new", encode(people())).add(Code::db_insert, "batch-new", encode(three()));
      ops.add(Code::db_insert, "batch", unique ? encode(two) : Blob(3))
          .add(Code::db_update, "batch", encode(Update{{}, {"age"}, {Value{}}}));
      const Answers got = suite.run(ops.ops);
      for (std::size_t k = 0; k < ops.ops.size(); ++k)
        suite.expect(got[k].status,
                     k != 4   ? Status::aborted
                     : unique ? Status::exists
                              : Status::invalid,
                     "operation " + std::to_string(k));
      table.expect_names({}, "ada Bob eve ", "rows");
      table.expect_names(where("age", C::not_null), "ada Bob ", "values");
      suite.expect(Table{suite, "batch-new"}.one(Code::db_describe).status, Status::not_found,
                   "a schema defined in the batch");
    }
  });

  suite.check("a unique index: an insert or update that violates it gives `exists`; nulls do not violate it", [&] {
    Table table{suite, "unique"};
    table.define(people(), three());
    suite.expect(table.one(Code::db_insert, encode(Rows{{"name"}, {{std::string("ada")}}})).status, Status::exists,
                 "insert");
    suite.expect(table
                     .one(Code::db_update,
                          encode(Update{where("name", C::eq, std::string("eve")), {"name"}, {std::string("ada")}}))
                     .status,
                 Status::exists, "update");
    suite.expect(table.one(Code::db_insert, encode(Rows{{"age"}, {{std::int32_t{1}}, {std::int32_t{2}}}})).status,
                 Status::ok, "two nulls");
    table.expect_names(where("name", C::not_null), "ada Bob eve ", "afterwards");
  });

  suite.check("later operations of a batch see earlier ones", [&] {
    Ops ops;
    ops.add(Code::db_define, "see", encode(people()))
        .add(Code::db_insert, "see", encode(three()))
        .add(Code::db_query, "see", encode(Query{}));
    ops.add(Code::db_remove, "see", encode(where("age", C::is_null)))
        .add(Code::db_query, "see", encode(Query{}))
        .add(Code::db_undefine, "see")
        .add(Code::db_query, "see", encode(Query{}));
    const Answers got = suite.run(ops.ops);
    suite.expect(got[2].status == Status::ok && got[2].value == 3, "rows after the insert");
    suite.expect(got[4].status == Status::ok && got[4].value == 2, "rows after the remove");
    suite.expect(got[6].status, Status::not_found, "after undefine");
  });

  suite.check("pages: offset, length, answers of bounded size that report whether more follow", [&] {
    Table table{suite, "pages"};
    Rows rows{{"n", "pad"}, {}};
    for (std::int32_t n = 0; n < 500; ++n) rows.rows.push_back({n, std::string(1000, 'p')});
    table.define({{{"n", Type::int32}, {"pad", Type::text}}, {}}, rows);
    bool more = false;
    const Query down{{}, {{"n", true}}, {"n"}};
    Answer answer = table.page(down, 10, 5, &more);
    suite.expect(answer.rows.size() == 5 && answer.rows[0][0] == Value(std::int32_t{489}) && more,
                 "five from the tenth");
    answer = table.page(down, 495, 5, &more);
    suite.expect(answer.rows.size() == 5 && !more, "the last five");
    answer = table.page(down, 500, 5, &more);
    suite.expect(answer.rows.empty() && !more, "beyond the last");
    answer = table.page(down, ~std::uint64_t{0}, 0, &more);
    suite.expect(answer.rows.empty() && !more, "beyond every number");
    Ops ops;
    ops.add(Code::db_query, "pages", encode(Query{}));
    const Answers first = suite.run(ops.ops);
    suite.expect(first.one().time_ns == 1 && first.one().data.size() <= scan_bytes_max,
                 "an answer of " + std::to_string(first.one().data.size()) + " bytes");
    answer = table.all({});
    suite.expect(answer.rows == rows.rows, "the pages together are incomplete");
  });

  suite.check("a row larger than an answer comes alone", [&] {
    Table table{suite, "large"};
    table.define({{{"x", Type::blob}}, {}},
                 {{"x"}, {{Blob(10)}, {Blob(4 * scan_bytes_max, std::byte{7})}, {Blob(20)}}});
    bool more = false;
    suite.expect(table.page({}, 1, 0, &more).rows.size() == 1 && more, "not alone");
    suite.expect(table.all({}).rows[1][0] == Value(Blob(4 * scan_bytes_max, std::byte{7})), "a different value");
  });

  suite.check("into: the rows that fit, and too_large if none fits", [&] {
    Table table{suite, "into"};
    table.define(people(), three());
    std::vector<std::byte> memory(90);
    Ops ops;
    ops.add(Code::db_query, "into", encode(Query{{}, {}, {"name"}}));
    ops.ops[0].into = memory;
    const Answers got = suite.run(ops.ops);
    suite.expect(got.one().status, Status::ok, "query");
    suite.expect(got.one().data.data() == memory.data(), "the answer is not in `into`");
    auto answer = decode_answer(got.one().data);
    suite.expect(answer && answer->rows.size() == got.one().value && !answer->rows.empty(), "the answer is truncated");
    suite.expect((answer->rows.size() < 3) == (got.one().time_ns == 1), "it does not report whether more follow");
    ops.ops[0].into = MutableBytes(memory).first(15);
    suite.expect(suite.run(ops.ops).one().status, Status::too_large, "into 15 bytes");
  });

  suite.check("many schemas, wide ones, and names of every kind", [&] {
    Schema wide;
    Rows rows;
    rows.rows.emplace_back();
    for (std::size_t k = 0; k < fields_max; ++k) {
      std::string name = "field " + std::to_string(k) + "\"'`;\xc3\xa4";
      if (k == 0) name = "id";
      if (k == 1) name = "ID";
      if (k == 2) name = std::string(name_bytes_max, 'n');
      if (k == 3) name = "select";
      wide.fields.push_back({name, Type::int64});
      rows.fields.push_back(name);
      rows.rows[0].push_back(static_cast<std::int64_t>(k));
    }
    Table table{suite, "wide"};
    table.define(wide, rows);
    suite.expect(table.all({}).rows == rows.rows, "a different row");
    for (int k = 0; k < 50; ++k) {
      Table one{suite, std::string("t\0'\"", 4) + std::to_string(k)};
      one.define(people(), k % 2 ? three() : Rows{});
      one.expect_names({}, k % 2 ? "ada Bob eve " : "", "table " + std::to_string(k));
    }
  });

  if (suite.caps().durable)
    suite.check("synced data is present after the backend is opened again", [&] {
      Table table{suite, "kept"}, gone{suite, "kept-gone"};
      table.define(people(), three());
      gone.define(people());
      gone.ok(Code::db_undefine, {}, "undefine");
      if (auto synced = suite.backend().sync(false); !synced) throw Failed(synced.error().what);
      table.ok(Code::db_insert, encode(Rows{{"name"}, {{std::string("settled")}}}), "insert");
      suite.open();
      table.expect_names({}, "ada Bob eve settled ", "rows");
      suite.expect(gone.one(Code::db_describe).status, Status::not_found, "the undefined schema");
      suite.expect(table.one(Code::db_insert, encode(Rows{{"name"}, {{std::string("ada")}}})).status, Status::exists,
                   "the unique index");
    });
}

}  // namespace sonde::store::conformance

// Schemas, rows and selectors for Python: converts the Python types of tables.py into the bytes of db.hpp and back.
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "bind/store/store.hpp"
#include "store/db.hpp"

namespace sonde::store::py {

namespace {

constexpr db::Type types[] = {db::Type::boolean, db::Type::int32,   db::Type::uint32, db::Type::int64, db::Type::uint64,
                              db::Type::float32, db::Type::float64, db::Type::text,   db::Type::blob};

[[noreturn]] void bad_value(const std::string& field, db::Type type, const std::string& what) {
  raise({"store.bad_value", "field " + field + " is " + std::string(name_of(type)) + ", so it cannot be " + what,
         "None stands for no value"});
}

std::string shown(nb::handle value) {
  const std::string text = nb::cast<std::string>(nb::repr(value));
  return text.size() > 40 ? text.substr(0, 37) + "..." : text;
}

template <typename T> db::Value whole(nb::handle value, const std::string& field, db::Type type) {
  nb::object number = nb::steal(PyNumber_Index(value.ptr()));  // an int, also numpy's
  if (!number.is_valid() || PyBool_Check(value.ptr())) {
    PyErr_Clear();
    bad_value(field, type, shown(value));
  }
  if constexpr (std::is_signed_v<T>) {
    const long long n = PyLong_AsLongLong(number.ptr());
    if (!PyErr_Occurred() && std::in_range<T>(n)) return static_cast<T>(n);
  } else {
    const unsigned long long n = PyLong_AsUnsignedLongLong(number.ptr());
    if (!PyErr_Occurred() && std::in_range<T>(n)) return static_cast<T>(n);
  }
  PyErr_Clear();
  bad_value(field, type, shown(value) + ": out of range");
}

db::Value value_of(nb::handle value, const std::string& field, db::Type type) {
  if (value.is_none()) return {};
  switch (type) {
    case db::Type::boolean:
      if (PyBool_Check(value.ptr())) return value.ptr() == Py_True;
      break;
    case db::Type::int32: return whole<std::int32_t>(value, field, type);
    case db::Type::uint32: return whole<std::uint32_t>(value, field, type);
    case db::Type::int64: return whole<std::int64_t>(value, field, type);
    case db::Type::uint64: return whole<std::uint64_t>(value, field, type);
    case db::Type::float32:
    case db::Type::float64: {
      const double x = PyBool_Check(value.ptr()) || PyUnicode_Check(value.ptr()) ? NAN : PyFloat_AsDouble(value.ptr());
      PyErr_Clear();
      if (std::isnan(x)) break;
      if (type == db::Type::float64) return x;
      if (std::isfinite(x) && std::abs(x) > std::numeric_limits<float>::max())
        bad_value(field, type, shown(value) + ": out of range");
      return static_cast<float>(x);
    }
    case db::Type::text:
      if (PyUnicode_Check(value.ptr())) {
        Py_ssize_t n = 0;
        if (const char* utf8 = PyUnicode_AsUTF8AndSize(value.ptr(), &n);
            utf8 && db::is_text({utf8, static_cast<std::size_t>(n)}))
          return std::string(utf8, static_cast<std::size_t>(n));
        PyErr_Clear();
      }
      break;
    case db::Type::blob:
      if (PyObject_CheckBuffer(value.ptr())) {
        const Buffer buffer(value, false);
        return db::Blob(buffer.bytes().begin(), buffer.bytes().end());
      }
      break;
    case db::Type::null: break;
  }
  bad_value(field, type, shown(value));
}

nb::object to_python(const db::Value& value) {
  return std::visit(
      [](const auto& v) -> nb::object {
        using T = std::decay_t<decltype(v)>;
        if constexpr (std::is_same_v<T, std::monostate>) return nb::none();
        else if constexpr (std::is_same_v<T, bool>) return nb::bool_(v);
        else if constexpr (std::is_same_v<T, std::string>) return nb::str(v.data(), v.size());
        else if constexpr (std::is_same_v<T, db::Blob>) return nb::bytes(v.data(), v.size());
        else if constexpr (std::is_floating_point_v<T>) return nb::float_(static_cast<double>(v));
        else return nb::int_(v);
      },
      value);
}

nb::bytes bytes_from(const db::Blob& blob) { return nb::bytes(blob.data(), blob.size()); }

/// A table's fields and indexes, and the conversion of its rows.
class Schema {
 public:
  Schema(const std::vector<std::pair<std::string, std::string>>& fields,
         const std::vector<std::pair<std::vector<std::string>, bool>>& indexes) {
    for (const auto& [name, type_name] : fields) {
      const auto* found =
          std::find_if(std::begin(types), std::end(types), [&](db::Type t) { return type_name == name_of(t); });
      if (found == std::end(types))
        raise({"store.bad_value", "field " + name + " cannot have the type '" + type_name + "'",
               "the types are boolean int32 uint32 int64 uint64 float32 float64 text blob"});
      own_.fields.push_back({name, *found});
    }
    for (const auto& [names, unique] : indexes) {
      db::Index index;
      index.unique = unique;
      for (const auto& name : names) index.fields.push_back(static_cast<std::uint16_t>(number_of(name)));
      own_.indexes.push_back(std::move(index));
    }
    (void)encoded();
  }
  explicit Schema(db::Schema own) : own_(std::move(own)) {}
  static Schema decoded(nb::handle data) { return Schema(unwrap(db::decode_schema(Buffer(data, false).bytes()))); }

  /// Checked by the same decoder as in the server, so that an invalid schema is reported here, with a message.
  nb::bytes encoded() const {
    const db::Blob blob = db::encode(own_);
    (void)unwrap(db::decode_schema(blob));
    return bytes_from(blob);
  }
  std::vector<std::pair<std::string, std::string>> fields() const {
    std::vector<std::pair<std::string, std::string>> out;
    for (const auto& f : own_.fields) out.emplace_back(f.name, name_of(f.type));
    return out;
  }
  std::vector<std::pair<std::vector<std::string>, bool>> indexes() const {
    std::vector<std::pair<std::vector<std::string>, bool>> out;
    for (const auto& index : own_.indexes) {
      out.emplace_back(std::vector<std::string>{}, index.unique);
      for (const auto k : index.fields) out.back().first.push_back(own_.fields[k].name);
    }
    return out;
  }

  /// rows: each a sequence with a value for each of `names`.
  nb::bytes rows(const std::vector<std::string>& names, nb::handle rows) const {
    db::Rows out;
    out.fields = names;
    const auto columns = columns_of(names);
    for (nb::handle row : rows) {
      std::vector<db::Value> values;
      std::size_t k = 0;
      for (nb::handle value : row) {
        if (k < columns.size()) values.push_back(value_of(value, names[k], columns[k]));
        ++k;
      }
      if (k != columns.size())
        raise(
            {"store.bad_value",
             "a row has " + std::to_string(k) + " values, but there are " + std::to_string(columns.size()) + " fields",
             "give one for each, or None"});
      out.rows.push_back(std::move(values));
    }
    const db::Blob blob = db::encode(out);
    (void)unwrap(db::decode_rows(blob));
    return bytes_from(blob);
  }
  nb::bytes selector(nb::handle where) const { return checked(db::encode(selector_of(where)), db::decode_selector); }
  nb::bytes update(nb::handle where, const std::vector<std::string>& names, nb::handle values) const {
    db::Update out;
    out.selector = selector_of(where);
    out.fields = names;
    const auto columns = columns_of(names);
    std::size_t k = 0;
    for (nb::handle value : values) {
      if (k < columns.size()) out.values.push_back(value_of(value, names[k], columns[k]));
      ++k;
    }
    return checked(db::encode(out), db::decode_update);
  }
  nb::bytes query(nb::handle where, const std::vector<std::pair<std::string, bool>>& order,
                  const std::vector<std::string>& fields) const {
    db::Query out;
    out.selector = selector_of(where);
    for (const auto& [name, descending] : order) {
      (void)type_of(name);
      out.order.push_back({name, descending});
    }
    for (const auto& name : fields) (void)type_of(name);
    out.fields = fields;
    return checked(db::encode(out), db::decode_query);
  }

 private:
  template <typename Decode> static nb::bytes checked(const db::Blob& blob, Decode decode) {
    (void)unwrap(decode(Bytes(blob)));
    return bytes_from(blob);
  }
  std::size_t number_of(const std::string& name) const {
    for (std::size_t k = 0; k < own_.fields.size(); ++k)
      if (own_.fields[k].name == name) return k;
    std::string known;
    for (const auto& f : own_.fields) known += (known.empty() ? "" : ", ") + f.name;
    raise({"store.bad_value", "the table has no field '" + name + "'", "its fields are " + known});
  }
  db::Type type_of(const std::string& name) const {
    return name == db::id_field ? db::Type::uint64 : own_.fields[number_of(name)].type;
  }
  std::vector<db::Type> columns_of(const std::vector<std::string>& names) const {
    std::vector<db::Type> out;
    for (const auto& name : names) out.push_back(own_.fields[number_of(name)].type);
    return out;
  }

  /// None; ("all" | "any", [parts]); (field, comparison, value).
  db::Selector selector_of(nb::handle where) const {
    if (where.is_none()) return db::Selector::every();
    if (!nb::isinstance<nb::tuple>(where)) bad_selector(where);
    const auto parts = nb::borrow<nb::tuple>(where);
    if (parts.size() == 2 && nb::isinstance<nb::str>(parts[0])) {
      const auto kind = nb::cast<std::string>(parts[0]);
      if (kind != "all" && kind != "any") bad_selector(where);
      std::vector<db::Selector> below;
      for (nb::handle part : parts[1]) below.push_back(selector_of(part));
      return kind == "all" ? db::Selector::all_of(std::move(below)) : db::Selector::any_of(std::move(below));
    }
    if (parts.size() != 3 || !nb::isinstance<nb::str>(parts[0]) || !nb::isinstance<nb::str>(parts[1]))
      bad_selector(where);
    const auto field = nb::cast<std::string>(parts[0]), op = nb::cast<std::string>(parts[1]);
    static constexpr std::pair<const char*, db::Compare> known[] = {{"==", db::Compare::eq},
                                                                    {"!=", db::Compare::ne},
                                                                    {"<", db::Compare::lt},
                                                                    {"<=", db::Compare::le},
                                                                    {">", db::Compare::gt},
                                                                    {">=", db::Compare::ge},
                                                                    {"prefix", db::Compare::prefix},
                                                                    {"like", db::Compare::like},
                                                                    {"is null", db::Compare::is_null},
                                                                    {"is not null", db::Compare::not_null}};
    for (const auto& [name, compare] : known)
      if (op == name) {
        const bool bare = compare == db::Compare::is_null || compare == db::Compare::not_null;
        return db::Selector::where(field, compare, bare ? db::Value{} : value_of(parts[2], field, type_of(field)));
      }
    raise({"store.bad_value", "there is no comparison '" + op + "'",
           "they are == != < <= > >= prefix like 'is null' 'is not null'"});
  }
  [[noreturn]] static void bad_selector(nb::handle where) {
    raise({"store.bad_value", shown(where) + " is not a selector",
           "write (\"field\", \">\", 3), (\"all\", [...]) or (\"any\", [...])"});
  }

  db::Schema own_;
};

}  // namespace

void bind_tables(nb::module_& m) {
  nb::class_<Schema>(m, "Schema")
      .def(nb::init<const std::vector<std::pair<std::string, std::string>>&,
                    const std::vector<std::pair<std::vector<std::string>, bool>>&>(),
           nb::arg("fields"), nb::arg("indexes"))
      .def_static("decoded", &Schema::decoded, nb::arg("data"))
      .def("encoded", &Schema::encoded)
      .def_prop_ro("fields", &Schema::fields)
      .def_prop_ro("indexes", &Schema::indexes)
      .def("rows", &Schema::rows, nb::arg("names"), nb::arg("rows"))
      .def("selector", &Schema::selector, nb::arg("where").none())
      .def("update", &Schema::update, nb::arg("where").none(), nb::arg("names"), nb::arg("values"))
      .def("query", &Schema::query, nb::arg("where").none(), nb::arg("order"), nb::arg("fields"));
  m.def(
      "rows_of",
      [](nb::handle data) {
        const db::Answer answer = unwrap(db::decode_answer(Buffer(data, false).bytes()));
        nb::list rows;
        for (const auto& row : answer.rows) {
          nb::list values;
          for (const auto& value : row) values.append(to_python(value));
          rows.append(nb::tuple(values));
        }
        return nb::make_tuple(answer.fields, answer.ids, rows);
      },
      nb::arg("data"), "(fields, ids, rows) of a query's answer.");
}

}  // namespace sonde::store::py

#include <doctest/doctest.h>

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <string_view>
#include <utility>

#include "bus/idl.hpp"

using namespace sonde::bus;

namespace {

std::map<std::string, TypePtr> parse(std::string_view text) {
  auto types = parse_idl(text, "t.idl");
  if (types) return *types;
  FAIL("t.idl: ", types.error().what, " (", types.error().hint, ")");
  return {};
}

/// The type `name` that `text` declares.
TypePtr only(std::string_view text, const std::string& name) {
  const auto types = parse(text);
  REQUIRE_MESSAGE(types.contains(name), name);
  return types.at(name);
}

/// Of "struct S { …; };"
TypePtr field_of(const std::string& declaration) {
  return only("struct S { " + declaration + "; };", "S")->fields.at(0).type;
}

bool refuses(std::string_view text, std::string_view what, std::string_view hint = "") {
  const auto types = parse_idl(text, "t.idl");
  if (types) {
    MESSAGE("accepted: ", text);
    return false;
  }
  CHECK(types.error().code == "bus.bad_idl");
  const bool found =
      types.error().what.find(what) != std::string::npos && types.error().hint.find(hint) != std::string::npos;
  if (!found) MESSAGE("said: ", types.error().what, " (", types.error().hint, ")");
  return found;
}

/// A folder of files that is gone afterwards.
struct Folder {
  std::filesystem::path path;
  Folder() {
    std::string name = (std::filesystem::temp_directory_path() / "sonde-test-idl-XXXXXX").string();
    REQUIRE(::mkdtemp(name.data()));
    path = name;
  }
  ~Folder() { std::filesystem::remove_all(path); }
  std::string put(const std::string& name, std::string_view text) const {
    std::filesystem::create_directories((path / name).parent_path());
    std::ofstream(path / name) << text;
    return (path / name).string();
  }
};

}  // namespace

TEST_CASE("bus: every primitive has its kind, in both ways to write integers") {
  const std::pair<const char*, Kind> all[] = {{"boolean", Kind::boolean}, {"octet", Kind::octet},
                                              {"char", Kind::char8},      {"int8", Kind::int8},
                                              {"uint8", Kind::uint8},     {"short", Kind::int16},
                                              {"int16", Kind::int16},     {"unsigned short", Kind::uint16},
                                              {"uint16", Kind::uint16},   {"long", Kind::int32},
                                              {"int32", Kind::int32},     {"unsigned long", Kind::uint32},
                                              {"uint32", Kind::uint32},   {"long long", Kind::int64},
                                              {"int64", Kind::int64},     {"unsigned long long", Kind::uint64},
                                              {"uint64", Kind::uint64},   {"float", Kind::float32},
                                              {"double", Kind::float64},  {"string", Kind::string}};
  for (const auto& [text, kind] : all) CHECK(field_of(std::string(text) + " f")->kind == kind);
}

TEST_CASE("bus: bounds, dimensions, sequences of sequences") {
  CHECK(field_of("string<12> f")->bound == 12);
  CHECK(field_of("string f")->bound == 0);
  const auto grid = field_of("double f[2][3]");
  CHECK(grid->kind == Kind::array);
  CHECK(grid->bound == 6);
  CHECK(grid->element->kind == Kind::float64);
  for (const char* text : {"sequence<sequence<string<4>>, 2> f", "sequence<sequence<string<4> >,2> f"}) {
    const auto list = field_of(text);
    CHECK(list->bound == 2);
    CHECK(list->element->kind == Kind::sequence);
    CHECK(list->element->element->bound == 4);
  }
  const auto types =
      only("typedef octet Mac[6]; typedef Mac Pair[2]; struct S { Pair a; sequence<Mac> b; Mac c, d[2]; };", "S");
  CHECK(types->fields[0].type->bound == 12);
  CHECK(types->fields[1].type->element->bound == 6);
  CHECK(types->fields[2].type->bound == 6);
  CHECK(types->fields[3].type->bound == 12);
  CHECK(types->fields[3].type->element->kind == Kind::octet);
}

TEST_CASE("bus: modules, bases, enumerations, keys and units") {
  const auto types = parse(R"(
    // what nodes say
    module regale {
      const unsigned long MAX = (1 << 3) * 2 + 0x10 - 010;   /* 24 */
      enum Mode { off, @value(5) on, automatic };
      @nested struct Head { @key string<MAX> node; unsigned long long sent_ns; };
      module deep { typedef sequence<Mode, on> Modes; };
    };
    module regale {
      @final @topic
      struct NodePower : Head {
        @key(TRUE) long socket; @unit("W") double power, cap;
        @unit(value = "\"C\"") @key(FALSE) float temperature;
        deep::Modes modes; ::regale::Mode mode;
      };
    };)");
  REQUIRE(types.size() == 3);
  const Type& type = *types.at("regale::NodePower");
  REQUIRE(type.fields.size() == 8);
  CHECK(type.fields[0].name == "node");
  CHECK(type.fields[0].key);
  CHECK(type.fields[0].type->bound == 24);
  CHECK_FALSE(type.fields[1].key);
  CHECK(type.fields[2].key);
  CHECK(type.fields[3].unit == "W");
  CHECK(type.fields[4].unit == "W");
  CHECK(type.fields[5].unit == "\"C\"");
  CHECK_FALSE(type.fields[5].key);
  CHECK(type.fields[6].type->bound == 5);
  CHECK(type.fields[7].type == types.at("regale::Mode"));
  const auto& mode = *types.at("regale::Mode");
  CHECK(mode.enumerators[0].value == 0);
  CHECK(mode.enumerators[1].value == 5);
  CHECK(mode.enumerators[2].value == 6);
}

TEST_CASE("bus: constants of all kinds, and what can be computed") {
  const auto bound = [](const std::string& expression) {
    return only("const long A = 5; enum E { zero, one }; struct S { string<" + expression + "> f; };", "S")
        ->fields[0]
        .type->bound;
  };
  CHECK(bound("A") == 5);
  CHECK(bound("::A * 2 + one") == 11);
  CHECK(bound("-(-7)") == 7);
  CHECK(bound("7 / 2 % 2") == 1);
  CHECK(bound("1 | 6 & 4 ^ 1") == 5);
  CHECK(bound("~0 + 3") == 2);
  CHECK(bound("256 >> 2") == 64);
  CHECK(bound("(256 >> A)") == 8);
  parse(
      "const float PI = -3.5e0f; const double E = 2; const string S = \"a\\n\"; const char C = '\\''; const boolean B "
      "= TRUE; struct T { octet o; };");
}

TEST_CASE("bus: names that are keywords are escaped") {
  const auto types = parse("module _module { struct _struct { long _Long, port; }; };");
  const Type& type = *types.at("module::struct");
  CHECK(type.fields[0].name == "Long");
  CHECK(type.fields[1].name == "port");
  CHECK(equal(type, *parse(to_idl(type)).at("module::struct")));
}

TEST_CASE("bus: a keylist is as good as @key") {
  const auto types =
      parse("module m { struct S { long a, b; string c; }; \n#pragma keylist S a c\n struct T { @key S s; }; };");
  CHECK(types.at("m::S")->fields[0].key);
  CHECK_FALSE(types.at("m::S")->fields[1].key);
  CHECK(types.at("m::S")->fields[2].key);
  CHECK(types.at("m::T")->fields[0].type->fields[2].key);
  CHECK(refuses("struct S { long abc; };\n#pragma keylist S abd\n",
                "t.idl:2: #pragma keylist: 'S' has no field 'abd' (nearest: abc)"));
  CHECK(refuses("struct S { @key long a; };\n#pragma keylist S a\n", "already has keys"));
  CHECK(refuses("struct S { sequence<long> a; };\n#pragma keylist S a\n", "S.a is a sequence and part of the key"));
  CHECK(refuses("struct S {\n#pragma keylist S a\n long a; };", "inside a structure"));
}

TEST_CASE("bus: what it writes it reads again") {
  for (const char* text :
       {"struct S { boolean a; octet b; char c; int8 d; uint8 e; short f; unsigned short g; long h; unsigned long i; "
        "long long j; unsigned long long k; float l; double m; string n; string<3> o; };",
        "module a { module b { enum E { x, y, z }; struct I { @key E e; @unit(\"m/s\\\\\\\"\") float v; }; }; struct S "
        "{ b::I one; sequence<b::I, 4> many; }; };",
        "enum E { @value(-3) x, @value(9) y }; module a { struct S { @key E e[2][2]; }; };",
        "module m { typedef long Row[3]; typedef sequence<Row, 7> Rows[2]; struct S { sequence<Rows> a; "
        "sequence<sequence<string<2>>> b[3]; @key string c[4]; }; };"}) {
    const auto types = parse(text);
    const std::string which = types.contains("S") ? "S" : types.contains("a::S") ? "a::S" : "m::S";
    const Type& type = *types.at(which);
    const auto again = parse(to_idl(type));
    REQUIRE(again.contains(which));
    CHECK_MESSAGE(equal(type, *again.at(which)), to_idl(type));
    CHECK(to_idl(type) == to_idl(*again.at(which)));
    for (std::size_t k = 0; k < type.fields.size(); ++k) CHECK(type.fields[k].unit == again.at(which)->fields[k].unit);
  }
}

TEST_CASE("bus: files include files, each once, and guards are known") {
  const Folder folder;
  folder.put("parts/types.idl",
             "#ifndef TYPES\n#define TYPES\n#include \"more.idl\"\nmodule p { struct In { M m; }; };\n#endif\n");
  folder.put("parts/more.idl",
             "#pragma once\nenum M { a };\n#ifdef NOWHERE\nthis is not read @@@\n#else\nenum N { b };\n#endif\n");
  const std::string path = folder.put("top.idl",
                                      "#include \"parts/types.idl\"\n#include \"parts/more.idl\"\n#include "
                                      "\"parts/types.idl\"\nstruct S { p::In in; };\n");
  const auto types = load_idl(path);
  REQUIRE_MESSAGE(bool(types), types.error().what);
  CHECK((*types).size() == 4);

  const auto missing = load_idl(folder.put("bad.idl", "\n#include \"nowhere.idl\"\n"));
  REQUIRE_FALSE(missing);
  CHECK(missing.error().code == "bus.no_file");
  CHECK(missing.error().what.find("bad.idl:2: the IDL file nowhere.idl cannot be read") != std::string::npos);
  CHECK(missing.error().hint.find(folder.path.string()) != std::string::npos);
  CHECK(load_idl((folder.path / "none.idl").string()).error().code == "bus.no_file");
  CHECK(load_idl(folder.path.string()).error().code == "bus.no_file");

  folder.put("broken.idl", "struct X {\n  lung a;\n};\n");
  const auto inner = load_idl(folder.put("outer.idl", "#include \"broken.idl\"\n"));
  REQUIRE_FALSE(inner);
  CHECK(inner.error().what.starts_with("broken.idl:2: 'lung' is not declared here"));
  // One that includes itself is read once.
  CHECK(bool(load_idl(folder.put("self.idl", "#include \"self.idl\"\nstruct S { long a; };\n"))));
}

TEST_CASE("bus: errors name the line, what was found and what is allowed") {
  CHECK(refuses("struct S {\n\n  wstring a;\n};", "t.idl:3: 'wstring' is not supported", "string"));
  CHECK(refuses("union U switch (long) { case 1: long a; };",
                "t.idl:1: expected a declaration, found 'union', which is not supported", "module, struct"));
  CHECK(refuses("interface I {};", "'interface', which is not supported"));
  CHECK(refuses("struct S { long double a; };", "long double is not supported"));
  CHECK(refuses("struct S { map<long, long> a; };", "'map' is not supported"));
  CHECK(refuses("struct S { @optional long a; };", "@optional is not supported: every sample has every field",
                "@key, @unit"));
  CHECK(refuses("@mutable struct S { long a; };", "@mutable is not supported: structures are final"));
  CHECK(refuses("@extensibility(APPENDABLE) struct S { long a; };", "@extensibility is not supported"));
  parse("@extensibility(FINAL) struct S { long a; };");
  CHECK(refuses("struct S { @kay long a; };", "@kay is not known before fields (nearest: key)"));
  CHECK(refuses("@key struct S { long a; };", "@key is not known before structures"));
  CHECK(refuses("struct S { @key(maybe) long a; };", "@key has the parameter TRUE, FALSE or none"));
  CHECK(refuses("struct S { @unit(W) long a; };", "@unit needs one text", "@unit(\"W\")"));
  CHECK(refuses("struct S { long a };", "expected ';' after the field 'a', found '}'"));
  CHECK(refuses("struct S { long a; }", "expected ';' after the declaration, found the end of the file"));
  CHECK(refuses("struct S { long a;\n long", "t.idl:2: expected the name of a field, found the end"));
  CHECK(refuses("module a {\n struct S { long a; };\n", "t.idl:1: module 'a' is not closed"));
  CHECK(refuses("};", "'}' without a matching '{'"));
  CHECK(refuses("struct S { long struct; };", "the name of a field is 'struct', a keyword", "_struct"));
  CHECK(refuses("struct S { long Float; };", "the name of a field is 'Float', a keyword"));
  CHECK(refuses("struct S { long a = 3; };", "default value"));
  CHECK(refuses("struct S { };", "S has no field"));
  CHECK(refuses("struct S { long a; string A; };", "'a' and 'A' have the same name"));
  CHECK(refuses("struct A { long a; };\nstruct A { long a; };",
                "t.idl:2: 'A' is already declared as a type, at t.idl:1"));
  CHECK(
      refuses("enum E { on };\nenum F { On };", "'On' is already declared as an enumerator spelled 'on', at t.idl:1"));
  CHECK(refuses("enum E { a = 3 };", "'a = …' is not IDL", "@value"));
  CHECK(refuses("enum E { a, @value(0) b };", "has the value 0, which another enumerator also has"));
  CHECK(refuses("enum E { @value(2147483647) a, b };", "'b' has the value 2147483648"));
  CHECK(refuses("enum E { a, };", "expected the name of an enumerator, found '}'"));
  CHECK(refuses("struct Mode { long a; }; struct S { Mod a; };", "'Mod' is not declared here (nearest: Mode)"));
  CHECK(refuses("struct Mode { long a; }; struct S { mode a; };", "'mode' is spelled 'Mode'"));
  CHECK(refuses("struct S { sequence<S> a; };", "'S' is used before its declaration ends"));
  CHECK(refuses("struct T; struct S { T a; };", "'T' is used before"));
  CHECK(refuses("struct T;", "T is declared forward but never defined"));
  CHECK(refuses("const long A = 1; struct S { A a; };", "'A' is a constant, not a type"));
  CHECK(refuses("struct S { string<0> a; };", "the bound of a string is 0"));
  CHECK(refuses("struct S { long a[0]; };", "the bound of an array is 0"));
  CHECK(refuses("struct S { long a[70000][70000]; };", "4900000000 elements"));
  CHECK(refuses("struct S { double a[10000000]; };", "needs at least 80000000 bytes"));
  CHECK(refuses("struct S { string<1.5> a; };", "expected an integer for the bound of a string, found '1.5'"));
  CHECK(refuses("const double D = 2.0; struct S { string<D> a; };", "'D' is a constant, not an integer"));
  CHECK(refuses("const octet O = 256;", "'O' has the value 256", "0 to 255"));
  CHECK(refuses("const long L = 1 / 0;", "division by 0"));
  CHECK(refuses("const long long L = 9223372036854775807 + 1;", "does not fit into 64 bits"));
  CHECK(refuses("const long long L = 1 << 64;", "a shift by 64"));
  CHECK(refuses("const long L = 99999999999999999999;", "is not a number of 64 bits"));
  CHECK(refuses("const long L = 08;", "'08' is not a number"));
  CHECK(refuses("struct S { long a; }; struct T { struct X { long b; } a; };",
                "'struct' cannot be declared inside another type", "declare it separately"));
  CHECK(refuses("struct B { long a; }; struct S : C { long b; };", "'C' is not declared here"));
  CHECK(refuses("struct B { long a; }; struct S : B { long a; };", "'a' and 'a' have the same name"));
  CHECK(refuses("/* no end", "t.idl:1: the comment that begins here does not end"));
  CHECK(refuses("const string S = \"no end\n\";", "does not end on its line"));
  CHECK(refuses("struct S { long a; }; $", "the byte '$' has no meaning"));
  CHECK(refuses("struct S\xff { long a; };", "the byte 0xff has no meaning"));
  CHECK(refuses(std::string_view("struct S\0 { long a; };", 22), "the byte 0x00 has no meaning"));
  CHECK(refuses("#define X 3\n", "#define with a value"));
  CHECK(refuses("#include \"x.idl\"\n", "is not a file"));
  CHECK(refuses("#ifndef X\nstruct S { long a; };\n", "t.idl:1: #ifndef or #ifdef without #endif"));
  CHECK(refuses("#endif\n", "#endif without"));
  CHECK(refuses("#if 1\n#endif\n", "#if is not known"));
  CHECK(refuses("#pragma DCPS_DATA_TYPE \"x\"\n", "#pragma DCPS_DATA_TYPE is not known"));
  CHECK(refuses("struct S { long a; #pragma once\n };", "'#' is not at the beginning of the line"));
  const auto nameless = parse_idl("x");
  REQUIRE_FALSE(nameless);
  CHECK(nameless.error().what.starts_with("line 1: "));
}

TEST_CASE("bus: declarations without end are stopped") {
  std::string text = "struct S { ";
  for (int k = 0; k < 100'000; ++k) text += "sequence<";
  CHECK(refuses(text, "sequences nested deeper than 16 levels"));
  text = "const long A = ";
  CHECK(refuses(text + std::string(100'000, '('), "more than 32 signs or parentheses"));
  CHECK(refuses(text + std::string(100'000, '-'), "more than 32 signs or parentheses"));
  CHECK(refuses(text + std::string(100'000, '~'), "more than 32 signs or parentheses"));
  text.clear();
  for (int k = 0; k < 100'000; ++k) text += "module m { ";
  CHECK(refuses(text, "letters", "255 are allowed"));
  text = "struct S { a";
  for (int k = 0; k < 100'000; ++k) text += "::a";
  CHECK(refuses(text + " b; };", "more than 255 letters"));
  CHECK(refuses(std::string(limit::idl_bytes + 1, ' '), "4 MiB"));
  text = "typedef sequence<long> T0;\n";
  for (int k = 1; k < 50'000; ++k)
    text += "typedef sequence<T" + std::to_string(k - 1) + "> T" + std::to_string(k) + ";\n";
  CHECK(refuses(text, "t.idl:16: T15.element[][][][][][][][][][][][][][][][] is nested deeper than 16"));
  // Each structure holds two of the one before.
  text = "struct S0 { long a; };\n";
  for (int k = 1; k < 40; ++k) text += "struct S" + std::to_string(k) + " { S" + std::to_string(k - 1) + " a, b; };\n";
  CHECK(refuses(text, "16 structures, sequences and arrays"));
}

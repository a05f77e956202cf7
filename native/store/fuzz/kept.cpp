// libFuzzer: the contents of a store's folders, as a crash, a bad disk or another user may have left them: the marker
// of a folder, a token file, names of objects, a database of rows. The first byte selects the kind.
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/fuzz/input.hpp"
#include "store/auth.hpp"
#include "store/backend.hpp"
#include "store/db.hpp"
#include "store/folder.hpp"
#include "store/types.hpp"

namespace {

using namespace sonde::store;
using sonde::fuzz::hold;
using sonde::fuzz::Input;

/// The folder of this process, in memory if there is room.
const std::string& folder() {
  static const std::string made = [] {
    std::string name = ::access("/dev/shm", W_OK) == 0 ? "/dev/shm/sonde-fuzz-XXXXXX" : "/tmp/sonde-fuzz-XXXXXX";
    hold(::mkdtemp(name.data()) != nullptr, "the folder for files cannot be made");
    static const std::string kept = name;
    std::atexit([] {
      std::error_code ignored;
      std::filesystem::remove_all(kept, ignored);
    });
    return name;
  }();
  return made;
}

void write_file(const std::string& path, std::string_view text) {
  ::unlink(path.c_str());
  std::ofstream file(path, std::ios::binary);
  file.write(text.data(), static_cast<std::streamsize>(text.size()));
}

/// An empty folder with only the files that are written now.
std::string fresh(const char* name) {
  const std::string path = folder() + '/' + name;
  std::filesystem::remove_all(path);
  ::mkdir(path.c_str(), 0700);
  return path;
}

void marker(std::string_view text) {
  const std::string path = fresh("marked");
  write_file(path + "/sonde-store", text);
  constexpr std::string_view line = "sonde-store posix 1\n";
  // A marker that a crash left incomplete is completed; a folder with anything else belongs to another program.
  const auto opens = [&] {
    const auto opened = Folder::open(path, "posix", 1);
    if (!opened) hold(opened.error(), "store.cannot_open");
    return bool(opened);
  };
  write_file(path + "/something", "of another user");
  hold(opens() == (text == line), "a folder with other contents is accepted as a store's, or a store's is not");
  ::unlink((path + "/something").c_str());
  hold(opens() == line.starts_with(text), "another program's folder is accepted as a store's, or a store's is not");
}

void token(std::string_view text) {
  const std::string path = folder() + "/token";
  write_file(path, text);
  ::chmod(path.c_str(), 0600);
  const auto read = auth::read_token(path, true);
  if (!read) return hold(read.error(), "store.bad_token");
  hold((*read).size() >= 16 && text.starts_with(*read), "a token that is too short, or differs from the file");
}

/// Objects whose files another program made, in the folders where the backend looks for such files.
void names(Input& input) {
  const std::string path = fresh("objects");
  { hold(bool(open_backend(Role::data, "posix", {{"path", path}})), "a new folder is refused"); }
  for (int k = 0; k < 8 && !input.empty(); ++k) {
    const auto at = input.next<std::uint8_t>();
    std::string name(input.text(1 + input.next<std::uint8_t>() % 64u));
    std::ranges::replace(name, '\0', 'x');
    std::ranges::replace(name, '/', '~');
    if (name.empty() || name == "." || name == "..") continue;
    if (at & 128) name.insert(0, "s+");
    constexpr char digits[] = "0123456789abcdef";
    const std::string below = path + '/' + digits[at / 16 % 8] + digits[at % 16];
    ::mkdir(below.c_str(), 0700);
    if (name.back() == '~') ::mkdir((below + '/' + name).c_str(), 0700);
    else write_file(below + '/' + name, "x");
  }
  auto backend = open_backend(Role::data, "posix", {{"path", path}});
  hold(bool(backend), "a folder of ours is refused because of its contents");
  Arena arena;
  Op op;
  op.code = Code::object_list;
  op.space = "s";
  Outcome outcome;
  (*backend)->execute({&op, 1}, Safety::network, {&outcome, 1}, arena);
  std::vector<std::pair<std::string_view, Bytes>> found;
  hold(outcome.status != Status::ok || unpack_pairs(outcome.data, found), "a list that does not unpack");
  for (const auto& [name, value] : found) {
    Op look;
    look.code = Code::object_status;
    look.space = "s";
    look.key = name;
    if (check(look) != Status::ok) continue;
    Outcome seen;
    (*backend)->execute({&look, 1}, Safety::network, {&seen, 1}, arena);
    hold(seen.status != Status::pending, "an operation without an outcome");
  }
}

/// A database with a schema and rows of every type: its file, and the position of the schema's definition in it.
struct Whole {
  std::string file;
  std::size_t definition = 0, definition_bytes = 0;
};

std::vector<Op> operations(const std::vector<std::byte>& schema, const std::vector<std::byte>& rows,
                           const std::vector<std::byte>& query, const std::vector<std::byte>& selector) {
  std::vector<Op> ops(4);
  ops[0].code = Code::db_define, ops[0].data = schema;
  ops[1].code = Code::db_insert, ops[1].data = rows;
  ops[2].code = Code::db_query, ops[2].data = query;
  ops[3].code = Code::db_remove, ops[3].data = selector;
  for (Op& op : ops) op.space = "space", op.key = "schema";
  return ops;
}

struct Encoded {
  std::vector<std::byte> schema, rows, query, selector;
};

const Encoded& encoded() {
  static const Encoded made = [] {
    db::Schema schema;
    for (int type = 1; type <= 9; ++type)
      schema.fields.push_back({"f" + std::to_string(type), static_cast<db::Type>(type)});
    schema.indexes.push_back({{2, 8}, true});
    db::Rows rows;
    for (const db::Field& field : schema.fields) rows.fields.push_back(field.name);
    for (std::int32_t k = 0; k < 20; ++k)
      rows.rows.push_back({k % 2 == 0, k, static_cast<std::uint32_t>(k), std::int64_t{k}, static_cast<std::uint64_t>(k),
                           1.5f, 2.5, std::string("text"), db::Blob(8, static_cast<std::byte>(k))});
    return Encoded{db::encode(schema), db::encode(rows), db::encode(db::Query{}), db::encode(db::Selector{})};
  }();
  return made;
}

const Whole& whole() {
  static const Whole made = [] {
    const std::string path = fresh("whole");
    {
      auto backend = open_backend(Role::db, "sqlite", {{"path", path}});
      hold(bool(backend), "a new database cannot be made");
      const Encoded& e = encoded();
      const auto ops = operations(e.schema, e.rows, e.query, e.selector);
      std::vector<Outcome> outcomes(2);
      Arena arena;
      (*backend)->execute({ops.data(), 2}, Safety::storage, outcomes, arena);
      hold(outcomes[1].status == Status::ok && bool((*backend)->sync(true)), "rows are not written");
    }
    std::ifstream in(path + "/rows.db", std::ios::binary);
    Whole out;
    out.file.assign(std::istreambuf_iterator<char>(in), {});
    const auto& schema = encoded().schema;
    const std::string_view definition(reinterpret_cast<const char*>(schema.data()), schema.size());
    out.definition = out.file.find(definition);
    out.definition_bytes = definition.size();
    hold(out.definition != std::string::npos, "the definition is not in its file");
    return out;
  }();
  return made;
}

void rows(Input& input) {
  std::string file = whole().file;
  const auto how = input.next<std::uint8_t>();
  while (!input.empty()) {
    const bool schema = how & 1;
    const std::size_t at = schema ? whole().definition + input.next<std::uint8_t>() % whole().definition_bytes
                                  : input.next<std::uint32_t>() % file.size();
    const auto piece = input.text(1 + input.next<std::uint8_t>() % (schema ? 4u : 64u));
    std::copy_n(piece.begin(), std::min(piece.size(), file.size() - at),
                file.begin() + static_cast<std::ptrdiff_t>(at));
  }
  if (how & 2) file.resize(file.size() / 256 * (std::size_t{how} / 4 * 4));
  const std::string path = fresh("rows");
  write_file(path + "/sonde-store", "sonde-store sqlite 1\n");
  write_file(path + "/rows.db", file);
  auto backend = open_backend(Role::db, "sqlite", {{"path", path}});
  if (!backend) return hold(backend.error(), "store.cannot_open");
  const Encoded& e = encoded();
  const auto ops = operations(e.schema, e.rows, e.query, e.selector);
  for (const std::size_t k : {2u, 0u, 1u, 2u, 3u}) {
    Outcome outcome;
    Arena arena;
    (*backend)->execute({&ops[k], 1}, Safety::network, {&outcome, 1}, arena);
    hold(outcome.status != Status::pending && outcome.status != Status::internal,
         "an operation without an outcome, or an exception");
    if (k != 2 || outcome.status != Status::ok) continue;
    if (const auto answer = db::decode_answer(outcome.data); !answer) hold(answer.error(), "store.bad_encoding");
  }
  (void)(*backend)->sync(true);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t n) {
  if (n < 1) return 0;
  const auto text = sonde::fuzz::text_of(bytes + 1, n - 1);
  Input input(bytes + 1, n - 1);
  switch (bytes[0] % 4) {
    case 0: marker(text); break;
    case 1: token(text); break;
    case 2: names(input); break;
    default: rows(input); break;
  }
  return 0;
}

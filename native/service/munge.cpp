#include "service/munge.hpp"

#ifdef SONDE_HAVE_MUNGE
#include <munge.h>
#endif

#include <cstdlib>

namespace sonde::munge {

#ifdef SONDE_HAVE_MUNGE

namespace {

/// Where munged listens, if SONDE_MUNGE_SOCKET says that it is not where libmunge was built to look.
struct Context {
  munge_ctx_t ctx = nullptr;
  Context() {
    if (const char* socket = std::getenv("SONDE_MUNGE_SOCKET"); socket && *socket) {
      ctx = ::munge_ctx_create();
      ::munge_ctx_set(ctx, MUNGE_OPT_SOCKET, socket);
    }
  }
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;
  ~Context() {
    if (ctx) ::munge_ctx_destroy(ctx);
  }
};

/// Whether it says something of a credential, and not of the daemon.
bool about_credential(munge_err_t why) { return why >= EMUNGE_BAD_CRED; }

}  // namespace

bool built() { return true; }

Result<std::string> credential(std::string_view payload) {
  const Context where;
  char* made = nullptr;
  const munge_err_t why = ::munge_encode(&made, where.ctx, payload.data(), static_cast<int>(payload.size()));
  std::string text = made ? made : "";
  std::free(made);
  if (why != EMUNGE_SUCCESS)
    return Error{"munge.silent", std::string("MUNGE gave no credential: ") + ::munge_strerror(why),
                 "is munged running on this host?"};
  return text;
}

Result<unsigned> user(const std::string& credential, std::string_view payload) {
  void* held = nullptr;
  int size = 0;
  uid_t user = 0;
  gid_t group = 0;
  const Context where;
  const munge_err_t why = ::munge_decode(credential.c_str(), where.ctx, &held, &size, &user, &group);
  const std::string made_for(static_cast<const char*>(held ? held : ""), held ? static_cast<std::size_t>(size) : 0);
  std::free(held);
  if (why != EMUNGE_SUCCESS && !about_credential(why))
    return Error{"munge.silent", std::string("MUNGE cannot check a credential: ") + ::munge_strerror(why),
                 "is munged running on this host?"};
  if (why != EMUNGE_SUCCESS)
    return Error{"munge.refused", std::string("the MUNGE credential was refused: ") + ::munge_strerror(why),
                 "do both hosts have the same MUNGE key and clocks within minutes?"};
  // Not secret: a credential can be had for any payload, and only by who it names.
  if (made_for != payload)
    return Error{"munge.refused", "the MUNGE credential was made for something else", "try again"};
  return static_cast<unsigned>(user);
}

#else

bool built() { return false; }

Result<std::string> credential(std::string_view) {
  return Error{"munge.silent", "this build has no MUNGE", "install libmunge-dev and build again"};
}
Result<unsigned> user(const std::string&, std::string_view) { return credential({}).error(); }

#endif

}  // namespace sonde::munge

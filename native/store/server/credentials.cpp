#include "store/server/credentials.hpp"

#include <deque>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

#include "store/auth.hpp"

namespace sonde::store {

/// Shared with the threads, which may outlive the rest.
struct Credentials::State {
  explicit State(std::size_t most) : waiting_max(most) {}
  const std::size_t waiting_max;
  std::mutex mutex;
  std::deque<Question> waiting;
  std::size_t threads = 0;
  bool closed = false;
};

Credentials::Credentials(std::size_t waiting_max) : state_(std::make_shared<State>(waiting_max)) {}

Credentials::~Credentials() {
  std::deque<Question> left;
  const std::lock_guard lock(state_->mutex);
  state_->closed = true;
  left.swap(state_->waiting);
}

bool Credentials::ask(Question question) {
  const std::lock_guard lock(state_->mutex);
  // Those whose connection has ended meanwhile leave their place to this one.
  std::erase_if(state_->waiting, [](const Question& q) { return !q.wanted(); });
  if (state_->waiting.size() >= state_->waiting_max) return false;
  state_->waiting.push_back(std::move(question));
  if (state_->threads == threads_max) return true;
  try {
    std::thread([state = state_] { work(state); }).detach();
  } catch (const std::system_error&) {
    if (state_->threads > 0) return true;  // one of those takes it
    state_->waiting.pop_back();
    return false;
  }
  ++state_->threads;
  return true;
}

std::size_t Credentials::waiting() const {
  const std::lock_guard lock(state_->mutex);
  return state_->waiting.size();
}

void Credentials::work(const std::shared_ptr<State>& state) {
  std::unique_lock lock(state->mutex);
  while (!state->waiting.empty()) {
    Question question = std::move(state->waiting.front());
    state->waiting.pop_front();
    if (!question.wanted()) continue;
    lock.unlock();
    try {
      auto user = auth::munge_user(question.credential, question.payload);
      lock.lock();
      // With the lock, so that ~Credentials() waits for the end of an answer that has begun.
      if (state->closed) break;
      question.answer(std::move(user));
    } catch (...) {
      // Out of memory: the connection ends when its time to prove itself is over.
      if (!lock.owns_lock()) lock.lock();
    }
  }
  --state->threads;
}

}  // namespace sonde::store

// Batches of the store from two threads, four under way at once in each: reads, writes, and several servers' worth of names.
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <string>
#include <thread>
#include <vector>

#include "store/store.hpp"

using namespace sonde;
using namespace sonde::store;

namespace {

void check(const Result<void>& done) {
  if (done) return;
  std::fprintf(stderr, "%s\n", done.error().what.c_str());
  std::exit(1);
}

void work(Client& client, int thread, int batches) {
  const std::vector<std::byte> block(5000, std::byte{7});
  std::vector<std::byte> into(5000);
  std::deque<Batch> under_way;
  for (int k = 0; k < batches; ++k) {
    Batch batch = client.batch(k % 10 == 9 ? Safety::storage : Safety::network);
    const std::string name = std::to_string(thread);
    if (k % 2 == 0)
      batch.write("pipelined", name, static_cast<std::uint64_t>(k) * 5000, block);
    else
      batch.read("pipelined", name, 0, into);
    check(batch.start());
    under_way.push_back(std::move(batch));
    if (under_way.size() == 4) {
      check(under_way.front().wait());
      under_way.pop_front();
    }
  }
  for (Batch& batch : under_way) check(batch.wait());
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  Config config;
  config.servers = {argv[1]};
  config.transport = argv[2];
  auto client = Client::open(config);
  if (!client) {
    std::fprintf(stderr, "%s\n", client.error().what.c_str());
    return 1;
  }
  const int batches = std::atoi(argv[3]);
  std::thread other([&] { work(*client, 1, batches); });
  work(*client, 0, batches);
  other.join();
}

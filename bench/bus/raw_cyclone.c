/* What Cyclone DDS does without the bus above it: a ping-pong and a stream over a type that idlc made, with the same
   QoS and the same waiting as the bus' (reliable, keep-all; a thread in a waitset, never a listener that answers).
   `make bench-bus` runs it beside sonde-busprobe.

   raw_cyclone ping|pong|flood|drain DOMAIN BYTES COUNT|SECONDS     configuration: CYCLONEDDS_URI
   One line of JSON. */
#include <dds/dds.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "raw.h"

enum { takes_at_once = 64 };

static int64_t now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1000000000ll + t.tv_nsec;
}

static dds_entity_t must(dds_entity_t rc, const char* what) {
  if (rc < 0) {
    fprintf(stderr, "raw_cyclone: %s: %s\n", what, dds_strretcode(rc));
    exit(1);
  }
  return rc;
}

static int ascending(const void* a, const void* b) {
  const double x = *(const double*)a, y = *(const double*)b;
  return (x > y) - (x < y);
}

static dds_qos_t* qos(void) {
  dds_qos_t* q = dds_create_qos();
  dds_qset_reliability(q, DDS_RELIABILITY_RELIABLE, DDS_SECS(1));
  dds_qset_history(q, DDS_HISTORY_KEEP_ALL, 0);
  return q;
}

static void wait_matched(dds_entity_t writer, dds_entity_t reader) {
  const int64_t until = now_ns() + 10000000000ll;
  for (;;) {
    dds_publication_matched_status_t p = {.current_count = 1};
    dds_subscription_matched_status_t s = {.current_count = 1};
    if (writer) must(dds_get_publication_matched_status(writer, &p), "status");
    if (reader) must(dds_get_subscription_matched_status(reader, &s), "status");
    if (p.current_count && s.current_count) return;
    if (now_ns() > until) must(DDS_RETCODE_TIMEOUT, "no match within 10 s");
    dds_sleepfor(DDS_MSECS(5));
  }
}

int main(int argc, char** argv) {
  if (argc != 5) {
    fprintf(stderr, "usage: raw_cyclone ping|pong|flood|drain DOMAIN BYTES COUNT|SECONDS\n");
    return 2;
  }
  const char* mode = argv[1];
  const uint32_t bytes = (uint32_t)strtoul(argv[3], NULL, 10);
  const double amount = strtod(argv[4], NULL);
  const dds_entity_t participant =
      must(dds_create_participant((dds_domainid_t)strtoul(argv[2], NULL, 10), NULL, NULL), "participant");
  dds_qos_t* q = qos();
  const int pings = !strcmp(mode, "ping"), pongs = !strcmp(mode, "pong"), floods = !strcmp(mode, "flood");
  const char* out = pings ? "ping" : pongs ? "pong" : floods ? "flood" : NULL;
  const char* in = pings ? "pong" : pongs ? "ping" : floods ? NULL : "flood";
  dds_entity_t writer = 0, reader = 0, waitset = 0;
  if (out) {
    const dds_entity_t topic = must(dds_create_topic(participant, &raw_Blob_desc, out, NULL, NULL), "topic");
    writer = must(dds_create_writer(participant, topic, q, NULL), "writer");
  }
  if (in) {
    const dds_entity_t topic = must(dds_create_topic(participant, &raw_Blob_desc, in, NULL, NULL), "topic");
    reader = must(dds_create_reader(participant, topic, q, NULL), "reader");
    waitset = must(dds_create_waitset(participant), "waitset");
    must(dds_waitset_attach(waitset, must(dds_create_readcondition(reader, DDS_ANY_STATE), "condition"), 0), "attach");
  }
  dds_delete_qos(q);
  wait_matched(writer, reader);

  raw_Blob sample = {
      .n = 0, .data = {._maximum = bytes, ._length = bytes, ._buffer = calloc(1, bytes ? bytes : 1), ._release = true}};
  void* taken[takes_at_once] = {NULL};
  dds_sample_info_t infos[takes_at_once];
  dds_attach_t woke;

  if (pings) {
    const size_t count = (size_t)amount;
    double* us = malloc(count * sizeof *us);
    for (size_t k = 0; k < count; ++k) {
      const int64_t begin = now_ns();
      sample.n = k;
      must(dds_write(writer, &sample), "write");
      for (int got = 0; !got;) {
        if (must(dds_waitset_wait(waitset, &woke, 1, DDS_SECS(3)), "wait") == 0)
          must(DDS_RETCODE_TIMEOUT, "a reply was lost");
        const dds_return_t n = must(dds_take(reader, taken, infos, takes_at_once, takes_at_once), "take");
        for (dds_return_t i = 0; i < n; ++i) got |= infos[i].valid_data;
        if (n > 0) dds_return_loan(reader, taken, n);
      }
      us[k] = (double)(now_ns() - begin) / 1e3;
    }
    qsort(us, count, sizeof *us, ascending);
    printf("{\"bytes\": %u, \"n\": %zu, \"rtt_us\": {\"min\": %.3f, \"median\": %.3f, \"p99\": %.3f}}\n", bytes, count,
           us[0], us[count / 2], us[count * 99 / 100]);
  } else if (pongs) {
    while (must(dds_waitset_wait(waitset, &woke, 1, DDS_SECS(3)), "wait") > 0) {
      const dds_return_t n = must(dds_take(reader, taken, infos, takes_at_once, takes_at_once), "take");
      for (dds_return_t i = 0; i < n; ++i)
        if (infos[i].valid_data) must(dds_write(writer, taken[i]), "write");
      if (n > 0) dds_return_loan(reader, taken, n);
    }
  } else if (floods) {
    const uint32_t per_look = bytes < 256 ? 10 : 1;  // samples between two looks at the clock
    const int64_t begin = now_ns();
    while (sample.n % per_look || (double)(now_ns() - begin) < amount * 1e9) {
      must(dds_write(writer, &sample), "write");
      ++sample.n;
    }
    dds_wait_for_acks(writer, DDS_SECS(5));
    const double s = (double)(now_ns() - begin) / 1e9;
    printf("{\"bytes\": %u, \"sent\": %llu, \"per_s\": %.0f, \"MB_per_s\": %.1f}\n", bytes,
           (unsigned long long)sample.n, (double)sample.n / s, (double)sample.n * bytes / s / 1e6);
    dds_sleepfor(DDS_MSECS(300));
  } else {
    uint64_t got = 0, lost = 0, next = 0;
    int64_t first = 0, last = 0;
    while (must(dds_waitset_wait(waitset, &woke, 1, got ? DDS_SECS(1) : DDS_SECS(15)), "wait") > 0) {
      const dds_return_t n = must(dds_take(reader, taken, infos, takes_at_once, takes_at_once), "take");
      const uint64_t before = got;
      for (dds_return_t i = 0; i < n; ++i)
        if (infos[i].valid_data) {
          const raw_Blob* blob = taken[i];
          if (got) lost += blob->n - next;
          next = blob->n + 1;
          if (!got++) first = now_ns();
        }
      if (got > before) last = now_ns();
      if (n > 0) dds_return_loan(reader, taken, n);
    }
    const double s = (double)(last - first) / 1e9;
    printf("{\"bytes\": %u, \"got\": %llu, \"lost\": %llu, \"per_s\": %.0f, \"MB_per_s\": %.1f}\n", bytes,
           (unsigned long long)got, (unsigned long long)lost, s > 0 ? (double)got / s : 0,
           s > 0 ? (double)got * bytes / s / 1e6 : 0);
  }
  free(sample.data._buffer);
  dds_delete(participant);
  return 0;
}

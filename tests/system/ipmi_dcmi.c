/* DCMI's power commands for ipmi_sim, which has none: a module of its loadlib. The machine draws 320 W where its limit
 * lets it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <OpenIPMI/mcserv.h>
#include <OpenIPMI/serv.h>

#define DCMI 0xdc
#define DEMAND_W 320

static unsigned limit_w = 500, correction_ms = 1000, sample_s = 1;
/* As many BMCs come: above the limit they switch the node off. */
static unsigned char action = 1;
static int active = 0;
static const char* seen_path = "";
/* Of ipmi_machine.py. */
static int fresh = 0, bare = 0, cut_short = 0;

static void answer(unsigned char* to, unsigned* n, const unsigned char* from, unsigned many) {
  memcpy(to, from, many);
  *n = many;
}

static void watch(void) {
  if (!active || limit_w >= DEMAND_W || (action & 0x7f) != 1) return;
  FILE* seen = fopen(seen_path, "a");
  if (!seen) return;
  fputs("ff\n", seen);
  fclose(seen);
}

static void dcmi(lmc_data_t* mc, msg_t* msg, unsigned char* to, unsigned int* n, void* data) {
  (void)mc;
  (void)data;
  unsigned drawn = active && limit_w < DEMAND_W ? limit_w : DEMAND_W;
  const unsigned char* in = msg->data;
  FILE* seen = fopen(seen_path, "a");
  if (seen) {
    fprintf(seen, "%02x", msg->cmd);
    for (unsigned k = 0; k < msg->len; ++k) fprintf(seen, " %02x", in[k]);
    fputc('\n', seen);
    fclose(seen);
  }
  switch (msg->cmd) {
    case 0x02: {
      unsigned char out[19] = {0, DCMI, drawn & 255, drawn >> 8, 10,  0, 144, 1, drawn & 255, drawn >> 8,
                               0, 0,    0,           0,          232, 3, 0,   0, 0x40};
      answer(to, n, out, sizeof out);
      return;
    }
    case 0x03: {
      unsigned char out[15] = {active ? 0 : 0x80,
                               DCMI,
                               0,
                               0,
                               action,
                               limit_w & 255,
                               limit_w >> 8,
                               correction_ms & 255,
                               correction_ms >> 8,
                               0,
                               0,
                               0,
                               0,
                               sample_s,
                               0};
      unsigned many = active ? sizeof out : bare ? 1 : cut_short ? 2 : sizeof out;
      answer(to, n, out, many);
      return;
    }
    case 0x04: {
      unsigned char out[2] = {0, DCMI};
      if (msg->len < 15) {
        out[0] = 0xc7;
      } else if (fresh && !(in[5] | in[6])) {
        out[0] = 0x84; /* out of range */
      } else {
        action = in[4];
        limit_w = in[5] | (unsigned)in[6] << 8;
        correction_ms = in[7] | (unsigned)in[8] << 8;
        sample_s = in[13];
        watch();
      }
      answer(to, n, out, sizeof out);
      return;
    }
    case 0x05: {
      unsigned char out[2] = {0, DCMI};
      active = msg->len > 1 && in[1] == 1;
      watch();
      answer(to, n, out, sizeof out);
      return;
    }
    default: {
      unsigned char out[2] = {0xc1, DCMI};
      answer(to, n, out, sizeof out);
    }
  }
}

int ipmi_sim_module_print_version(sys_data_t* sys, char* options) {
  (void)sys;
  (void)options;
  return 0;
}

int ipmi_sim_module_init(sys_data_t* sys, char* options) {
  (void)sys;
  const char* path = options ? strchr(options, ' ') : NULL;
  if (path) {
    fresh = !strncmp(options, "fresh ", 6);
    bare = !strncmp(options, "bare ", 5);
    cut_short = !strncmp(options, "short ", 6);
    seen_path = strdup(path + 1);
    if (fresh) limit_w = 0, correction_ms = 0, sample_s = 0;
  }
  ipmi_emu_register_group_extension_handler(DCMI, dcmi, NULL);
  return 0;
}

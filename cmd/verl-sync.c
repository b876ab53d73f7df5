/* verl-sync - publish a train state's weights for rollout. */
#include "libverl/run/stage_sync.h"

int main(int argc, char **argv)
{
    struct vl_common common = { 0 };
    struct vl_sync_opts o = { .dtype = "fp32", .keep = 2 };
    const struct vl_opt opts[] = {
        { .type = VL_T_STR,
          .name = "dtype",
          .dst = &o.dtype,
          .arg = "TYPE",
          .choices = "fp32|bf16|fp16",
          .help = "type of the published weights; anything but fp32 rounds them" },
        { .type = VL_T_STR,
          .name = "from",
          .dst = &o.from,
          .arg = "vN",
          .flags = VL_F_NULLABLE,
          .help = "publish this version of the state; null: its `current`" },
        { .type = VL_T_I64,
          .name = "shard-size",
          .dst = &o.shard_size,
          .arg = "BYTES",
          .lo = 0,
          .hi = 1e15,
          .help = "bytes in one file; 0: 5 GB" },
        { .type = VL_T_I64,
          .name = "keep",
          .dst = &o.keep,
          .arg = "N",
          .lo = 1,
          .hi = 1e9,
          .help = "published versions to keep; linked ones are always kept" },
        { .type = VL_T_END },
    };
    const struct vl_program p = {
        .name = "verl-sync",
        .summary = "publish a train state's weights for rollout",
        .usage = "-s STATE [-m MODEL] -o DIR [OPTION...]",
        .details =
            "Writes DIR/vNNNNNN, under the state's number, moves DIR/current to it and prints\n"
            "the version's path on standard output. An empty STATE is filled from MODEL first.\n",
        .opts = opts,
        .omit = VL_NO_INPUT | VL_NO_DELTA | VL_NO_DEVICE | VL_NO_SEED | VL_NO_THREADS | VL_NO_LEVEL,
    };

    return vl_main(&p, &common, argc, argv, vl_stage_sync, &o);
}

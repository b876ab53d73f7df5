/* verl-sync - publish a train state's weights for rollout. */
#include "libverl/run/stage_sync.h"

int main(int argc, char **argv)
{
    struct vl_common common = { 0 };
    struct vl_sync_opts o = { .dtype = "fp32", .keep = 2 };
    const struct vl_opt opts[] = {
        VL_OPT_WORD("dtype", NULL, &o.dtype, "TYPE", "fp32|bf16|fp16", 0,
                    "type of the published weights; anything but fp32 rounds them"),
        VL_OPT_TEXT("from", NULL, &o.from, "vN", VL_F_NULLABLE,
                    "publish this version of the state; null: its `current`"),
        VL_OPT_INT("shard-size", NULL, &o.shard_size, "BYTES", 0, 1e15, 0,
                   "bytes in one file; 0: 5 GB"),
        VL_OPT_INT("keep", NULL, &o.keep, "N", 1, 1e9, 0,
                   "published versions to keep; linked ones are always kept"),
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

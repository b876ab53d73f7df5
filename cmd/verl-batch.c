/* verl-batch - DataProto operations on batch files: rows, columns, merging, JSON. */
#include "libverl/run/stage_batch.h"

#include <stdlib.h>

int main(int argc, char **argv)
{
    struct vl_batchcmd_opts o = { .piece = -1, .copies = -1 };
    struct vl_common common = { 0 };
    const struct vl_opt opts[] = {
        VL_OPT_TEXT("columns", NULL, &o.columns, "LIST", VL_F_PROV, "columns, separated by commas",
                    .letter = 'k'),
        VL_OPT_TEXT("meta", NULL, &o.meta, "LIST", VL_F_PROV,
                    "meta_info keys, separated by commas"),
        VL_OPT_TEXT("popped", NULL, &o.popped, "FILE", 0, "pop: where the taken part goes"),
        VL_OPT_TEXT("mask", NULL, &o.mask, "LIST", VL_F_PROV, "index: 0 or 1 for each row"),
        VL_OPT_TEXT("counts", NULL, &o.counts, "LIST", VL_F_PROV, "repeat: how often each row"),
        VL_OPT_FLAG("tiled", NULL, &o.tiled, VL_F_PROV, "repeat: all rows again and again"),
        VL_OPT_INT("copies", NULL, &o.copies, "K", 0, 1e15, VL_F_PROV,
                   "pad: add K copies of the last row"),
        VL_OPT_FLAG("first", NULL, &o.first, VL_F_PROV, "pad --copies: of the first row"),
        VL_OPT_FLAG("auto-padding", NULL, &o.auto_padding, VL_F_PROV,
                    "chunk: let the last piece be shorter"),
        VL_OPT_INT("piece", NULL, &o.piece, "K", 0, 1e15, VL_F_PROV,
                   "chunk, split: write only piece K"),
        VL_OPT_FLAG("unset", NULL, &o.unset, VL_F_PROV, "set-meta: remove the keys"),
        VL_OPT_TEXT(
            "metric", NULL, &o.metric, "NAME", VL_F_PROV,
            "filter-groups, pairs: a column of one number a row, seq_reward or seq_final_reward"),
        VL_OPT_INT("target", NULL, &o.target, "N", 0, 1e15, VL_F_PROV,
                   "filter-groups: keep at most N prompts; status 3 when there are fewer"),
        VL_OPT_TEXT("filter", NULL, &o.filter, "FILTER", VL_F_PROV,
                    "map: jq filter from a row to a row", .letter = 'f'),
        VL_OPT_TEXT("command", NULL, &o.command, "CMD", VL_F_PROV,
                    "map: shell command from a batch to a batch"),
        VL_OPT_TEXT("like", NULL, &o.like, "FILE", 0,
                    "from-json: batch that gives types, widths, order and meta_info"),
        VL_OPT_FLAG("allow-empty", NULL, &o.allow_empty, 0,
                    "from-json: no lines make a batch without rows"),
        VL_OPT_LIST("dtype", NULL, &o.dtype, "NAME=TYPE", VL_F_PROV,
                    "from-json, map: type of a column, such as score=F32 or turns=json"),
        { .type = VL_T_END },
    };
    char *help = vl_batchcmd_help();
    const struct vl_program program = {
        .name = "verl-batch",
        .summary = "select, cut, join and change batches",
        .usage = "COMMAND [ARGUMENT...] [OPTION...]",
        .details = help,
        .opts = opts,
        .takes_operands = 1,
        .omit = VL_NO_STATE | VL_NO_DELTA | VL_NO_DEVICE | VL_NO_SEED | VL_NO_MODEL,
    };
    int rc = vl_main(&program, &common, argc, argv, vl_stage_batch, &o);

    free(help);
    return rc;
}

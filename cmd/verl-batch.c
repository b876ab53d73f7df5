/* verl-batch - DataProto operations on batch files: rows, columns, merging, JSON. */
#include "libverl/run/stage_batch.h"

#include <stdlib.h>

int main(int argc, char **argv)
{
    struct vl_batchcmd_opts o = { .piece = -1, .copies = -1 };
    struct vl_common common = { 0 };
    const struct vl_opt opts[] = {
        { VL_T_STR, 'k', "columns", NULL, NULL, &o.columns, "LIST", "columns, separated by commas",
          0, 0, NULL, VL_F_PROV },
        { VL_T_STR, 0, "meta", NULL, NULL, &o.meta, "LIST", "meta_info keys, separated by commas",
          0, 0, NULL, VL_F_PROV },
        { VL_T_STR, 0, "popped", NULL, NULL, &o.popped, "FILE", "pop: where the taken part goes", 0,
          0, NULL, 0 },
        { VL_T_STR, 0, "mask", NULL, NULL, &o.mask, "LIST", "index: 0 or 1 for each row", 0, 0,
          NULL, VL_F_PROV },
        { VL_T_STR, 0, "counts", NULL, NULL, &o.counts, "LIST", "repeat: how often each row", 0, 0,
          NULL, VL_F_PROV },
        { VL_T_BOOL, 0, "tiled", NULL, NULL, &o.tiled, NULL, "repeat: all rows again and again", 0,
          0, NULL, VL_F_PROV },
        { VL_T_I64, 0, "copies", NULL, NULL, &o.copies, "K", "pad: add K copies of the last row", 0,
          1e15, NULL, VL_F_PROV },
        { VL_T_BOOL, 0, "first", NULL, NULL, &o.first, NULL, "pad --copies: of the first row", 0, 0,
          NULL, VL_F_PROV },
        { VL_T_BOOL, 0, "auto-padding", NULL, NULL, &o.auto_padding, NULL,
          "chunk: let the last piece be shorter", 0, 0, NULL, VL_F_PROV },
        { VL_T_I64, 0, "piece", NULL, NULL, &o.piece, "K", "chunk, split: write only piece K", 0,
          1e15, NULL, VL_F_PROV },
        { VL_T_BOOL, 0, "unset", NULL, NULL, &o.unset, NULL, "set-meta: remove the keys", 0, 0,
          NULL, VL_F_PROV },
        { VL_T_STR, 0, "metric", NULL, NULL, &o.metric, "NAME",
          "filter-groups, pairs: a column of one number a row, seq_reward or seq_final_reward", 0,
          0, NULL, VL_F_PROV },
        { VL_T_I64, 0, "target", NULL, NULL, &o.target, "N",
          "filter-groups: keep at most N prompts; status 3 when there are fewer", 0, 1e15, NULL,
          VL_F_PROV },
        { VL_T_STR, 'f', "filter", NULL, NULL, &o.filter, "FILTER",
          "map: jq filter from a row to a row", 0, 0, NULL, VL_F_PROV },
        { VL_T_STR, 0, "command", NULL, NULL, &o.command, "CMD",
          "map: shell command from a batch to a batch", 0, 0, NULL, VL_F_PROV },
        { VL_T_STR, 0, "like", NULL, NULL, &o.like, "FILE",
          "from-json: batch that gives types, widths, order and meta_info", 0, 0, NULL, 0 },
        { VL_T_BOOL, 0, "allow-empty", NULL, NULL, &o.allow_empty, NULL,
          "from-json: no lines make a batch without rows", 0, 0, NULL, 0 },
        { VL_T_LIST, 0, "dtype", NULL, NULL, &o.dtype, "NAME=TYPE",
          "from-json, map: type of a column, such as score=F32 or turns=json", 0, 0, NULL,
          VL_F_PROV },
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

/* verl-dump - any batch as JSON lines, its schema, its check, the difference of two. */
#include "libverl/run/stage_dump.h"

int main(int argc, char **argv)
{
    struct vl_dump_opts o = { .head = -1, .text = 1, .special = 1 };
    struct vl_common common = { 0 };
    const struct vl_opt opts[] = {
        { VL_T_STR, 'k', "columns", NULL, NULL, &o.columns, "LIST",
          "print only these columns, separated by commas", 0, 0, NULL, 0 },
        { VL_T_I64, 'n', "head", NULL, NULL, &o.head, "N", "print only the first N rows", 0, 1e15,
          NULL, 0 },
        { VL_T_STR, 0, "rows", NULL, NULL, &o.range, "A:B",
          "print only rows A to B, counted from 0, B left out", 0, 0, NULL, 0 },
        { VL_T_STR, 'f', "filter", NULL, NULL, &o.filter, "FILTER",
          "print what this jq filter makes of each row", 0, 0, NULL, 0 },
        { VL_T_BOOL, 'r', "raw", NULL, NULL, &o.raw, NULL,
          "print strings that the filter gives without quotes", 0, 0, NULL, 0 },
        { VL_T_BOOL, 0, "text", NULL, NULL, &o.text, NULL,
          "add prompt_text and response_text when the tokenizer is there", 0, 0, NULL, 0 },
        { VL_T_BOOL, 0, "special", NULL, NULL, &o.special, NULL,
          "show special tokens in these texts", 0, 0, NULL, 0 },
        { VL_T_BOOL, 0, "tokens", NULL, NULL, &o.tokens, NULL,
          "print rows token by token, with mask, id, per-token columns and text", 0, 0, NULL, 0 },
        { VL_T_BOOL, 0, "rendered", NULL, NULL, &o.rendered, NULL,
          "print prompts and responses as text, as the model sees them", 0, 0, NULL, 0 },
        { VL_T_BOOL, 0, "schema", NULL, NULL, &o.schema, NULL,
          "print rows, columns, dtypes, shapes, bytes and meta_info as one object", 0, 0, NULL, 0 },
        { VL_T_BOOL, 0, "meta", NULL, NULL, &o.meta, NULL, "print meta_info as one object", 0, 0,
          NULL, 0 },
        { VL_T_BOOL, 0, "provenance", NULL, NULL, &o.provenance, NULL,
          "print the graph of the programs that made the batch", 0, 0, NULL, 0 },
        { VL_T_BOOL, 0, "check", NULL, NULL, &o.check, NULL,
          "verify every byte, offset and JSON text, and print the counts", 0, 0, NULL, 0 },
        { .type = VL_T_END },
    };
    const struct vl_program program = {
        .name = "verl-dump",
        .summary = "print a batch as JSON lines, or look into it",
        .usage = "[OPTION...] [head N] [FILE...]\n       verl-dump diff [--tokens] A B",
        .details = "FILE is a batch, - or none is standard input; several are united by columns.\n"
                   "diff prints the differences, bit for bit, and its status is 1 when there are "
                   "some.\n"
                   "diff --tokens shows where the tokens of two batches part.\n\n"
                   "  verl-dump -n 2 gen.dp | jq .response_text\n"
                   "  verl-dump -k uid,score -f 'select(.score > 0)' reward.dp\n"
                   "  verl-dump --schema gen.dp | jq .columns\n",
        .opts = opts,
        .takes_operands = 1,
        .omit = VL_NO_STATE | VL_NO_DELTA | VL_NO_DEVICE | VL_NO_SEED | VL_NO_LEVEL,
    };

    return vl_main(&program, &common, argc, argv, vl_stage_dump, &o);
}

/* verl-dump - any batch as JSON lines, its schema, its check, the difference of two. */
#include "libverl/run/stage_dump.h"

int main(int argc, char **argv)
{
    struct vl_dump_opts o = { .head = -1, .text = 1, .special = 1 };
    struct vl_common common = { 0 };
    const struct vl_opt opts[] = {
        VL_OPT_TEXT("columns", NULL, &o.columns, "LIST", 0,
                    "print only these columns, separated by commas", .letter = 'k'),
        VL_OPT_INT("head", NULL, &o.head, "N", 0, 1e15, 0, "print only the first N rows",
                   .letter = 'n'),
        VL_OPT_TEXT("rows", NULL, &o.range, "A:B", 0,
                    "print only rows A to B, counted from 0, B left out"),
        VL_OPT_TEXT("filter", NULL, &o.filter, "FILTER", 0,
                    "print what this jq filter makes of each row", .letter = 'f'),
        VL_OPT_FLAG("raw", NULL, &o.raw, 0, "print strings that the filter gives without quotes",
                    .letter = 'r'),
        VL_OPT_FLAG("text", NULL, &o.text, 0,
                    "add prompt_text and response_text when the tokenizer is there"),
        VL_OPT_FLAG("special", NULL, &o.special, 0, "show special tokens in these texts"),
        VL_OPT_FLAG("tokens", NULL, &o.tokens, 0,
                    "print rows token by token, with mask, id, per-token columns and text"),
        VL_OPT_FLAG("rendered", NULL, &o.rendered, 0,
                    "print prompts and responses as text, as the model sees them"),
        VL_OPT_FLAG("schema", NULL, &o.schema, 0,
                    "print rows, columns, dtypes, shapes, bytes and meta_info as one object"),
        VL_OPT_FLAG("meta", NULL, &o.meta, 0, "print meta_info as one object"),
        VL_OPT_FLAG("provenance", NULL, &o.provenance, 0,
                    "print the graph of the programs that made the batch"),
        VL_OPT_FLAG("check", NULL, &o.check, 0,
                    "verify every byte, offset and JSON text, and print the counts"),
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

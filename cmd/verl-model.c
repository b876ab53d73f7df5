/* verl-model - make, list, convert and compare model directories. */
#include "libverl/run/model_tool.h"

#include <math.h>

#define WHOLE(NAME, DST, LO, HI, HELP)                                                             \
    {                                                                                              \
        .type = VL_T_I64, .name = NAME, .dst = &o.DST, .arg = "N", .lo = LO, .hi = HI,             \
        .help = HELP                                                                               \
    }
#define REAL(NAME, DST, HELP)                                                                      \
    {                                                                                              \
        .type = VL_T_F64, .name = NAME, .dst = &o.DST, .arg = "X", .lo = 0, .hi = 1e12,            \
        .help = HELP                                                                               \
    }
#define FLAG(NAME, DST, HELP)                                                                      \
    {                                                                                              \
        .type = VL_T_BOOL, .name = NAME, .dst = &o.DST, .help = HELP                               \
    }

int main(int argc, char **argv)
{
    struct vl_common common = { 0 };
    struct vl_model_opts o = { .arch = "llama",
                               .bos = -1,
                               .eos = -1,
                               .pad = -1,
                               .positions = 2048,
                               .rope_theta = 10000,
                               .rms_eps = 1e-5,
                               .std = NAN,
                               .scale_residual = 1,
                               .step = -1 };
    const struct vl_opt opts[] = {
        { .type = VL_T_GROUP, .help = "init, without a config.json" },
        { .type = VL_T_STR,
          .name = "arch",
          .dst = &o.arch,
          .arg = "ARCH",
          .choices = "llama|qwen2|qwen3|mistral",
          .help = "shape of the transformer" },
        WHOLE("hidden", hidden, 0, 1 << 20, "width"),
        WHOLE("layers", layers, 0, 10000, "layers"),
        WHOLE("heads", heads, 0, 1 << 16, "attention heads; 0: of 64 each"),
        WHOLE("kv-heads", kv_heads, 0, 1 << 16, "key/value heads; 0: as many as heads"),
        WHOLE("head-dim", head_dim, 0, 1 << 16, "width of a head; 0: hidden / heads"),
        WHOLE("ffn", ffn, 0, 1 << 24, "width of the mlp; 0: 8/3 hidden, up to a multiple of 32"),
        WHOLE("vocab", vocab, 0, 1 << 28, "vocabulary; 0: the tokenizer's"),
        WHOLE("positions", positions, 1, 1 << 30, "longest sequence"),
        WHOLE("bos-id", bos, -1, 1 << 28, "id that begins a text; -1: the tokenizer's or none"),
        WHOLE("eos-id", eos, -1, 1 << 28, "id that ends a text; -1: the tokenizer's or none"),
        WHOLE("pad-id", pad, -1, 1 << 28, "id of padding; -1: the tokenizer's or none"),
        REAL("rope-theta", rope_theta, "base of the rotary embedding"),
        REAL("rms-eps", rms_eps, "epsilon of the norms"),
        FLAG("tied", tied, "use the embedding as the output head"),
        { .type = VL_T_GROUP, .help = "init" },
        { .type = VL_T_F64,
          .name = "std",
          .dst = &o.std,
          .arg = "X",
          .lo = 0,
          .hi = 1e3,
          .flags = VL_F_NULLABLE,
          .help = "standard deviation of the weights; null: the config's initializer_range, 0.02" },
        FLAG("scale-residual", scale_residual, "divide that of o and down by sqrt(2 layers)"),
        { .type = VL_T_STR,
          .name = "tokenizer",
          .dst = &o.tokenizer,
          .arg = "DIR",
          .flags = VL_F_NULLABLE,
          .help = "copy the tokenizer files of this directory" },
        { .type = VL_T_GROUP, .help = "init, convert" },
        { .type = VL_T_STR,
          .name = "head",
          .dst = &o.head,
          .arg = "HEAD",
          .choices = "lm|value|reward",
          .flags = VL_F_NULLABLE,
          .help = "a language model's head, or a scalar one: a critic's, a reward model's; null: "
                  "what is there" },
        FLAG("value-head", value_head, "the same as --head value"),
        { .type = VL_T_STR,
          .name = "dtype",
          .dst = &o.dtype,
          .arg = "TYPE",
          .choices = "f32|bf16|f16",
          .flags = VL_F_NULLABLE,
          .help = "type of the stored weights; null: f32 (init), as they are (convert)" },
        WHOLE("shard-size", shard_size, 0, 1e15, "bytes in one file; 0: 5 GB"),
        { .type = VL_T_GROUP, .help = "info, diff" },
        FLAG("json", json, "print JSON"),
        FLAG("tensors", tensors, "list every tensor (info)"),
        { .type = VL_T_GROUP, .help = "checkpoint, restore" },
        WHOLE("step", step, -1, 1e15, "the checkpoint's step; -1: the state's, the latest"),
        { .type = VL_T_END },
    };
    const struct vl_program p = {
        .name = "verl-model",
        .summary = "make, list, convert and compare model directories",
        .usage = "init [CONFIG.json] -o DIR [OPTION...]\n"
                 "       verl-model info|hash MODEL\n"
                 "       verl-model convert MODEL -o DIR [--dtype TYPE] [--shard-size BYTES]\n"
                 "       verl-model diff A B\n"
                 "       verl-model checkpoint RUN DIR | restore DIR RUN",
        .details = "MODEL is a Hugging Face directory, a published version or a train state (its\n"
                   "`current`). diff exits with 1 when the weights differ.\n",
        .opts = opts,
        .takes_operands = 1,
        .omit = VL_NO_INPUT | VL_NO_STATE | VL_NO_DELTA | VL_NO_DEVICE | VL_NO_LEVEL,
    };

    return vl_main(&p, &common, argc, argv, vl_stage_model, &o);
}

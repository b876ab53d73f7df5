/* verl-model - make, list, convert and compare model directories. */
#include "libverl/run/model_tool.h"

#include <math.h>

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
        VL_OPT_GROUP("init, without a config.json"),
        VL_OPT_WORD("arch", NULL, &o.arch, "ARCH", "llama|qwen2|qwen3|mistral", 0,
                    "shape of the transformer"),
        VL_OPT_INT("hidden", NULL, &o.hidden, "N", 0, 1 << 20, 0, "width"),
        VL_OPT_INT("layers", NULL, &o.layers, "N", 0, 10000, 0, "layers"),
        VL_OPT_INT("heads", NULL, &o.heads, "N", 0, 1 << 16, 0, "attention heads; 0: of 64 each"),
        VL_OPT_INT("kv-heads", NULL, &o.kv_heads, "N", 0, 1 << 16, 0,
                   "key/value heads; 0: as many as heads"),
        VL_OPT_INT("head-dim", NULL, &o.head_dim, "N", 0, 1 << 16, 0,
                   "width of a head; 0: hidden / heads"),
        VL_OPT_INT("ffn", NULL, &o.ffn, "N", 0, 1 << 24, 0,
                   "width of the mlp; 0: 8/3 hidden, up to a multiple of 32"),
        VL_OPT_INT("vocab", NULL, &o.vocab, "N", 0, 1 << 28, 0, "vocabulary; 0: the tokenizer's"),
        VL_OPT_INT("positions", NULL, &o.positions, "N", 1, 1 << 30, 0, "longest sequence"),
        VL_OPT_INT("bos-id", NULL, &o.bos, "N", -1, 1 << 28, 0,
                   "id that begins a text; -1: the tokenizer's or none"),
        VL_OPT_INT("eos-id", NULL, &o.eos, "N", -1, 1 << 28, 0,
                   "id that ends a text; -1: the tokenizer's or none"),
        VL_OPT_INT("pad-id", NULL, &o.pad, "N", -1, 1 << 28, 0,
                   "id of padding; -1: the tokenizer's or none"),
        VL_OPT_REAL("rope-theta", NULL, &o.rope_theta, "X", 0, 1e12, 0,
                    "base of the rotary embedding"),
        VL_OPT_REAL("rms-eps", NULL, &o.rms_eps, "X", 0, 1e12, 0, "epsilon of the norms"),
        VL_OPT_FLAG("tied", NULL, &o.tied, 0, "use the embedding as the output head"),
        VL_OPT_GROUP("init"),
        VL_OPT_REAL(
            "std", NULL, &o.std, "X", 0, 1e3, VL_F_NULLABLE,
            "standard deviation of the weights; null: the config's initializer_range, 0.02"),
        VL_OPT_FLAG("scale-residual", NULL, &o.scale_residual, 0,
                    "divide that of o and down by sqrt(2 layers)"),
        VL_OPT_GROUP("init, convert"),
        VL_OPT_TEXT("tokenizer", NULL, &o.tokenizer, "DIR", VL_F_NULLABLE,
                    "copy the tokenizer files of this directory"),
        VL_OPT_WORD("head", NULL, &o.head, "HEAD", "lm|value|reward", VL_F_NULLABLE,
                    "a language model's head, or a scalar one: a critic's, a reward model's; null: "
                    "what is there"),
        VL_OPT_FLAG("value-head", NULL, &o.value_head, 0, "the same as --head value"),
        VL_OPT_WORD("dtype", NULL, &o.dtype, "TYPE", "f32|bf16|f16", VL_F_NULLABLE,
                    "type of the stored weights; null: f32 (init), as they are (convert; f32 where "
                    "they are quantized)"),
        VL_OPT_INT("shard-size", NULL, &o.shard_size, "N", 0, 1e15, 0,
                   "bytes in one file; 0: 5 GB"),
        VL_OPT_GROUP("info, diff"),
        VL_OPT_FLAG("json", NULL, &o.json, 0, "print JSON"),
        VL_OPT_FLAG("tensors", NULL, &o.tensors, 0, "list every tensor (info)"),
        VL_OPT_GROUP("checkpoint, restore"),
        VL_OPT_INT("step", NULL, &o.step, "N", -1, 1e15, 0,
                   "the checkpoint's step; -1: the state's, the latest"),
        { .type = VL_T_END },
    };
    const struct vl_program p = {
        .name = "verl-model",
        .summary = "make, list, convert and compare model directories",
        .usage =
            "init [CONFIG.json] -o DIR [OPTION...]\n"
            "       verl-model info|hash MODEL\n"
            "       verl-model convert MODEL|FILE.gguf -o DIR [--dtype TYPE] [--shard-size BYTES]\n"
            "       verl-model diff A B\n"
            "       verl-model checkpoint RUN DIR | restore DIR RUN",
        .details =
            "MODEL is a Hugging Face directory, a published version or a train state (its\n"
            "`current`). diff exits with 1 when the weights differ.\n"
            "A GGUF file of llama, qwen2 or qwen3 becomes such a directory with its tokenizer\n"
            "and chat template.\n",
        .opts = opts,
        .takes_operands = 1,
        .omit = VL_NO_INPUT | VL_NO_STATE | VL_NO_DELTA | VL_NO_DEVICE | VL_NO_LEVEL,
    };

    return vl_main(&p, &common, argc, argv, vl_stage_model, &o);
}

/* verl-data - rows of JSON lines or Parquet to one tokenized batch. */
#include "libverl/run/stage_data.h"

#define ROW(T, NAME, KEY, FALL, DST, ARG, FLAGS, HELP)                                             \
    {                                                                                              \
        .type = T, .name = NAME, .key = KEY, .fallback = FALL, .dst = &o.DST, .arg = ARG,          \
        .flags = FLAGS, .help = HELP                                                               \
    }
#define FLAG(NAME, KEY, DST, HELP) ROW(VL_T_BOOL, NAME, KEY, NULL, DST, NULL, VL_F_PROV, HELP)
#define NUM(NAME, KEY, FALL, DST, ARG, LO, HI, FLAGS, HELP)                                        \
    {                                                                                              \
        .type = VL_T_I64, .name = NAME, .key = KEY, .fallback = FALL, .dst = &o.DST, .arg = ARG,   \
        .lo = LO, .hi = HI, .flags = FLAGS, .help = HELP                                           \
    }
#define WORD(NAME, KEY, DST, ARG, CHOICES, HELP)                                                   \
    {                                                                                              \
        .type = VL_T_STR, .name = NAME, .key = KEY, .dst = &o.DST, .arg = ARG, .choices = CHOICES, \
        .flags = VL_F_PROV, .help = HELP                                                           \
    }
#define PROV_NULL (VL_F_PROV | VL_F_NULLABLE)

int main(int argc, char **argv)
{
    struct vl_common common = { 0 };
    struct vl_data_opts o = { .step = VL_NULL_I64,
                              .batch = VL_NULL_I64,
                              .batch_size = VL_NULL_I64,
                              .rest = "drop",
                              .shuffle = 1,
                              .data_seed = VL_NULL_I64,
                              .train_max = -1,
                              .val_max = -1,
                              .max_prompt = VL_NULL_I64,
                              .max_response = VL_NULL_I64,
                              .truncation = "error",
                              .prompt_key = "prompt",
                              .response_key = "response",
                              .messages_key = "messages",
                              .tools_key = "tools",
                              .thinking_key = "enable_thinking",
                              .mask = "all-assistant",
                              .max_length = VL_NULL_I64,
                              .source_key = "data_source",
                              .check_scorer = 1,
                              .eos = 1 };
    const struct vl_opt opts[] = {
        { .type = VL_T_GROUP, .help = "Rows" },
        ROW(VL_T_STR, "dataset", NULL, NULL, dataset, "NAME", 0,
            "built-in filter for a common data set; help lists them"),
        ROW(VL_T_STR, "print-map", NULL, NULL, print_map, "NAME", 0,
            "print that filter, to read it or to start --map from, and exit"),
        ROW(VL_T_STR, "map", NULL, NULL, map, "FILTER", VL_F_PROV,
            "jq filter that makes {prompt, data_source, reward_model, extra_info} of a row; after "
            "--dataset it goes on from what that made"),
        NUM("step", NULL, NULL, step, "N", 1, 1 << 30, PROV_NULL,
            "the rows of training step N, from 1; without --step, --batch: all rows"),
        NUM("batch", NULL, NULL, batch, "K", 0, 1 << 30, PROV_NULL,
            "the rows of generation batch K, from 0 (default: the step - 1)"),
        NUM("batch-size", "data.gen_batch_size", "data.train_batch_size", batch_size, "ROWS", 1,
            1 << 30, PROV_NULL, "rows of a training batch"),
        WORD("remainder", NULL, rest, "drop|keep", "drop|keep",
             "what becomes of rows that do not fill an epoch's last batch"),
        FLAG("all", NULL, all, "every row in file order, also where --step is given"),
        FLAG("validate", NULL, validate,
             "the validation set: data.val_files, every row, never dropped"),
        ROW(VL_T_LIST, NULL, "data.train_files", NULL, train_files, "FILES", 0,
            "files or patterns of JSON lines or Parquet, where no operand names any"),
        ROW(VL_T_LIST, NULL, "data.val_files", NULL, val_files, "FILES", 0,
            "likewise, with --validate"),
        FLAG("shuffle", "data.shuffle", shuffle, "a new order of the rows in every epoch"),
        FLAG(NULL, "data.validation_shuffle", val_shuffle, "shuffle the validation set"),
        NUM(NULL, "data.seed", NULL, data_seed, "N", 0, 1e18, PROV_NULL,
            "seed of order and draw (default: --seed)"),
        NUM(NULL, "data.train_max_samples", NULL, train_max, "ROWS", -1, 1e15, VL_F_PROV,
            "use this many rows; -1: all"),
        NUM(NULL, "data.val_max_samples", NULL, val_max, "ROWS", -1, 1e15, VL_F_PROV,
            "likewise, with --validate"),
        FLAG("skip-bad", NULL, skip_bad,
             "leave out and count rows that cannot be used, instead of failing"),
        ROW(VL_T_BOOL, "check", NULL, NULL, check, NULL, 0,
            "report on all rows on standard output, and write no batch"),
        ROW(VL_T_BOOL, "check-json", NULL, NULL, check_json, NULL, 0,
            "the same as one line of JSON"),
        ROW(VL_T_BOOL, "check-scorer", "data.check_scorer", NULL, check_scorer, NULL, 0,
            "fail when verl-reward has no built-in scorer for a row's data_source"),
        ROW(VL_T_STR, NULL, "data.reward_fn_key", NULL, source_key, "NAME", 0,
            "member that is the data_source"),
        ROW(VL_T_STR, NULL, "custom_reward_function.path", NULL, custom_reward, "FILE",
            VL_F_NULLABLE, "where it is set, any data_source will do"),
        ROW(VL_T_BOOL, NULL, "reward_model.enable", NULL, reward_model, NULL, 0, "likewise"),
        ROW(VL_T_STR, NULL, "reward.scorers", NULL, scorers, "LIST", VL_F_NULLABLE | VL_F_JSON,
            "the scorers of verl-reward"),
        ROW(VL_T_STR, NULL, "reward.dispatch", NULL, dispatch, "MAP", VL_F_NULLABLE | VL_F_JSON,
            "the scorers of further data sources"),
        { .type = VL_T_GROUP, .help = "Prompts" },
        ROW(VL_T_STR, NULL, "data.prompt_key", NULL, prompt_key, "NAME", VL_F_PROV,
            "member that holds the prompt"),
        NUM("max-prompt-length", "data.max_prompt_length", NULL, max_prompt, "TOKENS", 1, 1 << 30,
            PROV_NULL, "limit and width of prompts; null: no limit, as wide as the longest"),
        NUM(NULL, "data.max_response_length", NULL, max_response, "TOKENS", 1, 1 << 30, PROV_NULL,
            "limit and width of responses with --sft and --preference; else only compared with the "
            "context"),
        WORD("truncation", "data.truncation", truncation, "POLICY",
             "error|left|right|middle|filter",
             "what happens to a prompt over the limit; left keeps its end"),
        FLAG(NULL, "data.filter_overlong_prompts", filter_overlong, "as --truncation filter"),
        ROW(VL_T_STR, "template", NULL, NULL, tmpl, "FILE|none", VL_F_NULLABLE,
            "chat template for lists of messages, in place of the tokenizer's"),
        ROW(VL_T_STR, NULL, "actor_rollout_ref.model.custom_chat_template", "data.chat_template",
            inline_tmpl, "TEXT", PROV_NULL, "chat template as text"),
        ROW(VL_T_STR, "template-kwargs", "data.apply_chat_template_kwargs", NULL, kwargs, "JSON",
            PROV_NULL | VL_F_JSON, "object whose members become variables of the template"),
        ROW(VL_T_STR, "system", NULL, NULL, system, "TEXT", VL_F_PROV,
            "system message for prompts that have none"),
        FLAG("chat", NULL, chat, "a string prompt is one user message"),
        FLAG("plain-special", NULL, plain_special,
             "what spells a special token in a prompt's or response's text is ordinary text"),
        ROW(VL_T_STR, NULL, "data.tokenizer", NULL, tokenizer_path, "DIR", VL_F_NULLABLE,
            "the tokenizer, where -m is not given"),
        ROW(VL_T_STR, NULL, "actor_rollout_ref.model.path", NULL, model_path, "DIR", VL_F_NULLABLE,
            "the tokenizer, where data.tokenizer is not set either"),
        { .type = VL_T_GROUP, .help = "Rows to train on" },
        FLAG("sft", NULL, sft, "supervised: rows {prompt, response} or {messages}"),
        FLAG("preference", NULL, preference, "pairs: rows {prompt, chosen, rejected}"),
        WORD("mask", NULL, mask, "all-assistant|last", "all-assistant|last",
             "with --sft: the assistant's turns that are trained on"),
        ROW(VL_T_STR, NULL, "data.response_key", NULL, response_key, "NAME", VL_F_PROV,
            "member that holds the response"),
        ROW(VL_T_LIST, NULL, "data.prompt_dict_keys", NULL, prompt_path, "NAMES", PROV_NULL,
            "path to the prompt inside that member"),
        ROW(VL_T_LIST, NULL, "data.response_dict_keys", NULL, response_path, "NAMES", PROV_NULL,
            "path to the response inside that member"),
        FLAG(NULL, "data.multiturn.enable", multiturn,
             "with --sft: rows are {messages}, also where they have a prompt"),
        ROW(VL_T_STR, NULL, "data.messages_key", "data.multiturn.messages_key", messages_key,
            "NAME", VL_F_PROV, "member that holds a conversation"),
        ROW(VL_T_STR, NULL, "data.tools_key", "data.multiturn.tools_key", tools_key, "NAME",
            VL_F_PROV, "member that holds the tools, for the template"),
        ROW(VL_T_STR, NULL, "data.enable_thinking_key", "data.multiturn.enable_thinking_key",
            thinking_key, "NAME", VL_F_PROV,
            "member that is the template's variable enable_thinking"),
        NUM("max-length", "data.max_length", NULL, max_length, "TOKENS", 2, 1 << 30, PROV_NULL,
            "limit of prompt and response together"),
        FLAG(NULL, "data.ignore_input_ids_mismatch", ignore_mismatch,
             "take turns one by one where the whole is written otherwise, instead of failing"),
        FLAG("eos", NULL, eos, "responses that are strings end with the tokenizer's end token"),
        { .type = VL_T_END },
    };
    const struct vl_program program = {
        .name = "verl-data",
        .summary = "rows of JSON lines or Parquet to one tokenized batch",
        .usage = "[OPTION...] [key=value...] FILE...\n"
                 "       verl-data --dataset help | --print-map NAME",
        .subtree = "data",
        .opts = opts,
        .takes_operands = 1,
        .omit = VL_NO_INPUT | VL_NO_STATE | VL_NO_DELTA | VL_NO_DEVICE | VL_NO_THREADS,
        .details =
            "Writes prompts, input_ids, attention_mask, position_ids, uid, sample, "
            "raw_prompt, index and\none column for each other member of the rows; with --sft "
            "and --preference also responses\nand response_mask.\n\n"
            "  verl-data train.jsonl -m MODEL --step 3 --batch-size 64 -o prompts.dp\n"
            "  verl-data gsm8k/test.jsonl -m MODEL --dataset gsm8k --validate -o val.dp\n",
    };

    return vl_main(&program, &common, argc, argv, vl_stage_data, &o);
}

/* stage_data.h - verl-data: rows of JSON lines to one tokenized prompt batch.
 *
 * The rows of training batch K are a pure function of (files, options, seed, K): no state is kept,
 * so a run can be resumed, or one step redone, from the step's number alone. */
#ifndef VL_STAGE_DATA_H
#define VL_STAGE_DATA_H

#include "libverl/run/stage.h"
#include "libverl/text/tok.h"

struct vl_data_opts {
    struct vl_strs train_files, val_files;
    const char *dataset;   /* name of a built-in filter, "help", or NULL */
    const char *map;       /* jq filter from a row to {prompt, ...}, or NULL; after dataset's */
    const char *print_map; /* name of a filter to print, or NULL */
    int64_t step, batch;   /* 1-based step; 0-based generation batch; VL_NULL_I64: not given */
    int64_t batch_size;    /* rows of a training batch; VL_NULL_I64: not given */
    const char *rest;      /* rows left over at an epoch's end: "drop" or "keep" */
    int all, validate;     /* every row; the validation set */
    int shuffle, val_shuffle;
    int64_t data_seed;                /* VL_NULL_I64: --seed */
    int64_t train_max, val_max;       /* -1: all */
    int64_t max_prompt, max_response; /* tokens; VL_NULL_I64: no limit */
    const char *truncation;           /* error, left, right, middle, filter */
    int filter_overlong;
    int64_t max_length; /* tokens of prompt and response together, likewise */
    const char *prompt_key, *response_key, *messages_key, *tools_key, *thinking_key;
    struct vl_strs prompt_path, response_path; /* members inside these members */
    const char *model_path, *tokenizer_path;   /* config keys, where -m is not given */
    const char *tmpl;                          /* file, "none" or NULL: the tokenizer's */
    const char *inline_tmpl;                   /* template text of the config, or NULL */
    const char *kwargs;                        /* JSON object text for the template */
    const char *system;                        /* system message for prompts without one */
    int chat;                                  /* a string prompt is one user message */
    int plain_special; /* what spells a special token in content is ordinary text */
    int sft, preference, eos;
    int multiturn;       /* --sft rows are conversations, whatever else they have */
    const char *mask;    /* --sft: "all-assistant" or "last" turn is trained on */
    int ignore_mismatch; /* tokens that straddle a turn's end are cut there */
    int skip_bad, check_scorer;
    int check, check_json;          /* report on the rows, write no batch */
    const char *source_key;         /* member that selects the scorer */
    const char *custom_reward;      /* verl-reward has a function of the user's, */
    int reward_model;               /* or a model: then any data_source will do */
    const char *scorers, *dispatch; /* reward.scorers, reward.dispatch: JSON texts or NULL */
};

/* The stage function of verl-data; opts is a struct vl_data_opts. */
int vl_stage_data(struct vl_ctx *x, const void *opts, struct vl_err *e);

#endif

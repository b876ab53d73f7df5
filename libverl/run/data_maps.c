/* data_maps.c - the filters behind --dataset. See data_maps.h.
 *
 * Prompts are worded as verl's preparation scripts word them, and data_source is what they write, so
 * that verl-reward finds the same scorer. What a row has besides goes to extra_info. A row that such
 * a script has made already passes as it is. */
#include "libverl/run/data_maps.h"

#include <string.h>

#define SHAPED "if (.prompt | type) == \"array\" and has(\"reward_model\") then . else\n"

#define GSM8K_STEPS "\"Let's think step by step and output the final answer after \\\"####\\\".\""
#define MATH_STEPS  "\"Let's think step by step and output the final answer within \\\\boxed{}.\""

/* The first of these members that has a value of these types: jq adds null to a string without a
 * word, so a row of another shape would become a prompt without its question. */
#define DEF_ONE                                                                                    \
    "def one($names; types): . as $row | [$names[] | $row[.] | select(. != \"\") | types] | "      \
    "first\n"                                                                                      \
    "    // error(\"nothing to use in \\($names | join(\" or \")); the row has \\($row | keys | "  \
    "join(\", \"))\");\n"

/* The content of the last box of a solution, as the scorer reads a response. */
#define DEF_BOXED                                                                                  \
    "def balanced: explode as $c |\n"                                                              \
    "    [foreach $c[] as $x (1; if $x == 123 then . + 1 elif $x == 125 then . - 1 else . end)] |" \
    "\n"                                                                                           \
    "    index(0) as $n | if $n then $c[:$n] | implode else null end;\n"                           \
    "def boxed: if contains(\"\\\\boxed \") then split(\"\\\\boxed \")[-1] | split(\"$\")[0]\n"    \
    "    elif contains(\"\\\\boxed{\") then split(\"\\\\boxed{\")[-1] | balanced\n"                \
    "    elif contains(\"\\\\fbox{\") then split(\"\\\\fbox{\")[-1] | balanced else null end;\n"

/* An answer to compare with: another set's worked solution under the same name is none. */
#define DEF_SHORT                                                                                  \
    "def short: if tostring | test(\"\\n\") or length > 200 or (test(\"[0-9]\") | not) then\n"     \
    "    error(\"the answer is a text, not a number\") else . end;\n"

/* The wording of DAPO's training set and of its AIME sets. */
#define DAPO_PROMPT(problem)                                                                       \
    "[{role: \"user\", content: (\"Solve the following math problem step by step. The last line "  \
    "of your response should be of the form Answer: $Answer (without quotes) where $Answer is "    \
    "the answer to the problem.\\n\\n\" + " problem                                                \
    " + \"\\n\\nRemember to put your answer on its own line after \\\"Answer:\\\".\")}]"

/* "033" and 33 are one answer, and the scorer compares text. */
#define AIME(source)                                                                               \
    SHAPED DEF_ONE DEF_SHORT                                                                       \
        "def year: [.year, .url, .id, .ID] | map(tostring | scan(\"20[0-9][0-9]\")) | first // "   \
        "\"\";"                                                                                    \
        "\n"                                                                                       \
        "one([\"problem\", \"question\", \"Problem\"]; strings) as $problem |\n"                   \
        "(one([\"answer\", \"Answer\"]; strings, numbers) | short) as $answer |\n"                 \
        "{\n"                                                                                      \
        "  data_source: " source ",\n"                                                             \
        "  prompt: " DAPO_PROMPT(                                                                  \
            "$problem") ",\n"                                                                      \
                        "  ability: \"math\",\n"                                                   \
                        "  reward_model: {style: \"rule\", ground_truth: ($answer | tostring | "   \
                        "sub(\"^0+(?=[0-9])\"; \"\"))},\n"                                         \
                        "  extra_info: del(.problem, .question, .Problem, .answer, .Answer)\n"     \
                        "} end"

static const struct vl_data_map maps[] = {
    { "gsm8k", "openai/gsm8k: {question, answer}; the answer is what follows \"#### \"",
      SHAPED DEF_ONE
      "{\n"
      "  data_source: \"openai/gsm8k\",\n"
      "  prompt: [{role: \"user\", content: (one([\"question\"]; strings) + \" \" + " GSM8K_STEPS
      ")}],\n"
      "  ability: \"math\",\n"
      "  reward_model: {style: \"rule\", ground_truth: ((one([\"answer\"]; strings) | "
      "capture(\"#### "
      "(?<n>-?[0-9.,]+)\").n | gsub(\",\"; \"\"))\n"
      "    // error(\"the answer has no #### NUMBER\"))},\n"
      "  extra_info: .\n"
      "} end" },
    { "gsm8k-sft", "the same rows to fine-tune on: the response is the worked answer",
      DEF_ONE
      "{\n"
      "  prompt: [{role: \"user\", content: (one([\"question\"]; strings) + \" \" + " GSM8K_STEPS
      ")}],\n"
      "  response: one([\"answer\"]; strings)\n"
      "}" },
    { "math", "MATH and MATH-500: {problem, solution} or {problem, answer}; boxed answers",
      SHAPED DEF_ONE DEF_BOXED
      "{\n"
      "  data_source: (if has(\"answer\") then \"HuggingFaceH4/MATH-500\"\n"
      "    else \"DigitalLearningGmbH/MATH-lighteval\" end),\n"
      "  prompt: [{role: \"user\", content: (one([\"problem\"]; strings) + \" \" + " MATH_STEPS
      ")}],\n"
      "  ability: \"math\",\n"
      "  reward_model: {style: \"rule\", ground_truth: (if has(\"answer\") then\n"
      "    one([\"answer\"]; strings, numbers) else one([\"solution\"]; strings) | boxed end\n"
      "    // error(\"the solution has no \\\\boxed{} answer\"))},\n"
      "  extra_info: del(.problem, .answer)\n"
      "} end" },
    { "math-sft", "the same rows to fine-tune on: the response is the solution",
      DEF_ONE
      "{\n"
      "  prompt: [{role: \"user\", content: (one([\"problem\"]; strings) + \" \" + " MATH_STEPS
      ")}],\n"
      "  response: one([\"solution\"]; strings)\n"
      "}" },
    { "aime", "AIME: {problem, answer}; data_source has the year where the row says it",
      AIME("(\"aime\" + year)") },
    { "aime2024", "the same, data_source aime2024", AIME("\"aime2024\"") },
    { "aime2025", "the same, data_source aime2025", AIME("\"aime2025\"") },
    { "dapo", "DAPO-Math-17k: verl's rows as they are, or {prompt or problem, answer or solution}",
      DEF_ONE DEF_SHORT
      "if has(\"source_prompt\") then .prompt = .source_prompt | del(.source_prompt, .solution)\n"
      "elif (.prompt | type) == \"array\" then .\n"
      "else one([\"problem\", \"prompt\"]; strings) as $problem |\n"
      "{\n"
      "  data_source: \"math_dapo\",\n"
      "  prompt: " DAPO_PROMPT(
          "$problem") ",\n"
                      "  ability: \"MATH\",\n"
                      "  reward_model: {style: \"rule-lighteval/MATH_v2\",\n"
                      "    ground_truth: (.answer // .solution // .reward_model.ground_truth\n"
                      "      // error(\"no answer, solution or reward_model.ground_truth\") | "
                      "short)},\n"
                      "  extra_info: ((.extra_info // {}) + del(.problem, .question, .prompt, "
                      ".answer, .solution, "
                      ".extra_info, .reward_model))\n"
                      "} end" },
    { "openai-messages",
      "--sft on {messages, tools}; an assistant message of weight 0 is not trained on",
      "def object: . as $s | if type == \"string\" then [try fromjson catch $s] | first else . end;"
      "\n" DEF_ONE
      ".messages = (one([\"messages\"]; arrays) | map(.content = (.content // \"\") |\n"
      "  if .tool_calls then .tool_calls |= map(\n"
      "    if .function.arguments then .function.arguments = (.function.arguments | object)\n"
      "    else . end) else . end))" },
    { "sharegpt", "--sft on {conversations: [{from, value}]}, also {system, conversations}",
      DEF_ONE
      "def role: {human: \"user\", user: \"user\", gpt: \"assistant\", assistant: \"assistant\",\n"
      "  system: \"system\", tool: \"tool\", observation: \"tool\"}[.] // error(\"no such role: "
      "\\(.)\");\n"
      "{messages: ((if .system then [{role: \"system\", content: .system}] else [] end)\n"
      "  + (one([\"conversations\"]; arrays) | map({role: (.from | role),\n"
      "      content: (.value | strings // error(\"a turn whose value is no text\"))})))}" },
    { "alpaca", "--sft on {instruction, input, output}, as one user message and its answer",
      DEF_ONE
      "{messages: [\n"
      "  {role: \"user\", content: (one([\"instruction\"]; strings) + (if (.input // \"\") "
      "== \"\" then \"\" else "
      "\"\\n\\n\" + .input end))},\n"
      "  {role: \"assistant\", content: (.output | strings // error(\"output is no text\"))}]}" },
    { "ultrafeedback", "--preference on the binarized set: lists that hold the prompt",
      DEF_ONE "{chosen: one([\"chosen\"]; arrays), rejected: one([\"rejected\"]; arrays),\n"
              " extra_info: del(.prompt, .messages, .chosen, .rejected)}" },
    { "hh-rlhf",
      "--preference on Anthropic's pairs: \"Human: \" and \"Assistant: \" become messages",
      "def turns: [splits(\"\\n\\n(?=Human: |Assistant: )\")] | map(select(. != \"\")) | map(\n"
      "  if startswith(\"Human: \") then {role: \"user\", content: .[7:]}\n"
      "  elif startswith(\"Assistant: \") then {role: \"assistant\", content: .[11:]}\n"
      "  else error(\"neither Human nor Assistant: \\(.)\") end);\n" DEF_ONE
      "{chosen: (one([\"chosen\"]; strings) | turns),\n"
      "  rejected: (one([\"rejected\"]; strings) | turns)}" },
    { NULL, NULL, NULL },
};

const struct vl_data_map *vl_data_maps(void)
{
    return maps;
}

const struct vl_data_map *vl_data_map_find(const char *name, struct vl_err *e)
{
    struct vl_buf known = { 0 };

    for (const struct vl_data_map *m = maps; m->name; m++) {
        if (strcmp(m->name, name) == 0) {
            vl_buf_free(&known);
            return m;
        }
        vl_buf_printf(&known, "%s%s", known.n ? ", " : "", m->name);
    }
    vl_fail(e, VL_E_USAGE,
            "--dataset %s is not known; there are %s, and --map FILTER for any other", name,
            known.s);
    vl_buf_free(&known);
    return NULL;
}

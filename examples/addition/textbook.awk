# textbook.awk - the data of the demo: two-digit additions, answers reversed and zero-padded.
#
#   awk -f textbook.awk -v kind=sft -v rows=128000 -v seed=1   a careless textbook: every answer digit
#                                                             is wrong with probability 0.2
#   awk -f textbook.awk -v kind=train                         the 90 % of pairs to train on
#   awk -f textbook.awk -v kind=heldout                       the other 10 %
#
# Its own generator instead of rand(): the same rows from every awk.

function mix(x) { # a small integer hash: 0 .. 2^31-2
    x = (x * 48271 + 11) % 2147483647
    x = ((x % 65536) * 32768 + int(x / 65536)) % 2147483647
    return (x * 69621 + 7) % 2147483647
}
function rnd() { # uniform in [0, 1)
    state = (state * 48271) % 2147483647
    return state / 2147483647
}
function heldout(a, b) { return mix(mix(a * 100 + b + 1)) % 10 == 0 }
function answer(a, b, s) {
    s = sprintf("%03d", a + b)
    return substr(s, 3, 1) substr(s, 2, 1) substr(s, 1, 1)
}
function careless(s, i, d, out) {
    for (i = 1; i <= 3; i++) {
        d = substr(s, i, 1) + 0
        if (rnd() < 0.2)
            d = (d + 1 + int(rnd() * 9)) % 10
        out = out d
    }
    return out
}
BEGIN {
    state = (seed == "" ? 1 : seed) * 7919 % 2147483647
    for (i = 0; i < 20; i++)
        rnd()
    for (a = 0; a < 100; a++)
        for (b = 0; b < 100; b++)
            if (heldout(a, b) == (kind == "heldout"))
                pair[n++] = a * 100 + b
    if (rows == "")
        rows = n
    for (r = 0; r < rows; r++) {
        if (kind == "sft" && r % n == 0) # a fresh order for every pass over the pairs
            for (i = n - 1; i > 0; i--) {
                j = int(rnd() * (i + 1))
                t = pair[i]; pair[i] = pair[j]; pair[j] = t
            }
        a = int(pair[r % n] / 100); b = pair[r % n] % 100
        if (kind == "sft")
            printf "{\"prompt\":\"%02d+%02d=\",\"response\":\"%s\"}\n", a, b, careless(answer(a, b))
        else
            printf "{\"prompt\":\"%02d+%02d=\",\"data_source\":\"exact\",\"reward_model\":{\"style\":\"rule\",\"ground_truth\":\"%s\"}}\n", a, b, answer(a, b)
    }
}

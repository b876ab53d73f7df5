/* weights.c - which weights made a column. See weights.h. */
#include "libverl/run/weights.h"

#include <stdio.h>
#include <string.h>

#include <xxhash.h>

#include "formats/json.h"

/* Other weights than the model's, hence another hash; the same from the same model. */
static void quantized_hash(char hash[33], const struct vl_model *m, const char *quantization)
{
    char text[80];
    XXH128_hash_t h;

    snprintf(text, sizeof text, "%s %s", quantization, m->hash);
    h = XXH3_128bits(text, strlen(text));
    snprintf(hash, 33, "%016llx%016llx", (unsigned long long)h.high64, (unsigned long long)h.low64);
}

void vl_weights_set(struct vl_batch *b, const char *column, const struct vl_model *m,
                    const char *quantization)
{
    const char *source = m->source_hash ? m->source_hash : quantization ? m->hash : NULL;
    struct vl_buf out = { 0 };
    char key[128], hash[33];

    snprintf(key, sizeof key, "%s_weights", column);
    vl_buf_str(&out, "{\"version\":");
    if (m->version)
        vl_json_put_str(&out, m->version, strlen(m->version));
    else
        vl_buf_str(&out, "null");
    if (quantization)
        quantized_hash(hash, m, quantization);
    vl_buf_printf(&out, ",\"hash\":\"%s\"", quantization ? hash : m->hash);
    if (source)
        vl_buf_printf(&out, ",\"source_hash\":\"%s\"", source);
    if (quantization)
        vl_buf_printf(&out, ",\"quantization\":\"%s\"", quantization);
    vl_buf_ch(&out, '}');
    vl_meta_set(b, key, out.s);
    vl_buf_free(&out);
}

static void copy_member(const struct vl_json *j, const char *key, char *dst, size_t n)
{
    struct vl_buf text = { 0 };

    dst[0] = 0;
    if (vl_json_str(j, vl_json_get(j, 0, key), &text) && text.n < n)
        memcpy(dst, text.s, text.n + 1);
    vl_buf_free(&text);
}

int vl_weights_get(const struct vl_batch *b, const char *column, struct vl_weights_id *id)
{
    struct vl_json j;
    struct vl_err e = { 0 };
    const char *text;
    char key[128];

    *id = (struct vl_weights_id){ .version = "" };
    snprintf(key, sizeof key, "%s_weights", column);
    text = vl_meta_get(b, key);
    if (!text)
        return 0;
    if (!vl_json_parse(&j, text, strlen(text), key, &e)) {
        copy_member(&j, "version", id->version, sizeof id->version);
        copy_member(&j, "hash", id->hash, sizeof id->hash);
        copy_member(&j, "source_hash", id->source_hash, sizeof id->source_hash);
        copy_member(&j, "quantization", id->quantization, sizeof id->quantization);
    }
    vl_json_free(&j);
    return id->hash[0] != 0;
}

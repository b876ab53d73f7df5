/* backend_cpu.c - the CPU's table: instruction set, threads, memory. See cpu.h. */
#include "kernels/cpu/cpu.h"

#include "libverl/base/mem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void *vl_cpu_scratch(struct vl_cpu *c, int which, size_t bytes)
{
    if (c->scratch[which].bytes < bytes) {
        bytes += bytes / 4;
        vl_cpu_free(c->scratch[which].p);
        c->scratch[which].p = vl_cpu_alloc(bytes);
        if (!c->scratch[which].p)
            vl_oom(bytes);
        c->scratch[which].bytes = bytes;
    }
    return c->scratch[which].p;
}

float *vl_cpu_thread_scratch(struct vl_cpu *c, size_t n, size_t *stride)
{
    *stride = (n + 31) & ~(size_t)15; /* at least a line between threads */
    return vl_cpu_scratch(c, VL_SCRATCH_THREAD, *stride * (size_t)c->threads * sizeof(float));
}

void vl_cpu_run(struct vl_cpu *c, double work, int64_t tasks, vl_task_fn fn, void *arg)
{
    vl_crew_run(c->crew, work >= 40000, tasks, fn, arg);
}

static int mem_alloc(void *ctx, void **dev, size_t bytes, struct vl_err *e)
{
    (void)ctx;
    *dev = vl_cpu_alloc(bytes);
    if (!*dev)
        return vl_fail(e, VL_E_OS, "cannot allocate %zu bytes of memory", bytes);
    return 0;
}

static void mem_free(void *ctx, void *dev)
{
    (void)ctx;
    vl_cpu_free(dev);
}

static void mem_upload(void *ctx, void *dev, const void *host, size_t bytes)
{
    (void)ctx;
    if (bytes)
        memcpy(dev, host, bytes);
}

static void mem_download(void *ctx, void *host, const void *dev, size_t bytes)
{
    (void)ctx;
    if (bytes)
        memcpy(host, dev, bytes);
}

struct zero {
    char *p;
    size_t bytes;
};

#define ZERO_BYTES ((size_t)1 << 20) /* of a task */

static void zero_task(void *arg, int64_t t, int thread)
{
    const struct zero *z = arg;
    size_t at = (size_t)t * ZERO_BYTES, n = z->bytes - at;

    (void)thread;
    memset(z->p + at, 0, n < ZERO_BYTES ? n : ZERO_BYTES);
}

static void mem_zero(void *ctx, void *dev, size_t bytes)
{
    struct zero z = { dev, bytes };

    vl_cpu_run(ctx, (double)bytes / 16, (int64_t)((bytes + ZERO_BYTES - 1) / ZERO_BYTES), zero_task,
               &z);
}

static void *mem_host(void *ctx, void *dev)
{
    (void)ctx;
    return dev;
}

static void cpu_close(struct vl_backend *be)
{
    struct vl_cpu *c;

    if (!be)
        return;
    c = be->ctx;
    vl_crew_free(c->crew);
    for (int i = 0; i < VL_SCRATCHES; i++)
        vl_cpu_free(c->scratch[i].p);
    free(c);
}

static const struct vl_backend table = {
    .version = VL_BACKEND_VERSION,
    .alloc = mem_alloc,
    .free = mem_free,
    .upload = mem_upload,
    .download = mem_download,
    .zero = mem_zero,
    .host = mem_host,
    .close = cpu_close,
    .weight_new = vl_cpu_weight_new,
    .weight_set = vl_cpu_weight_set,
    .weight_rows = vl_cpu_weight_rows,
    .weight_free = vl_cpu_weight_free,
    .weight_bytes = vl_cpu_weight_bytes,
    .scratch_bytes = vl_cpu_scratch_bytes,
    .operand_bytes = vl_cpu_operand_bytes,
    .operand = vl_cpu_operand,
    .linear = vl_cpu_linear,
    .linear_dx = vl_cpu_linear_dx,
    .linear_dw = vl_cpu_linear_dw,
    .linear_db = vl_cpu_linear_db,
    .gate_up = vl_cpu_gate_up,
    .gate_up_bwd = vl_cpu_gate_up_bwd,
    .embed = vl_cpu_embed,
    .embed_dw = vl_cpu_embed_dw,
    .rmsnorm = vl_cpu_rmsnorm,
    .rmsnorm_bwd = vl_cpu_rmsnorm_bwd,
    .head_norm = vl_cpu_head_norm,
    .head_norm_bwd = vl_cpu_head_norm_bwd,
    .rope = vl_cpu_rope,
    .gather = vl_cpu_gather,
    .scatter_add = vl_cpu_scatter_add,
    .kv_bytes = vl_cpu_kv_bytes,
    .kv_store = vl_cpu_kv_store,
    .kv_copy = vl_cpu_kv_copy,
    .attention = vl_cpu_attention,
    .attention_bwd = vl_cpu_attention_bwd,
    .head_logp = vl_cpu_head_logp,
    .head_bwd = vl_cpu_head_bwd,
    .head_topk = vl_cpu_head_topk,
    .head_logits = vl_cpu_head_logits,
    .head_sample = vl_cpu_head_sample,
    .sumsq = vl_cpu_sumsq,
    .adamw = vl_cpu_adamw,
    .sgd = vl_cpu_sgd,
};

enum isa { ISA_PLAIN, ISA_SCALAR, ISA_AVX2, ISA_AVX512, ISA_AVX512BF16, ISA_AMX, ISA_COUNT };

static const char *const isa_name[ISA_COUNT] = { "plain",  "scalar",     "avx2",
                                                 "avx512", "avx512bf16", "amx" };

/* The widest set this processor (and its operating system) offers. */
static enum isa isa_best(void)
{
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
        return !__builtin_cpu_supports("avx512bf16")     ? ISA_AVX512
               : vl_kern_use_amx(&(struct vl_kern){ 0 }) ? ISA_AMX
                                                         : ISA_AVX512BF16;
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
        return ISA_AVX2;
#endif
    return ISA_SCALAR;
}

static int isa_choose(enum isa *out, const char *isa, struct vl_err *e)
{
    const char *from = "instruction set";
    enum isa best = isa_best();
    int i;

    if (!isa || strcmp(isa, "auto") == 0) {
        isa = getenv("VL_ISA");
        from = "VL_ISA";
    }
    *out = best;
    if (!isa || !*isa || strcmp(isa, "auto") == 0)
        return 0;
    for (i = 0; i < ISA_COUNT && strcmp(isa, isa_name[i]) != 0; i++)
        ;
    if (i == ISA_COUNT)
        return vl_fail(e, VL_E_USAGE,
                       "%s: '%s' is not one of auto, plain, scalar, avx2, avx512, avx512bf16, amx",
                       from, isa);
    if (i > (int)best)
        return vl_fail(e, VL_E_UNAVAIL, "%s: this processor lacks %s; the widest it has is %s",
                       from, isa, isa_name[best]);
    *out = (enum isa)i;
    return 0;
}

static struct vl_kern isa_kern(enum isa isa)
{
    struct vl_kern k = vl_kern_scalar;

#if defined(__x86_64__)
    if (isa == ISA_SCALAR && __builtin_cpu_supports("fma"))
        k = vl_kern_fma;
    if (isa == ISA_AVX2)
        k = vl_kern_avx2;
    if (isa >= ISA_AVX512)
        k = vl_kern_avx512;
    if (isa >= ISA_AVX512BF16)
        vl_kern_use_avx512bf16(&k);
    if (isa == ISA_AMX)
        (void)vl_kern_use_amx(&k);
#endif
    (void)isa;
    return k;
}

/* Intel's vdpbf16ps does as many products a cycle as the fp32 unit at best, measured half of them;
 * AMD's does twice as many. */
static int bf16_is_fast(void)
{
#if defined(__x86_64__)
    return !__builtin_cpu_is("intel");
#else
    return 0;
#endif
}

int vl_backend_cpu(struct vl_backend **be, const char *isa, int threads, int local_ranks,
                   struct vl_err *e)
{
    struct vl_cpu *c;
    enum isa set;

    *be = NULL;
    if (threads < 0 || threads > 4096)
        return vl_fail(e, VL_E_USAGE, "%d threads asked for; 0 (automatic) to 4096 are possible",
                       threads);
    if (isa_choose(&set, isa, e))
        return e->code;
    c = vl_alloc(sizeof *c);
    c->be = table;
    c->be.ctx = c;
    c->k = isa_kern(set);
    c->be.best = set == ISA_AMX ? VL_COMPUTE_AMX : VL_COMPUTE_F32;
    if (set == ISA_AVX512BF16 && bf16_is_fast())
        c->be.best = VL_COMPUTE_BF16;
    c->threads = threads ? threads : vl_cpu_count(local_ranks);
    c->crew = vl_crew_new(c->threads);
    snprintf(c->be.name, sizeof c->be.name, "cpu %s", isa_name[set]);
    *be = &c->be;
    return 0;
}

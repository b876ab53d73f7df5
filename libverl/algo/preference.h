/* preference.h - losses on pairs of responses to one prompt: DPO and its relatives.
 *
 * A pair's loss depends on the log-prob sums of both of its rows, so both stand in one pass: pairs
 * are never cut apart. Each pair has the weight 1 / pairs of the mini-batch, so that passes and ranks
 * add, and sums run in row order: any cut between pairs gives the same bits. */
#ifndef VL_PREFERENCE_H
#define VL_PREFERENCE_H

#include "libverl/algo/loss.h"

/* a = log pi - log ref of the chosen response, b of the rejected one (reference_free: ref = 0), both
 * sums over valid tokens (length_norm: means), h = a - b, z = beta h - gamma, s = label_smoothing:
 *   sigmoid  -(1 - s) log sigmoid(z) - s log sigmoid(-z)      DPO (Rafailov 2023), s: cDPO; SPIN
 *   ipo      (h - 1 / (2 beta))^2                             IPO (Azar 2023)
 *   hinge    max(0, 1 - z)                                    SLiC (Zhao 2023); slope 0 at z = 1
 *   sppo     (a - eta / 2)^2 + (b + eta / 2)^2                SPPO (Wu 2024), wins 1 and 0
 * sigmoid with reference_free, length_norm and gamma is SimPO (Meng 2024). To each, rpo_alpha times
 * the chosen response's mean of -log pi is added (RPO). */
enum vl_pref_kind { VL_PREF_SIGMOID, VL_PREF_IPO, VL_PREF_HINGE, VL_PREF_SPPO };

struct vl_pref_opts {
    enum vl_pref_kind kind;
    double beta;            /* > 0 */
    double label_smoothing; /* [0, 0.5): the share of labels taken to be wrong */
    double gamma;           /* margin in z */
    double eta;             /* sppo */
    double rpo_alpha;
    int reference_free, length_norm;
};
#define VL_PREF_DEFAULTS                                                                           \
    {                                                                                              \
        .beta = 0.1, .eta = 1                                                                      \
    }

/* Reads the loss's name into o->kind and checks the ranges; VL_E_USAGE names the key. */
int vl_pref_parse(struct vl_pref_opts *o, const char *name, struct vl_err *e) VL_MUST_CHECK;

/* One pair: returns the loss without the RPO term; *da, *db = its derivatives by a and b. */
double vl_pref_pair(const struct vl_pref_opts *o, double a, double b, double *da, double *db);

/* Rows 2k and 2k + 1 of `rows` are pair k, chosen before rejected. logp, ref (first[B]; ref NULL only
 * with reference_free), norm->pairs the mini-batch's. Overwrites dlogp (zeros at masked tokens) and
 * adds LOSS and the DPO metrics. */
void vl_preference_loss(const struct vl_pref_opts *o, const struct vl_loss_rows *rows,
                        const float *logp, const float *ref, const struct vl_loss_norm *norm,
                        float *dlogp, struct vl_loss_sums *s);

#endif

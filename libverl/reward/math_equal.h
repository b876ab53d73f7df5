/* math_equal.h - whether two answers, LaTeX or plain, mean the same. */
#ifndef VL_MATH_EQUAL_H
#define VL_MATH_EQUAL_H

#include "libverl/reward/algebra.h"

/* Compares after cleaning (dollars, \left, spacing, units, degree signs, x = before a value): numbers,
 * fractions, percents (50% is 0.5 and 50), expressions by algebra.h, tuples and intervals by
 * brackets and elements, equations up to a whole factor, {sets} and bare lists in any order, unions, matrices, inequalities of one
 * variable as intervals, words without case. `tolerance`: two numbers that are not exactly equal
 * are when they differ by at most tolerance * max(1, |b|) and one of them is a decimal, or when
 * they agree to 1e-10 but have no exact form (sin(pi/6) and 1/2). Bounded work for any text. */
enum vl_alg_verdict vl_math_equal(const char *a, size_t na, const char *b, size_t nb,
                                  double tolerance);

#endif

/* schema_impl.h - what reading and checking of schemas share. */
#ifndef VL_SCHEMA_IMPL_H
#define VL_SCHEMA_IMPL_H

#include "libverl/reward/pattern.h"
#include "libverl/reward/schema.h"

struct vl_schema_regex {
    int64_t node;
    struct vl_pattern *p;
};

struct vl_schema {
    struct vl_json j;
    char *text;
    struct vl_schema_regex *regex;
    size_t nregex;
};

/* The schema a $ref node names, or -1. */
int64_t vl_schema_target(const struct vl_schema *s, int64_t ref);

#endif

/* data_maps.h - jq filters from the rows of common data sets to verl-data's. */
#ifndef VL_DATA_MAPS_H
#define VL_DATA_MAPS_H

#include "libverl/base/mem.h"

struct vl_data_map {
    const char *name, *what; /* what: one line of --dataset help */
    const char *filter;
};

/* All of them; the last has no name. */
const struct vl_data_map *vl_data_maps(void);
/* The one of this name; an unknown one is VL_E_USAGE with those there are, and NULL. */
const struct vl_data_map *vl_data_map_find(const char *name, struct vl_err *e);

#endif

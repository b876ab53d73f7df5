/* depends.h - which columns are made from which: what is dropped when a stage replaces one. */
#ifndef VL_DEPENDS_H
#define VL_DEPENDS_H

/* Whether column `name` is computed directly from column `from`. Columns the table does not know
 * (a user's) depend on nothing and are kept. */
int vl_field_depends(const char *name, const char *from);

#endif

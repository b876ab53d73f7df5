/* schema.h - a part of JSON Schema (2020-12): what responses are usually checked with.
 *
 * type, enum, const, properties, required, additionalProperties, minProperties, maxProperties,
 * items, prefixItems, minItems, maxItems, uniqueItems, minimum, maximum, exclusiveMinimum,
 * exclusiveMaximum, multipleOf, minLength, maxLength, pattern, anyOf, oneOf, allOf, not, and $ref to
 * #, #/$defs/NAME or #/definitions/NAME. Annotations (title, description, ...) are ignored. Any other keyword is
 * refused by name: ignoring it would accept what its author meant to reject. */
#ifndef VL_SCHEMA_H
#define VL_SCHEMA_H

#include "formats/json.h"

struct vl_schema;

/* Reads a schema, an object or true or false. VL_E_USAGE; `name` starts the line. */
int vl_schema_new(struct vl_schema **s, const char *json, size_t n, const char *name,
                  struct vl_err *e) VL_MUST_CHECK;
int vl_schema_read(struct vl_schema **s, const char *path, struct vl_err *e) VL_MUST_CHECK;
void vl_schema_free(struct vl_schema *s);
void vl_schema_put(const struct vl_schema *s, struct vl_buf *out); /* appends its JSON text */

/* Whether node i of j is valid: 1; 0 with the first fault found in *why (one line, appended); -1
 * with *why when a limit of steps or of depth was passed. For use by several threads. */
int vl_schema_check(const struct vl_schema *s, const struct vl_json *j, int64_t i,
                    struct vl_buf *why);

#endif

/* frames.h - the physical side of a batch file: zstd frames, hash frame, seek table, end frame.
 *
 * One document is independent zstd frames (the safetensors header, then pieces of its data), a hash
 * frame and a seek table. A reader first looks at the end of the bytes it has: there it learns what
 * they are without walking them, and a cut shows. Byte tables: dataproto.md. */
#ifndef VL_FRAMES_H
#define VL_FRAMES_H

#include "libverl/base/mem.h"

#define VL_MAGIC_ZSTD       0xFD2FB528u
#define VL_MAGIC_HASH       0x184D2A50u
#define VL_MAGIC_END        0x184D2A51u
#define VL_MAGIC_TABLE      0x184D2A5Eu
#define VL_MAGIC_SEEKABLE   0x8F92EAB1u
#define VL_HASH_FRAME       32 /* bytes, with the 8 of the skippable frame's own header */
#define VL_END_FRAME        40
#define VL_TABLE_ENTRY      12
#define VL_TABLE_FOOTER     9
#define VL_FRAME_TARGET     ((size_t)1 << 20)  /* bytes of content a frame is cut to */
#define VL_FRAME_MAX_ROW    ((size_t)16 << 20) /* a longer row is cut inside */
#define VL_FRAME_MAX_HEADER ((size_t)64 << 20)

void vl_put_le32(uint8_t *p, uint32_t x);
void vl_put_le64(uint8_t *p, uint64_t x);
uint32_t vl_get_le32(const uint8_t *p);
uint64_t vl_get_le64(const uint8_t *p);

/* What the bytes of a file or pipe are. */
enum vl_bytes_kind {
    VL_BYTES_RAW,      /* an uncompressed safetensors file */
    VL_BYTES_DOCUMENT, /* a seek table ends it */
    VL_BYTES_STREAM,   /* an end frame ends it */
    VL_BYTES_ZSTD,     /* zstd frames without either: foreign, or ours and cut */
};
enum vl_bytes_kind vl_bytes_kind(const uint8_t *p, size_t n);
int vl_is_document(const uint8_t *p); /* from its first 4 bytes: zstd or a skippable frame */

struct vl_frame {
    uint64_t at;  /* compressed bytes: from the start of the document */
    uint64_t out; /* decompressed: byte of the safetensors file */
    uint32_t size, len;
    uint32_t sum; /* low half of the content's XXH64 */
};

/* A range of the safetensors file and where its bytes go. */
struct vl_want {
    uint64_t begin, end;
    uint8_t *dst;
};

/* The safetensors bytes inside one document, whatever its physical form. */
struct vl_source {
    const char *name;
    const uint8_t *p; /* borrowed */
    size_t n;
    struct vl_frame *frame; /* seekable: its zstd frames; NULL: plain bytes at p */
    uint32_t nframe;
    uint64_t total;    /* length of the safetensors file */
    uint8_t *inflated; /* foreign zstd: the whole content, owned; p points here */
};

/* One document of kind DOCUMENT: reads and checks the table; `whole`: also the hash of all bytes.
 * `name` is borrowed, for messages. VL_E_DATA names the byte. Free with vl_source_close. */
int vl_source_document(struct vl_source *s, const char *name, const uint8_t *p, size_t n, int whole,
                       struct vl_err *e) VL_MUST_CHECK;
/* Kind RAW. */
int vl_source_raw(struct vl_source *s, const char *name, const uint8_t *p, size_t n,
                  struct vl_err *e) VL_MUST_CHECK;
/* Kind ZSTD: decompresses everything; the safetensors header says how much that is, and no more is
 * allocated than the compressed bytes could hold. */
int vl_source_zstd(struct vl_source *s, const char *name, const uint8_t *p, size_t n,
                   struct vl_err *e) VL_MUST_CHECK;
void vl_source_close(struct vl_source *s);

/* The header's JSON text: N bytes, appended to out. */
int vl_source_header(const struct vl_source *s, struct vl_buf *out, struct vl_err *e) VL_MUST_CHECK;
/* Fills the wanted ranges (ascending, not overlapping, within total) from the frames they touch, on
 * all threads; each such frame is verified. */
int vl_source_fetch(const struct vl_source *s, const struct vl_want *w, size_t nw,
                    struct vl_err *e) VL_MUST_CHECK;

/* What starts at p: a document of *len bytes, an end frame, or what needs more bytes to tell.
 * *scanned (0 at a new start) keeps the place between calls with more bytes. VL_E_DATA for what is
 * neither. */
enum vl_next { VL_NEXT_MORE, VL_NEXT_DOCUMENT, VL_NEXT_END };
int vl_document_next(const char *name, const uint8_t *p, size_t n, size_t *scanned,
                     enum vl_next *next, size_t *len, struct vl_err *e) VL_MUST_CHECK;
/* Reads an end frame (VL_END_FRAME bytes). */
int vl_end_frame_get(const char *name, const uint8_t *p, uint64_t *documents, uint64_t *rows,
                     struct vl_err *e) VL_MUST_CHECK;
void vl_end_frame_put(uint8_t p[VL_END_FRAME], uint64_t documents, uint64_t rows);

#endif

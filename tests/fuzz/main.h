/* main.h - included last by every fuzz target: a main() that runs LLVMFuzzerTestOneInput over the
 * files, or the files of the directories, given. tests/fuzz/run makes new inputs by libFuzzer. */
#ifndef VL_FUZZ_MAIN_H
#define VL_FUZZ_MAIN_H

#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#ifndef VL_LIBFUZZER
static int run_file(const char *path)
{
    FILE *f = fopen(path, "rb");
    uint8_t *data = NULL;
    size_t n = 0, got;

    if (!f) {
        perror(path);
        return 1;
    }
    do { /* exact size, so that ASan sees a read past the end */
        data = realloc(data, n + 65536);
        got = fread(data + n, 1, 65536, f);
        n += got;
    } while (got);
    data = realloc(data, n ? n : 1);
    LLVMFuzzerTestOneInput(data, n);
    free(data);
    return fclose(f) != 0;
}

int main(int argc, char **argv)
{
    int bad = 0, files = 0;

    for (int i = 1; i < argc; i++) {
        struct dirent **list;
        int n = scandir(argv[i], &list, NULL, alphasort);

        for (int k = 0; k < n; k++) {
            char path[4096];
            snprintf(path, sizeof path, "%s/%s", argv[i], list[k]->d_name);
            if (list[k]->d_name[0] != '.')
                bad |= run_file(path), files++;
            free(list[k]);
        }
        if (n < 0)
            bad |= run_file(argv[i]), files++;
        else
            free(list);
    }
    printf("%d files\n", files);
    return bad || !files;
}
#endif

#endif

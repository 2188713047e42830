// SPDX-License-Identifier: Apache-2.0
// Reads the corpus of the transformer, or writes one from a small grammar where there is none. Both
// are the same on every run of a machine; nothing is downloaded.
#include "reference_models/native/text.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "reference_models/native/rng.h"

#define TEXT_GENERATED_BYTES ((size_t)262144)
#define TEXT_GENERATED_SEED 1

static void text_append_file(struct text *text, const char *dir, const char *name)
{
    char path[4096];
    if ((size_t)snprintf(path, sizeof path, "%s/%s", dir, name) >= sizeof path)
        return;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0)
        return; // a link (the same text twice) or not ours to read
    struct stat status;
    ssize_t got = 0;
    if (fstat(fd, &status) == 0 && S_ISREG(status.st_mode)) {
        while (text->count < TEXT_BYTES_MAX &&
                (got = read(fd, text->bytes + text->count, TEXT_BYTES_MAX - text->count)) > 0)
            text->count += (size_t)got;
        text->truncated = text->count == TEXT_BYTES_MAX;
    }
    close(fd);
}

static void text_read_directory(struct text *text, const char *dir)
{
    struct dirent **entries = NULL;
    int count = scandir(dir, &entries, NULL, alphasort);
    for (int i = 0; i < count; i++) {
        text_append_file(text, dir, entries[i]->d_name);
        free(entries[i]);
    }
    free(entries);
}

// A frame of a sentence with words that vary: enough structure to learn from.
static void text_generate(struct text *text)
{
    static const char *const nouns[] = {"work", "license", "copy", "source", "program", "version",
            "author", "network", "notice", "library"};
    static const char *const verbs[] = {"covers", "conveys", "modifies", "requires", "permits",
            "links", "names", "replaces", "follows", "contains"};
    static const char *const ends[] = {"under these terms", "without any warranty",
            "in source form", "for each recipient", "at no charge", "as stated above"};
    struct rng rng = rng_stream(TEXT_GENERATED_SEED, 0, 0);
    text->count = 0;
    text->generated = true;
    text->truncated = false;
    while (text->count < TEXT_GENERATED_BYTES) {
        char sentence[160];
        const char *who = nouns[rng_below(&rng, 10)]; // one draw a line: arguments have no order
        const char *does = verbs[rng_below(&rng, 10)];
        const char *what = nouns[rng_below(&rng, 10)];
        const char *how = ends[rng_below(&rng, 6)];
        const char *gap = rng_below(&rng, 4) ? " " : "\n\n";
        int len = snprintf(
                sentence, sizeof sentence, "The %s %s the %s %s.%s", who, does, what, how, gap);
        memcpy(text->bytes + text->count, sentence, (size_t)len);
        text->count += (size_t)len;
    }
}

int text_load(const char *path, struct text *ret_text, struct error *err)
{
    struct text text = {.bytes = malloc(TEXT_BYTES_MAX)};
    if (!text.bytes)
        return error_set(err, -ENOMEM, "failed to read the texts of '%s': out of memory", path);
    text_read_directory(&text, path);
    if (text.count < TEXT_BYTES_MIN)
        text_generate(&text);
    unsigned char *fitted = realloc(text.bytes, text.count);
    if (fitted)
        text.bytes = fitted;
    *ret_text = text;
    return 0;
}

void text_free(struct text *text)
{
    free(text->bytes);
    *text = (struct text){0};
}

// SPDX-License-Identifier: Apache-2.0
// Which model is served: words, and model files. The weights of the reference models are drawn from
// a seed, so a model file is a few words of JSON. Its path comes from whoever may POST /reload: it
// stays below one folder.
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/strings.h"
#include "reference_models/serve/workers.h"

#define MODEL_FILE_MAX ((size_t)64 << 10)

int model_choice_name(struct model_choice *choice, const char *name, struct error *err)
{
    size_t len = strlen(name);
    bool plain = len > 0 && len < sizeof choice->name;
    for (size_t i = 0; plain && i < len; i++)
        plain = isalnum((unsigned char)name[i]) || strchr("-_.", name[i]);
    if (!plain)
        return error_set(err, -EINVAL,
                "the name of a model has 1 to %zu letters, digits, '-', '_' and '.'",
                sizeof choice->name - 1);
    memcpy(choice->name, name, len + 1);
    return 0;
}

int model_choice_set(
        struct model_choice *choice, const char *model, const char *size, struct error *err)
{
    static const char *const models[] = {"dlrm", "transformer"};
    static const struct model_ops *const ops[] = {&dlrm_ops_f32, &transformer_ops_f32};
    static const char *const sizes[MODEL_SIZE_COUNT] = {"small", "demo", "large"};
    size_t m = 0, s = 0;
    while (m < 2 && strcmp(model, models[m]) != 0)
        m++;
    if (m == 2)
        return error_set(err, -EINVAL, "model '%s' is unknown; known: dlrm, transformer", model);
    while (s < MODEL_SIZE_COUNT && strcmp(size, sizes[s]) != 0)
        s++;
    if (s == MODEL_SIZE_COUNT)
        return error_set(err, -EINVAL, "size '%s' is unknown; known: small, demo, large", size);
    choice->ops = ops[m];
    choice->size = (enum model_size)s;
    return 0;
}

// Below `models`: no "..", no absolute path; the file itself is no symbolic link.
static int model_file_read(
        const char *models, const char *path, char *text, size_t size, struct error *err)
{
    if (path[0] == '/' || strcmp(path, "..") == 0 || strncmp(path, "../", 3) == 0 ||
            strstr(path, "/../") ||
            (strlen(path) >= 3 && strcmp(path + strlen(path) - 3, "/..") == 0))
        return error_set(err, -EINVAL, "'%s' leads out of the folder of models", path);
    char *full = xasprintf("%s/%s", models, path);
    int fd = open(full, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    int rc = fd < 0 ? -errno : 0;
    free(full);
    if (rc)
        return error_set(err, rc == -ENOENT || rc == -ELOOP ? -EINVAL : rc,
                "failed to open the model file '%s': %s", path, strerror(-rc));
    struct stat status;
    ssize_t got = -1;
    if (fstat(fd, &status) == 0 && S_ISREG(status.st_mode) && status.st_size < (off_t)size)
        got = read(fd, text, size - 1);
    close(fd);
    if (got < 0)
        return error_set(err, -EINVAL, "'%s' is not a readable file below %zu bytes", path, size);
    text[got] = '\0';
    return 0;
}

int model_choice_load(
        const char *models, const char *path, struct model_choice *ret_choice, struct error *err)
{
    char *text = xcalloc(1, MODEL_FILE_MAX);
    json_error_t where;
    json_t *root = NULL;
    struct model_choice choice = {0};
    int rc = model_file_read(models, path, text, MODEL_FILE_MAX, err);
    if (rc)
        goto out;
    root = json_loads(text, JSON_REJECT_DUPLICATES, &where);
    const char *model = NULL, *size = "small", *name = NULL;
    json_int_t seed = 1;
    if (!root) {
        rc = error_set(err, -EINVAL, "%s:%d:%d: %s", path, where.line, where.column, where.text);
        goto out;
    }
    if (json_unpack_ex(root, &where, JSON_STRICT, "{s:s, s?s, s?I, s?s}", "model", &model, "size",
                &size, "seed", &seed, "name", &name)) {
        rc = error_set(err, -EINVAL, "%s: %s; a model file has model, size, seed and name", path,
                where.text);
        goto out;
    }
    if (seed < 0) {
        rc = error_set(err, -EINVAL, "%s: the seed is negative", path);
        goto out;
    }
    choice.seed = (uint64_t)seed;
    rc = model_choice_set(&choice, model, size, err);
    if (rc)
        goto out;
    char made[REQUEST_MODEL_MAX];
    snprintf(made, sizeof made, "%s-%s-%" PRIu64, model, size, choice.seed);
    rc = model_choice_name(&choice, name ? name : made, err);
    if (!rc)
        *ret_choice = choice;
out:
    json_decref(root);
    free(text);
    return rc;
}

// SPDX-License-Identifier: Apache-2.0
// Pages in docs/ and the completion file for bash, both from the option tables. Reads the tables,
// writes files of a directory or a stream. Prose is not its job: it stands in docs/ beside the
// pages.
#include "harness/verbs/docs.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/environment.h"
#include "common/strings.h"

static int docs_close(FILE *file, const char *path, struct error *err)
{
    bool failed = ferror(file);
    errno = 0;
    if (fclose(file) != 0 || failed)
        return error_set(err, errno ? -errno : -EIO, "failed to write '%s': %s", path,
                         strerror(errno ? errno : EIO));
    return 0;
}

static int docs_open(const char *path, FILE **ret_file, struct error *err)
{
    *ret_file = fopen(path, "we");
    if (*ret_file)
        return 0;
    int rc = -errno;
    return error_set(err, rc, "failed to open '%s': %s", path, strerror(-rc));
}

static int docs_write_environment(const char *directory, struct error *err)
{
    char *path = xasprintf("%s/environment.md", directory);
    FILE *file;
    int rc = docs_open(path, &file, err);
    if (!rc) {
        fputs("<!-- Made from common/environment.c by `upgate --print-docs docs`; edit there. -->\n"
              "# Environment variables\n\nAn unknown `UPGATE_*` variable is a warning.\n\n"
              "| variable | meaning |\n|---|---|\n",
              file);
        for (enum environment_id id = 0; id < ENVIRONMENT_COUNT; id++)
            fprintf(file, "| `%s` | %s |\n", environment_name(id), environment_help(id));
        rc = docs_close(file, path, err);
    }
    free(path);
    return rc;
}

int docs_write(const struct verb *const *verbs, const char *directory, struct error *err)
{
    int rc = docs_write_environment(directory, err);
    for (; *verbs && !rc; verbs++) {
        char *path = xasprintf("%s/upgate-%s.md", directory, (*verbs)->name);
        FILE *file;
        rc = docs_open(path, &file, err);
        if (!rc) {
            options_print_markdown(*verbs, file);
            rc = docs_close(file, path, err);
        }
        free(path);
    }
    return rc;
}

static void docs_print_choices(const struct verb *const *verbs, FILE *file)
{
    fputs("    case $verb:$previous in\n", file);
    for (; *verbs; verbs++) {
        for (const struct option_spec *spec = (*verbs)->options; spec && spec->name; spec++) {
            if (!spec->choices)
                continue;
            fprintf(file, "    %s:--%s", (*verbs)->name, spec->name);
            if (spec->letter)
                fprintf(file, " | %s:-%c", (*verbs)->name, spec->letter);
            fputs(") words='", file);
            for (const char *c = spec->choices; *c; c++)
                fputc(*c == ',' ? ' ' : *c, file);
            fputs("' ;;\n", file);
        }
    }
    fputs("    *) words= ;;\n    esac\n", file);
}

static void docs_print_options(const struct verb *const *verbs, FILE *file)
{
    fputs("        case $verb in\n", file);
    for (; *verbs; verbs++) {
        fprintf(file, "        %s) words='--help", (*verbs)->name);
        for (const struct option_spec *spec = (*verbs)->options; spec && spec->name; spec++)
            fprintf(file, " --%s", spec->name);
        fputs("' ;;\n", file);
    }
    fputs("        esac\n", file);
}

void docs_print_completion(const struct verb *const *verbs, FILE *file)
{
    fputs("# Completion of upgate for bash, made from its option tables. Without words of its own "
          "it\n"
          "# completes file names.\n"
          "_upgate()\n{\n"
          "    local word=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD-1]}\n"
          "    local verb=${COMP_WORDS[1]} words\n"
          "    if ((COMP_CWORD == 1)) || [[ $COMP_CWORD == 2 && $verb == help ]]; then\n"
          "        COMPREPLY=($(compgen -W '",
          file);
    for (const struct verb *const *verb = verbs; *verb; verb++)
        fprintf(file, "%s ", (*verb)->name);
    fputs("help --help --version' -- \"$word\"))\n        return\n    fi\n", file);
    // "--format=js" arrives as three words, because "=" breaks words.
    fputs("    if [[ $previous == = ]]; then\n"
          "        previous=${COMP_WORDS[COMP_CWORD-2]}\n"
          "    elif [[ $word == = ]]; then\n"
          "        word=\n"
          "    fi\n",
          file);
    docs_print_choices(verbs, file);
    fputs("    if [[ ! $words && $word == -* ]]; then\n", file);
    docs_print_options(verbs, file);
    fputs("    fi\n    [[ $words ]] && COMPREPLY=($(compgen -W \"$words\" -- \"$word\"))\n"
          "}\ncomplete -o default -F _upgate upgate\n",
          file);
}

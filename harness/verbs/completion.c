// SPDX-License-Identifier: Apache-2.0
// Completion files from the option tables, one function a shell. Reads the tables, writes a stream.
// An option without help is taken, but not offered. tests/e2e/packages.py asks the shells
// themselves what they offer.
#include "harness/verbs/completion.h"

#include <errno.h>
#include <string.h>

// "table,json" as words.
static void completion_choices(const char *choices, FILE *file)
{
    for (const char *c = choices; *c; c++)
        fputc(*c == ',' ? ' ' : *c, file);
}

static void completion_bash_choices(const struct verb *const *verbs, FILE *file)
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
            completion_choices(spec->choices, file);
            fputs("' ;;\n", file);
        }
    }
    fputs("    *) words= ;;\n    esac\n", file);
}

static void completion_bash_options(const struct verb *const *verbs, FILE *file)
{
    fputs("        case $verb in\n", file);
    for (; *verbs; verbs++) {
        fprintf(file, "        %s) words='--help", (*verbs)->name);
        for (const struct option_spec *spec = (*verbs)->options; spec && spec->name; spec++)
            if (spec->help)
                fprintf(file, " --%s", spec->name);
        fputs("' ;;\n", file);
    }
    fputs("        esac\n", file);
}

static void completion_bash(const struct verb *const *verbs, FILE *file)
{
    fputs("# Completion of upgate for bash, made from its option tables. Without words of its own it\n"
          "# completes file names.\n"
          "_upgate()\n{\n"
          "    local word=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD-1]}\n"
          "    local verb=${COMP_WORDS[1]} words i\n"
          "    if ((COMP_CWORD == 1)) || [[ $COMP_CWORD == 2 && $verb == help ]]; then\n"
          "        COMPREPLY=($(compgen -W '",
            file);
    for (const struct verb *const *verb = verbs; *verb; verb++)
        fprintf(file, "%s ", (*verb)->name);
    fputs("help --help --version' -- \"$word\"))\n        return\n    fi\n", file);
    fputs("    for ((i = 2; i < COMP_CWORD; i++)); do\n"
          "        [[ ${COMP_WORDS[i]} == -- ]] || continue\n"
          "        declare -F _command_offset >/dev/null && _command_offset $((i + 1)) # of bash-completion\n"
          "        return\n"
          "    done\n",
            file);
    // "--format=js" arrives as three words, because "=" breaks words.
    fputs("    if [[ $previous == = ]]; then\n"
          "        previous=${COMP_WORDS[COMP_CWORD-2]}\n"
          "    elif [[ $word == = ]]; then\n"
          "        word=\n"
          "    fi\n",
            file);
    completion_bash_choices(verbs, file);
    fputs("    if [[ ! $words && $word == -* ]]; then\n", file);
    completion_bash_options(verbs, file);
    fputs("    fi\n    [[ $words ]] && COMPREPLY=($(compgen -W \"$words\" -- \"$word\"))\n"
          "}\ncomplete -o default -F _upgate upgate\n",
            file);
}

// For zsh within '…', within [ ] or behind a colon: neither ends there.
static void completion_zsh_text(const char *text, FILE *file)
{
    for (; *text; text++) {
        if (*text == '\'')
            fputs("'\\''", file);
        else if (*text == '[' || *text == ']' || *text == ':' || *text == '\\')
            fprintf(file, "\\%c", *text);
        else
            fputc(*text, file);
    }
}

// '(-o --output)'{-o+,--output=}'[what it does]:FILE:_files'
static void completion_zsh_option(const struct option_spec *spec, FILE *file)
{
    bool valued = spec->value || spec->choices;
    fputs("            ", file);
    if (spec->kind == OPTION_COUNT)
        fprintf(file, "'*'{-%c,--%s}'", spec->letter, spec->name);
    else if (spec->letter)
        fprintf(file, "'(-%c --%s)'{-%c%s,--%s%s}'", spec->letter, spec->name, spec->letter,
                valued ? "+" : "", spec->name, valued ? "=" : "");
    else
        fprintf(file, "'--%s%s", spec->name, valued ? "=" : "");
    fputc('[', file);
    completion_zsh_text(spec->help, file);
    fputc(']', file);
    if (spec->choices) {
        fputs(":value:(", file);
        completion_choices(spec->choices, file);
        fputc(')', file);
    } else if (spec->value) {
        fputc(':', file);
        completion_zsh_text(spec->value, file);
        fputs(":_files", file);
    }
    fputs("' \\\n", file);
}

static void completion_zsh(const struct verb *const *verbs, FILE *file)
{
    fputs("#compdef upgate\n# Completion of upgate for zsh, made from its option tables.\n"
          "_upgate()\n{\n    local verb=$words[2] end=${words[(i)--]}\n    local -a verbs options\n    verbs=(\n",
            file);
    for (const struct verb *const *verb = verbs; *verb; verb++) {
        fprintf(file, "        '%s:", (*verb)->name);
        completion_zsh_text((*verb)->summary, file);
        fputs("'\n", file);
    }
    fputs("        'help:Explain a verb.'\n    )\n"
          "    if ((CURRENT == 2)) || [[ $CURRENT == 3 && $verb == help ]]; then\n"
          "        _describe verb verbs\n"
          "        ((CURRENT == 2)) && compadd -- --help --version\n"
          "        return\n"
          "    fi\n"
          "    if ((end < CURRENT)); then # another command\n"
          "        shift $end words\n"
          "        ((CURRENT -= end))\n"
          "        _normal\n"
          "        return\n"
          "    fi\n"
          "    case $verb in\n",
            file);
    for (const struct verb *const *verb = verbs; *verb; verb++) {
        fprintf(file, "    %s)\n        options=(\n", (*verb)->name);
        for (const struct option_spec *spec = (*verb)->options; spec && spec->name; spec++)
            if (spec->help)
                completion_zsh_option(spec, file);
        fputs("            '(-h --help)'{-h,--help}'[print the help and stop]'\n        ) ;;\n",
                file);
    }
    fputs("    *) options=() ;;\n    esac\n"
          "    shift words\n    ((CURRENT--))\n"
          "    _arguments -s $options '*:file:_files'\n}\n"
          "if [[ $zsh_eval_context[-1] == loadautofunc ]]; then # a file of $fpath\n    _upgate \"$@\"\n"
          "else # eval \"$(upgate --print-completion zsh)\"\n    compdef _upgate upgate\nfi\n",
            file);
}

// For fish within '…'.
static void completion_fish_text(const char *text, FILE *file)
{
    for (; *text; text++) {
        if (*text == '\'' || *text == '\\')
            fputc('\\', file);
        fputc(*text, file);
    }
}

static void completion_fish_option(const char *verb, const struct option_spec *spec, FILE *file)
{
    fprintf(file, "complete -c upgate -n '__upgate_verb %s' -l %s", verb, spec->name);
    if (spec->letter)
        fprintf(file, " -s %c", spec->letter);
    if (spec->choices) {
        fputs(" -x -a '", file);
        completion_choices(spec->choices, file);
        fputc('\'', file);
    } else if (spec->value) {
        fputs(" -r", file);
    }
    fputs(" -d '", file);
    completion_fish_text(spec->help, file);
    fputs("'\n", file);
}

static void completion_fish(const struct verb *const *verbs, FILE *file)
{
    fputs("# Completion of upgate for fish, made from its option tables.\n"
          "function __upgate_verb # is this the verb, and the word one of its own?\n"
          "    set -l words (commandline -opc)\n"
          "    test (count $words) -ge 2; and test \"$words[2]\" = $argv[1]; and not contains -- -- $words\n"
          "end\n"
          "function __upgate_first # the verb is asked for, also behind help\n"
          "    set -l words (commandline -opc)\n"
          "    test (count $words) -eq 1; or test \"$words[2..-1]\" = help\n"
          "end\n"
          "complete -c upgate -n __upgate_first -f\n",
            file);
    for (const struct verb *const *verb = verbs; *verb; verb++) {
        fprintf(file, "complete -c upgate -n __upgate_first -a %s -d '", (*verb)->name);
        completion_fish_text((*verb)->summary, file);
        fputs("'\n", file);
        for (const struct option_spec *spec = (*verb)->options; spec && spec->name; spec++)
            if (spec->help)
                completion_fish_option((*verb)->name, spec, file);
        fprintf(file,
                "complete -c upgate -n '__upgate_verb %s' -s h -l help -d 'print the help and stop'\n",
                (*verb)->name);
    }
    fputs("complete -c upgate -n __upgate_first -a help -d 'Explain a verb.'\n"
          "complete -c upgate -n __upgate_first -l help -d 'print the help and stop'\n"
          "complete -c upgate -n __upgate_first -l version -d 'print version and commit, and stop'\n",
            file);
}

int completion_print(const char *shell, const struct verb *const *verbs, FILE *file)
{
    static const struct {
        const char *name;
        void (*print)(const struct verb *const *verbs, FILE *file);
    } shells[] = {{"bash", completion_bash}, {"zsh", completion_zsh}, {"fish", completion_fish}};
    for (size_t i = 0; i < sizeof shells / sizeof *shells; i++) {
        if (strcmp(shells[i].name, shell) == 0) {
            shells[i].print(verbs, file);
            return 0;
        }
    }
    return -EINVAL;
}

import { commandTexts } from '../command-table.ts';
import { type CommandText, globalOptions } from '../command-texts.ts';

const shells = ['bash', 'zsh', 'fish'] as const;
export type Shell = (typeof shells)[number];
/** Whether resizectl has a completion script for this shell. */
export const isShell = (text: string): text is Shell => shells.some((shell) => shell === text);

/** Returns a completion script, generated from the command table. The script lists the pods each time it runs. */
export function completionScript(shell: Shell): string {
  switch (shell) {
    case 'bash':
      return bash();
    case 'zsh':
      // zsh runs bash completions through bashcompinit.
      return `#compdef resizectl\nautoload -U +X bashcompinit && bashcompinit\n${bash()}`;
    case 'fish':
      return fish();
  }
}

/** The flags in `-o, --output <FORMAT>`: `-o` and `--output`. */
const flagsOf = (texts: readonly { readonly flags: string }[]): string[] =>
  texts.flatMap(({ flags }) => flags.match(/--?[a-z-]+/g) ?? []);

const firstWords = [...new Set(commandTexts.map(({ name }) => name.split(' ').slice(0, 1).join()))];
const secondWords = (first: string): string[] =>
  commandTexts.flatMap(({ name }) => (name.startsWith(`${first} `) ? [name.slice(first.length + 1)] : []));
/** The name of a command, also with the aliases of its last word. */
const namesOf = ({ name, aliases = [] }: CommandText): readonly string[] => [
  name,
  ...aliases.map((alias) => name.replace(/\S+$/, alias)),
];
const completes = ({ arguments: [first] }: CommandText): 'pods' | readonly string[] => first?.completes ?? [];

/** The first words of commands with two words. */
const groups = firstWords.filter((first) => secondWords(first).length > 0);

const allOptions = [...globalOptions, ...commandTexts.flatMap((text) => text.options)];
/** The flags that have a value. */
const withValue = [...new Set(flagsOf(allOptions.filter(({ flags }) => flags.includes('<'))))];

/** Cases of bash for the flags whose value is one of some words. */
const chosenValues = (): readonly string[] =>
  allOptions.flatMap((option) => {
    if (option.choices === undefined) return [];
    const words = option.choices.join(' ');
    return [`    ${flagsOf([option]).join('|')}) COMPREPLY=($(compgen -W '${words}' -- "$cur")); return ;;`];
  });

function bash(): string {
  const cases = firstWords.map((first) => {
    const rest = secondWords(first);
    return rest.length > 0 ? `    ${first}) [ -z "$sub" ] && words='${rest.join(' ')}' ;;` : undefined;
  });
  const texts = commandTexts.map((text) => {
    const words = completes(text);
    const given = words === 'pods' ? 'words=$(resizectl get pods -o name 2>/dev/null)' : `words='${words.join(' ')}'`;
    return `    ${namesOf(text)
      .map((name) => `'${name}'`)
      .join('|')}) flags="$flags ${flagsOf(text.options).join(' ')}"; [ "$after" = 0 ] && ${given} ;;`;
  });
  return `_resizectl() {
  local cur=\${COMP_WORDS[COMP_CWORD]} prev=\${COMP_WORDS[COMP_CWORD-1]} first= sub= after=0 word i words=
  local flags='${flagsOf(globalOptions).join(' ')} --help'
  case $prev in
${chosenValues().join('\n')}
    --endpoint|--config) COMPREPLY=($(compgen -f -- "$cur")); return ;;
    ${withValue.join('|')}) return ;;
  esac
  for ((i = 1; i < COMP_CWORD; i++)); do
    word=\${COMP_WORDS[i]}
    case $word in
      ${withValue.join('|')}) i=$((i + 1)) ;;
      -*) ;;
      *) if [ -z "$first" ]; then first=$word
         elif [ -z "$sub" ] && [[ " ${groups.join(' ')} " = *" $first "* ]]; then sub=$word
         else after=$((after + 1)); fi ;;
    esac
  done
  [ -z "$first" ] && words='${firstWords.join(' ')}'
  case $first in
${cases.filter((line) => line !== undefined).join('\n')}
  esac
  case \${first}\${sub:+ }$sub in
${texts.join('\n')}
  esac
  [[ $cur == -* ]] && words=$flags
  COMPREPLY=($(compgen -W "$words" -- "$cur"))
}
complete -F _resizectl resizectl
`;
}

function fish(): string {
  const quoted = (text: string): string => `'${text.replaceAll('\\', '\\\\').replaceAll("'", "\\'")}'`;
  const one = (condition: string, words: string, what: string): string =>
    `complete -c resizectl -f -n ${quoted(condition)} -a ${quoted(words)} -d ${quoted(what)}`;
  const lines = ['complete -c resizectl -f', ...globalOptions.map((option) => flagLine(option, 'true'))];
  for (const text of commandTexts) {
    const [first = '', sub] = text.name.split(' ');
    const seen =
      sub === undefined
        ? `__fish_seen_subcommand_from ${first}`
        : `__fish_seen_subcommand_from ${first}; and __fish_seen_subcommand_from ${sub}`;
    lines.push(
      sub === undefined
        ? one('__fish_use_subcommand', first, text.summary)
        : one(
            `__fish_seen_subcommand_from ${first}; and not __fish_seen_subcommand_from ${secondWords(first).join(' ')}`,
            sub,
            text.summary,
          ),
    );
    const words = completes(text);
    if (words === 'pods') lines.push(one(seen, '(resizectl get pods -o name 2>/dev/null)', 'pod'));
    else if (words.length > 0) lines.push(one(seen, words.join(' '), ''));
    lines.push(...text.options.map((option) => flagLine(option, seen)));
  }
  for (const first of firstWords.filter((word) => secondWords(word).length > 0))
    lines.push(one('__fish_use_subcommand', first, `${first} ${secondWords(first).join(', ')}`));
  return `${lines.join('\n')}\n`;

  function flagLine({ flags, description, choices }: (typeof globalOptions)[number], condition: string): string {
    const [, long = ''] = /--([a-z-]+)/.exec(flags) ?? [];
    const [, short] = /^-([a-z]),/.exec(flags) ?? [];
    const value = flags.includes('<') ? ` -x${choices === undefined ? '' : ` -a ${quoted(choices.join(' '))}`}` : '';
    return `complete -c resizectl -n ${quoted(condition)} -l ${long}${short === undefined ? '' : ` -s ${short}`}${value} -d ${quoted(description)}`;
  }
}

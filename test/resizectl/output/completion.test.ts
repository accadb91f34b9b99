import { execFileSync } from 'node:child_process';
import { describe, expect, test } from 'vitest';
import { commandTexts } from '../../../src/resizectl/command-table.ts';
import { completionScript } from '../../../src/resizectl/output/completion.ts';

describe('completionScript', () => {
  /** Returns what bash offers for these words, with a fake `resizectl` that lists two pods. */
  function offered(...words: string[]): string[] {
    const script = `
      resizectl() { [ "$*" = 'get pods -o name' ] && printf 'default/web\\ndefault/db\\n'; }
      ${completionScript('bash')}
      COMP_WORDS=("$@"); COMP_CWORD=$((\${#COMP_WORDS[@]} - 1)); _resizectl; printf '%s\\n' "\${COMPREPLY[@]}"`;
    const out = execFileSync('bash', ['-c', script, 'bash', 'resizectl', ...words], { encoding: 'utf8' });
    return out.split('\n').filter(Boolean);
  }

  test('offers commands, pods and options in bash', () => {
    expect(offered('').sort()).toEqual([...new Set(commandTexts.map(({ name }) => name.split(' ')[0]!))].sort());
    expect(offered('re')).toEqual(['resize']);
    expect(offered('get', '')).toEqual(['pods', 'pod']);
    expect(offered('get', 'pod', 'default/w')).toEqual(['default/web']);
    expect(offered('describe', 'pod', '')).toEqual(['default/web', 'default/db']);
    expect(offered('get', 'pods', '')).toEqual(['default/web', 'default/db']);
    expect(offered('get', 'po', '')).toEqual(['default/web', 'default/db']);
    expect(offered('resize', '--timeout', '5s', '')).toEqual(['default/web', 'default/db']);
    expect(offered('resize', 'web', '')).toEqual([]);
    expect(offered('resize', '--d')).toEqual(['--dry-run', '--defer']);
    expect(offered('get', 'pods', '--d')).toEqual([]);
    expect(offered('get', 'pods', '-o', 'j')).toEqual(['json']);
    expect(offered('top', '--sort-by', 'c')).toEqual(['cpu']);
    expect(offered('top', '--interval', '5s', '')).toEqual(['default/web', 'default/db']);
    expect(offered('doctor', '--kubelet-unit', 'k3s.service', '--lis')).toEqual(['--listen']);
    expect(offered('bypass', '')).toEqual(['on', 'off', 'drain']);
    expect(offered('bypass', 'on', '')).toEqual([]);
    expect(offered('completion', '')).toEqual(['bash', 'zsh', 'fish']);
  });

  test('has all commands and options for fish, and a script for zsh', () => {
    expect(completionScript('zsh')).toMatch(/^#compdef resizectl\n/);
    const fish = completionScript('fish');
    for (const { name, options } of commandTexts) {
      expect(fish).toContain(`-a '${name.split(' ').at(-1)!}'`);
      for (const { flags } of options) expect(fish).toContain(`-l ${/--([a-z-]+)/.exec(flags)![1]!}`);
    }
    const groups = fish.split('\n').filter((line) => line.includes(`-n '__fish_use_subcommand' -a '`));
    expect(groups.find((line) => line.includes("-a 'config'"))).toMatch(/-d 'config check, show'$/);
    expect(groups.find((line) => line.includes("-a 'bypass'"))).toMatch(/-d 'bypass on, off, drain'$/);
    expect(fish.split('\n').filter((line) => line !== '' && !line.startsWith('complete -c resizectl '))).toEqual([]);
  });
});

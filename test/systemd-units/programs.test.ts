import { readFileSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';

/** Programs whose SELinux type lets systemd start them without a type of their own (bin_t, shell_exec_t). */
const common = ['/usr/bin/env', '/usr/bin/systemctl', '/bin/sh', '/bin/true'];

test.each(readdirSync('systemd'))('%s starts no program with an SELinux type of its own', (unit) => {
  const text = readFileSync(join('systemd', unit), 'utf8');
  const started = [...text.matchAll(/^Exec\w+=[-+]*(\S+)/gm)].map(([, program]) => program);
  expect(started.filter((program) => !common.includes(program!))).toEqual([]);
});

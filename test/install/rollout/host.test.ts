import { chmodSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { Exit } from '../../../src/core/errors.ts';
import { outcomeOf, thisHost } from '../../../src/install/rollout/host.ts';

describe('programs on the host', () => {
  let folder: string;
  const path = process.env['PATH'];
  beforeEach(() => {
    folder = mkdtempSync(join(tmpdir(), 'host-'));
    process.env['PATH'] = `${folder}:${path}`;
  });
  afterEach(() => {
    process.env['PATH'] = path;
    rmSync(folder, { recursive: true });
  });
  /** Replaces nsenter, which enters the host. */
  function onHost(script: string): void {
    writeFileSync(join(folder, 'nsenter'), `#!/bin/sh\necho "$*" >>${folder}/calls\n${script}\n`);
    chmodSync(join(folder, 'nsenter'), 0o755);
  }

  test('resizectl runs in a unit of the host, by env, and its output is logged and returned', async () => {
    onHost('echo "done: a"; echo "failed: b" >&2; exit 1');
    const lines: string[] = [];
    const result = await thisHost('/staged', (line) => void lines.push(line)).resizectl(['install', '--timeout', '2m']);
    expect(result.code).toBe(1);
    expect(result.lines.toSorted()).toEqual(['done: a', 'failed: b']);
    expect(lines.toSorted()).toEqual(['  done: a', '  failed: b']);
    expect(readFileSync(join(folder, 'calls'), 'utf8')).toMatch(
      /^--target 1 --mount -- systemd-run .*--wait .*-- \/usr\/bin\/env \/staged\/bin\/node \/staged\/dist\/resizectl.js install --timeout 2m\n$/,
    );
  });

  test('the run of the shim is that of systemd', async () => {
    onHost('echo ActiveState=active; echo InvocationID=0f');
    const host = thisHost('/staged', () => undefined);
    expect(await host.shim()).toEqual({ isActive: true, run: '0f' });
    onHost('echo InvocationID=; echo ActiveState=activating');
    expect(await host.shim()).toEqual({ isActive: false, run: '' });
  });

  test('a systemd that does not answer is an error', async () => {
    onHost('exit 1');
    await expect(thisHost('/staged', () => undefined).shim()).rejects.toThrow('exit code 1');
  });
});

describe('the outcome of resizectl on the host', () => {
  const busy = 'resizectl: nothing was changed: another installation runs (pid 7)';
  const notRun = "the image's Node does not run on this host: ";

  test.each([
    [0, [], { kind: 'done' }],
    [2, ['failed: cgroups: v1', ''], { kind: 'refused', why: 'failed: cgroups: v1' }],
    [Exit.busy, [`${busy}; what to do: x`], { kind: 'refused', why: `${busy}; what to do: x` }],
    [1, ['Failed to connect to bus: no'], { kind: 'refused', why: 'Failed to connect to bus: no' }],
    [127, ['nsenter: failed to execute x'], { kind: 'refused', why: 'nsenter: failed to execute x' }],
    [1, ['done: x', 'resizectl: kubelet did not start'], { kind: 'failed', why: 'resizectl: kubelet did not start' }],
    [
      6,
      ['failed: a: no', 'NOT rolled back: b: no', 'left in place: c'],
      { kind: 'failed', why: 'failed: a: no; NOT rolled back: b: no; left in place: c' },
    ],
    [1, [], { kind: 'failed', why: 'resizectl ended with exit code 1' }],
    [126, ['env: ‘node’: Permission denied'], { kind: 'refused', why: `${notRun}env: ‘node’: Permission denied` }],
    [127, ['libatomic.so.1: no such file'], { kind: 'refused', why: `${notRun}libatomic.so.1: no such file` }],
  ])('the outcome follows from exit code %i and the output %j', (code, lines, outcome) => {
    expect(outcomeOf({ code, lines })).toEqual(outcome);
  });
});

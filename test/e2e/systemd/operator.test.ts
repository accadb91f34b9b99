import { existsSync, lstatSync, mkdirSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { dirname } from 'node:path';
import { execa } from 'execa';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { MiB } from '../../../src/core/quantities/sizes.ts';
import { applyChanges } from '../../../src/install/host/change.ts';
import { removing, writing } from '../../../src/install/host/files.ts';
import { CriClient } from '../../support/cri/client.ts';
import type { RunningPod } from '../../support/cri/pod.ts';
import {
  CONFIG,
  CONTAINERD,
  calledThrough,
  FLAGS,
  failedCalls,
  kubeletConfig,
  OURS,
  property,
  REFUSES,
  SETTINGS,
  startKubelet,
  states,
  stopKubelet,
  UNIT,
} from '../../support/e2e/kubelet-unit.ts';
import { startSystemdNode } from '../../support/e2e/systemd-node.ts';

// The actions of an operator in an incident, on a node where systemd is the first process. kubelet is a fake that
// reports each call.

const SERVICE = 'cri-resize-shim.service';
let direct: CriClient;
let pod: RunningPod;

beforeAll(async () => {
  ({ direct, pod } = await startSystemdNode(['a']));
});
afterAll(async () => {
  await pod.remove();
  direct.close();
});
afterEach(async () => {
  await resizectl('uninstall');
  await stopKubelet();
});

interface Ended {
  readonly text: string;
  readonly code: number | undefined;
}

async function run(file: string, args: readonly string[]): Promise<Ended> {
  const { all, exitCode } = await execa(file, args, { reject: false, all: true });
  return { text: all, code: exitCode };
}
const resizectl = (...args: readonly string[]): Promise<Ended> => run('node', ['dist/resizectl.js', ...args]);

async function done(...args: readonly string[]): Promise<string> {
  const { text, code } = await resizectl(...args);
  expect(code, text).toBe(0);
  return text;
}

/** Raises the limit of the container, and returns the limit of the pod after it. */
async function podLimitAfter(limit: number): Promise<number> {
  const cri = new CriClient(OURS);
  try {
    await cri.updateContainer(pod.id('a'), { memory_limit_in_bytes: limit });
  } finally {
    cri.close();
  }
  return Number(pod.read('memory.max'));
}

describe('resizectl off and on', () => {
  beforeEach(() => startKubelet(`--config=${CONFIG}`));

  test('resizectl off and on change one value of the configuration file, and kubelet stays connected', async () => {
    const behind = '/etc/cri-resize-shim-own.yaml';
    const text = '# ours\nlogLevel: info # as before\n';
    mkdirSync(dirname(SETTINGS));
    writeFileSync(behind, text);
    symlinkSync(behind, SETTINGS);
    await done('install');
    await calledThrough(OURS);
    const [failed, kubelet] = [failedCalls().length, await property('kubelet.service', 'MainPID')];
    try {
      expect(await done('off', '--dry-run')).toMatch(/^would: write .*intercept: false.*restart/m);
      expect(await done('off')).toContain('off: the shim forwards every call unchanged');
      expect(readFileSync(behind, 'utf8')).toBe(`${text}intercept: false\n`);
      expect(lstatSync(SETTINGS).isSymbolicLink()).toBe(true);
      await calledThrough(OURS);
      expect(await property(SERVICE, 'StatusText')).toContain('intercept is off');
      const before = Number(pod.read('memory.max'));
      expect(await podLimitAfter(80 * MiB)).toBe(before);
      // A pod limit below the sum of its containers is foreign to the shim, which leaves it as it is.
      expect(await podLimitAfter(64 * MiB)).toBe(before);

      const doctor = await resizectl('doctor');
      expect(doctor.text).toMatch(/^shim +ok +serves .*, off by configuration \(intercept: false\)/m);
      expect(doctor.text).toMatch(/^configuration +ok +.*off by configuration/m);
      expect(doctor.text).not.toMatch(/ failed /);
      // Healthy for the installer, too.
      expect(await done('install', '--dry-run')).not.toContain('would:');
      expect(await done('install')).not.toContain('done:');
      expect(await done('off')).toContain('already: ');
      const shown = JSON.parse(await done('config', 'show', '-o', 'json')) as { settings: { key: string }[] };
      expect(shown.settings.find(({ key }) => key === 'intercept')).toEqual({
        ...{ key: 'intercept', value: false, from: 'file' },
        ...{ file: SETTINGS, line: 3 },
      });

      expect(await done('on')).toContain('on: the shim acts on resizes');
      expect(readFileSync(behind, 'utf8')).toBe(`${text}intercept: true\n`);
      await calledThrough(OURS);
      expect((await resizectl('doctor')).text).toMatch(/^shim +ok +serves .*, ready/m);
    } finally {
      rmSync(behind);
    }
    expect(failedCalls().length).toBe(failed);
    expect(await property('kubelet.service', 'MainPID')).toBe(kubelet);
  });

  test('resizectl off is rejected and changes nothing if a flag takes precedence', async () => {
    await done('install');
    const [flags, config] = [readFileSync(FLAGS, 'utf8'), readFileSync(SETTINGS, 'utf8')];
    writeFileSync(FLAGS, flags.replace(/"\n$/, ' --intercept=true"\n'));
    const { text, code } = await resizectl('off');
    expect(text).toContain('has the flag --intercept, which takes precedence');
    expect(code).toBe(2);
    expect(readFileSync(SETTINGS, 'utf8')).toBe(config);
  });
});

describe('an invalid configuration file', () => {
  beforeEach(() => startKubelet(`--config=${CONFIG}`));

  test('install rejects an invalid configuration file, and a running shim that reads it forwards every call and reports why', async () => {
    await done('install');
    await calledThrough(OURS);
    const failed = failedCalls().length;
    const valid = readFileSync(SETTINGS, 'utf8');
    writeFileSync(SETTINGS, `${valid}\nlogLevl: debug\n`);
    const problem = /config\.yaml:\d+:1: logLevl: unknown key \(did you mean logLevel\?\)/;
    expect(await resizectl('config', 'check')).toMatchObject({
      code: 1,
      text: expect.stringMatching(problem) as string,
    });
    expect(await resizectl('install')).toMatchObject({ code: 2, text: expect.stringMatching(problem) as string });

    await execa('systemctl', ['restart', SERVICE]);
    await calledThrough(OURS);
    expect(await states()).toEqual(['active', 'active', 'active']);
    expect(await property('cri-resize-shim-bypass.service', 'ActiveState')).toBe('inactive');
    expect(await property(SERVICE, 'StatusText')).toMatch(problem);
    const before = Number(pod.read('memory.max'));
    expect(await podLimitAfter(before - MiB)).toBe(before);
    const doctor = await resizectl('doctor');
    expect(doctor.text).toMatch(/^configuration +failed +.*logLevl/m);
    expect(doctor.text).toMatch(/^shim +warning +.*acts on no resize: .*logLevl/m);
    expect(doctor.code).toBe(2);
    const { stdout: journal } = await execa('journalctl', [
      '-u',
      SERVICE,
      '--output=cat',
      '--no-pager',
      '-p',
      'warning',
    ]);
    expect(journal).toMatch(problem);
    // A start that says why it fails, before there is a log: its prefix is taken off.
    expect(journal).toMatch(/^cri-resize-shim: .*logLevl/m);

    const file = '/root/valid.yaml';
    writeFileSync(file, valid);
    try {
      expect(await done('install', '--config', file)).toContain(`done: write ${SETTINGS}`);
    } finally {
      rmSync(file);
    }
    expect((await resizectl('doctor')).text).toMatch(/^shim +ok +serves .*, ready/m);
    expect(failedCalls().length).toBe(failed);
  });
});

/** Removes the program and stops the units that kubelet uses, which an operator should never do. */
async function breakShim(): Promise<void> {
  await execa('systemctl', ['stop', 'cri-resize-shim.socket', SERVICE]);
  rmSync('/usr/local/lib/cri-resize-shim', { recursive: true });
  await execa('systemctl', ['restart', 'kubelet.service']);
}

describe('a node without the program of the shim', () => {
  /** The four lines that doctor prints. */
  async function linesBack(): Promise<string> {
    const { text, code } = await resizectl('doctor');
    expect(text).toMatch(/^kubelet runtime +failed +kubelet uses .*this node has no container runtime$/m);
    expect(code, text).toBe(2);
    const [, lines = ''] = /no program of the shim:\n((?: +.*(?:\n|$)){4})/.exec(text) ?? [];
    expect(lines, text).not.toBe('');
    return lines.replaceAll(/^ +/gm, '');
  }

  const readme = (file: string): string => readFileSync(file, 'utf8');

  afterEach(() => rmSync(`${CONFIG}.before-cri-resize-shim`, { force: true }));

  test.each(['config.yaml', 'a flag'])(
    'the four lines of shell from doctor restore a node without the program of the shim: endpoint in %s',
    async (place) => {
      const isFlag = place === 'a flag';
      const flag = `--container-runtime-endpoint=${CONTAINERD}`;
      await startKubelet(isFlag ? flag : `--config=${CONFIG}`);
      await done('install');
      await calledThrough(OURS);
      await breakShim();
      const lines = await linesBack();
      for (const page of ['README.md', 'docs/troubleshooting.md'])
        for (const line of lines.trimEnd().split('\n')) expect(readme(page)).toContain(line);
      const { text, code } = await run('sh', ['-c', lines]);
      expect(code, text).toBe(0);
      await calledThrough(CONTAINERD);
      expect(readFileSync(CONFIG, 'utf8')).toBe(kubeletConfig);
      if (isFlag) expect(readFileSync(UNIT, 'utf8')).toContain(flag);
      expect((await states()).slice(0, 2)).toEqual(['inactive', 'inactive']);
      expect(pod.read('cgroup.procs', 'a')).toMatch(/^\d+$/m);
    },
  );
});

test('an installation repairs a kubelet that ends after each start because nothing serves the shim’s socket', async () => {
  await startKubelet(`--config=${CONFIG}`);
  await done('install');
  await calledThrough(OURS);
  // The fake kubelet exits at its start, as kubelet does without its runtime.
  writeFileSync(REFUSES, OURS);
  try {
    await breakShim();
    const loops = /^kubelet +failed +kubelet.service ends again after each start \(.*last end: exit code 1\)/m;
    await expect.poll(async () => (await resizectl('doctor')).text, { timeout: 60_000, interval: 200 }).toMatch(loops);
    const { text } = await resizectl('doctor');
    expect(text).toMatch(/^kubelet runtime +failed +kubelet uses .*this node has no container runtime$/m);
    await done('install');
  } finally {
    rmSync(REFUSES);
  }
  await calledThrough(OURS);
  // Simulates an upgrade that repairs the shim, whose failure ended kubelet.
  await execa('systemctl', ['restart', 'cri-resize-shim.service']);
  expect((await resizectl('doctor')).text).toMatch(
    /^kubelet +warning +.*, restarted by systemd .*, not since the shim started/m,
  );
});

describe('a node that cannot be written', () => {
  const file = CONFIG;
  beforeEach(() => startKubelet(`--config=${CONFIG}`));

  test.each([
    ['immutable', ['chattr', '+i', file], ['chattr', '-i', file], /cannot be written: it is immutable/],
    ['bind-mounted', ['mount', '--bind', file, file], ['umount', file], /is a mount of its own/],
    [
      'on a read-only file system',
      ['sh', '-c', `mount --bind ${file} ${file} && mount -o remount,bind,ro ${file}`],
      ['umount', file],
      /cannot be written: its file system is read-only/,
    ],
  ] as const)(
    'install and its dry run reject a kubelet configuration that is %s, and change nothing',
    async (_, lock, unlock, why) => {
      await execa(lock[0], lock.slice(1));
      try {
        for (const args of [['install', '--dry-run'], ['install']]) {
          const { text, code } = await resizectl(...args);
          expect(text).toMatch(/nothing was changed, because this is not possible: /);
          expect(text).toMatch(why);
          expect(code, text).toBe(2);
        }
        expect(existsSync(SETTINGS)).toBe(false);
        expect(existsSync(`${file}.before-cri-resize-shim`)).toBe(false);
        expect(await states()).toEqual(['inactive', 'inactive', 'inactive']);

        // Applies the changes without the check beforehand: no change was needed, so all are rolled back.
        const lines: string[] = [];
        const changes = [writing('/root/first', 'x'), removing(file)];
        const result = await applyChanges(changes, (line) => lines.push(line), new AbortController().signal);
        expect([result, existsSync('/root/first')], lines.join('\n')).toEqual(['undone', false]);
        expect(readFileSync(file, 'utf8')).toBe(kubeletConfig);
      } finally {
        await execa(unlock[0], unlock.slice(1));
      }
    },
  );
});

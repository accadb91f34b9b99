import { chmodSync, chownSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { dirname } from 'node:path';
import { execa } from 'execa';
import { afterEach, beforeAll, describe, expect, test } from 'vitest';
import { isSystemdNode } from '../../support/cri/pod-cgroup.ts';

/** doctor's kubelet findings with a real systemd, which expands and restarts the unit and writes the journal. */

// On a node where systemd is the first process: npm run node -- --init systemd

const UNIT = '/etc/systemd/system/kubelet.service';
const FOLDER = '/etc/kubelet-test';
const PROGRAM = '/opt/kubelet-test/kubelet';
/** The command line with which systemd started the program, one word per line. */
const WORDS = '/run/kubelet-test-words';
const OURS = 'unix:///run/cri-resize-shim/cri-resize-shim.sock';

beforeAll(() => expect(isSystemdNode, 'this file is for a node with systemd').toBe(true));
afterEach(async () => {
  await execa('systemctl', ['stop', 'kubelet.service'], { reject: false });
  await execa('systemctl', ['reset-failed', 'kubelet.service'], { reject: false });
  for (const path of [UNIT, FOLDER, dirname(PROGRAM), WORDS]) rmSync(path, { recursive: true, force: true });
  await execa('systemctl', ['daemon-reload']);
  await execa('systemctl', ['unset-environment', 'HANDED_DOWN']);
});

function put(file: string, text: string): void {
  mkdirSync(dirname(file), { recursive: true });
  writeFileSync(file, text);
}

/** Starts a script as kubelet. @param ends the commands after it has stored its words */
async function start(lines: readonly string[], ends = 'sleep infinity & wait'): Promise<void> {
  put(PROGRAM, `#!/bin/bash\nprintf '%s\\n' "$@" > ${WORDS}\n${ends}\n`);
  chmodSync(PROGRAM, 0o755);
  put(
    UNIT,
    ['[Unit]', 'StartLimitIntervalSec=0', '[Service]', 'Restart=always', 'RestartSec=1', ...lines, ''].join('\n'),
  );
  await execa('systemctl', ['daemon-reload']);
  await execa('systemctl', ['start', 'kubelet.service'], { reject: false });
}

interface Said {
  readonly result: string;
  readonly found: string;
  readonly remedy: string;
}

/** @param wrapper starts it */
async function doctor(...wrapper: readonly string[]): Promise<Said> {
  const [program, ...args] = [...wrapper, 'node', 'dist/resizectl.js', 'doctor', '-o', 'json'];
  const { stdout } = await execa(program, args, { reject: false });
  const { checks } = JSON.parse(stdout) as { readonly checks: readonly (Said & { readonly check: string })[] };
  return checks.find(({ check }) => check === 'kubelet')!;
}

/** Runs doctor until its finding matches. Returns the last finding. */
async function said(pattern: RegExp): Promise<Said> {
  let last = await doctor();
  await expect.poll(async () => (last = await doctor()).found, { timeout: 90_000, interval: 100 }).toMatch(pattern);
  return last;
}

/** Returns the endpoint in the command line that systemd passed to the program. */
async function startedWith(): Promise<string | undefined> {
  const words = (): readonly string[] => readFileSync(WORDS, 'utf8').split('\n');
  await expect.poll(words, { timeout: 30_000, interval: 100 }).not.toEqual([]);
  return words()
    .findLast((word) => word.startsWith('--container-runtime-endpoint='))
    ?.replace(/^[^=]*=/, '');
}

describe('a kubelet that does not run', () => {
  const flag = (name: string): string => `--container-runtime-endpoint=unix:///${name}.sock`;
  const A = `ExecStart=${PROGRAM} $A`;
  const env = (name: string, options = ''): string => `EnvironmentFile=${options}${FOLDER}/${name}`;

  test.each<[string, readonly string[], Readonly<Record<string, string>>, string | undefined]>([
    ['a value of several lines', [env('1'), A], { 1: `A="--v=1\n${flag('lines')}\n--v=2"\n` }, 'lines'],
    [
      'a continued line',
      [env('1'), A],
      { 1: `A=--v=1 \\\n  --container-\\\nruntime-endpoint=unix:///continued.sock\n` },
      'continued',
    ],
    [
      'a comment between quotes',
      [env('1'), A],
      { 1: `B='\n# A=x\n'\nA='${flag('quoted')}' # no comment\n` },
      undefined,
    ],
    [
      'a pattern, whose last file wins',
      [env('*.env'), A],
      { '_.env': `A=${flag('_')}\n`, 'B.env': `A=${flag('B')}\n`, '.z.env': `A=${flag('z')}\n` },
      '_',
    ],
    [
      'a file that may be missing',
      [`Environment=A=${flag('unit')}`, env('none', '-'), env('none*', '-'), A],
      {},
      'unit',
    ],
    [
      'a name that is invalid in a shell',
      [`Environment=A=${flag('unit')}`, env('1'), A],
      { 1: `export A=${flag('file')}\n` },
      'unit',
    ],
    ['a value of several lines in the unit', [String.raw`Environment="A=--v=1\n${flag('escaped')}"`, A], {}, 'escaped'],
    [
      'a variable that is unset',
      [`Environment=A=${flag('a')} B=${flag('b')}`, 'UnsetEnvironment=B', `${A} $B`],
      {},
      'a',
    ],
    ['a variable that is inherited', [`${A} $HANDED_DOWN`], {}, 'handed'],
    ['specifiers', [`ExecStart=${PROGRAM} --container-runtime-endpoint=unix:///%p%%.sock`], {}, 'kubelet%'],
    [
      'braces',
      [`Environment=DIR=dir`, `ExecStart=${PROGRAM} --container-runtime-endpoint=unix:///\${DIR}/$$.sock`],
      {},
      'dir/$',
    ],
    ['a colon', [`Environment=A=${flag('a')}`, `ExecStart=:${PROGRAM} $A ${flag('colon')}`], {}, 'colon'],
    ['another name', [`Environment=A=${flag('named')}`, `ExecStart=@${PROGRAM} hyperkube $A`], {}, 'named'],
    ['a wrapper', [`ExecStart=/usr/bin/nice -n 1 ${PROGRAM} ${flag('nice')}`], {}, 'nice'],
  ])('doctor reads the endpoint of a stopped kubelet as systemd does: %s', async (_, lines, files, expected) => {
    await execa('systemctl', ['set-environment', `HANDED_DOWN=${flag('handed')}`]);
    for (const [name, text] of Object.entries(files)) put(`${FOLDER}/${name}`, text);
    await start(lines);
    const endpoint = await startedWith();
    if (expected !== undefined) expect(endpoint).toBe(`unix:///${expected}.sock`);
    await execa('systemctl', ['stop', 'kubelet.service']);
    const { found, result } = await doctor();
    expect(found).toBe(
      `kubelet.service is inactive, configured with ${endpoint ?? ''}, not the shim (set by --container-runtime-endpoint)`,
    );
    expect(result).toBe('warning');
  });

  test('doctor reports a kubelet file that it may not read as a warning', async () => {
    const [config, environment] = [`${FOLDER}/kubelet.yaml`, `${FOLDER}/1`];
    put(config, `apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n`);
    put(environment, `A=--config=${config}\n`);
    await start([env('1', '-'), A]);
    await execa('systemctl', ['stop', 'kubelet.service']);
    for (const file of [config, environment]) {
      chmodSync(file, 0o600);
      chownSync(file, 65_534, 65_534);
      expect(await doctor('setpriv', '--bounding-set=-dac_override,-dac_read_search')).toMatchObject({
        result: 'warning',
        found: `kubelet.service is inactive: ${file} cannot be read: permission denied`,
        remedy: 'run resizectl doctor as root',
      });
    }
    expect((await doctor()).found).toMatch(/set by the default of kubelet\)$/);
  });

  test('doctor names a missing environment file of kubelet', async () => {
    await start([env('none'), A]);
    const { found, result } = await said(/ends again after each start/);
    expect(found).toMatch(
      new RegExp(
        String.raw`^kubelet.service ends again after each start \(restarted by systemd .* last end: result resources\), and systemd does not start it: EnvironmentFile: ${FOLDER}/none does not exist$`,
      ),
    );
    expect(result).toBe('failed');
  });
});

describe('a kubelet that runs', () => {
  const uses = `ExecStart=${PROGRAM} --container-runtime-endpoint=${OURS}`;
  const OK = /^uses the shim \(set by --container-runtime-endpoint\)$/;

  test('doctor reports a kubelet that ends again after each start as failed until it is repaired and restarted', async () => {
    await start([uses], 'sleep 2; exit 3');
    const alive = await said(/, and has run for /);
    expect(alive.found).toMatch(
      /^kubelet.service ends again after each start \(restarted by systemd \d+ times in the last 10 min, last end: exit code 3\), and has run for \d s now; uses the shim \(set by --container-runtime-endpoint\)$/,
    );
    expect(alive).toMatchObject({ result: 'failed', remedy: 'journalctl -u kubelet.service' });
    const dead = await said(/, configured with /);
    expect(dead.found).toMatch(
      /^kubelet.service ends again after each start \(restarted by systemd \d+ times in the last 10 min, last end: exit code 3\), configured with the shim \(set by --container-runtime-endpoint\)$/,
    );
    expect(dead.result).toBe('failed');

    put(PROGRAM, '#!/bin/bash\nsleep infinity & wait\n');
    // The restart may occur during the pause before a restart by systemd. In that case the counter continues.
    await execa('systemctl', ['reset-failed', 'kubelet.service']);
    await execa('systemctl', ['restart', 'kubelet.service']);
    expect(await doctor()).toMatchObject({ result: 'ok', found: expect.stringMatching(OK) as string });
  });

  test('doctor reports ok for a repaired kubelet that was restarted in the pause before a restart by systemd', async () => {
    await start([uses, 'RestartSec=3'], 'exit 1');
    const shown = async (): Promise<string> =>
      (await execa('systemctl', ['show', '--property=NRestarts,SubState', 'kubelet.service'])).stdout;
    await expect
      .poll(shown, { timeout: 60_000, interval: 50 })
      .toMatch(/^(?=[^]*^NRestarts=[3-9]$)(?=[^]*^SubState=auto-restart$)/m);
    put(PROGRAM, '#!/bin/bash\nsleep infinity & wait\n');
    await execa('systemctl', ['stop', 'kubelet.service']);
    await execa('systemctl', ['restart', 'kubelet.service']);
    expect(await doctor()).toMatchObject({ result: 'ok', found: expect.stringMatching(OK) as string });
    // A single end does not restore the earlier finding.
    await execa('systemctl', ['kill', '--signal=KILL', 'kubelet.service']);
    expect((await said(/restarted by systemd once in the last 10 min, last end: signal 9/)).result).toBe('ok');
  });

  test('doctor reports ok for a kubelet that was restarted by hand or killed once', async () => {
    await start([uses]);
    for (let restarts = 1; restarts <= 4; restarts += 1) await execa('systemctl', ['restart', 'kubelet.service']);
    expect(await doctor()).toMatchObject({ result: 'ok', found: expect.stringMatching(OK) as string });
    await execa('systemctl', ['kill', '--signal=KILL', 'kubelet.service']);
    const { result, found } = await said(/restarted by systemd once/);
    expect(found).toMatch(
      /; kubelet.service has run for \d+ s, restarted by systemd once in the last 10 min, last end: signal 9 \(SIGKILL\)$/,
    );
    expect(result).toBe('ok');
  });
});

import { chmodSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { execa } from 'execa';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { noLog } from '../../src/core/observe/interfaces.ts';
import { bypassTarget, writeBypassTarget } from '../../src/core/systemd/bypass.ts';
import { highsIn, leaveHighs, restoredHighs } from '../support/resize/left-highs.ts';

let folder: string;

describe('bypass', () => {
  // Runs the script of cri-resize-shim-bypass.service with a proxy that only prints its arguments.
  // test/e2e/systemd/bypass.test.ts runs it under systemd.

  const DEFAULT = '/run/k3s/containerd/containerd.sock';
  let file: string;

  beforeEach(() => {
    folder = mkdtempSync(join(tmpdir(), 'bypass-'));
    file = join(folder, 'target');
  });

  afterEach(() => rmSync(folder, { recursive: true }));

  /** The script as systemd passes it to the shell. */
  function script(): string {
    const unit = readFileSync('systemd/cri-resize-shim-bypass.service', 'utf8');
    const [, text] = /^ExecStart=\/usr\/bin\/env \/bin\/sh -c '((?:[^']|\n)*)'$/m.exec(unit)!;
    return text!
      .replaceAll('\\\n', ' ')
      .replaceAll('\\\\', '\\')
      .replaceAll('$$', () => '$')
      .replaceAll('%%', '%');
  }

  /** Returns the socket to which the proxy leads. */
  async function target(): Promise<string> {
    const proxy = join(folder, 'proxy');
    writeFileSync(proxy, '#!/bin/sh\nprintf "%s|" "$@"\n');
    chmodSync(proxy, 0o755);
    const text = script()
      .replaceAll('/var/lib/cri-resize-shim-bypass/target', file)
      .replaceAll('/usr/lib/systemd/systemd-socket-proxyd', proxy);
    const env = { CRI_RESIZE_SHIM_BYPASS_TO: DEFAULT };
    const { stdout } = await execa('/bin/sh', ['-c', text], { env });
    const [, socket] = /^--connections-max=4096\|(.*)\|$/.exec(stdout)!;
    return socket!;
  }

  test.each(['/run/containerd/containerd.sock', '/run/a "b"/$c\\d`.sock', '/run/  two  spaces\\'])(
    'the bypass leads to %s if the shim has written this target',
    async (socket) => {
      await writeBypassTarget(file, socket, noLog);
      expect([await target(), await bypassTarget(file)]).toEqual([socket, socket]);
    },
  );

  test('the bypass leads to the socket of the installation if there is no target file', async () => {
    expect(await target()).toBe(DEFAULT);
  });

  const NAME = 'CRI_RESIZE_SHIM_BYPASS_TO=';

  test.each([
    '',
    '\0'.repeat(70_000),
    'something else\n',
    'LD_PRELOAD=/nowhere.so\nPATH=/nowhere\n',
    `${NAME}\n`,
    `${NAME}""\n`,
    `${NAME}"relative.sock"\n`,
    `${NAME}"/run/containerd/contai`,
    `${NAME}"/run/containerd/containerd.sock"`,
    `${NAME}"/run/cont\0\0\0\0\0\0\0\0`,
  ])('the bypass leads to the socket of the installation if its target file has the content %j', async (text) => {
    writeFileSync(file, text);
    expect([await target(), await bypassTarget(file)]).toEqual([DEFAULT, undefined]);
  });
});

describe('fallback', () => {
  // Runs the script of cri-resize-shim-fallback.service with a systemctl and a sleep that only record their arguments.
  // test/e2e/systemd/bypass.test.ts runs it under systemd.

  const BYPASSES = ['stop cri-resize-shim-takeover.service', 'start cri-resize-shim-bypass.service'];
  const TRIES = 'start cri-resize-shim.service';

  beforeEach(() => {
    folder = mkdtempSync(join(tmpdir(), 'fallback-'));
    mkdirSync(join(folder, 'bin'));
  });

  afterEach(() => rmSync(folder, { recursive: true }));

  /** The script as systemd passes it to the shell. */
  function script(): string {
    const unit = readFileSync('systemd/cri-resize-shim-fallback.service', 'utf8');
    const [, text] = /^ExecStart=\/bin\/sh -c '((?:[^']|\n)*)'$/m.exec(unit)!;
    return text!.replaceAll('\\\n', ' ').replaceAll('$$', '$').replaceAll('%%', '%');
  }

  interface Node {
    /** The states that `systemctl show` returns, one after the other; the last one remains. */
    readonly states: readonly string[];
    /** Seconds for which the last shim has served. */
    readonly served?: number;
    readonly failures?: number;
    readonly socket?: boolean;
    /** Whether a start of the shim succeeds. */
    readonly starts?: boolean;
    /** Number of descriptors that the running bypass may open. */
    readonly descriptors?: number;
    /** Factor by which a sleep takes longer than requested, on a busy node. */
    readonly slowness?: number;
  }

  /** Runs the script. Returns its actions: calls of systemctl that change something, and seconds of sleep. */
  async function run({ states, served = 0, failures, socket = true, starts = false, descriptors, slowness = 1 }: Node) {
    const put = (name: string, text: string): void => {
      writeFileSync(join(folder, 'bin', name), `#!/bin/sh\n${text}\n`);
      chmodSync(join(folder, 'bin', name), 0o755);
    };
    const pid = descriptors === undefined ? 0 : 7;
    mkdirSync(join(folder, 'proc/7'), { recursive: true });
    writeFileSync(
      join(folder, 'proc/7/limits'),
      `Max open files            ${descriptors}                65536     files\n`,
    );
    const [log, left, uptime] = [join(folder, 'log'), join(folder, 'states'), join(folder, 'uptime')];
    writeFileSync(log, '');
    writeFileSync(uptime, '1000.09 500.00\n');
    writeFileSync(left, `${states.join('\n')}\n`);
    if (failures !== undefined) writeFileSync(join(folder, 'failures'), `${failures}\n`);
    put(
      'sleep',
      `echo "$1" >>${log}; read -r up idle <${uptime}; echo "$((\${up%.*} + ${slowness} * $1)).09 0.00" >${uptime}`,
    );
    put(
      'systemctl',
      `case "$*" in
show*MainPID*) echo ${pid} ;;
show*)
  echo "ActiveState=$(head -n 1 ${left})"
  echo ActiveEnterTimestampMonotonic=1000000
  echo ActiveExitTimestampMonotonic=${(1 + served) * 1_000_000}
  [ "$(wc -l <${left})" = 1 ] || sed -i 1d ${left} ;;
*is-active*) exit ${socket ? 0 : 3} ;;
*) echo "$*" >>${log}; case "$*" in 'start cri-resize-shim.service') exit ${starts ? 0 : 1} ;; esac ;;
esac`,
    );
    const env = { PATH: `${join(folder, 'bin')}:${process.env['PATH']}`, RUNTIME_DIRECTORY: folder };
    await execa(
      '/bin/sh',
      ['-c', script().replaceAll('/proc/uptime', uptime).replaceAll('/proc/$pid', join(folder, 'proc/$pid'))],
      { env },
    );
    const did = readFileSync(log, 'utf8').trim().split('\n');
    return { did, failures: readFileSync(join(folder, 'failures'), 'utf8').trim() };
  }

  const after = (did: readonly string[], what: string): readonly string[] => did.slice(did.indexOf(what) + 1);

  test('upgrade: a shim that never starts is started again after pauses that grow to five minutes, while the bypass serves', async () => {
    const { did } = await run({ states: [...Array<string>(13).fill('failed'), 'inactive'] });
    // Starts follow each other immediately for four seconds.
    expect(did.slice(0, 10)).toEqual([
      ...['1', '2', '3', '4'].flatMap(() => ['--no-block start cri-resize-shim.service', '1']),
      ...BYPASSES,
    ]);
    expect(after(did, BYPASSES[1]!).filter((line) => line !== TRIES)).toEqual([
      ...['5', '10', '20', '40', '80', '160', '300', '300', '300'],
    ]);
  });

  test('a shim that fails again and again after short service is bypassed at once, with a pause that grows with the failures', async () => {
    const states = ['failed', 'failed', 'inactive'];
    expect(await run({ states, served: 5, failures: 2 })).toEqual({
      did: [...BYPASSES, '5', TRIES, '10'],
      failures: '3',
    });
    expect((await run({ states, served: 5, failures: 5 })).did).toEqual([...BYPASSES, '40', TRIES, '80']);
    expect((await run({ states, served: 5, failures: 50 })).did).toEqual([...BYPASSES, '300', TRIES, '300']);
  });

  test('a failure counts even if the shim is still deactivating at the first check', async () => {
    const { did, failures } = await run({
      states: ['deactivating', 'failed', 'failed', 'inactive'],
      served: 5,
      failures: 2,
    });
    expect([did, failures]).toEqual([['1', ...BYPASSES, '5', TRIES, '10'], '3']);
  });

  test('earlier failures do not count after ten minutes of service', async () => {
    const { did, failures } = await run({ states: ['failed', 'active'], served: 600, failures: 50 });
    expect([did, failures]).toEqual([['--no-block start cri-resize-shim.service', '1'], '1']);
  });

  test('a start that hangs is bypassed after 4 s, and not started a second time', async () => {
    const { did } = await run({ states: [...Array<string>(8).fill('activating'), 'active'], failures: 0 });
    expect(did).toEqual(['1', '1', '1', '1', ...BYPASSES, '5', '5', '5', '5']);
  });

  test.each([
    [2, ['1', '1']],
    [5, ['1']],
  ])(
    'on a node so busy that a sleep of 1 s takes %d s, a start that hangs is bypassed after 4 s',
    async (slowness, waits) => {
      const { did } = await run({
        states: [...Array<string>(8).fill('activating'), 'inactive'],
        failures: 0,
        slowness,
      });
      expect(did.slice(0, did.indexOf('5'))).toEqual([...waits, ...BYPASSES]);
    },
  );

  test('a shim that was stopped is bypassed and not started', async () => {
    expect((await run({ states: ['inactive'], failures: 0 })).did).toEqual(['1', '1', ...BYPASSES, '5']);
  });

  test('without the socket of systemd there is no bypass, and the shim is still started again', async () => {
    const { did } = await run({ states: ['failed'], served: 1, failures: 9, socket: false, starts: true });
    expect(did).toEqual(['300', TRIES]);
  });

  test('a bypass that a killed takeover has left without descriptors is replaced, and one that serves continues', async () => {
    const node = { states: ['failed', 'inactive'], served: 1, failures: 9 };
    const [stop, start] = BYPASSES;
    const replaced = [stop, 'stop cri-resize-shim-bypass.service', start];
    expect((await run({ ...node, descriptors: 0 })).did.slice(0, 3)).toEqual(replaced);
    expect((await run({ ...node, descriptors: 65_536 })).did.slice(0, 2)).toEqual(BYPASSES);
  });
});

describe('restored memory.high', () => {
  beforeEach(() => (folder = mkdtempSync(join(tmpdir(), 'restore-highs-'))));

  afterEach(() => rmSync(folder, { recursive: true }));

  /** Runs the script as systemd passes it to the shell. */
  async function run(): Promise<void> {
    const unit = readFileSync('systemd/cri-resize-shim.service', 'utf8');
    const [, text = ''] = /^ExecStopPost=\+-\/bin\/sh -c '((?:[^']|\n)*)'$/m.exec(unit)!;
    const script = text
      .replaceAll('\\\n', ' ')
      .replaceAll('$$', '$')
      .replaceAll('%%', '%')
      .replaceAll('/var/lib/cri-resize-shim', join(folder, 'state'))
      .replaceAll('/sys/fs/cgroup', join(folder, 'cgroup'));
    await execa('/bin/sh', ['-c', script]);
  }

  test('only a memory.high that a killed shim has lowered temporarily is restored', async () => {
    leaveHighs(folder);
    await run();
    expect(highsIn(folder)).toEqual(restoredHighs);
  });

  test('restoring memory.high succeeds without records', async () => {
    await expect(run()).resolves.toBeUndefined();
  });
});

describe('takeover', () => {
  // Runs the script of ExecStopPost= in cri-resize-shim-takeover.service. Its systemctl only records arguments.
  // test/e2e/systemd/bypass.test.ts kills the unit under systemd.

  const UNIT = readFileSync('systemd/cri-resize-shim-takeover.service', 'utf8');
  const STOPS = '--no-block stop cri-resize-shim-bypass.service';
  const RESTARTS = '--no-block restart cri-resize-shim-bypass.service';

  beforeEach(() => {
    folder = mkdtempSync(join(tmpdir(), 'takeover-'));
    for (const name of ['bin', 'proc/7']) mkdirSync(join(folder, name), { recursive: true });
  });

  afterEach(() => rmSync(folder, { recursive: true }));

  /** The script as systemd passes it to the shell. */
  function script(): string {
    const [, text] = /^ExecStopPost=-\/bin\/sh -c '((?:[^']|\n)*)'$/m.exec(UNIT)!;
    return text!
      .replaceAll('\\\n', ' ')
      .replaceAll('$$', () => '$')
      .replaceAll('%%', '%');
  }

  interface End {
    /** The values are those of systemd.exec(5). */
    readonly result: string;
    readonly status: string;
    readonly isShimActive?: boolean;
    /** Number of descriptors that the bypass may open. */
    readonly descriptors?: number;
  }

  /** Runs the script. Returns the calls of systemctl that change something. */
  async function after({ result, status, isShimActive = true, descriptors = 0 }: End): Promise<string> {
    const log = join(folder, 'log');
    writeFileSync(log, '');
    writeFileSync(
      join(folder, 'proc/7/limits'),
      `Max open files            ${descriptors}                65536     files\n`,
    );
    const answers = `case "$*" in *is-active*) exit ${isShimActive ? 0 : 3} ;; show*) echo 7 ;; *) echo "$*" >>${log} ;; esac`;
    writeFileSync(join(folder, 'bin/systemctl'), `#!/bin/sh\n${answers}\n`);
    chmodSync(join(folder, 'bin/systemctl'), 0o755);
    const env = { PATH: `${join(folder, 'bin')}:${process.env['PATH']}`, SERVICE_RESULT: result, EXIT_STATUS: status };
    await execa('/bin/sh', ['-c', script().replaceAll('/proc/', `${folder}/proc/`)], { env, reject: false });
    return readFileSync(log, 'utf8').trim();
  }

  test.each([
    ['success', '0'],
    ['exit-code', '1'],
    // Calls that have run for too long are cut off.
    ['timeout', 'KILL'],
    // A crashed takeover would crash again and again.
    ['core-dump', 'SEGV'],
    // The program was stopped before it handled signals. systemd does not start it again.
    ['signal', 'TERM'],
  ])('a takeover that has ended (%s, %s) ends the bypass', async (result, status) => {
    expect(await after({ result, status })).toBe(STOPS);
  });

  test.each(['signal', 'oom-kill'])(
    'a takeover that was killed (%s) cuts off no call, and starts again',
    async (result) => {
      expect(await after({ result, status: 'KILL' })).toBe('');
      expect(UNIT).toMatch(/^Restart=on-abnormal$/m);
    },
  );

  test('a takeover whose shim has failed leaves a bypass that accepts clients', async () => {
    expect(await after({ result: 'exit-code', status: '3', isShimActive: false })).toBe('');
    expect(await after({ result: 'signal', status: 'KILL', isShimActive: false })).toBe(RESTARTS);
    expect(await after({ result: 'signal', status: 'KILL', isShimActive: false, descriptors: 65_536 })).toBe('');
  });
});

/** Programs whose SELinux type lets systemd start them without a type of their own (bin_t, shell_exec_t). */
const common = ['/usr/bin/env', '/usr/bin/systemctl', '/bin/sh', '/bin/true'];

test.each(readdirSync('systemd'))('%s starts no program with an SELinux type of its own', (unit) => {
  const text = readFileSync(join('systemd', unit), 'utf8');
  const started = [...text.matchAll(/^Exec\w+=[-+]*(\S+)/gm)].map(([, program]) => program);
  expect(started.filter((program) => !common.includes(program!))).toEqual([]);
});

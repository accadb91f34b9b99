import { chmodSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { execa } from 'execa';
import { afterEach, beforeEach, expect, test } from 'vitest';

// Runs the script of cri-resize-shim-fallback.service with a systemctl and a sleep that only note their arguments.
// test/e2e/systemd/bypass.test.ts runs it under systemd.

const BYPASSES = ['stop cri-resize-shim-takeover.service', 'start cri-resize-shim-bypass.service'];
const TRIES = 'start cri-resize-shim.service';

let folder: string;
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
  /** Seconds that the last shim has served. */
  readonly served?: number;
  readonly failures?: number;
  readonly socket?: boolean;
  /** Whether a start of the shim succeeds. */
  readonly starts?: boolean;
  /** How many descriptors the bypass that runs may have open. */
  readonly descriptors?: number;
  /** How many times as long as asked a sleep takes: the node is busy. */
  readonly slowness?: number;
}

/** Returns what the script does: calls of systemctl that change something, and seconds of sleep. */
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
  // Four seconds of starts at once.
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
    const { did } = await run({ states: [...Array<string>(8).fill('activating'), 'inactive'], failures: 0, slowness });
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

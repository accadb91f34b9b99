import { chmodSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { Exit } from '../../../src/core/errors.ts';
import { allowExecution, hasChanges, outcomeOf, removalAfter, thisHost } from '../../../src/install/rollout/host.ts';
import { LONG_WAIT } from '../../support/long-wait.ts';

test('the paths that systemd removes are quoted as words of a unit’s command', () => {
  expect(removalAfter(['/opt/a b', '/opt/$c"d\\e'])).toBe(
    String.raw`--property=ExecStopPost=-/bin/rm -rf -- "/opt/a b" "/opt/$$c\"d\\e"`,
  );
});

describe('a systemd that does not answer', () => {
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

  /** @param failures number of failed calls of systemctl before it answers */
  function hostOf(failures: number): {
    readonly lines: string[];
    readonly idle: (signal: AbortSignal) => Promise<void>;
  } {
    const lines: string[] = [];
    const calls = join(folder, 'calls');
    const script = `#!/bin/sh\necho >>${calls}\n[ $(wc -l <${calls}) -gt ${failures} ] || { echo 'Connection reset by peer' >&2; exit 1; }\necho ActiveState=inactive\n`;
    writeFileSync(join(folder, 'nsenter'), script, { mode: 0o755 });
    const say = (line: string): void => void lines.push(line);
    mkdirSync(join(folder, 'root/run/systemd/system'), { recursive: true });
    const hostRoot = join(folder, 'root');
    const host = thisHost({ folder: '/p', staged: [], kubeletUnit: 'kubelet.service', hostRoot, say });
    return { lines, idle: (signal) => host.idle(signal) };
  }

  test('an installation or removal waits until systemd answers, and logs this once', async () => {
    const { lines, idle } = hostOf(2);
    await idle(new AbortController().signal);
    expect(lines).toEqual([
      expect.stringMatching(/^systemd does not answer: .*Connection reset by peer; trying again$/),
    ]);
    expect(readFileSync(join(folder, 'calls'), 'utf8')).toHaveLength(3);
  });

  test('an installation or removal does not wait for systemd on a host with another init system', async () => {
    const { lines, idle } = hostOf(1000);
    rmSync(join(folder, 'root/run/systemd'), { recursive: true });
    await expect(idle(new AbortController().signal)).rejects.toThrow('systemd is not the init system of this node');
    expect(lines).toEqual([]);
  });

  test('the end of the pod ends the wait for systemd', async () => {
    const end = new AbortController();
    const { lines, idle } = hostOf(1000);
    const waiting = idle(end.signal);
    await expect.poll(() => lines, LONG_WAIT).toHaveLength(1);
    end.abort(new Error('the grace period is over'));
    await expect(waiting).rejects.toThrow('the grace period is over');
  });
});

describe('a host with SELinux', () => {
  let folder: string;
  const path = process.env['PATH'];
  beforeEach(() => {
    folder = mkdtempSync(join(tmpdir(), 'host-'));
    mkdirSync(join(folder, 'sys/fs/selinux'), { recursive: true });
    writeFileSync(join(folder, 'sys/fs/selinux/enforce'), '1');
    mkdirSync(join(folder, 'bin'));
    process.env['PATH'] = `${join(folder, 'bin')}:${path}`;
  });
  afterEach(() => {
    process.env['PATH'] = path;
    rmSync(folder, { recursive: true });
  });

  /** Returns the recorded calls of nsenter, and the lines of the log. */
  async function allowed(exit = 0): Promise<readonly [calls: string, lines: readonly string[]]> {
    const lines: string[] = [];
    writeFileSync(join(folder, 'calls'), '');
    const script = `#!/bin/sh\necho "$*" >>${folder}/calls\necho 'chcon: no' >&2\nexit ${exit}\n`;
    writeFileSync(join(folder, 'bin/nsenter'), script);
    chmodSync(join(folder, 'bin/nsenter'), 0o755);
    await allowExecution('/var/lib/x/program', (line) => lines.push(line), folder);
    return [readFileSync(join(folder, 'calls'), 'utf8'), lines];
  }

  test('the copied program gets the SELinux type of programs, so that systemd may execute it', async () => {
    expect(await allowed()).toEqual(['--target 1 --mount -- chcon -R -t bin_t -- /var/lib/x/program\n', []]);
  });

  test('an SELinux type that cannot be set is logged, because SELinux may be permissive', async () => {
    expect((await allowed(1))[1]).toEqual(['the SELinux type of /var/lib/x/program was not set: chcon: no']);
  });

  test('no SELinux type is set on a host without SELinux', async () => {
    rmSync(join(folder, 'sys'), { recursive: true });
    expect(await allowed(1)).toEqual(['', []]);
  });
});

describe('the outcome of resizectl on the host', () => {
  const busy = 'resizectl: nothing was changed: another installation runs (pid 7)';

  test.each([
    [0, [], { kind: 'done' }],
    [2, ['failed: cgroups: v1', ''], { kind: 'refused', why: 'failed: cgroups: v1' }],
    [Exit.busy, [`${busy}; what to do: x`], { kind: 'refused', why: `${busy}; what to do: x`, isBusy: true }],
    [Exit.busy, [], { kind: 'refused', why: 'another installation runs', isBusy: true }],
    // The exit code decides, not the text.
    [2, [busy], { kind: 'refused', why: busy }],
    [3, ['done: x', 'resizectl: kubelet did not start'], { kind: 'failed', why: 'resizectl: kubelet did not start' }],
    [0, ['not cleaned up after "remove x": EPERM'], { kind: 'done', left: 'not cleaned up after "remove x": EPERM' }],
    [0, ["/bin/rm: cannot remove 'x': no"], { kind: 'done', left: "/bin/rm: cannot remove 'x': no" }],
    [
      6,
      ['failed: a: no', 'NOT rolled back: b: no', 'left in place: c'],
      { kind: 'failed', why: 'failed: a: no; NOT rolled back: b: no; left in place: c' },
    ],
    [1, [], { kind: 'failed', why: 'resizectl ended with exit code 1' }],
  ])('the outcome follows from exit code %i and the output %j', (code, lines, outcome) => {
    expect(outcomeOf({ code, lines })).toEqual(outcome);
  });

  const loader = (library: string): string =>
    `/var/lib/cri-resize-shim-installer/program/bin/node: error while loading shared libraries: ${library}: cannot open shared object file: No such file or directory`;

  test.each([
    [
      'libatomic.so.1',
      'install the package with libatomic.so.1 on this host (libatomic1 on Debian and Ubuntu, libatomic on Fedora and RHEL)',
    ],
    ['libstdc++.so.6', 'install the package with libstdc++.so.6 on this host'],
  ])('the outcome for the missing library %s is a refusal that names its package', (library, remedy) => {
    expect(outcomeOf({ code: 127, lines: [loader(library)] })).toEqual({
      kind: 'refused',
      why: `the image's Node does not run on this host: ${loader(library)}; ${remedy}`,
    });
  });

  test('the outcome names the likely causes if systemd may not execute the program', () => {
    expect(outcomeOf({ code: 203, lines: [] })).toEqual({
      kind: 'refused',
      why:
        "the image's Node does not run on this host: exit code 203; check that the file system of " +
        '/var/lib/cri-resize-shim-installer is not mounted noexec, and that SELinux does not deny it (ausearch -m avc -ts recent)',
    });
  });

  test('the outcome has no remedy if the program does not start for another reason', () => {
    expect(outcomeOf({ code: 127, lines: ['no'] })).toEqual({
      kind: 'refused',
      why: "the image's Node does not run on this host: no",
    });
  });
});

test('a dry run has changes if it lists one', () => {
  expect([['would: copy x'], ['nothing to do']].map((lines) => hasChanges({ code: 0, lines }))).toEqual([true, false]);
});

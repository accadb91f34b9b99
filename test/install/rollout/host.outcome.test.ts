import { describe, expect, test } from 'vitest';
import { Exit } from '../../../src/core/errors.ts';
import { hasChanges, outcomeOf } from '../../../src/install/rollout/host.ts';

describe('the outcome of resizectl on the host', () => {
  const busy = 'resizectl: nothing was changed: another installation runs (pid 7)';

  test.each([
    [0, [], { kind: 'done' }],
    [2, ['failed: cgroups: v1', ''], { kind: 'refused', why: 'failed: cgroups: v1' }],
    [Exit.busy, [`${busy}; what to do: x`], { kind: 'refused', why: `${busy}; what to do: x`, isBusy: true }],
    [Exit.busy, [], { kind: 'refused', why: 'another installation runs', isBusy: true }],
    // Its exit code says so, not its text.
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

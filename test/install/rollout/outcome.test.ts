import { describe, expect, test } from 'vitest';
import { hasChanges, outcomeOf } from '../../../src/install/rollout/outcome.ts';

describe('the outcome of resizectl on the host', () => {
  test.each([
    [0, [], { kind: 'done' }],
    [2, ['failed: cgroups: v1', ''], { kind: 'refused', why: 'failed: cgroups: v1' }],
    [3, ['done: x', 'resizectl: kubelet did not start'], { kind: 'failed', why: 'resizectl: kubelet did not start' }],
    [1, [], { kind: 'failed', why: 'resizectl ended with exit code 1' }],
  ])('of exit code %i with the output %j', (code, lines, outcome) => {
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
  ])('names the package for the missing library %s, and changes nothing', (library, remedy) => {
    expect(outcomeOf({ code: 127, lines: [loader(library)] })).toEqual({
      kind: 'refused',
      why: `the image's Node does not run on this host: ${loader(library)}; ${remedy}`,
    });
  });

  test('has no remedy for a program that systemd cannot start for another reason', () => {
    expect(outcomeOf({ code: 203, lines: [] })).toEqual({
      kind: 'refused',
      why: "the image's Node does not run on this host: exit code 203",
    });
  });
});

test('a dry run has changes if it lists one', () => {
  expect([['would: copy x'], ['nothing to do']].map((lines) => hasChanges({ code: 0, lines }))).toEqual([true, false]);
});

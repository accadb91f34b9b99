import { describe, expect, test } from 'vitest';
import { type Finding, worstOf } from '../../../src/install/node/finding.ts';
import { afterInstall, unrepaired } from '../../../src/resizectl/commands/install.ts';

test('an upgrade prints both versions, the next commands and how to undo it', () => {
  expect(afterInstall({ versions: 'upgrade 0.1.0 to 0.2.0' })).toBe(
    [
      'upgrade done: 0.1.0 to 0.2.0',
      'next: resizectl doctor checks this node; resizectl get pods lists its pods',
      'undo: run resizectl install of 0.1.0, or resizectl uninstall removes the shim; pods keep running',
      '',
    ].join('\n'),
  );
});

test.each([{}, { versions: 'install 0.2.0' }, { versions: 'another build of 0.2.0' }])(
  'an installation that is no upgrade prints the next commands and how to undo it: %j',
  (versions) => {
    expect(afterInstall(versions)).toBe(
      'next: resizectl doctor checks this node; resizectl get pods lists its pods\n' +
        'undo: resizectl uninstall removes the shim; pods keep running\n',
    );
  },
);

describe('failed checks that an installation may repair', () => {
  const failed = (check: string): Finding => ({ check, result: 'failed', found: '', remedy: 'x' });
  const blocked = (checks: readonly string[], isConfigGiven = false): boolean =>
    worstOf(unrepaired(checks.map(failed), { isConfigGiven })) === 'failed';

  test('a failing kubelet does not block an installation if it fails because it has no runtime', () => {
    expect(blocked(['kubelet', 'kubelet runtime'])).toBe(false);
    expect(blocked(['kubelet'])).toBe(true);
    expect(blocked(['kubelet runtime', 'containerd'])).toBe(true);
  });

  test('a failing kubelet does not block an installation if it uses the shim and the shim answers', () => {
    const loop: Finding = { ...failed('kubelet'), isLoopAtShim: true };
    const isBlocked = (...findings: Finding[]): boolean =>
      worstOf(unrepaired(findings, { isConfigGiven: false })) === 'failed';
    expect(isBlocked(loop)).toBe(false);
    expect(isBlocked(loop, failed('containerd'))).toBe(true);
  });

  test('an invalid configuration does not block an installation with another configuration', () => {
    expect(blocked(['configuration'])).toBe(true);
    expect(blocked(['configuration'], true)).toBe(false);
  });
});
